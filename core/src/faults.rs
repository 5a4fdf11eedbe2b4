//! Errors that tests of interleavings put into the code, one at a time, to show that they would find them.

use std::cell::Cell;

thread_local! { static BROKEN: Cell<&'static str> = const { Cell::new("") }; }

/// Whether the code is to have this error.
pub(crate) fn broken(error: &str) -> bool {
    BROKEN.get() == error
}

/// Puts an error into the code of this thread; an empty one for none.
pub(crate) fn put(error: &'static str) {
    BROKEN.set(error);
}
