//! A place in the queue that a server keeps for a lock. One request takes the place, and further ones confirm it. The
//! request that gives it up is ordered after all of these. Only a single node keeps a queue: with a queue on each of
//! several nodes, the first waiters of different queues would block each other.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use super::{CLEANUP_LIMIT, Grant, Presence, Quorum, Right, Spread, deliveries::Expecting, insist};
use crate::{
    clock::{self, Deadline, Stamp},
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{
        calls::QueueEntry,
        primitive::Family,
        reply::{self, Granted, QueueReply},
        script::{Reply, ScriptCall},
        subject::Subject,
    },
    server::{ConnectionId, NodeError, NodeErrorKind, SentOn},
    sync::Mutex,
};

/// The ttl of a client's places: the server drops them this long after the client's last request. All places of a dead
/// client end at the same time, so they hold others up for this long at most.
pub(crate) const PLACE_TTL: Duration = Duration::from_secs(5);

/// One acquire's place in a lock's queue. It sends the requests that take, confirm and give up the place;
/// `PlacedWaiter` (`wait/placed_waiters.rs`) decides which of this client's waiters sends them, and when.
/// Dropped before `into_grant`, it gives up the place and any grant, so that the next waiter gets the lock.
pub(crate) struct Place {
    request: Arc<PlaceRequest>,
    owner: OwnerKey,
    /// Whether the server replied that it has a place or a grant for this acquire.
    on_server: bool,
    /// Whether it became a grant: then the tenure releases it.
    granted: bool,
    /// A grant on its way to it; `None` if it never gets one but by its own request.
    expecting: Option<Expecting>,
}

/// The arguments of the requests of one place, and the connections of those without a reply.
struct PlaceRequest {
    quorum: Arc<Quorum>,
    subject: Subject,
    entry: QueueEntry,
    /// The connections of unanswered requests: each request may still run.
    unanswered: Mutex<Vec<SentOn>>,
}

impl PlaceRequest {
    fn read(&self, reply: &Reply) -> Result<QueueReply, NodeError> {
        reply::entered_for(self.subject.primitive, reply).ok_or_else(NodeError::no_answer)
    }

    fn connections(&self) -> Vec<ConnectionId> {
        let mut connections: Vec<ConnectionId> = self.unanswered.lock().iter().filter_map(SentOn::get).collect();
        connections.sort_by_key(|connection| connection.number);
        connections.dedup_by_key(|connection| connection.number);
        connections
    }

    /// Gives up the place in the background, ordered after the unanswered requests. `on_server`: the server has a place
    /// or a grant, so it gets a request even if none is unanswered.
    fn give_up(&self, on_server: bool) {
        let call = self.quorum.protocol.leave(self.subject.primitive, &self.subject.names, &self.entry);
        let connections = self.connections();
        if on_server && connections.is_empty() {
            self.quorum.spawn_pending(insist(self.quorum.nodes[0].clone(), move || call.clone(), CLEANUP_LIMIT));
            return;
        }
        let behind = connections.into_iter().map(|connection| (0, connection, true));
        drop(self.quorum.clean_up(behind, &call));
    }
}

impl Place {
    pub(crate) fn new(quorum: &Arc<Quorum>, subject: &Subject, entry: QueueEntry, owner: OwnerKey) -> Self {
        let (quorum, subject, unanswered) = (quorum.clone(), subject.clone(), Mutex::default());
        let request = PlaceRequest { quorum, subject, entry, unanswered };
        Self { request: Arc::new(request), owner, on_server: false, granted: false, expecting: None }
    }

    /// Lets releases of this client grant it a permit. `wake` is notified then.
    pub(crate) fn expect_delivery(&mut self, wake: Arc<Notify>) {
        let PlaceRequest { quorum, subject, entry, .. } = &*self.request;
        if subject.primitive.family() == Family::Semaphore {
            let expecting = quorum.deliveries.expect(&subject.names.lock, &entry.client, &entry.field, wake);
            self.expecting = Some(expecting);
        }
    }

    /// Whether a release of this client granted it a permit.
    pub(crate) fn is_delivered(&self) -> bool {
        self.expecting.as_ref().is_some_and(Expecting::is_granted)
    }

    /// Whether a release of this client may have granted it a permit: the reply is missing.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.expecting.as_ref().is_some_and(Expecting::is_in_doubt)
    }

    /// Takes the permit that a release of this client granted it, and returns it with the time at which that release was
    /// sent. `None` if it needs a request all the same: another one is unanswered, or half of the lease is over.
    pub(crate) fn take_delivered(&mut self) -> Option<(Stamp, Granted)> {
        let (slots, since) = self.expecting.as_ref()?.take()?;
        let is_usable = self.request.unanswered.lock().is_empty() && since.elapsed() < self.request.entry.ttl / 2;
        let granted = is_usable.then(|| reply::permit(self.request.subject.primitive, &slots)).flatten()?;
        self.on_server = true;
        Some((since, granted))
    }

    pub(crate) fn entry(&self) -> &QueueEntry {
        &self.request.entry
    }

    /// Requests the lock, or a place in its queue, or confirms the place. Returns the time of the request, and the
    /// reply. `place_ttl`: how long the place stays valid without a further request; zero takes no place.
    pub(crate) async fn enter(
        &mut self,
        driver: Driver,
        place_ttl: Duration,
    ) -> (Stamp, Result<QueueReply, NodeError>) {
        if let Some(expecting) = &self.expecting {
            // The reply will tell whether it has a grant now.
            expecting.take();
        }
        let request = self.request.clone();
        let PlaceRequest { subject, entry, .. } = &*request;
        let call = request.quorum.protocol.enter(subject.primitive, &subject.names, entry, &self.owner, place_ttl);
        let (limit, sent) = (request.quorum.settings.reply_timeout(request.entry.ttl), SentOn::default());
        request.unanswered.lock().push(sent.clone());
        let since = clock::now();
        let answer = request.quorum.nodes[0].eval(driver, call.clone(), limit, sent).await;
        let answer = answer.and_then(|reply| request.read(&reply));
        // Whether the request has run, or never will.
        let ended = answer.as_ref().map_or_else(|error| error.kind == NodeErrorKind::NotRun, |_| true);
        if ended {
            request.unanswered.lock().pop();
        }
        self.on_server |= matches!(answer, Ok(QueueReply::Granted(_) | QueueReply::Waits { .. }));
        match answer {
            Ok(granted @ QueueReply::Granted(_)) => self.follow_unanswered(call, (since, granted), limit).await,
            other => (since, other),
        }
    }

    /// After a grant, makes sure that no unanswered request runs after the tenure's end: it would take a place for
    /// nobody. Sends one more request, ordered after each of them. Its reply shows that the earlier one has run, or
    /// never will.
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
                Ok(again @ QueueReply::Granted(_)) => granted = (since, again),
                other => return (since, other),
            }
        }
        self.request.unanswered.lock().clear();
        (granted.0, Ok(granted.1))
    }

    /// Turns the server's reply into a grant. Fails if less than a twentieth of the ttl is left.
    pub(crate) fn into_grant(mut self, granted: Granted, since: Stamp) -> Result<Grant, NodeError> {
        let since = if mutant!(PlaceDeadlineFromReply) { clock::now() } else { since };
        let deadline = Deadline::new(since, self.request.quorum.settings.validity(self.request.entry.ttl));
        if deadline.left() < self.request.entry.ttl / 20 {
            let detail =
                format!("granted, but only after {:.1?} of a lease of {:?}", since.elapsed(), self.request.entry.ttl);
            return Err(NodeError::new(NodeErrorKind::NotRun, detail));
        }
        self.granted = true;
        let QueueEntry { field, ttl, .. } = self.entry().clone();
        let right = Right { field, token: granted.token as u64, slots: granted.slots, since, ttl };
        let (presences, sent) = (vec![Presence::Held(deadline)], vec![SentOn::default()]);
        Ok(Grant { right, spread: Spread { presences, sent, ..Spread::default() } })
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
            self.request.give_up(self.on_server);
        }
    }
}

/// A waiting writer's intent on several nodes: after each request of the writer they keep new readers out for
/// [`PLACE_TTL`]. Dropping this withdraws the intent.
pub(crate) struct Intent {
    quorum: Arc<Quorum>,
    subject: Subject,
    entry: QueueEntry,
    granted: bool,
}

impl Intent {
    pub(crate) fn new(quorum: &Arc<Quorum>, subject: &Subject, client: &str, ttl: Duration) -> Self {
        let entry = QueueEntry { field: String::new(), ttl, client: client.to_owned() };
        Self { quorum: quorum.clone(), subject: subject.clone(), entry, granted: false }
    }

    /// Drops it and withdraws nothing: the nodes that granted the lock to the writer have removed its intent.
    pub(crate) fn forget(mut self) {
        self.granted = true;
    }
}

impl Drop for Intent {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let call = self.quorum.protocol.leave(self.subject.primitive, &self.subject.names, &self.entry);
        for node in &self.quorum.nodes {
            let call = call.clone();
            // An intent that is not withdrawn expires soon after.
            self.quorum.spawn_pending(insist(node.clone(), move || call.clone(), PLACE_TTL));
        }
    }
}
