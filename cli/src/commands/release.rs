//! `redlock release`: releases the lease in a text, or with `--force` a lock whoever holds it.

use std::io::{IsTerminal, Write, stderr, stdin};

use redlock::{Client, Kind, LockInfo, LockOptions, ReleaseOutcome};
use serde_json::json;

use crate::{
    block::block, connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, holder, secret, table::visible,
    talk::Talk,
};

/// Release the lease in a text of acquire or, with --force, a lock whoever holds it
///
/// A holder whose lock is released by force notices it at its next renewal. Until then it believes that it holds the
/// lock, and only fencing tokens protect the resource.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 released; 79 the lease was lost before; 1 with --force: nobody holds it, or not the tenure of --token.

Examples:
  redlock release \"$lease\"
  redlock release deploy --force")]
pub(crate) struct ReleaseOptions {
    /// The text of the lease, or - to read it from stdin; with --force the name of the lock
    #[arg(value_name = "LEASE|-|NAME", allow_hyphen_values = true)]
    what: String,
    /// Release the lock of this name, whoever holds it; shows the holder and asks
    #[arg(long)]
    force: bool,
    /// Only if the tenure with this token still holds the lock
    #[arg(long, value_name = "N", requires = "force")]
    token: Option<u64>,
    /// Do not ask
    #[arg(short, long, requires = "force")]
    yes: bool,
}

pub(crate) fn run(options: &ReleaseOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let client = servers.client(talk)?;
    let code = if options.force { by_force(options, &client, talk) } else { release(options, &client, talk) }?;
    client.close_blocking();
    Ok(code)
}

fn release(options: &ReleaseOptions, client: &Client, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let lease = secret::attach(client, &options.what)?;
    let (name, token) = (lease.name().to_owned(), lease.token());
    let outcome = lease.release()?;
    if talk.json() {
        talk.object(&json!({"name": name, "token": token.to_string(), "outcome": outcome.as_str()}))?;
    }
    match outcome {
        ReleaseOutcome::Released => {
            talk.detail(&format!("released {name:?} with token {token}"));
            Ok(ExitStatusCode::DONE)
        }
        ReleaseOutcome::Lost => Err(Failure::new(
            ExitStatusCode::LOST,
            format!("lock {name:?} was lost before the release. Others may have held it meanwhile."),
        )),
        _ => Err(Failure::new(
            ExitStatusCode::UNAVAILABLE,
            format!("the release of lock {name:?} was not confirmed. Others get it when its lease ends at the latest."),
        )),
    }
}

fn by_force(options: &ReleaseOptions, client: &Client, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let name = &options.what;
    let held = block(client.lock(name, LockOptions::default())?.inspect())?;
    let token = match &held {
        None => None,
        Some(info) => {
            talk.say(&format!("lock {name:?} is held by {}", visible(&holder::sentence(info))));
            if !options.yes && !confirmed(name)? {
                return Err(Failure::new(ExitStatusCode::FREE, "nothing was released"));
            }
            // Another one may hold the lock by now: the user agreed to end this one.
            options.token.or_else(|| shown_token(info).filter(|_| !options.yes))
        }
    };
    let ended = match (held, token) {
        (None, _) => false,
        (_, Some(token)) => block(client.force_release_token(name, token))?,
        (_, None) => block(client.force_release(name))?,
    };
    if talk.json() {
        talk.object(&json!({"name": name, "released": ended}))?;
    }
    if ended {
        return Ok(ExitStatusCode::DONE);
    }
    let why = token.map_or_else(|| "nobody holds it".to_owned(), |token| format!("token {token} does not hold it"));
    talk.say(&format!("lock {name:?} was not released: {why}"));
    Ok(ExitStatusCode::FREE)
}

/// The token that identifies a tenure, if it has one.
fn shown_token(info: &LockInfo) -> Option<u64> {
    (info.token > 0 && info.kind != Kind::Semaphore).then_some(info.token)
}

/// Asks the user on the terminal.
fn confirmed(name: &str) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage("--force asks before it releases a lock. Give --yes where nobody can answer."));
    }
    let _ = write!(stderr(), "Release lock {name:?}? Its holder will not know at once. [y/N] ");
    let mut answer = String::new();
    stdin().read_line(&mut answer).map_err(|error| Failure::usage(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
