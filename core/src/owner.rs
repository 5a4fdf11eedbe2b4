//! The owners of locks: identities inside a process, and the fields that stand for their tenures on the nodes.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The owner for which a lock is acquired. Only the same owner can nest.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Owner {
    /// A new owner for each acquire.
    Fresh,
    /// A thread, greenlet or task of the host.
    Ambient(Identity),
    /// A name, which is the same owner in every process.
    Explicit(String),
}

/// The identity of a thread, greenlet or task of the host. The host keeps it for as long as the thread, greenlet or
/// task lives. Once it is dropped, the watchdog no longer renews a lock of this owner to which nothing else refers.
#[derive(Clone, Debug)]
pub struct Identity(Arc<u64>);

impl Identity {
    /// Creates an identity that differs from all others of this process.
    #[allow(clippy::new_without_default, reason = "each is different")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(NEXT.fetch_add(1, Relaxed)))
    }
}

/// An owner as a key of the registry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OwnerKey {
    Ambient(u64),
    Explicit(String),
}

impl Owner {
    pub(crate) fn key(&self) -> OwnerKey {
        match self {
            Self::Fresh => OwnerKey::Ambient(*Identity::new().0),
            Self::Ambient(identity) => OwnerKey::Ambient(*identity.0),
            Self::Explicit(name) => OwnerKey::Explicit(name.clone()),
        }
    }

    /// A reference that does not keep the identity alive.
    pub(crate) fn watch(&self) -> Weak<u64> {
        match self {
            Self::Ambient(identity) => Arc::downgrade(&identity.0),
            Self::Fresh | Self::Explicit(_) => Weak::new(),
        }
    }
}

/// An explicit owner as an argument of a script.
pub(crate) fn wire_owner(owner: &str) -> String {
    format!("={owner}")
}

/// Draws the fields of a client's tenures. It draws no field twice.
#[derive(Debug)]
pub(crate) struct Fields {
    /// The client's UUID and a colon. The number of a tenure follows them.
    prefix: String,
    next: AtomicU64,
}

impl Fields {
    pub(crate) fn new() -> Self {
        Self { prefix: format!("{}:", uuid::Uuid::new_v4()), next: AtomicU64::new(1) }
    }

    /// The client's UUID, which identifies it in the queues of locks.
    pub(crate) fn client(&self) -> &str {
        self.prefix.trim_end_matches(':')
    }

    /// The field of a new tenure.
    pub(crate) fn draw(&self, owner: &OwnerKey) -> String {
        match owner {
            OwnerKey::Ambient(owner) if mutant!(ValueReused) => format!("{}{owner}", self.prefix),
            OwnerKey::Ambient(_) => self.prefix.clone() + &self.next.fetch_add(1, Relaxed).to_string(),
            // A random number, since several processes draw fields for one owner. The uuid crate gets its randomness
            // from the operating system.
            OwnerKey::Explicit(name) => {
                let random = uuid::Uuid::new_v4().as_u64_pair().1 & i64::MAX as u64;
                format!("={name}:{random}")
            }
        }
    }
}

/// The field that nobody owns, which replaces that of a tenure released before its `min_hold` was over.
pub(crate) fn rest_of(field: &str) -> String {
    format!("~{field}")
}

/// Whether a field is one that [`rest_of`] made.
pub(crate) fn is_rest(field: &str) -> bool {
    let drawn = field.strip_prefix('~').and_then(|field| field.rsplit_once(':'));
    drawn.is_some_and(|(client, number)| uuid::Uuid::try_parse(client).is_ok() && number.parse::<u64>().is_ok())
}

/// Whether a field is that of an explicit owner.
pub(crate) fn is_explicit(field: &str) -> bool {
    field.starts_with('=')
}

/// The UUID of the client that drew a field; `None` for explicit owners and for fields that no client draws.
pub(crate) fn client(field: &str) -> Option<&str> {
    let (client, _) = field.split_once(':')?;
    uuid::Uuid::try_parse(client).ok().map(|_| client)
}

/// The owners of fields, for people. A rest has none.
pub(crate) fn all_shown<'a>(fields: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    fields.into_iter().filter(|field| !is_rest(field)).map(|field| shown(field).to_owned()).collect()
}

/// The owner of a field, for people: the explicit owner, or else the whole field.
pub(crate) fn shown(field: &str) -> &str {
    match field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':')) {
        Some((owner, _)) => owner,
        None => field,
    }
}
