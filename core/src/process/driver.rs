//! Who drives a request, and the connection that carries it: polls them until they are done.

/// Who drives a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The background runtime: always.
    Background,
    /// Blocking callers: only while one of them is inside the caller runtime.
    Caller,
    /// A host's event loop, by its number: while it runs, and only calls that are polled in its turns.
    Host(u64),
}
