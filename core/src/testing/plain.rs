//! A result for a completion queue that the host takes unchanged.

use crate::{ffi::completions::Entry, server::BoxFuture};

pub(crate) struct Plain<T>(pub(crate) T);

impl<T: Send + 'static> Entry for Plain<T> {
    type HostValue = T;

    fn announcement(self) -> (T, Option<Self>) {
        (self.0, None)
    }

    fn take(self) -> Result<T, BoxFuture<Self>> {
        Ok(self.0)
    }
}
