//! Drivers carry out the orders of a scenario: this process with the Rust library, or a host process of another
//! language. Both take the orders that `scenarios/README.md` defines for hosts, and reply with plain values. So one
//! runner has the rest: the order of steps, servers, faults and checks.

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
    /// The library's error code, the same in every language, or one of the driver: `cancelled`, `bug`, `hung`, or
    /// `host` for a broken host.
    pub code: String,
    /// A message for people.
    pub message: String,
    /// The reason of a loss, for the code `lost`; otherwise empty.
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

/// The result of an order.
pub type End = Result<Value, Failure>;

/// The driver of one scenario.
pub enum Driver {
    /// This process.
    Rust(Box<Actors>),
    /// A host, and the number of the scenario there.
    Host(Arc<Host>, u64),
}

impl Driver {
    /// The driver of one scenario: the host, or else this process.
    pub fn new(host: Option<&Arc<Host>>) -> Self {
        host.map_or_else(|| Self::Rust(Box::default()), |host| Self::Host(host.clone(), host.number()))
    }

    /// True if each actor is an owner. Otherwise an order names an owner where it matters.
    pub fn has_actors(&self) -> bool {
        match self {
            Self::Rust(_) => true,
            Self::Host(host, _) => host.has_actors,
        }
    }

    /// Carries out an order. If it is given up, it fails as `cancelled` once its call has ended, unless that had ended
    /// before.
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
