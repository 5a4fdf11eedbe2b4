//! Errors that the tests of interleavings put into the code, one at a time, to show that they find them.

use std::cell::Cell;

thread_local! { static BROKEN: Cell<&'static str> = const { Cell::new("") }; }

/// True if the code is to have this error.
pub(crate) fn broken(error: &str) -> bool {
    BROKEN.get() == error
}

/// Puts an error into the code of this thread. An empty name removes it.
pub(crate) fn put(error: &'static str) {
    BROKEN.set(error);
}
