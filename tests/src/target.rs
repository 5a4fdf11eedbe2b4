//! A lock of any kind, for processes that acquire it at random: as a reader or a writer, or one or several slots.

use fastrand::Rng;
use redlock::{Client, Lease, Lock, LockError, LockOptions, ReadWriteLock, Semaphore};

use crate::history::{Kind, Share, Slot};

/// The share of readers among the acquires of read/write locks.
const READS: f64 = 0.7;
/// The largest number of slots that a permit has.
const MOST_SLOTS: u32 = 2;

/// A lock of any kind.
#[allow(missing_debug_implementations, reason = "locks and semaphores have no Debug")]
pub enum Target {
    /// A plain or a fair lock.
    Lock(Lock),
    /// A read/write lock.
    ReadWrite(ReadWriteLock),
    /// A semaphore.
    Semaphore(Semaphore),
}

impl Target {
    /// Makes the lock of this name.
    pub fn new(client: &Client, kind: Kind, name: &str, mut options: LockOptions) -> Result<Self, LockError> {
        Ok(match kind {
            Kind::Lock | Kind::Fair => {
                options.fair = kind == Kind::Fair;
                Self::Lock(client.lock(name, options)?)
            }
            Kind::ReadWrite { .. } => Self::ReadWrite(client.read_write_lock(name, options)?),
            Kind::Semaphore { permits } => Self::Semaphore(client.semaphore(name, permits, options)?),
        })
    }

    /// Draws one of the ways to acquire it. Returns its call, and the share of a lease; slots are known later.
    pub fn draw(&self, dice: &mut Rng) -> Result<(Lock, Share), LockError> {
        Ok(match self {
            Self::Lock(lock) => (lock.clone(), Share::Whole),
            Self::ReadWrite(lock) if dice.f64() < READS => (lock.read().clone(), Share::Read),
            Self::ReadWrite(lock) => (lock.write().clone(), Share::Write),
            Self::Semaphore(semaphore) => {
                let count = dice.u32(1..=MOST_SLOTS.min(semaphore.permits()));
                (semaphore.taking(count)?, Share::Slots(Vec::new()))
            }
        })
    }
}

/// What a lease holds, if it was acquired for this share: of a permit, the lease has the slots.
pub fn share_of(lease: &Lease, share: Share) -> Share {
    let slots = || lease.slots().iter().map(|slot| Slot { number: slot.number, token: slot.token }).collect();
    if matches!(share, Share::Slots(_)) { Share::Slots(slots()) } else { share }
}
