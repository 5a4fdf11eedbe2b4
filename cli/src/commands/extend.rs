//! `redlock extend`: extends the lease in a text, and prints the text that replaces it.

use std::time::Duration;

use redlock::{Client, LockError, LockOptions, Ttl};
use serde_json::json;

use crate::{connect::ConnectOptions, duration, exit_code::ExitStatusCode, failure::Failure, secret, talk::Talk};

/// Extend the lease in a text of acquire, and print the text that replaces it
///
/// Each text works once: use the new one for the next extend or release.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  lease=$(redlock extend \"$lease\" 10m)")]
pub(crate) struct ExtendOptions {
    /// The text of the lease; - reads it from stdin
    #[arg(value_name = "LEASE|-", allow_hyphen_values = true)]
    text: String,
    /// How long the lease lasts from now on
    #[arg(value_name = "DURATION", value_parser = duration::parse)]
    ttl: Duration,
}

pub(crate) fn run(options: &ExtendOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let client = servers.client(talk)?;
    check(&client, options.ttl)?;
    let lease = secret::attach(&client, &options.text)?;
    let extended = lease.extend_blocking(options.ttl);
    let (name, token, ttl) = (lease.name().to_owned(), lease.token(), lease.remaining());
    // The lease may be held still if it was not extended, and the old text does not work any more.
    let text = match (lease.detach(), extended.as_ref().err()) {
        (Err(error), None) => return Err(error.into()),
        (text, _) => text.ok(),
    };
    if let Some(text) = text {
        if talk.json() {
            let ttl = ttl.as_secs_f64();
            talk.object(&json!({"name": name, "lease": text, "token": token.to_string(), "ttl": ttl}))?;
        } else {
            talk.line(&text)?;
        }
    }
    extended?;
    talk.detail(&format!("extended {name:?} with token {token} for {}", duration::show(ttl)));
    client.close_blocking();
    Ok(ExitStatusCode::DONE)
}

/// Refuses a duration that no lease can have, while the old text still works.
fn check(client: &Client, ttl: Duration) -> Result<(), Failure> {
    let mut options = LockOptions::default();
    options.ttl = Ttl::Fixed(ttl);
    match client.lock("x", options) {
        Err(LockError::Invalid { argument: "ttl", detail }) => Err(Failure::usage(format!("DURATION: {detail}"))),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(()),
    }
}
