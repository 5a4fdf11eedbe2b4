//! Checks the invariants, each under the assumptions of its run. Their names are those of the list in the parent
//! module.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock::{
    Lease, LostReason,
    protocol::script::{Reply, ScriptCall},
    server::NodeError,
};

use super::{SECOND, Time, plan::Plan, store::Store};

/// The state of the checks in a run.
#[derive(Default)]
pub struct Checks {
    /// The violations, with their times.
    pub violations: Vec<(Time, String)>,
    /// For each lock, the largest token that an acquire has returned.
    told: BTreeMap<String, u64>,
    /// Every token of a lock, and the owner that drew it.
    tokens: BTreeMap<(String, u64), String>,
    /// For each tenure, the largest token returned before its first grant on any node.
    floors: BTreeMap<String, u64>,
    /// Tenures whose acquire arrived a second time, later.
    pub again: BTreeSet<String>,
    /// Tenures that had no holder between a detach and an attach, and the time until which that explains their keys.
    pub detached: BTreeMap<String, Time>,
    /// Every text of a detached lease that users hand on.
    pub texts: Vec<Text>,
    /// For how long each tenure may be kept as an uncollected grant while its caller is away.
    offers: BTreeMap<String, Time>,
    /// Whether callers are away at times.
    absences: bool,
    /// Clients that are stopped at the moment.
    pub stopped: BTreeSet<usize>,
    /// Locks and tokens of leases that are renewed.
    pub renewed: BTreeSet<(String, u64)>,
    /// Locks and tokens of leases whose repair found another owner's key on a node.
    pub outvoted: BTreeSet<(String, u64)>,
    /// The semaphore and the token of every permit.
    permits: BTreeSet<(String, u64)>,
    /// Owners whose key was deleted. Exclusion is not promised to them.
    pub void: BTreeSet<String>,
    /// The client of each tenure.
    pub fields: BTreeMap<String, usize>,
    /// For each field that was replaced by an attach on some server, those that replaced it.
    takers: BTreeMap<String, BTreeSet<String>>,
    /// For each tenure with a `min_hold`, from when to when the lock may become free, if it is released before.
    min_holds: BTreeMap<String, (Time, Time)>,
    /// Until when each released lock stays taken, and the token of its last holder.
    rests: BTreeMap<String, (Time, u64)>,
    /// For each register, its value and the largest token that it has seen.
    registers: BTreeMap<String, (u64, u64)>,
    /// Losses: time, host, lock, token, reason.
    pub losses: Vec<(Time, usize, String, u64, LostReason)>,
    /// The waiters: host, lock, and start of the wait.
    pub waiting: BTreeMap<u64, (usize, String, Time)>,
    /// Since when no server has the key of a lock.
    pub free: BTreeMap<String, Time>,
    /// The entries of the locks' queues, by queue and entry, numbered in order of arrival.
    arrivals: BTreeMap<(String, String), Arrival>,
    arrived: u64,
    /// Since when a server has a tenure without a holder.
    orphans: BTreeMap<(usize, String), Time>,
    /// The time until which a fault excuses delays.
    pub trouble: Time,
    tokens_promised: bool,
    /// Whether a server keeps the turns of readers and writers.
    phases: bool,
    /// How often a script ran on a server during a fault, or just after.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
    /// How often each kind of event happened.
    pub counts: BTreeMap<&'static str, u64>,
}

/// A detached lease that users hand on.
pub struct Text {
    /// The text.
    pub text: String,
    /// Its lock.
    pub lock: String,
    token: u64,
    field: String,
    /// Its key is on a quorum at least until this time.
    until: Time,
    /// Whether a user attached it.
    pub taken: bool,
    /// The number of attempts to attach it: in progress now, and in all.
    busy: usize,
    begun: usize,
    /// For each client that tried, the time until which its attempt may have an effect.
    tried: BTreeMap<usize, Time>,
}

impl Text {
    /// The text that a detach returned at `now`, of a lease with `left` remaining by its client's clock.
    pub fn new(now: Time, text: String, lease: &Lease, left: Duration) -> Self {
        // That clock may be slow.
        let until = now + left.mul_f64(0.95).as_nanos() as Time;
        let (lock, token, field) = (lease.name().to_owned(), lease.token(), lease.owner().to_owned());
        Self { text, lock, token, field, until, taken: false, busy: 0, begun: 0, tried: BTreeMap::new() }
    }

    /// True if an attach should succeed.
    pub fn is_good(&self, now: Time) -> bool {
        !self.taken && now < self.until
    }

    /// A client starts to attach it. Returns the number of the attempt, or `None` if another attempt is in progress.
    pub fn begin(&mut self, now: Time, host: usize) -> Option<usize> {
        self.busy += 1;
        self.begun += 1;
        self.tried.entry(host).or_insert(now);
        (self.busy == 1).then_some(self.begun)
    }
}

/// The state of the locks before a script ran.
pub struct Before {
    /// For each lock of the call, its tenures and the expiry of its key.
    locks: Vec<(String, Vec<String>, Option<i64>)>,
    /// Whether readers held the first lock.
    read: bool,
    /// The places in its queues whose clients are alive: the queue, the entry and its ticket.
    places: Vec<(String, String, i64)>,
}

/// When an entry of a queue arrived.
#[derive(Default)]
struct Arrival {
    /// Counts all entries, in order.
    number: u64,
    /// The server's ticket for it.
    ticket: i64,
}

impl Checks {
    /// Creates the checks for a plan.
    pub fn new(plan: &Plan) -> Self {
        let phases = plan.read_write && plan.queues();
        Self { tokens_promised: plan.tokens, absences: plan.absent > 0.0, phases, ..Self::default() }
    }

    /// Records a violation.
    pub fn violated(&mut self, time: Time, what: String) {
        self.violations.push((time, what));
    }

    /// Counts an event.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Records that a script ran during a fault.
    pub fn met(&mut self, fault: &'static str, script: &'static str) {
        *self.pairs.entry((fault, script)).or_default() += 1;
    }

    /// Records an acquire that arrives a second time.
    pub fn repeated(&mut self, call: &ScriptCall) {
        let begins = ["acquire", "enter", "attach", "repair"].contains(&call.script.name);
        if begins || call.script.name.starts_with("read_write/") || call.script.name.starts_with("semaphore/") {
            self.again.extend(call.args.iter().filter(|arg| arg.contains(':')).cloned());
        }
    }

    /// Records a request that a client sends to a node.
    pub fn asked(&mut self, call: &ScriptCall) {
        match (call.script.name, &call.args[..]) {
            // If it arrives late, its key lives for its ttl, whatever the result of the call.
            ("attach", [_, new, ..]) | ("read_write/attach" | "semaphore/attach", [new, ..]) => {
                self.detached.entry(new.clone()).or_default();
            }
            _ => {}
        }
        if self.absences
            && let Some((field, ttl)) = wanted(call)
        {
            self.offers.insert(field.clone(), (ttl / 6).min(5 * SECOND));
        }
    }

    /// Records that a tenure has no holder, and that its keys may live for `life`.
    pub fn detach(&mut self, now: Time, field: &str, life: Time) {
        let until = self.detached.entry(field.to_owned()).or_default();
        // Servers' clocks may be slow.
        *until = (*until).max(now + life + life / 10);
    }

    fn locks(call: &ScriptCall) -> Vec<&String> {
        match call.script.name {
            "renew" | "prolong" => call.keys.iter().step_by(2).collect(),
            "read_write/renew" => call.keys.iter().step_by(3).collect(),
            "semaphore/renew" => call.keys.iter().step_by(4).collect(),
            "learn" | "provision" | "inspect" | "read_write/inspect" | "semaphore/inspect" => Vec::new(),
            _ => call.keys.iter().take(1).collect(),
        }
    }

    /// Records the state of the call's locks before the script runs.
    pub fn before(&mut self, store: &mut Store, call: &ScriptCall) -> Before {
        let look = |key: &String| {
            let tenures = store.live(key);
            (key.clone(), tenures, store.entry(key).and_then(|entry| entry.expires))
        };
        let locks: Vec<_> = Self::locks(call).into_iter().map(look).collect();
        let read = locks.first().is_some_and(|(key, ..)| store.mode(key).as_deref() == Some("read"));
        let mut places = Vec::new();
        let alive = if call.script.name.starts_with("read_write/") { 5 } else { 3 };
        for queue in queues(call) {
            let (clients, time) = (store.members(&call.keys[alive]), store.now);
            places.extend(
                store.members(queue).into_iter().filter_map(|(ticket, entry)| {
                    lives(&clients, time, &entry).then(|| (queue.clone(), entry, ticket))
                }),
            );
            // Forget entries that left since the last script, with their client or with the key.
            let waiting = store.members(queue);
            let there: BTreeSet<&String> = waiting.iter().map(|(_, entry)| entry).collect();
            self.arrivals.retain(|(known, entry), _| known != queue || there.contains(entry));
            self.arrive(queue, waiting);
        }
        Before { locks, read, places }
    }

    /// Forgets the order of arrival after a server's keys were replaced.
    pub fn forget_queues(&mut self) {
        self.arrivals.clear();
    }

    /// Records new entries of a queue.
    fn arrive(&mut self, queue: &str, waiting: Vec<(i64, String)>) {
        for (ticket, entry) in waiting {
            let known = self.arrivals.entry((queue.to_owned(), entry)).or_default();
            // An entry that was removed because its client was gone, and came back, arrives anew.
            if known.ticket != ticket {
                self.arrived += 1;
                *known = Arrival { number: self.arrived, ticket };
            }
        }
    }

    /// I14: no waiter is overtaken in the queue of a lock while its client lives.
    fn look_at_queue(&mut self, now: Time, store: &mut Store, call: &ScriptCall, tenures: &[String], left: &[String]) {
        let [queue] = queues(call)[..] else { return };
        let latest = self.arrived;
        let (waiting, alive) = (store.members(queue), store.members(&call.keys[3]));
        // An acquire that joins an owner which already has the lock overtakes no waiter.
        let begun =
            left.iter().find(|field| !tenures.contains(field)).filter(|_| tenures.is_empty() || left.len() == 1);
        if let Some(begun) = begun {
            let own = |(known, entry): &(String, String)| known == queue && entry.ends_with(&format!("/{begun}"));
            let known = self.arrivals.iter().find(|(key, _)| own(key));
            let (entry_of, own) =
                (known.map(|((_, entry), _)| entry.clone()), known.map_or(latest, |(_, known)| known.number));
            let lives = |entry: &str| lives(&alive, store.now, entry);
            let handed = entry_of.filter(|entry| call.args[0] != *begun && !lives(entry));
            if let Some(entry) = handed {
                self.violations.push((now, format!("I14 {} was handed to {entry}, which is gone", call.keys[0])));
            }
            for (ticket, entry) in &waiting {
                let known = self.arrivals.get(&(queue.clone(), entry.clone()));
                let before = known.is_some_and(|known| known.ticket == *ticket && known.number < own);
                if lives(entry) && before {
                    let lock = &call.keys[0];
                    self.violations.push((now, format!("I14 {begun} got {lock} ahead of {entry}")));
                }
            }
        }
        self.arrive(queue, waiting);
    }

    /// I14, for read/write locks: while a writer with a live client waits, no reader joins other readers. No writer
    /// overtakes another. After a tenure or a wait has ended, no entry waits if it is its turn.
    fn look_at_phases(
        &mut self,
        now: Time,
        store: &mut Store,
        (call, reply): (&ScriptCall, &Result<Reply, NodeError>),
        before: &Before,
        left: &[String],
    ) {
        let [writing, reading] = queues(call)[..] else { return };
        let (lock, latest, alive, time) = (&call.keys[0], self.arrived, store.members(&call.keys[5]), store.now);
        let lives = |entry: &str| lives(&alive, time, entry);
        let of = |members: Vec<(i64, String)>| -> Vec<String> {
            members.into_iter().map(|(_, entry)| entry).filter(|entry| lives(entry)).collect()
        };
        let tickets = (store.members(writing), store.members(reading));
        let (writers, readers) = (of(tickets.0.clone()), of(tickets.1.clone()));
        let (read, there) = (store.mode(lock).as_deref() == Some("read"), &before.locks[0].1);
        let begun = left.iter().find(|field| !there.contains(field));
        let name = call.script.name;
        match begun {
            Some(reader) if read && before.read && !there.is_empty() && name == "read_write/read" => {
                if let Some(writer) = writers.first() {
                    self.violations.push((now, format!("I14 {reader} reads {lock} ahead of {writer}")));
                }
            }
            Some(writer) if !read => {
                let own =
                    |(known, entry): &(String, String)| known == writing && entry.ends_with(&format!("/{writer}"));
                let own = self.arrivals.iter().find(|(key, _)| own(key)).map_or(latest, |(_, known)| known.number);
                let earlier = |(ticket, entry): &&(i64, String)| {
                    let known = self.arrivals.get(&(writing.clone(), entry.clone()));
                    lives(entry) && known.is_some_and(|known| known.ticket == *ticket && known.number < own)
                };
                if let Some((_, other)) = tickets.0.iter().find(earlier) {
                    self.violations.push((now, format!("I14 {writer} writes {lock} ahead of {other}")));
                }
            }
            _ => {}
        }
        // The place that was given up was in the queue of writers or in that of readers.
        let gave_up = call.args.get(7).filter(|entry| !entry.is_empty()).is_some_and(|entry| {
            [writing, reading].iter().any(|queue| self.arrivals.contains_key(&((*queue).clone(), entry.clone())))
        });
        let ended = matches!(name, "read_write/leave" | "read_write/downgrade") && *reply == Ok(Reply::Int(1));
        if ended || gave_up && reply.is_ok() {
            let turn = if left.is_empty() { writers.first().or(readers.first()) } else { None };
            // Entries behind a writer whose client is gone notice that with their next request.
            let ends_a_phase = !before.read || gave_up;
            let turn = turn.or(if read && writers.is_empty() && ends_a_phase { readers.first() } else { None });
            if let Some(entry) = turn {
                self.violations.push((now, format!("I14 {entry} waits for {lock}, though it is its turn, by {name}")));
            }
        }
        self.arrive(writing, tickets.0);
        self.arrive(reading, tickets.1);
    }

    /// Checks the call's locks after the script ran.
    pub fn after(
        &mut self,
        now: Time,
        server: usize,
        store: &mut Store,
        call: &ScriptCall,
        before: &Before,
        reply: &Result<Reply, NodeError>,
    ) {
        let name = call.script.name;
        self.count(name);
        for (key, tenures, expires) in &before.locks {
            let (left, until) = (store.tenures(key), store.entry(key).map(|entry| entry.expires));
            let read = store.mode(key).as_deref() == Some("read");
            let (is_semaphore, permits) = (name.starts_with("semaphore/"), store.permits(key));
            let mut wrong = |what: String| self.violations.push((now, format!("{what}, by {name} on server {server}")));
            // I6: one tenure, counted once, with a ttl that only grows.
            let owners: BTreeSet<&str> = left.iter().map(|field| owner(field)).collect();
            if owners.len() > 1 && !read && !is_semaphore {
                wrong(format!("I6 {key} holds {left:?}"));
            }
            let mut taken = BTreeSet::new();
            if is_semaphore && !permits.iter().flat_map(|(_, slots)| slots).all(|slot| taken.insert(slot)) {
                wrong(format!("I6 a slot of {key} has two permits: {permits:?}"));
            }
            if let Some(super::store::Value::Hash(fields)) = store.entry(key).map(|entry| entry.value.clone())
                && let Some((field, count)) = fields.iter().find(|(field, count)| count != "1" && field != "mode")
            {
                wrong(format!("I6 {key} counts {count} for {field}"));
            }
            match (expires, until) {
                (_, Some(None)) => wrong(format!("I6 {key} has no ttl")),
                // Only if a tenure held the lock before and still does.
                (Some(old), Some(Some(new))) if new < *old && tenures.iter().any(|field| left.contains(field)) => {
                    wrong(format!("I6 the ttl of {key} shrank by {} ms", old - new));
                }
                _ => {}
            }
            // I7: a release removes its own tenure and no other.
            let own = ["read", "write", "leave", "upgrade", "downgrade"];
            let of_permits = ["acquire", "take", "relocate", "bump", "leave", "repair"];
            if matches!(name, "release" | "rest" | "leave")
                || name.strip_prefix("semaphore/").is_some_and(|name| of_permits.contains(&name))
                || name.strip_prefix("read_write/").is_some_and(|name| own.contains(&name))
            {
                let touched: Vec<&String> = tenures.iter().filter(|field| !left.contains(field)).collect();
                if let Some(other) = touched.iter().find(|field| Some(**field) != call.args.first()) {
                    wrong(format!("I7 {key} lost {other}"));
                }
            }
        }
        if let ("semaphore/leave", Ok(Reply::List(_))) = (name, reply) {
            self.count("permit in a release's reply");
        }
        let token = match name {
            "repair" => call.args.get(3),
            "read_write/repair" | "semaphore/repair" => call.args.get(5),
            _ => None,
        };
        if let (Some(token), Ok(Reply::List(list))) = (token, reply)
            && matches!(list.first(), Some(Reply::Int(-1 | 0)))
        {
            // Another owner is there, or the node is in quarantine: it was unreachable when a new deployment was first used.
            // Of a permit it is that of its first slot: "slot:token,...".
            let token = token.split(',').next().and_then(|first| first.rsplit(':').next()).unwrap_or(token);
            let token = token.parse().unwrap_or_default();
            self.outvoted.insert((call.keys[0].clone(), token));
        }
        if let ("attach" | "read_write/attach" | "semaphore/attach", Ok(Reply::Int(left))) = (name, reply) {
            let (left, new) = (u64::try_from(*left).unwrap_or_default(), usize::from(name == "attach"));
            self.detach(now, &call.args[new], left * (SECOND / 1000));
            if matches!(reply, Ok(Reply::Int(0..))) {
                self.takers.entry(call.args[1 - new].clone()).or_default().insert(call.args[new].clone());
            }
        }
        // A request that a frozen server or a broken network held up begins the rest late.
        if let (Some((rest, ttl)), Ok(Reply::Int(1))) = (rest(call), reply) {
            self.detach(now, rest, ttl);
        }
        // I14: an entry of a client that is alive keeps its place.
        for (queue, entry, ticket) in &before.places {
            if store.members(queue).iter().any(|(now, other)| other == entry && now != ticket) {
                self.violations.push((now, format!("I14 {entry} lost its place in {queue}")));
            }
        }
        // A server ran the acquire only after its tenure was detached: nobody knows of the key there, which lives for its ttl.
        if let Some((field, ttl)) = wanted(call).filter(|(field, _)| self.detached.contains_key(*field)) {
            self.detach(now, field, ttl);
        }
        let inside = name.starts_with("read_write/");
        if matches!(name, "acquire" | "enter" | "leave") || inside && !Self::locks(call).is_empty() {
            let tenures = before.locks.first().map(|(_, tenures, _)| tenures.clone()).unwrap_or_default();
            let (left, key) = (store.tenures(&call.keys[0]), &call.keys[0]);
            for field in left.iter().filter(|field| !tenures.contains(field)) {
                let told = self.told.get(key).copied().unwrap_or_default();
                self.floors.entry(field.clone()).or_insert(told);
            }
            if inside && self.phases {
                let live = store.live(key);
                self.look_at_phases(now, store, (call, reply), before, &live);
            } else {
                self.look_at_queue(now, store, call, &tenures, &left);
            }
        }
    }

    /// An acquire returned a token. I2: no token is drawn twice, and each is larger than all tokens returned before its
    /// first grant. Leases of one explicit owner share a tenure and so a token. Readers share a token, which no writer
    /// has.
    pub fn told(&mut self, now: Time, lease: &Lease, floor: u64) {
        if !self.tokens_promised {
            return;
        }
        let (lock, owner, token) = (lease.name(), lease.owner(), lease.token());
        let shared = !owner.contains(':');
        let known = (lock.to_owned(), token);
        let other =
            if lease.reads() { self.tokens.get(&known).cloned() } else { self.tokens.insert(known, owner.to_owned()) };
        match other {
            Some(other) if shared && other == owner => return,
            Some(other) => self.violated(now, format!("I2 token {token} of {lock} was drawn by {other} and {owner}")),
            None => {}
        }
        let floor = self.floors.get(owner).copied().unwrap_or(floor);
        if token < floor || token == floor && !lease.reads() {
            self.violated(now, format!("I2 token {token} of {lock} came after {floor}"));
        }
        let told = self.told.entry(lock.to_owned()).or_default();
        *told = token.max(*told);
    }

    /// Permits of different slots may have one token. Then a loss, which is reported with the token, may be that of either,
    /// and says nothing about a renewed one.
    pub fn tell_permits_apart(&mut self, lease: &Lease) {
        let permit = (lease.name().to_owned(), lease.token());
        if !self.permits.insert(permit.clone()) {
            self.outvoted.insert(permit);
        }
    }

    /// An acquire returned a permit. I2: no token of a slot is drawn twice, and each is larger than all that were returned
    /// before the acquire. `floors`: for each slot the largest of those.
    pub fn told_slots(&mut self, now: Time, lease: &Lease, floors: &[u64]) {
        if !self.tokens_promised {
            return;
        }
        for slot in lease.slots() {
            let (name, token) = (slot_name(lease.name(), slot.number), slot.token);
            let floor = floors.get(slot.number as usize).copied().unwrap_or_default();
            let other = self.tokens.insert((name.clone(), token), lease.owner().to_owned());
            if let Some(other) = other {
                self.violated(now, format!("I2 token {token} of {name} was drawn by {other} and {}", lease.owner()));
            }
            if token <= floor {
                self.violated(now, format!("I2 token {token} of {name} came after {floor}"));
            }
            let told = self.told.entry(name).or_default();
            *told = token.max(*told);
        }
    }

    /// A tenure is about to get another token. Returns the largest token returned so far, which the new one must
    /// exceed.
    pub fn begins_anew(&mut self, lease: &Lease) -> u64 {
        let told = self.largest(lease.name());
        self.floors.insert(lease.owner().to_owned(), told);
        told
    }

    /// I13: checks a lease that a user attached from a text. If an acquire arrives a second time after its tenure has
    /// ended, it draws a token that the text does not contain. Without the right to `CLIENT KILL` a slow request for a
    /// place may arrive after the text was attached, and get the lock again under the text's field.
    pub fn attached(&mut self, now: Time, plan: &Plan, number: usize, lease: &Lease, held: bool) {
        let token = lease.token();
        if self.is_repeated(number) {
            // So are the texts that the lease is handed on with.
            self.again.insert(lease.owner().to_owned());
        }
        let text = &mut self.texts[number];
        let (lock, had, twice) = (text.lock.clone(), text.token, std::mem::replace(&mut text.taken, true));
        if token != had {
            self.violated(now, format!("I13 attaching {lock} changed its token from {had} to {token}"));
        }
        let exclusive = plan.exclusive() && plan.allows_kill && !self.is_repeated(number);
        if twice && exclusive {
            self.violated(now, format!("I13 {lock} with token {token} was attached twice from one text"));
        }
        let largest = self.largest(&lock);
        if held && largest > token && exclusive && self.tokens_promised {
            self.violated(now, format!("I13 {lock} with token {token} was attached after {largest} was drawn"));
        }
    }

    /// How much is left of the lease of a text.
    pub fn left(&self, now: Time, number: usize) -> Duration {
        Duration::from_nanos(self.texts[number].until.saturating_sub(now))
    }

    /// The lease of a text is over: no attach has to succeed any more.
    pub fn ended(&mut self, now: Time, number: usize) {
        let text = &mut self.texts[number];
        text.until = text.until.min(now);
    }

    fn is_repeated(&self, number: usize) -> bool {
        self.again.contains(&self.texts[number].field)
    }

    /// A user's attach has ended. It may still have an effect on the servers until `until`. Returns until when the
    /// earlier ones of each client may.
    pub fn tried(&mut self, number: usize, host: usize, until: Time) -> BTreeMap<usize, Time> {
        let text = &mut self.texts[number];
        let earlier = text.tried.clone();
        text.busy -= 1;
        let known = text.tried.entry(host).or_default();
        *known = until.max(*known);
        earlier
    }

    /// I13: an attach with no other attempt in between found the lease lost, although its text is good. An earlier
    /// attempt makes the lease look lost until that attempt is undone; a client's own attach waits for that. Without
    /// the right to `CLIENT KILL` a slow request may arrive after the request that undoes it. On a quorum, two attempts
    /// may each get too few nodes, and give them up: then the text is spent. `started`: when the attach was called;
    /// `earlier`: what [`Self::tried`] returned; `dead`: the clients whose process was killed.
    pub fn attach_lost(
        &mut self,
        (started, now): (Time, Time),
        plan: &Plan,
        (number, attempt, earlier): (usize, usize, &BTreeMap<usize, Time>),
        host: usize,
        dead: &[bool],
    ) {
        let text = &self.texts[number];
        let undone_for_good = plan.allows_kill && !self.is_repeated(number);
        let split = plan.nodes > 1 && self.takers.get(&text.field).is_some_and(|takers| takers.len() > 1);
        if !plan.present() || !text.is_good(now) || text.begun > attempt || !undone_for_good || split {
            return;
        }
        let limit = 2 * SECOND + 3 * plan.reply_timeout.as_nanos() as Time;
        let undone = |(other, last): (&usize, &Time)| {
            let idle = !dead[*other] && !self.stopped.contains(other);
            *other == host && started >= *last || idle && started > self.trouble.max(*last) + limit
        };
        if earlier.iter().all(undone) {
            let (lock, token, left) = (&text.lock, text.token, (text.until - now) as f64 / 1e9);
            let what = format!("I13 host {host} could not attach {lock} with token {token}, good for {left:.3} s more");
            self.violated(now, what);
        }
    }

    /// A lease with a `min_hold` was returned. The rates of the clocks differ by less than a twentieth.
    pub fn begin_min_hold(&mut self, now: Time, lease: &Lease, min_hold: Duration) {
        let after = |share: f64| now + min_hold.mul_f64(share).as_nanos() as Time;
        self.min_holds.entry(lease.owner().to_owned()).or_insert((after(0.95), after(1.1)));
    }

    /// A lease was released on all servers that had it.
    pub fn begin_rest(&mut self, lease: &Lease) {
        if let Some((least, _)) = self.min_holds.get(lease.owner()) {
            self.rests.insert(lease.name().to_owned(), (*least, lease.token()));
        }
    }

    /// I16: nobody acquires a lock that was released before its `min_hold` is over.
    pub fn acquired_after_rest(&mut self, now: Time, lease: &Lease) {
        let rest = self.rests.get(lease.name()).copied();
        if let Some((until, token)) = rest.filter(|(until, token)| now < *until && lease.token() != *token) {
            let (lock, early) = (lease.name(), (until - now) as f64 / 1e9);
            self.violated(now, format!("I16 {lock} was acquired {early:.3} s before the min_hold of {token} is over"));
        }
    }

    /// Whether a field stands for the rest of a `min_hold` that is not over.
    fn is_resting(&self, now: Time, field: &str) -> bool {
        let of = field.strip_prefix('~');
        of.is_some_and(|of| self.min_holds.get(of).is_none_or(|(_, most)| now < *most))
    }

    /// The largest token of a lock that any acquire has returned.
    pub fn largest(&self, lock: &str) -> u64 {
        self.told.get(lock).copied().unwrap_or_default()
    }

    /// Reads a register that checks tokens on every access.
    pub fn read(&mut self, lock: &str, token: u64) -> Option<u64> {
        let (value, largest) = self.registers.entry(lock.to_owned()).or_default();
        if token < *largest {
            return None;
        }
        *largest = token;
        Some(*value)
    }

    /// Writes the value after `read`. I4: no accepted write is lost.
    pub fn write(&mut self, now: Time, lock: &str, token: u64, read: u64) {
        let (value, largest) = self.registers.entry(lock.to_owned()).or_default();
        if token < *largest {
            return;
        }
        *largest = token;
        let lost = *value != read;
        *value = read + 1;
        if lost && self.tokens_promised {
            self.violated(now, format!("I4 the register of {lock} lost an update"));
        }
    }

    /// Reads again. I4: the value is unchanged, or the read is refused.
    pub fn read_again(&mut self, now: Time, lock: &str, token: u64, before: u64) {
        let changed = self.read(lock, token).is_some_and(|value| value != before);
        if changed && self.tokens_promised {
            self.violated(now, format!("I4 the register of {lock} changed under a reader"));
        }
    }

    /// True if a server may have a tenure without a holder: its acquire arrived a second time, it was detached, its
    /// `min_hold` is not over, or it has an explicit owner, who may have other tenures.
    pub fn is_excused(&self, now: Time, field: &str) -> bool {
        let detached = self.detached.get(field).is_some_and(|until| now < *until);
        self.again.contains(field) || detached || self.is_resting(now, field) || field.starts_with('=')
    }

    /// I5: a tenure without a holder soon disappears from a server, unless it is excused.
    pub fn look_at_orphans(&mut self, now: Time, there: BTreeSet<(usize, String)>, limit: Time) {
        self.orphans.retain(|known, _| there.contains(known));
        for known in there {
            self.orphans.entry(known).or_insert(now);
        }
        let late = self.orphans.iter().find(|((_, field), since)| {
            let offered = self.offers.get(field).copied().unwrap_or_default();
            now > self.trouble.max(**since) + limit + offered
        });
        if let Some(((server, field), since)) = late.map(|(known, since)| (known.clone(), *since)) {
            let since = since as f64 / 1e9;
            self.violated(now, format!("I5 server {server} has {field}, which nobody holds, since {since:.3}"));
            self.orphans.clear();
        }
    }

    /// The number of waiters on a host for a lock.
    pub fn waiters(&self, host: usize, lock: &str) -> usize {
        self.waiting.values().filter(|(waiter, wanted, _)| *waiter == host && wanted == lock).count()
    }

    /// I10: a waiter gets a free lock after twice the longest poll interval at most. With a queue, that includes
    /// waiters behind others whose clients are gone.
    pub fn look_at_waiters(&mut self, now: Time, limit: Time, running: impl Fn(usize) -> bool) {
        let late = self.waiting.values().find(|(host, lock, since)| {
            let Some(free) = self.free.get(lock) else { return false };
            let since = (*since).max(*free).max(self.trouble);
            running(*host) && now > since + limit
        });
        if let Some((host, lock, _)) = late.cloned() {
            self.violated(now, format!("I10 a user on host {host} waits for {lock}, which is free"));
            self.waiting.clear();
        }
    }
}

/// The field of the rest of a `min_hold`, and its ttl.
fn rest(call: &ScriptCall) -> Option<(&String, Time)> {
    match (call.script.name, &call.args[..]) {
        ("rest", [_, rest, ttl, ..]) | ("read_write/rest", [_, _, _, _, _, _, _, rest, ttl, ..]) => {
            Some((rest, ttl.parse::<Time>().unwrap_or_default() * (SECOND / 1000)))
        }
        _ => None,
    }
}

/// The field of an acquire of a lock, and the ttl that it asks for.
fn wanted(call: &ScriptCall) -> Option<(&String, Time)> {
    match (call.script.name, &call.args[..]) {
        ("acquire" | "enter", [field, _, ttl, ..])
        | ("read_write/read" | "read_write/write", [field, _, _, _, _, _, _, ttl, ..]) => {
            Some((field, ttl.parse::<Time>().unwrap_or_default() * (SECOND / 1000)))
        }
        _ => None,
    }
}

/// Whether the client of a queue's entry is alive. `clients`: until when the entries of each client count.
fn lives(clients: &[(i64, String)], now: i64, entry: &str) -> bool {
    let client = entry.split('/').nth(1).unwrap_or_default();
    clients.iter().any(|(until, name)| name == client && *until > now)
}

/// The queues that a call changes: the queue of a lock, or those of writers and readers.
fn queues(call: &ScriptCall) -> Vec<&String> {
    match call.script.name {
        "enter" | "leave" => call.keys.iter().skip(2).take(1).collect(),
        "read_write/read" | "read_write/write" | "read_write/leave" | "read_write/downgrade" => {
            call.keys.iter().skip(3).take(2).collect()
        }
        _ => Vec::new(),
    }
}

/// The name of a semaphore's slot, in findings and for its register.
pub fn slot_name(lock: &str, slot: u32) -> String {
    format!("{lock}#{slot}")
}

/// The explicit owner in a field, or else the field.
pub fn owner(field: &str) -> &str {
    match field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':')) {
        Some((owner, _)) => owner,
        None => field,
    }
}
