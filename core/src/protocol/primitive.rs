//! What there is to hold, as data: a closed set, since it must be the same in every language, on real servers and in
//! memory. What a member does not decide here is the same for all of them.

/// Something that owners hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Primitive {
    /// The exclusive lock.
    #[default]
    Lock,
    /// The same, which goes to its waiters in their order.
    Fair,
    /// A read/write lock, held by one of several readers.
    Read,
    /// A read/write lock, held by a writer.
    Write,
    /// So many slots of a semaphore that has `of`.
    Permits { count: u32, of: u32 },
}

/// What shares keys and scripts on the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Lock,
    ReadWrite,
    Semaphore,
}

impl Primitive {
    /// Whether it is held together with others that read.
    pub(crate) fn reads(self) -> bool {
        self == Self::Read
    }

    /// Whether several may hold it at once.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Read | Self::Permits { .. })
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

    /// Whether a server keeps a queue of those who wait for it, where one server decides.
    pub(crate) fn has_queue(self) -> bool {
        self != Self::Lock
    }

    /// Whether an owner that holds this may have `other` by it, too.
    pub(crate) fn includes(self, other: Self) -> bool {
        match self {
            Self::Lock | Self::Fair | Self::Write => true,
            Self::Read => other == Self::Read,
            // Each acquire is a permit of its own.
            Self::Permits { .. } => false,
        }
    }
}
