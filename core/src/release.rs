//! The release of a lease. It is decided in the call; sending it to the nodes may finish in the background.
//!
//! ```text
//! called ─other leases remain, or it had ended─▶ done
//!        ─the last lease─▶ decided ─its caller polls it─▶ sent ─q nodes confirmed─▶ done
//!                                  ─dropped, or not polled─▶ sent in the background
//! ```

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    process::{
        driver::{Caller, Driver, Polled},
        runtime::{self, Interrupted},
    },
    session::Session,
    tenure::{Claim, Fate, ReleaseOutcome, Supervised, Tenure, Unclaimed},
};

/// The result of starting a release.
pub(crate) enum ReleaseStart {
    Done(ReleaseOutcome),
    /// Another call is releasing the tenure.
    ByAnotherCall(Arc<Tenure>),
    Ours(DecidedRelease),
}

/// A decided release: the tenure has ended in this process, and the nodes do not know it yet. If this is dropped before
/// it is sent, or not polled to its end in time, the background sends the release.
pub(crate) struct DecidedRelease {
    tenure: Arc<Tenure>,
    supervised: Option<Supervised>,
    sent: bool,
}

impl DecidedRelease {
    fn new(session: &Session, tenure: Arc<Tenure>) -> Self {
        let last_reply = session.settings.config.reply_timeout;
        let overdue = tenure.clone();
        let supervised = session.watchdog.supervise(last_reply, move || overdue.release_in_background());
        Self { tenure, supervised: Some(supervised), sent: false }
    }

    /// Sends the release to the nodes. If it is dropped after its first poll, the background completes it, too.
    pub(crate) async fn send(mut self, driver: Driver) -> ReleaseOutcome {
        self.sent = true;
        let (outcome, proved) = self.tenure.clone().release_on_nodes(driver).await;
        if self.is_overdue() {
            // The background has sent the release, too. The second of the two finds no key and proves nothing.
            let other = outcome_of_other_call(self.tenure.clone()).await;
            return if proved { outcome } else { other };
        }
        self.tenure.report_release(outcome);
        outcome
    }

    /// Whether the background has taken it over.
    fn is_overdue(&mut self) -> bool {
        self.supervised.take().is_some_and(|supervised| !supervised.finish())
    }
}

impl Drop for DecidedRelease {
    fn drop(&mut self) {
        if !self.sent && !self.tenure.forked() && !self.is_overdue() {
            self.tenure.release_in_background();
        }
    }
}

pub(crate) fn begin_release(
    session: &Arc<Session>,
    tenure: &Arc<Tenure>,
    claim: &Arc<Claim>,
) -> Result<ReleaseStart, Fate> {
    let fate = match tenure.unclaim(claim) {
        Unclaimed::AlreadyEnded => {
            return match tenure.current_fate() {
                // This nested lease was released before the tenure ended.
                _ if claim.released_early.load(Relaxed) => Ok(ReleaseStart::Done(ReleaseOutcome::Released)),
                Fate::Detached => Err(Fate::Detached),
                Fate::Held => Ok(ReleaseStart::Done(ReleaseOutcome::Released)),
                Fate::Lost(_) => Ok(ReleaseStart::Done(ReleaseOutcome::Lost)),
                Fate::Released => Ok(ReleaseStart::ByAnotherCall(tenure.clone())),
            };
        }
        Unclaimed::OthersRemain => {
            let held = claim.released_early.load(Relaxed);
            return Ok(ReleaseStart::Done(if held { ReleaseOutcome::Released } else { ReleaseOutcome::Lost }));
        }
        Unclaimed::WasLast(fate) => fate,
    };
    session.forget(tenure);
    match fate {
        Fate::Released => Ok(ReleaseStart::Ours(DecidedRelease::new(session, tenure.clone()))),
        Fate::Detached => Err(Fate::Detached),
        Fate::Held | Fate::Lost(_) => Ok(ReleaseStart::Done(ReleaseOutcome::Lost)),
    }
}

impl ReleaseStart {
    /// Completes the release. If the caller gives up, the background completes it.
    pub(crate) async fn finish(self, polled: Polled) -> ReleaseOutcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::ByAnotherCall(tenure) => outcome_of_other_call(tenure).await,
            Self::Ours(decided) => match polled {
                Polled::Here(driver) => runtime::with_background_timers(driver, decided.send(driver)).await,
                Polled::InBackground => {
                    let outcome = runtime::spawn_in_background(decided.send(Driver::Background)).await;
                    outcome.unwrap_or(ReleaseOutcome::Unconfirmed)
                }
            },
        }
    }

    /// `finish`, blocking.
    pub(crate) fn finish_blocking<E>(self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<ReleaseOutcome, E> {
        let blocked = match self {
            Self::Done(outcome) => Ok(outcome),
            Self::ByAnotherCall(tenure) => runtime::block(Driver::Background, outcome_of_other_call(tenure), check),
            Self::Ours(decided) => {
                let driver = decided.tenure.quorum.polled(Caller::Thread).driver();
                runtime::block(driver, decided.send(driver), check)
            }
        };
        match blocked {
            Ok(outcome) => Ok(outcome),
            Err(Interrupted::Check(error)) => Err(error),
            Err(Interrupted::Forked) => Ok(ReleaseOutcome::Lost),
            Err(Interrupted::ThreadEnded) => Ok(ReleaseOutcome::Unconfirmed),
        }
    }
}

/// Waits for the outcome of a release that another call makes.
async fn outcome_of_other_call(tenure: Arc<Tenure>) -> ReleaseOutcome {
    tenure.status.until(|status| status.outcome.is_some()).await.outcome.unwrap_or(ReleaseOutcome::Unconfirmed)
}
