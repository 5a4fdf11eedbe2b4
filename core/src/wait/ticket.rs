//! A waiter's place in this client's queue of one lock.

use tokio::sync::Notify;

use crate::{owner::OwnerKey, sync::atomic::AtomicBool};

pub(crate) struct Ticket {
    pub(super) owner: OwnerKey,
    /// Whether others may hold the lock at the same time.
    pub(super) shared: bool,
    /// The host's thread that must run to use the lock.
    pub(super) thread: Option<u64>,
    /// Whether that thread is blocked until the lock is granted.
    pub(super) blocked: bool,
    /// Notified when the waiter should check the lock again.
    pub(crate) wake: Notify,
    pub(crate) first: AtomicBool,
}
