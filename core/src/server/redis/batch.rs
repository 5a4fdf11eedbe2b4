//! Decides which calls of a connection go together, as one request. Such calls are made for one lock, by one script, and
//! differ only in their first argument: many readers come and leave at once.
//!
//! While few requests of a kind are under way, a call goes alone. The next calls are collected. They go when one of the
//! requests is answered, when there are many of them, after a short wait, or before a call of another script for the
//! same lock, so that this one stays behind them. A script that runs for many readers costs the server much less than
//! the same script for each.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use super::deferred::{Deferred, Input, Output};
use crate::{
    protocol::script::{Reply, Script, ScriptCall},
    server::{BoxFuture, NodeError, SentOn},
    sync::Mutex,
};

/// How many requests of a kind may be under way before further calls are collected.
const MOST_ALONE: usize = 8;
/// The most calls of a batch.
const MOST_TOGETHER: usize = 64;
/// How long a call waits for others at most.
pub(super) const LONGEST_COLLECTION: Duration = Duration::from_millis(5);

/// The replies to the calls of a batch, in their order; `None` for a call that was given up before it was sent.
pub(super) type Replies = Result<Arc<Vec<Option<Reply>>>, NodeError>;
/// Resolves to the calls of a batch once it must be sent.
pub(super) type Collected = Input<Vec<Member>>;

/// A call of a batch.
pub(super) struct Member {
    pub(super) call: ScriptCall,
    pub(super) sent: SentOn,
}

/// The calls of a connection that may go together.
#[derive(Default)]
pub(super) struct Batches {
    kinds: Mutex<HashMap<Kind, Calls>>,
    /// How many batches are being collected.
    collecting: AtomicUsize,
}

/// The calls of one script for one lock, the first of its keys.
#[derive(Clone)]
struct Kind {
    script: &'static Script,
    keys: Arc<Vec<String>>,
}

impl Kind {
    fn of(call: &ScriptCall) -> Self {
        Self { script: call.script, keys: Arc::clone(&call.keys) }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.script, other.script) && self.keys.first() == other.keys.first()
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        ptr::hash(self.script, state);
        self.keys.first().hash(state);
    }
}

/// The calls of a kind that are not answered.
#[derive(Default)]
struct Calls {
    /// The number of requests.
    under_way: usize,
    collected: Option<Batch>,
}

/// A batch that is being collected.
struct Batch {
    members: Vec<Member>,
    request: Deferred<Vec<Member>, Replies>,
}

/// How a call goes.
pub(super) enum Way<'a> {
    /// As a request of its own. Counted if such calls may go together.
    Alone(Option<UnderWay<'a>>),
    /// In a batch.
    Together(Place<'a>),
}

/// A call's place in a batch.
pub(super) struct Place<'a> {
    batches: &'a Batches,
    kind: Kind,
    pub(super) index: usize,
    pub(super) replies: Output<Replies>,
}

impl Place<'_> {
    /// Sends the batch, unless it is already sent.
    pub(super) fn send(&self) {
        let mine = |batch: &mut Batch| batch.request.output().ptr_eq(&self.replies);
        let batch = self.batches.kinds.lock().get_mut(&self.kind).and_then(|calls| calls.collected.take_if(mine));
        self.batches.send(batch);
    }
}

/// Counts a request as under way until it is dropped. Then the calls that were collected meanwhile are sent.
pub(super) struct UnderWay<'a> {
    batches: &'a Batches,
    kind: Kind,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let batch = {
            let mut kinds = self.batches.kinds.lock();
            let Some(calls) = kinds.get_mut(&self.kind) else { return };
            calls.under_way -= 1;
            let batch = calls.collected.take();
            if calls.under_way == 0 {
                kinds.remove(&self.kind);
            }
            batch
        };
        self.batches.send(batch);
    }
}

impl Batches {
    /// Decides how a call goes that may go together with others. `replies`: makes the future that sends a batch.
    pub(super) fn way(
        &self,
        call: &ScriptCall,
        sent: &SentOn,
        replies: impl FnOnce(Collected) -> BoxFuture<Replies>,
    ) -> Way<'_> {
        let kind = Kind::of(call);
        let (place, [others, full]) = {
            let mut kinds = self.kinds.lock();
            let calls = kinds.entry(kind.clone()).or_default();
            let others = calls.collected.take_if(|batch| !batch.members[0].call.goes_with(call));
            if calls.collected.is_none() && calls.under_way < MOST_ALONE {
                calls.under_way += 1;
                drop(kinds);
                self.send(others);
                return Way::Alone(Some(UnderWay { batches: self, kind }));
            }
            let batch = calls.collected.get_or_insert_with(|| {
                self.collecting.fetch_add(1, SeqCst);
                Batch { members: Vec::new(), request: Deferred::new(replies) }
            });
            let replies = batch.request.output().clone();
            let place = Place { batches: self, kind, index: batch.members.len(), replies };
            batch.members.push(Member { call: call.clone(), sent: sent.clone() });
            (place, [others, calls.collected.take_if(|batch| batch.members.len() == MOST_TOGETHER)])
        };
        self.send(others);
        self.send(full);
        Way::Together(place)
    }

    /// Counts a batch as under way.
    pub(super) fn under_way(&self, call: &ScriptCall) -> UnderWay<'_> {
        let kind = Kind::of(call);
        self.kinds.lock().entry(kind.clone()).or_default().under_way += 1;
        UnderWay { batches: self, kind }
    }

    /// Sends the calls that were collected for the locks of another call, before that one is sent.
    pub(super) fn send_before(&self, call: &ScriptCall) {
        if self.collecting.load(SeqCst) == 0 {
            return;
        }
        let is_of = |kind: &Kind| kind.keys.first().is_some_and(|lock| call.keys.contains(lock));
        let mut kinds = self.kinds.lock();
        let earlier = kinds.iter_mut().filter(|(kind, _)| is_of(kind)).filter_map(|(_, calls)| calls.collected.take());
        let earlier: Vec<_> = earlier.collect();
        drop(kinds);
        for batch in earlier {
            self.send(Some(batch));
        }
    }

    /// Sends a batch, which is collected no longer.
    fn send(&self, batch: Option<Batch>) {
        if let Some(batch) = batch {
            self.collecting.fetch_sub(1, SeqCst);
            batch.request.begin(batch.members);
        }
    }
}
