//! Work that waits for somebody else to begin it, and then runs whether or not the tasks that wait for its result do.

use futures_util::{FutureExt, future::Shared};
use tokio::sync::oneshot;

use crate::server::BoxFuture;

/// What work returns, for each task that waits for it.
pub(super) type Output<O> = Shared<BoxFuture<O>>;
/// Resolves to what the work needs, once it is to begin.
pub(super) type Input<I> = oneshot::Receiver<I>;

/// Work that has not begun.
pub(super) struct Deferred<I, O: Clone> {
    input: oneshot::Sender<I>,
    output: Output<O>,
}

impl<I, O: Clone> Deferred<I, O> {
    pub(super) fn new(work: impl FnOnce(Input<I>) -> BoxFuture<O>) -> Self {
        let (input, receiver) = oneshot::channel();
        Self { input, output: work(receiver).shared() }
    }

    pub(super) fn output(&self) -> &Output<O> {
        &self.output
    }

    /// Begins the work, and runs it up to its first pause.
    pub(super) fn begin(self, input: I) {
        // Fails if nobody waits for the result any more.
        let _ = self.input.send(input);
        let _ = self.output.now_or_never();
    }
}
