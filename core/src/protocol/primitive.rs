//! What there is to hold, as data: a closed set, since it must be the same in every language, on real servers and in
//! memory. What a member does not decide here is the same for all of them.

use crate::{
    config::Wire,
    protocol::script::{self, Scripts},
};

/// Something that owners hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Primitive {
    /// The exclusive lock, as one wire or the other writes it.
    Lock(Wire),
}

impl Primitive {
    /// The scripts that take, keep and free it: one contract, told by the comment at the top of each.
    pub(crate) fn scripts(self) -> &'static Scripts {
        match self {
            Self::Lock(wire) => script::scripts(wire),
        }
    }

    /// Whether several owners of one client may hold it at once, so that nobody here waits for another.
    pub(crate) fn is_shared(self) -> bool {
        match self {
            Self::Lock(_) => false,
        }
    }

    /// Whether its scripts announce a release, so that waiters need only ask now and then.
    pub(crate) fn announces(self) -> bool {
        match self {
            // Peers that write strings announce none.
            Self::Lock(wire) => wire == Wire::Redisson,
        }
    }
}
