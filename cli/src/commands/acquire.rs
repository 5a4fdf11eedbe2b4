//! `redlock acquire`: acquires a lock for the steps of a script, and prints its lease as a text.

use std::time::Duration;

use redlock::{LockOptions, Ttl};
use serde_json::json;

use crate::{connect::ConnectOptions, duration, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Acquire a lock and print its lease as a text, for extend and release
///
/// Nobody renews the lease: it ends after --ttl unless it is extended or released. The text is a secret: whoever has it
/// can release the lock.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lease=$(redlock acquire deploy --ttl 10m --wait 5m)
  ./deploy.sh
  redlock release \"$lease\"")]
pub(crate) struct AcquireOptions {
    /// The name of the lock
    name: String,
    /// How long the lease lasts
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Duration,
    /// How long to wait for the lock; 0 is --no-wait [default: without limit]
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Fail at once if somebody else holds the lock
    #[arg(short, long)]
    no_wait: bool,
    /// Get the lock in the order of the waiters, not on a quorum; for locks whose users are all fair
    #[arg(long)]
    fair: bool,
    /// An explicit owner, who may hold the lock several times at once
    #[arg(long, value_name = "TEXT")]
    owner: Option<String>,
}

pub(crate) fn run(options: &AcquireOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let client = servers.client(talk)?;
    let mut lock = LockOptions::default();
    lock.ttl = Ttl::Fixed(options.ttl);
    lock.wait = if options.no_wait { Some(Duration::ZERO) } else { options.wait };
    lock.fair = options.fair;
    lock.owner.clone_from(&options.owner);
    let lease = client.lock(&options.name, lock)?.acquire_blocking()?;
    let (token, ttl) = (lease.token(), lease.remaining());
    let text = lease.detach()?;
    let printed = if talk.json() {
        let name = &options.name;
        talk.object(&json!({"name": name, "lease": text, "token": token.to_string(), "ttl": ttl.as_secs_f64()}))
    } else {
        talk.line(&text)
    };
    if let Err(failure) = printed {
        // Nobody has the text, so nobody else can release the lock.
        let _ = client.attach_blocking(&text)?.release()?;
        return Err(failure);
    }
    talk.detail(&format!("acquired {:?} with token {token} for {}", options.name, duration::show(ttl)));
    client.close_blocking();
    Ok(ExitStatusCode::DONE)
}
