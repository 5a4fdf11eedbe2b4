//! What the servers show now, and the views that follow it: one snapshot for all of them.

mod nodes;
mod pause;
pub(crate) mod snapshot;
pub(crate) mod top;
pub(crate) mod watch;
pub(crate) mod web;

use std::time::Duration;

use redlock::Client;

use crate::{connect::ConnectOptions, failure::Failure, talk::Talk};

/// How long a view waits for a node. A frozen one must not hold up the others for long.
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// The client of a view.
fn client(servers: &ConnectOptions, talk: &Talk) -> Result<Client, Failure> {
    servers.client_with(talk, |config| config.reply_timeout = LOOK_LIMIT)
}
