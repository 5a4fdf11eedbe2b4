//! The attaches of one client: those of one detached tenure run one after another, and each waits until the one
//! before is done or undone.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use crate::{quorum::Quorum, sync::Mutex};

/// By the field of the detached tenure. Each channel closes when its work is over.
type UnderWay = Mutex<HashMap<String, mpsc::Receiver<()>>>;

#[derive(Default)]
pub(super) struct AttachTurns {
    /// The attaches under way.
    attaches: UnderWay,
    /// The undoing of attaches that failed or were given up.
    undos: UnderWay,
}

impl AttachTurns {
    /// Notes that an attach of a detached tenure is being undone. `done` closes when that is done or given up.
    pub(super) fn note_undo(&self, field: &str, done: mpsc::Receiver<()>) {
        let mut undos = self.undos.lock();
        undos.retain(|_, done| !done.is_closed());
        undos.insert(field.to_owned(), done);
    }

    /// Waits for the attach before, and until it is undone if it failed. Later attaches wait until the returned sender
    /// is dropped. `None` if that takes longer than `limit`.
    pub(super) async fn turn(
        self: &Arc<Self>,
        quorum: &Arc<Quorum>,
        field: &str,
        limit: Duration,
    ) -> Option<mpsc::Sender<()>> {
        let (turn, done) = mpsc::channel(1);
        let before = {
            let mut attaches = self.attaches.lock();
            attaches.retain(|_, done| !done.is_closed());
            attaches.insert(field.to_owned(), done)
        };
        let (turns, field) = (Arc::downgrade(self), field.to_owned());
        let mut free = Box::pin(async move {
            if let Some(mut before) = before {
                before.recv().await;
            }
            let done = turns.upgrade().and_then(|turns| turns.undos.lock().remove(&field));
            if let Some(mut done) = done {
                done.recv().await;
            }
        });
        if timeout(limit, &mut free).await.is_ok() {
            return Some(turn);
        }
        quorum.spawn(async move {
            free.await;
            drop(turn);
        });
        None
    }
}
