//! What the requests share. The servers are looked at when a request needs it, and at most once in `--every`, however
//! many viewers there are.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{body::Bytes, http::HeaderName};
use futures_util::{
    FutureExt,
    future::{self, BoxFuture},
};
use redlock::{Client, LockError};
use serde_json::{Value, json};
use tokio::{
    spawn,
    sync::{Mutex, Semaphore},
    task::AbortHandle,
};

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
    shared: Arc<Mutex<Shared>>,
    /// The last scan for all locks.
    scan: Mutex<Option<Scanning>>,
    /// The open pages.
    pub(super) streams: Arc<Semaphore>,
}

struct Shared {
    source: Source,
    last: Option<(Instant, Arc<Look>)>,
    /// Whether the next look begins with a scan.
    scan_first: bool,
    /// Why the scan before a look failed the last time.
    scan_trouble: Option<String>,
}

/// A scan that was begun.
struct Scanning {
    task: AbortHandle,
    result: future::Shared<BoxFuture<'static, Result<(), LockError>>>,
}

impl Looks {
    pub(super) fn new(source: Source, every: Duration, scan: bool) -> Self {
        let client = source.client().clone();
        let shared = Shared { source, last: None, scan_first: scan, scan_trouble: None };
        let streams = Arc::new(Semaphore::new(MOST_STREAMS));
        Self { client, every, shared: Arc::new(Mutex::new(shared)), scan: Mutex::default(), streams }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The last look, or a new one if it is older than `--every`.
    pub(super) async fn latest(&self, viewer: &Viewer) -> Result<Arc<Look>, LockError> {
        let scan_first = self.shared.lock().await.scan_first;
        let scan_trouble = if scan_first { self.scan().await.err() } else { None };
        let mut shared = self.shared.lock().await;
        if let Some(trouble) = scan_trouble.map(|error| error.to_string())
            && shared.scan_trouble.as_ref() != Some(&trouble)
        {
            viewer.talk.warn(&format!("cannot find all locks: {trouble}"));
            shared.scan_trouble = Some(trouble);
        }
        if let Some((when, look)) = &shared.last
            && when.elapsed() < self.every
        {
            return Ok(look.clone());
        }
        let snapshot = shared.source.snapshot().await?;
        let json = viewer.object(&snapshot).to_string().into();
        let look = Arc::new(Look { snapshot, json });
        // Its end: those who waited for it have it, also if it took longer than `--every`.
        shared.last = Some((Instant::now(), look.clone()));
        Ok(look)
    }

    /// Finds all locks. The next look has them. One scan serves all who wait for one, and goes on if they give up: with
    /// many keys it takes longer than a request may.
    pub(super) async fn scan(&self) -> Result<(), LockError> {
        let result = {
            let mut scan = self.scan.lock().await;
            match &*scan {
                Some(running) if !running.task.is_finished() => running.result.clone(),
                _ => {
                    let begun = Scanning::begin(self.shared.clone());
                    let result = begun.result.clone();
                    *scan = Some(begun);
                    result
                }
            }
        };
        result.await
    }

    /// Makes the next look a new one.
    pub(super) async fn forget(&self) {
        self.shared.lock().await.last = None;
    }
}

impl Scanning {
    fn begin(shared: Arc<Mutex<Shared>>) -> Self {
        let task = spawn(async move {
            let finder = shared.lock().await.source.finder();
            let (found, _) = finder.find(None, |_, _| ()).await?;
            let mut shared = shared.lock().await;
            shared.source.keep(found);
            (shared.last, shared.scan_first) = (None, false);
            Ok(())
        });
        let abort = task.abort_handle();
        // It ends early only with the process.
        let result = task.map(|ended| ended.unwrap_or(Ok(()))).boxed().shared();
        Self { task: abort, result }
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
