//! What goes on in the background, whether or not somebody waits for it; some of it should end before the process does.

use std::{future::Future, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use super::{Quorum, clean_up};
use crate::{protocol::script::ScriptCall, server::ConnectionId, sync::notify};

/// Something that should end before the process does. Ended by its drop.
pub(crate) struct PendingWork(Arc<Quorum>);

impl Drop for PendingWork {
    fn drop(&mut self) {
        notify(&self.0.pending, |count| *count -= 1);
    }
}

impl Quorum {
    /// Begins something that should end before the process does.
    pub(crate) fn pending_work(self: &Arc<Self>) -> PendingWork {
        notify(&self.pending, |count| *count += 1);
        PendingWork(self.clone())
    }

    /// Does such a thing in the background, until the client is closed.
    pub(crate) fn spawn_pending(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let pending_work = self.pending_work();
        self.spawn(async move {
            work.await;
            drop(pending_work);
        });
    }

    /// The same for something with a result. It ends whether or not its caller waits for that; `None` if the client is
    /// closed before.
    pub(super) async fn run_to_completion<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.spawn_pending(async move {
            // Nobody may wait for it any more.
            let _ = done.send(work.await);
        });
        result.await.ok()
    }

    /// Does something in the background, until the client is closed, which does not wait for it.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
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

    /// Has `call` undo in the background what the nodes may have done, each behind the connection that asked it to.
    /// `leftovers`: the node, that connection, and whether the node is known to have done it. What this returns closes
    /// once that is done, or given up.
    pub(crate) fn clean_up(
        self: &Arc<Self>,
        leftovers: impl IntoIterator<Item = (usize, ConnectionId, bool)>,
        call: &ScriptCall,
    ) -> mpsc::Receiver<()> {
        let (busy, done) = mpsc::channel(1);
        for (node, connection, known) in leftovers {
            let (work, busy) = (clean_up(self.nodes[node].clone(), connection, call.clone(), known), busy.clone());
            self.spawn_pending(async move {
                work.await;
                drop(busy);
            });
        }
        done
    }

    /// Disconnects, and gives up whatever is under way.
    pub(crate) fn close(&self) {
        for node in &self.nodes {
            node.close();
        }
        self.closed.send_replace(true);
    }

    /// Resolves once nothing of the kind is under way.
    pub(crate) async fn idle(&self) {
        // The sender is in `self`.
        let _ = self.pending.subscribe().wait_for(|count| *count == 0).await;
    }
}
