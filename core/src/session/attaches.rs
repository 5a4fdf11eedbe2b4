//! The order of this client's attaches: those of one detached tenure run one after another. Each waits until the
//! previous one has succeeded or is undone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use crate::{quorum::Quorum, sync::Mutex};

/// By the field of the detached tenure. Each channel closes when its attach, or its undoing, has ended.
type UnderWay = Mutex<HashMap<String, mpsc::Receiver<()>>>;

#[derive(Default)]
pub(super) struct Attaches {
    /// The attaches under way.
    attaches: UnderWay,
    /// The undoing of attaches that failed or were given up.
    undos: UnderWay,
}

/// Later attaches of the same detached tenure wait until this is dropped.
pub(crate) struct AttachGuard {
    _open: mpsc::Sender<()>,
}

impl Attaches {
    /// Notes that an attach of a detached tenure is being undone. `done` closes when that is done or given up.
    pub(super) fn note_undo(&self, field: &str, done: mpsc::Receiver<()>) {
        let mut undos = self.undos.lock();
        undos.retain(|_, done| !done.is_closed());
        undos.insert(field.to_owned(), done);
    }

    /// Waits for the previous attach of the same detached tenure, and for its undoing if it failed. `None` if that
    /// takes longer than `limit`.
    pub(super) async fn wait_for_previous(
        self: &Arc<Self>,
        quorum: &Arc<Quorum>,
        field: &str,
        limit: Duration,
    ) -> Option<AttachGuard> {
        let (sender, done) = mpsc::channel(1);
        let guard = AttachGuard { _open: sender };
        let previous = {
            let mut attaches = self.attaches.lock();
            attaches.retain(|_, done| !done.is_closed());
            attaches.insert(field.to_owned(), done)
        };
        let (known, field) = (Arc::downgrade(self), field.to_owned());
        let mut ended = Box::pin(async move {
            if let Some(mut previous) = previous {
                previous.recv().await;
            }
            let undo = known.upgrade().and_then(|known| known.undos.lock().remove(&field));
            if let Some(mut undo) = undo {
                undo.recv().await;
            }
        });
        if timeout(limit, &mut ended).await.is_ok() {
            return Some(guard);
        }
        // Later attaches must still wait for the previous one.
        quorum.spawn(async move {
            ended.await;
            drop(guard);
        });
        None
    }
}
