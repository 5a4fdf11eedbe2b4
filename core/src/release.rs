//! The end of a lease: decided when it is asked for, whoever then sees it through.
//!
//! ```text
//! asked ─others hold on, or it had ended─▶ done
//!       ─the last lease─▶ decided ─its caller polls it─▶ sent ─q nodes confirmed─▶ done
//!                                 ─dropped, or not polled─▶ sent in the background
//! ```

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    process::{
        driver::{Caller, Driver, Polled},
        runtime::{self, Interrupted},
    },
    session::Session,
    tenure::{Attended, Claim, Fate, ReleaseOutcome, Tenure, Unclaimed},
};

/// How far a release could be decided here.
pub(crate) enum Begun {
    Done(ReleaseOutcome),
    /// Another call is at it.
    Elsewhere(Arc<Tenure>),
    Ours(Decided),
}

/// A release that was decided: the tenure ended here, and its nodes are still to be told. They are told in the background
/// if this is dropped before they are, or if nobody polls it to its end.
pub(crate) struct Decided {
    tenure: Arc<Tenure>,
    attended: Option<Attended>,
    sent: bool,
}

impl Decided {
    fn new(session: &Session, tenure: Arc<Tenure>) -> Self {
        let last_reply = session.settings.config.reply_timeout;
        let overdue = tenure.clone();
        let attended = session.watchdog.attend(last_reply, move || overdue.release_in_background());
        Self { tenure, attended: Some(attended), sent: false }
    }

    /// Tells the nodes. From the first poll on, what is left when this is dropped goes on in the background, too.
    pub(crate) async fn send(mut self, driver: Driver) -> ReleaseOutcome {
        self.sent = true;
        let (outcome, proved) = self.tenure.clone().free(driver).await;
        if self.is_overdue() {
            // The background has released it, too. Whichever release ran second found nothing, and proves nothing.
            let other = elsewhere(self.tenure.clone()).await;
            return if proved { outcome } else { other };
        }
        self.tenure.freed(outcome);
        outcome
    }

    /// Whether the background has taken it over.
    fn is_overdue(&mut self) -> bool {
        self.attended.take().is_some_and(|attended| !attended.ended())
    }
}

impl Drop for Decided {
    fn drop(&mut self) {
        if !self.sent && !self.tenure.forked() && !self.is_overdue() {
            self.tenure.release_in_background();
        }
    }
}

pub(crate) fn begin_release(session: &Arc<Session>, tenure: &Arc<Tenure>, claim: &Arc<Claim>) -> Result<Begun, Fate> {
    let fate = match tenure.unclaim(claim) {
        Unclaimed::Before => {
            return match tenure.current_fate() {
                // A nested lease ended before the tenure did.
                _ if claim.left.load(Relaxed) => Ok(Begun::Done(ReleaseOutcome::Released)),
                Fate::Detached => Err(Fate::Detached),
                Fate::Held => Ok(Begun::Done(ReleaseOutcome::Released)),
                Fate::Lost(_) => Ok(Begun::Done(ReleaseOutcome::Lost)),
                Fate::Released => Ok(Begun::Elsewhere(tenure.clone())),
            };
        }
        Unclaimed::Others => {
            let left = claim.left.load(Relaxed);
            return Ok(Begun::Done(if left { ReleaseOutcome::Released } else { ReleaseOutcome::Lost }));
        }
        Unclaimed::Ended(fate) => fate,
    };
    session.forget(tenure);
    match fate {
        Fate::Released => Ok(Begun::Ours(Decided::new(session, tenure.clone()))),
        Fate::Detached => Err(Fate::Detached),
        Fate::Held | Fate::Lost(_) => Ok(Begun::Done(ReleaseOutcome::Lost)),
    }
}

impl Begun {
    /// Sees the release through; it goes on when the caller gives up.
    pub(crate) async fn finish(self, polled: Polled) -> ReleaseOutcome {
        match self {
            Self::Done(outcome) => outcome,
            Self::Elsewhere(tenure) => elsewhere(tenure).await,
            Self::Ours(decided) => match polled {
                Polled::Here(driver) => runtime::entered(driver, decided.send(driver)).await,
                Polled::Behind => {
                    let outcome = runtime::detached(decided.send(Driver::Background)).await;
                    outcome.unwrap_or(ReleaseOutcome::Unconfirmed)
                }
            },
        }
    }

    /// `finish`, blocking.
    pub(crate) fn finish_blocking<E>(self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<ReleaseOutcome, E> {
        let blocked = match self {
            Self::Done(outcome) => Ok(outcome),
            Self::Elsewhere(tenure) => runtime::block(Driver::Background, elsewhere(tenure), check),
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

/// The outcome of a release that another call makes.
async fn elsewhere(tenure: Arc<Tenure>) -> ReleaseOutcome {
    let mut told = tenure.told.subscribe();
    let known = told.wait_for(|told| told.outcome.is_some()).await.ok().and_then(|told| told.outcome);
    known.unwrap_or(ReleaseOutcome::Unconfirmed)
}
