//! The Python objects that hold a client or a lease of the core. Their methods make calls, and are in `client.rs` and
//! `lease.rs`. The objects are here for the code below those, which passes them on.

use pyo3::prelude::*;

/// A client of one node, or of several.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Client {
    pub(crate) core: redlock::Client,
}

/// A held lock, or the permit of a semaphore, as an acquire returns it.
///
/// It ends with its release, or at its deadline unless it is renewed or extended.
#[pyclass(frozen, weakref, module = "redlock")]
pub(crate) struct Lease {
    pub(crate) core: redlock::Lease,
}

impl Lease {
    pub(crate) fn new(lease: redlock::Lease) -> Self {
        lease.disable_release_on_drop();
        Self { core: lease }
    }
}
