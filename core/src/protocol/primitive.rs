//! The primitives that an owner can hold, as data. The set is closed, since it must be the same in every language, on
//! real servers and in memory. A property that this file does not decide is the same for all primitives.

use super::admission::Admission;

/// Something that owners hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Primitive {
    /// The exclusive lock.
    #[default]
    Lock,
    /// The exclusive lock whose waiters get it in their order.
    Fair,
    /// A read/write lock, held by one of several readers.
    Read,
    /// A read/write lock, held by a writer.
    Write,
    /// `count` slots of a semaphore that has `of`.
    Permits { count: u32, of: u32 },
}

/// The primitives that share keys and scripts on the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Lock,
    ReadWrite,
    Semaphore,
}

impl Primitive {
    /// Whether readers hold it together.
    pub(crate) fn reads(self) -> bool {
        self == Self::Read
    }

    /// How many slots it has; 1 for a lock.
    pub(crate) fn size(self) -> u32 {
        match self {
            Self::Permits { count, .. } => count,
            Self::Lock | Self::Fair | Self::Read | Self::Write => 1,
        }
    }

    /// How the owners of one client meet on a name that they use as this.
    pub(crate) fn admission(self) -> Admission {
        match self {
            Self::Lock | Self::Fair | Self::Write => Admission::Exclusive,
            Self::Read => Admission::Shared,
            Self::Permits { .. } => Admission::Counted,
        }
    }

    /// Whether several owners may hold it at once.
    pub(crate) fn is_shared(self) -> bool {
        self.admission().is_shared()
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Lock | Self::Fair => Family::Lock,
            Self::Read | Self::Write => Family::ReadWrite,
            Self::Permits { .. } => Family::Semaphore,
        }
    }

    /// Whether it is one of the two ways to hold a read/write lock.
    pub(crate) fn is_read_write(self) -> bool {
        self.family() == Family::ReadWrite
    }

    /// Whether a server keeps the queue of its waiters, if there is only one node.
    pub(crate) fn has_queue(self) -> bool {
        self != Self::Lock
    }

    /// Whether an owner that holds this may nest `other` in it.
    pub(crate) fn includes(self, other: Self) -> bool {
        match self {
            Self::Lock | Self::Fair | Self::Write => true,
            Self::Read => other == Self::Read,
            // Each acquire is a permit of its own.
            Self::Permits { .. } => false,
        }
    }
}
