//! Work in the background, which runs on even if no caller waits for it. Some of it is pending work: it should end
//! before the process exits.
//!
//! Tasks are boxed: tokio's code for a task is compiled for each type of future, and takes 2 KB of the library.

use std::{future::Future, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::{Quorum, clean_up};
use crate::{protocol::script::ScriptCall, server::ConnectionId, sync::notify};

/// A guard for pending work, which should end before the process exits. Its drop marks the work as ended.
pub(crate) struct PendingWork(Arc<Quorum>);

impl Drop for PendingWork {
    fn drop(&mut self) {
        notify(&self.0.pending, |count| *count -= 1);
    }
}

impl Quorum {
    /// Marks the start of pending work.
    pub(crate) fn pending_work(self: &Arc<Self>) -> PendingWork {
        notify(&self.pending, |count| *count += 1);
        PendingWork(self.clone())
    }

    /// Runs pending work in the background, until the client is closed.
    pub(crate) fn spawn_pending(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed_pending(Box::pin(work));
    }

    fn spawn_boxed_pending(self: &Arc<Self>, work: BoxFuture<'static, ()>) {
        let pending_work = self.pending_work();
        self.spawn(async move {
            work.await;
            drop(pending_work);
        });
    }

    /// Runs pending work in the background and returns its result. The work continues if the caller is cancelled.
    /// Returns `None` if the client is closed first.
    pub(super) async fn run_to_completion<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.spawn_pending(async move {
            // Fails if the caller was cancelled.
            let _ = done.send(work.await);
        });
        result.await.ok()
    }

    /// Runs work in the background until the client is closed. Closing does not wait for it.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(Box::pin(work));
    }

    fn spawn_boxed(self: &Arc<Self>, work: BoxFuture<'static, ()>) {
        let mut closed = self.closed.subscribe();
        let work = async move {
            tokio::select! {
                biased;
                () = work => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        };
        #[cfg(not(all(test, feature = "shuttle")))]
        crate::process::runtime::background().spawn(work);
        #[cfg(all(test, feature = "shuttle"))]
        shuttle::future::spawn(work);
    }

    /// Undoes in the background what earlier requests may have done on nodes: sends `call` to each node, ordered after
    /// all requests on the connection of the earlier one. `leftovers`: the node, that connection, and whether the node
    /// confirmed the request. The returned channel closes once all of it is done or given up.
    pub(crate) fn clean_up(
        self: &Arc<Self>,
        leftovers: impl IntoIterator<Item = (usize, ConnectionId, bool)>,
        call: &ScriptCall,
    ) -> mpsc::Receiver<()> {
        let (busy, done) = mpsc::channel(1);
        for (node, connection, known) in leftovers {
            let (node, call, busy) = (self.nodes[node].clone(), call.clone(), busy.clone());
            self.spawn_pending(async move {
                clean_up(node, connection, || call.clone(), known).await;
                drop(busy);
            });
        }
        done
    }

    /// Disconnects the nodes and cancels all background work.
    pub(crate) fn close(&self) {
        for node in &self.nodes {
            node.close();
        }
        self.closed.send_replace(true);
    }

    /// Resolves once it is closed.
    pub(crate) async fn until_closed(&self) {
        // The sender is in `self`.
        let _ = self.closed.subscribe().wait_for(|closed| *closed).await;
    }

    /// Resolves once no pending work is left.
    pub(crate) async fn idle(&self) {
        // Never an error: the sender is in `self`.
        let _ = self.pending.subscribe().wait_for(|count| *count == 0).await;
    }
}
