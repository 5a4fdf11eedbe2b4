//! How the owners of one client meet on a name, before any request is sent. The servers do not know it: to them, each
//! acquire is one of its own.

/// Who of one client may hold a name together, and who tries. Each [`Primitive`](super::primitive::Primitive) has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// One owner at a time. The others of this client wait until its tenure ends, and the first of them tries.
    Exclusive,
    /// Several owners at a time, each with one tenure, but none beside an exclusive one. They try at the same time.
    Shared,
    /// Each acquire gets units of its own, as long as some are free, and an owner may have several tenures. The nodes
    /// decide. Who was denied is before those that come later, which may want fewer units.
    Counted,
}

impl Admission {
    /// Whether several owners may hold the name at once.
    pub(crate) fn is_shared(self) -> bool {
        self != Self::Exclusive
    }

    /// Whether an owner may have several tenures.
    pub(crate) fn is_counted(self) -> bool {
        self == Self::Counted
    }

    /// Whether a grant to one waiter means that the others may be granted it, too.
    pub(crate) fn admits_all(self) -> bool {
        self == Self::Shared
    }
}
