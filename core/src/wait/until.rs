//! The loop of every wait: try, pause, and try again, until a try succeeds or fails, or the wait is over. It knows
//! neither what is tried nor what it is for: an acquire is one [`Try`].

use std::{future::Future, time::Duration};

use crate::server::BoxFuture;

/// Something that is tried until it succeeds. Dropped at any point, it leaves nothing behind.
pub(crate) trait Try: Send {
    /// What a successful try yields.
    type Outcome: Send;
    type Error: Send;

    /// Waits until another try may have a different result. Fails when the wait is over.
    fn pause(&mut self, pause: Pause) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Tries once. A task of the background polls it.
    fn try_once(&mut self) -> impl Future<Output = Result<Tried<Self::Outcome>, Self::Error>> + Send;

    /// Ends the wait with this error. Returns the error for the caller, which may say more.
    fn fail(self: Box<Self>, error: Self::Error) -> impl Future<Output = Self::Error> + Send;
}

/// The result of one try.
pub(crate) enum Tried<T> {
    Done(T),
    Wait(Pause),
}

/// Why a waiter does not try at once. The reason decides what ends its pause.
pub(crate) enum Pause {
    /// No pause: it can try now.
    No,
    /// Other waiters of this client are before it in the queue.
    NotFirst,
    /// Another owner of this client holds the lock until this resolves.
    Held(BoxFuture<()>),
    /// The votes were split: several tried at once, and nobody got a quorum.
    Split,
    /// Too few nodes answer.
    Outage,
    /// Somebody holds the lock. The lease expires after this time unless it is renewed; `None`: unknown, or without
    /// end.
    Busy(Option<Duration>),
    /// It has a place in the lock's queue on the server.
    Placed,
}

/// Tries again after each pause, until a try succeeds or the wait is over. Returns the outcome, and what was tried.
pub(crate) async fn until_done<T: Try>(mut tried: Box<T>, mut pause: Pause) -> Result<(T::Outcome, Box<T>), T::Error> {
    loop {
        let result = match tried.pause(pause).await {
            // Boxed: of thousands that wait, few try at any time.
            Ok(()) => Box::pin(tried.try_once()).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(Tried::Done(outcome)) => return Ok((outcome, tried)),
            Ok(Tried::Wait(reason)) => pause = reason,
            Err(error) => return Err(Box::pin(tried.fail(error)).await),
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[path = "../testing/until.rs"]
mod tests;
