//! A waiter's place in this client's queue of one lock.

use tokio::sync::Notify;

use crate::{owner::OwnerKey, sync::atomic::AtomicBool};

pub(crate) struct Ticket {
    pub(super) owner: OwnerKey,
    /// Whether others may have what it waits for at the same time.
    pub(super) shared: bool,
    /// The host's thread that has to go on when it has what it waits for.
    pub(super) thread: Option<u64>,
    /// Whether that thread stands still until then.
    pub(super) blocked: bool,
    /// Something changed that this waiter should look at.
    pub(crate) wake: Notify,
    pub(crate) first: AtomicBool,
}
