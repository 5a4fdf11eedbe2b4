//! A place in the queue that a server keeps for a lock. One request takes it, further ones confirm it, and the one that
//! gives it up is ordered after all of them. Only used where one node decides: with a queue on each of several nodes,
//! the first waiters of different queues would block each other.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::{self, Deadline, Stamp},
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{
        calls::QueueEntry,
        names::Names,
        primitive::Primitive,
        reply::{self, QueueReply, Slot},
        script::{Reply, ScriptCall},
    },
    quorum::{CLEANUP_LIMIT, FanOut, Grant, Presence, Quorum, insist},
    server::{ConnectionId, NodeError, NodeErrorKind, SentOn},
    sync::Mutex,
};

/// How long the places of a client count after its last request. The places of a dead client hold others up for this
/// long at most: all of them at once, not one after another.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// One acquire's place in a lock's queue: takes, confirms and gives up the place. Which of this client's waiters sends
/// these requests, and when, is decided by [`InLine`](super::line::InLine). Dropped before `into_grant`, it gives up
/// the place and any grant, so that the next waiter gets the lock.
pub(crate) struct Place {
    request: Arc<PlaceRequest>,
    owner: OwnerKey,
    /// Whether a reply has said that the server has a place or a grant for it.
    there: bool,
    /// Whether a grant was made of it, which the tenure releases.
    granted: bool,
}

struct PlaceRequest {
    quorum: Arc<Quorum>,
    primitive: Primitive,
    names: Arc<Names>,
    entry: QueueEntry,
    /// The connections of unanswered requests: each request may still run.
    unanswered: Mutex<Vec<SentOn>>,
}

impl PlaceRequest {
    fn read(&self, reply: &Reply) -> Result<QueueReply, NodeError> {
        let entered = match self.primitive {
            Primitive::Permits { count, of } => reply::taken(reply, count, of),
            Primitive::Lock | Primitive::Fair | Primitive::Read | Primitive::Write => reply::entered(reply),
        };
        entered.ok_or_else(NodeError::no_answer)
    }

    fn connections(&self) -> Vec<ConnectionId> {
        let mut connections: Vec<ConnectionId> = self.unanswered.lock().iter().filter_map(SentOn::get).collect();
        connections.sort_by_key(|connection| connection.number);
        connections.dedup_by_key(|connection| connection.number);
        connections
    }

    /// Gives it up in the background. `there`: the server has a place or a grant, so one request is sent even if
    /// none is unanswered.
    fn give_up(&self, there: bool) {
        let call = self.quorum.protocol.leave(self.primitive, &self.names, &self.entry);
        let connections = self.connections();
        if there && connections.is_empty() {
            self.quorum.spawn_pending(insist(self.quorum.nodes[0].clone(), call, CLEANUP_LIMIT));
            return;
        }
        let behind = connections.into_iter().map(|connection| (0, connection, true));
        drop(self.quorum.clean_up(behind, &call));
    }
}

impl Place {
    pub(crate) fn new(
        quorum: &Arc<Quorum>,
        primitive: Primitive,
        names: &Arc<Names>,
        entry: QueueEntry,
        owner: OwnerKey,
    ) -> Self {
        let (quorum, names, unanswered) = (quorum.clone(), names.clone(), Mutex::default());
        let request = PlaceRequest { quorum, primitive, names, entry, unanswered };
        Self { request: Arc::new(request), owner, there: false, granted: false }
    }

    pub(crate) fn entry(&self) -> &QueueEntry {
        &self.request.entry
    }

    /// Requests the lock, or a place in its queue, or confirms the place. Returns the time of the request, and the
    /// reply. `lease`: how long the place stays valid without
    /// a further request; zero takes no place.
    pub(crate) async fn ask(&mut self, driver: Driver, lease: Duration) -> (Stamp, Result<QueueReply, NodeError>) {
        let request = self.request.clone();
        let call = request.quorum.protocol.enter(request.primitive, &request.names, &request.entry, &self.owner, lease);
        let (limit, sent) = (request.quorum.settings.reply_timeout(request.entry.ttl), SentOn::default());
        request.unanswered.lock().push(sent.clone());
        let since = clock::now();
        let answer = request.quorum.nodes[0].eval(driver, call.clone(), limit, sent).await;
        let answer = answer.and_then(|reply| request.read(&reply));
        let over = answer.as_ref().map_or_else(|error| error.kind == NodeErrorKind::NotRun, |_| true);
        if over {
            request.unanswered.lock().pop();
        }
        self.there |= matches!(answer, Ok(QueueReply::Granted { .. } | QueueReply::Waits { .. }));
        match answer {
            Ok(granted @ QueueReply::Granted { .. }) => self.follow_unanswered(call, (since, granted), limit).await,
            other => (since, other),
        }
    }

    /// After a grant, makes sure that no unanswered request can run after the tenure's end: it would take a place for
    /// nobody. Each is followed by another request that is ordered after it.
    async fn follow_unanswered(
        &self,
        call: ScriptCall,
        mut granted: (Stamp, QueueReply),
        limit: Duration,
    ) -> (Stamp, Result<QueueReply, NodeError>) {
        for connection in self.request.connections() {
            let since = clock::now();
            let answer = self.request.quorum.nodes[0].eval_after(connection, call.clone(), limit).await;
            match answer.and_then(|reply| self.request.read(&reply)) {
                Ok(again @ QueueReply::Granted { .. }) => granted = (since, again),
                other => return (since, other),
            }
        }
        self.request.unanswered.lock().clear();
        (granted.0, Ok(granted.1))
    }

    /// Makes a grant of the server's reply. Fails if less than a twentieth of the ttl is left.
    pub(crate) fn into_grant(mut self, token: i64, slots: Vec<Slot>, since: Stamp) -> Result<Grant, NodeError> {
        let deadline = Deadline::new(since, self.request.quorum.settings.validity(self.request.entry.ttl));
        if deadline.left() < self.request.entry.ttl / 20 {
            let detail =
                format!("granted, but only after {:.1?} of a lease of {:?}", since.elapsed(), self.request.entry.ttl);
            return Err(NodeError::new(NodeErrorKind::NotRun, detail));
        }
        self.granted = true;
        let presences = vec![Presence::Held(deadline)];
        let (late, sent) = (FanOut::default(), vec![SentOn::default()]);
        Ok(Grant { token: token as u64, slots, since, presences, late, sent })
    }

    /// Returns a function that gives up the place and any grant in the background. The supervisor calls it while the
    /// caller still has this value.
    pub(crate) fn undo_later(&self) -> impl FnOnce() + Send + use<> {
        let request = self.request.clone();
        move || request.give_up(true)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.granted && !mutant!(PlaceKept) {
            self.request.give_up(self.there);
        }
    }
}

/// A waiting writer's intent on several nodes: after each of its requests they keep new readers out for a while.
/// Dropped, it withdraws the intent.
pub(crate) struct Intent {
    quorum: Arc<Quorum>,
    names: Arc<Names>,
    entry: QueueEntry,
    over: bool,
}

impl Intent {
    pub(crate) fn new(quorum: &Arc<Quorum>, names: &Arc<Names>, client: &str, ttl: Duration) -> Self {
        let entry = QueueEntry { field: String::new(), ttl, client: client.to_owned() };
        Self { quorum: quorum.clone(), names: names.clone(), entry, over: false }
    }

    /// Withdraws nothing: the writer was granted the lock.
    pub(crate) fn forget(mut self) {
        self.over = true;
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let call = self.quorum.protocol.leave(Primitive::Write, &self.names, &self.entry);
        for node in &self.quorum.nodes {
            // An intent that is not withdrawn expires soon after.
            self.quorum.spawn_pending(insist(node.clone(), call.clone(), LEASE));
        }
    }
}
