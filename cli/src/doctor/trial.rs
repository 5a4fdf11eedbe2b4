//! Tries a lock on one node: acquire, renew, inspect, release. Only that shows whether the user may run the commands
//! inside the scripts, on any version.

use std::{sync::Arc, time::Duration};

use redlock::{Client, Config, Event, LockError, LockOptions, LostReason, ReleaseOutcome, Ttl};
use uuid::Uuid;

use crate::{block::block, failure::Failure};

/// How long the lock lives at most.
const TTL: Duration = Duration::from_secs(1);
/// How long its token counter stays: the shortest time that the library takes.
const COUNTER_TTL: Duration = Duration::from_secs(60);
/// A machine that is busy for a second loses such a short lease; then it is tried again.
const TRIES: usize = 3;

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// All steps succeeded.
    Done,
    Failed(TrialFailure),
}

/// A step that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TrialFailure {
    /// `acquire`, `renew`, `inspect` or `release`.
    pub(crate) step: &'static str,
    /// The cause.
    pub(crate) cause: String,
    /// Whether the server refused a right.
    pub(crate) forbidden: bool,
}

/// Tries a lock on the node with this number alone. Fails if the options are wrong.
pub(crate) fn of_node(config: &Config, node: usize) -> Result<Trial, Failure> {
    let mut config = config.clone();
    config.urls = vec![config.urls[node].clone()];
    (config.quorum, config.token_ttl, config.identify) = (None, Some(COUNTER_TTL), false);
    let client = Client::with_events(config, Arc::new(|_: &Event| {}))?;
    let mut left = TRIES;
    let trial = loop {
        left -= 1;
        match attempt(&client) {
            Ok(()) => break Trial::Done,
            Err((step, error)) if left == 0 || !is_late(&error) => break Trial::Failed(failure(step, &error)),
            Err(_) => {}
        }
    };
    client.close_blocking();
    Ok(trial)
}

/// Whether the lease ended before the next step.
fn is_late(error: &LockError) -> bool {
    matches!(error, LockError::Lost { reason: LostReason::Expired | LostReason::Deleted, .. })
}

/// Makes all steps. Fails with the first one that fails.
fn attempt(client: &Client) -> Result<(), (&'static str, LockError)> {
    let mut options = LockOptions::default();
    (options.ttl, options.wait) = (Ttl::Fixed(TTL), Some(Duration::ZERO));
    let name = format!("redlock_doctor:{}", Uuid::new_v4());
    let step = |step: &'static str| move |error| (step, error);
    let lock = client.lock(&name, options).map_err(step("acquire"))?;
    let lease = lock.acquire_blocking().map_err(step("acquire"))?;
    lease.extend_blocking(TTL).map_err(step("renew"))?;
    let inspected = lock.inspect();
    // Interrupted only if this process ends.
    block(async { Ok(inspected.await) }).unwrap_or(Err(LockError::Closed)).map_err(step("inspect"))?;
    match lease.release().map_err(step("release"))? {
        ReleaseOutcome::Released => Ok(()),
        ReleaseOutcome::Lost => Err(("release", LockError::Lost { name, reason: LostReason::Expired })),
        _ => Err(("release", LockError::NotHeld { name, detail: "the release was not confirmed".to_owned() })),
    }
}

fn failure(step: &'static str, error: &LockError) -> TrialFailure {
    match error {
        LockError::Unavailable { causes, .. } if !causes.is_empty() => TrialFailure {
            step,
            cause: causes.iter().map(|cause| cause.cause.as_str()).collect::<Vec<_>>().join("; "),
            forbidden: causes.iter().any(|cause| cause.forbidden),
        },
        other => TrialFailure { step, cause: other.to_string(), forbidden: false },
    }
}
