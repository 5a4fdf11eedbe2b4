//! What the requests share. The servers are looked at when a request needs it, and at most once in `--every`, however
//! many viewers there are.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{body::Bytes, http::HeaderName};
use redlock::{Client, LockError};
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};

use super::guard::Guard;
use crate::{
    live::snapshot::{Snapshot, Source},
    talk::Talk,
};

/// How many pages may be open at once.
const MOST_STREAMS: usize = 100;

pub(super) struct Viewer {
    pub(super) looks: Looks,
    pub(super) guard: Guard,
    pub(super) name: Option<String>,
    pub(super) allow_release: bool,
    pub(super) read_header: Option<HeaderName>,
    pub(super) talk: Talk,
}

/// A snapshot, and its JSON, which is written once for all viewers.
pub(super) struct Look {
    pub(super) snapshot: Snapshot,
    pub(super) json: Bytes,
}

/// The looks at the servers.
pub(super) struct Looks {
    client: Client,
    pub(super) every: Duration,
    source: Mutex<Shared>,
    /// The open pages.
    pub(super) streams: Arc<Semaphore>,
}

struct Shared {
    source: Source,
    last: Option<(Instant, Arc<Look>)>,
    /// Whether the next look begins with a scan.
    scan: bool,
}

impl Looks {
    pub(super) fn new(source: Source, every: Duration, scan: bool) -> Self {
        let client = source.client().clone();
        let source = Mutex::new(Shared { source, last: None, scan });
        Self { client, every, source, streams: Arc::new(Semaphore::new(MOST_STREAMS)) }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The last look, or a new one if it is older than `--every`.
    pub(super) async fn latest(&self, viewer: &Viewer) -> Result<Arc<Look>, LockError> {
        let mut shared = self.source.lock().await;
        if let Some((when, look)) = &shared.last
            && when.elapsed() < self.every
        {
            return Ok(look.clone());
        }
        if shared.scan && shared.source.scan(None, |_, _| ()).await.is_ok() {
            shared.scan = false;
        }
        let begun = Instant::now();
        let snapshot = shared.source.snapshot().await?;
        let json = viewer.object(&snapshot).to_string().into();
        let look = Arc::new(Look { snapshot, json });
        shared.last = Some((begun, look.clone()));
        Ok(look)
    }

    /// Finds all locks. The next look has them.
    pub(super) async fn scan(&self) -> Result<(), LockError> {
        let mut shared = self.source.lock().await;
        shared.source.scan(None, |_, _| ()).await?;
        shared.last = None;
        Ok(())
    }

    /// Makes the next look a new one.
    pub(super) async fn forget(&self) {
        self.source.lock().await.last = None;
    }
}

impl Viewer {
    /// The object of `/api/snapshot`.
    fn object(&self, snapshot: &Snapshot) -> Value {
        let mut object = snapshot.json();
        object.insert("name".to_owned(), json!(self.name));
        object.insert("release".to_owned(), json!(self.allow_release));
        object.insert("every".to_owned(), json!(self.looks.every.as_secs_f64()));
        let (client, nodes) = (self.looks.client(), snapshot.nodes.len());
        object.insert("quorum".to_owned(), json!(client.config().quorum.unwrap_or(nodes / 2 + 1)));
        Value::Object(object)
    }
}
