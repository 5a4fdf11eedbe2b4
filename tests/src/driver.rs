//! Whoever does what the actors of a scenario do with locks and leases: this process, with the Rust library, or the
//! host process of another language. Both take the same orders, those that `scenarios/README.md` defines for hosts,
//! and answer in plain values, so that one runner owns the rest: order, servers, faults and judgement.

mod host;
mod rust;

use std::sync::Arc;

use redlock::LockError;
use serde_json::Value;
use tokio::{select, sync::Notify};

pub use self::host::Host;
use self::rust::Actors;

/// How an order failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// As in every language, or what no library says: `cancelled`, `bug`, `host` for one that is broken, `hung`.
    pub code: String,
    /// For people.
    pub message: String,
    /// Of the code `lost`; else empty.
    pub reason: String,
}

impl Failure {
    /// A failure without a reason.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), reason: String::new() }
    }

    fn cancelled() -> Self {
        Self::new("cancelled", "given up")
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let reason = if let LockError::Lost { reason, .. } = &error { reason.as_str() } else { "" };
        Self { reason: reason.to_owned(), ..Self::new(error.code(), error.to_string()) }
    }
}

/// What an order resulted in.
pub type End = Result<Value, Failure>;

/// Who follows the orders of one scenario.
pub enum Driver {
    /// This process.
    Rust(Box<Actors>),
    /// A host, and the number of the scenario there.
    Host(Arc<Host>, u64),
}

impl Driver {
    /// For one scenario, in the host or else here.
    pub fn new(host: Option<&Arc<Host>>) -> Self {
        host.map_or_else(|| Self::Rust(Box::default()), |host| Self::Host(host.clone(), host.number()))
    }

    /// Whether an actor is an owner; else orders name one where it matters.
    pub fn has_actors(&self) -> bool {
        match self {
            Self::Rust(_) => true,
            Self::Host(host, _) => host.has_actors,
        }
    }

    /// Follows an order. One that is given up fails as `cancelled` once it is over, unless it was over before.
    pub async fn perform(&self, order: Value, given_up: &Notify) -> End {
        match self {
            Self::Rust(actors) => select! {
                biased;
                end = actors.perform(&order) => end.map_err(Failure::from),
                () = given_up.notified() => Err(Failure::cancelled()),
            },
            Self::Host(host, scenario) => host.perform(*scenario, order, given_up).await,
        }
    }

    /// Closes the scenario's clients.
    pub async fn end(&self) -> Result<(), Failure> {
        match self {
            Self::Rust(actors) => actors.end().await,
            Self::Host(host, scenario) => host.end(*scenario).await?,
        }
        Ok(())
    }
}
