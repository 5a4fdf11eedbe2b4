//! A waiter as this client's queue of one lock has it. A queue on a server has places instead, with ticket numbers
//! (`quorum/place.rs`).

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{owner::OwnerKey, protocol::admission::Admission, sync::atomic::AtomicBool};

/// One waiter in this client's queue of one lock.
pub(crate) struct QueuedWaiter {
    pub(super) owner: OwnerKey,
    pub(super) admission: Admission,
    /// The host's thread that must run to use the lock.
    pub(super) thread: Option<u64>,
    /// Whether that thread is blocked until the lock is granted.
    pub(super) blocked: bool,
    /// Notified when the waiter should try again.
    pub(crate) wake: Arc<Notify>,
    /// Whether it waits for counted units and was denied them: waiters behind it send no request.
    pub(crate) denied: AtomicBool,
    /// Whether it is the first in the queue.
    pub(crate) first: AtomicBool,
}
