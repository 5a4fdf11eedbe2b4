//! The invariants, each under the assumptions of its run. Named as in the list at the head of this module's parent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock::{
    Lease, LostReason,
    protocol::script::{Call, Reply},
    server::NodeError,
};

use super::{SECOND, Time, plan::Plan, store::Store};

/// What the checks know of a run.
#[derive(Default)]
pub struct Checks {
    /// What was found, with its time.
    pub violations: Vec<(Time, String)>,
    /// For each lock, the largest token whose holder was told.
    told: BTreeMap<String, u64>,
    /// Every token of a lock, and who drew it.
    tokens: BTreeMap<(String, u64), String>,
    /// For each tenure, the largest token told before its first grant anywhere.
    floors: BTreeMap<String, u64>,
    /// Tenures whose acquire arrived again, later.
    pub again: BTreeSet<String>,
    /// Tenures that are or were nobody's, between a detach and an attach, and until when that explains their keys.
    pub detached: BTreeMap<String, Time>,
    /// Every text that users hand on.
    pub texts: Vec<Text>,
    /// For how long each tenure may be offered to a caller that is away.
    offers: BTreeMap<String, Time>,
    /// Whether callers are away at times.
    absences: bool,
    /// Clients that do not run at the moment.
    pub stopped: BTreeSet<usize>,
    /// Locks and tokens of leases that are renewed.
    pub renewed: BTreeSet<(String, u64)>,
    /// Locks and tokens of leases that a node had no room for, since others tried to get them there at that moment.
    pub outvoted: BTreeSet<(String, u64)>,
    /// Owners whose key was deleted: exclusion is not promised to them.
    pub void: BTreeSet<String>,
    /// Which client a tenure belongs to.
    pub fields: BTreeMap<String, usize>,
    /// What each register holds, and the largest token it knows.
    registers: BTreeMap<String, (u64, u64)>,
    /// Losses: host, lock, token, why.
    pub losses: Vec<(Time, usize, String, u64, LostReason)>,
    /// Who waits for a lock, since when.
    pub waiting: BTreeMap<u64, (usize, String, Time)>,
    /// Since when no server has the key of a lock.
    pub free: BTreeMap<String, Time>,
    /// Those in the queues of locks, by queue and entry, numbered in the order in which they came.
    arrivals: BTreeMap<(String, String), u64>,
    arrived: u64,
    /// Since when a server has a tenure that nobody holds.
    orphans: BTreeMap<(usize, String), Time>,
    /// Until when something is or was wrong.
    pub trouble: Time,
    tokens_promised: bool,
    /// Whether a server keeps the phases of readers and writers.
    phases: bool,
    /// How often a script ran on a server while a fault was there, or just after.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
    /// Counts of what a run went through.
    pub counts: BTreeMap<&'static str, u64>,
}

/// A detached lease on its way from user to user.
pub struct Text {
    /// The text.
    pub text: String,
    /// Its lock.
    pub lock: String,
    token: u64,
    field: String,
    /// Its key is on a quorum until then at least.
    until: Time,
    /// Whether somebody attached it.
    pub taken: bool,
    /// How many attach it at this moment, and how many ever did.
    busy: usize,
    begun: usize,
    /// For each client that was at it, until when that may go on.
    tried: BTreeMap<usize, Time>,
}

impl Text {
    /// What a user got from a detach at `now`, of a lease that was to live for `left` more by its own clock.
    pub fn new(now: Time, text: String, lease: &Lease, left: Duration) -> Self {
        // That clock may be slow.
        let until = now + left.mul_f64(0.95).as_nanos() as Time;
        let (lock, token, field) = (lease.name().to_owned(), lease.token(), lease.owner().to_owned());
        Self { text, lock, token, field, until, taken: false, busy: 0, begun: 0, tried: BTreeMap::new() }
    }

    /// Whether it ought to be good for an attach.
    pub fn is_good(&self, now: Time) -> bool {
        !self.taken && now < self.until
    }

    /// A client begins to attach it; returns the number of this attempt, if nobody else is at it.
    pub fn begin(&mut self, now: Time, host: usize) -> Option<usize> {
        self.busy += 1;
        self.begun += 1;
        self.tried.entry(host).or_insert(now);
        (self.busy == 1).then_some(self.begun)
    }
}

/// What a script found.
pub struct Before {
    /// Of each of its locks the tenures, and until when the key lives.
    locks: Vec<(String, Vec<String>, Option<i64>)>,
    /// Whether readers had the first of them.
    read: bool,
}

impl Checks {
    /// For a plan.
    pub fn new(plan: &Plan) -> Self {
        let phases = plan.read_write && plan.queues();
        Self { tokens_promised: plan.tokens, absences: plan.absent > 0.0, phases, ..Self::default() }
    }

    /// Notes a violation.
    pub fn violated(&mut self, time: Time, what: String) {
        self.violations.push((time, what));
    }

    /// Counts something that happened.
    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A script met a fault.
    pub fn met(&mut self, fault: &'static str, script: &'static str) {
        *self.pairs.entry((fault, script)).or_default() += 1;
    }

    /// An acquire arrives once more.
    pub fn repeated(&mut self, call: &Call) {
        let begins = ["acquire", "enter", "attach", "repair"].contains(&call.script.name);
        if begins || call.script.name.starts_with("read_write/") {
            self.again.extend(call.args.iter().filter(|arg| arg.contains(':')).cloned());
        }
    }

    /// A client asks a node for something.
    pub fn asked(&mut self, call: &Call) {
        match (call.script.name, &call.args[..]) {
            // Where it arrives late it lives for its ttl, whatever became of the call.
            ("attach", [_, new, ..]) | ("read_write/attach", [new, ..]) => {
                self.detached.entry(new.clone()).or_default();
            }
            ("acquire" | "enter", [field, _, ttl, ..])
            | ("read_write/read" | "read_write/write", [field, _, _, _, _, _, _, ttl, ..])
                if self.absences =>
            {
                let ttl = ttl.parse::<Time>().unwrap_or_default() * (SECOND / 1000);
                self.offers.insert(field.clone(), (ttl / 6).min(5 * SECOND));
            }
            _ => {}
        }
    }

    /// A tenure is nobody's, and its keys may live for so long.
    pub fn detach(&mut self, now: Time, field: &str, life: Time) {
        let until = self.detached.entry(field.to_owned()).or_default();
        // Servers' clocks may be slow.
        *until = (*until).max(now + life + life / 10);
    }

    fn locks(call: &Call) -> Vec<&String> {
        match call.script.name {
            "renew" | "prolong" => call.keys.iter().step_by(2).collect(),
            "read_write/renew" => call.keys.iter().step_by(3).collect(),
            "learn" | "provision" | "inspect" | "read_write/inspect" => Vec::new(),
            _ => call.keys.iter().take(1).collect(),
        }
    }

    /// Looks at the locks of a call before it runs.
    pub fn before(&mut self, store: &mut Store, call: &Call) -> Before {
        let look = |key: &String| {
            let tenures = store.live(key);
            (key.clone(), tenures, store.entry(key).and_then(|entry| entry.expires))
        };
        let locks: Vec<_> = Self::locks(call).into_iter().map(look).collect();
        let read = locks.first().is_some_and(|(key, ..)| store.mode(key).as_deref() == Some("read"));
        for queue in queues(call) {
            // Those that went in between, with their client or with the key.
            let waiting = store.members(queue);
            let there: BTreeSet<&String> = waiting.iter().map(|(_, entry)| entry).collect();
            self.arrivals.retain(|(known, entry), _| known != queue || there.contains(entry));
            self.arrive(queue, waiting);
        }
        Before { locks, read }
    }

    /// A server has other keys all at once.
    pub fn forget_queues(&mut self) {
        self.arrivals.clear();
    }

    /// Notes who came to a queue.
    fn arrive(&mut self, queue: &str, waiting: Vec<(i64, String)>) {
        for (_, entry) in waiting {
            let arrived = &mut self.arrived;
            self.arrivals.entry((queue.to_owned(), entry)).or_insert_with(|| {
                *arrived += 1;
                *arrived
            });
        }
    }

    /// I14: nobody whose client lives is overtaken in the queue of a lock.
    fn look_at_queue(&mut self, now: Time, store: &mut Store, call: &Call, tenures: &[String], left: &[String]) {
        let [queue] = queues(call)[..] else { return };
        let latest = self.arrived;
        let (waiting, alive) = (store.members(queue), store.members(&call.keys[3]));
        // Who joins an owner that has it passes nobody by.
        let begun =
            left.iter().find(|field| !tenures.contains(field)).filter(|_| tenures.is_empty() || left.len() == 1);
        if let Some(begun) = begun {
            let own = |(known, entry): &(String, String)| known == queue && entry.ends_with(&format!("/{begun}"));
            let known = self.arrivals.iter().find(|(key, _)| own(key));
            let (entry_of, own) =
                (known.map(|((_, entry), _)| entry.clone()), known.map_or(latest, |(_, number)| *number));
            let lives = |entry: &str| {
                let client = entry.split('/').nth(1).unwrap_or_default();
                alive.iter().any(|(until, name)| name == client && *until > store.now)
            };
            let handed = entry_of.filter(|entry| call.args[0] != *begun && !lives(entry));
            if let Some(entry) = handed {
                self.violations.push((now, format!("I14 {} was handed to {entry}, which is gone", call.keys[0])));
            }
            for (_, entry) in &waiting {
                let lives = lives(entry);
                let before = self.arrivals.get(&(queue.clone(), entry.clone())).is_some_and(|number| *number < own);
                if lives && before {
                    let lock = &call.keys[0];
                    self.violations.push((now, format!("I14 {begun} got {lock} ahead of {entry}")));
                }
            }
        }
        self.arrive(queue, waiting);
    }

    /// I14, for read/write locks: no reader comes in beside others while a writer waits whose client lives, no writer ahead
    /// of one, and nobody waits whose turn it is once somebody left.
    fn look_at_phases(
        &mut self,
        now: Time,
        store: &mut Store,
        (call, reply): (&Call, &Result<Reply, NodeError>),
        before: &Before,
        left: &[String],
    ) {
        let [writing, reading] = queues(call)[..] else { return };
        let (lock, latest, alive, time) = (&call.keys[0], self.arrived, store.members(&call.keys[5]), store.now);
        let lives = |entry: &str| {
            let client = entry.split('/').nth(1).unwrap_or_default();
            alive.iter().any(|(until, name)| name == client && *until > time)
        };
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
                let own = self.arrivals.iter().find(|(key, _)| own(key)).map_or(latest, |(_, number)| *number);
                let earlier = |entry: &&String| {
                    self.arrivals.get(&(writing.clone(), (*entry).clone())).is_some_and(|number| *number < own)
                };
                if let Some(other) = writers.iter().find(earlier) {
                    self.violations.push((now, format!("I14 {writer} writes {lock} ahead of {other}")));
                }
            }
            _ => {}
        }
        // Who gave up a place was in the queue of writers or in that of readers.
        let gave_up = call.args.get(7).filter(|entry| !entry.is_empty()).is_some_and(|entry| {
            [writing, reading].iter().any(|queue| self.arrivals.contains_key(&((*queue).clone(), entry.clone())))
        });
        let ended = matches!(name, "read_write/leave" | "read_write/downgrade") && *reply == Ok(Reply::Int(1));
        if ended || gave_up && reply.is_ok() {
            let turn = if left.is_empty() { writers.first().or(readers.first()) } else { None };
            // Those behind a writer whose client is gone see that when they ask next.
            let ends_a_phase = !before.read || gave_up;
            let turn = turn.or(if read && writers.is_empty() && ends_a_phase { readers.first() } else { None });
            if let Some(entry) = turn {
                self.violations.push((now, format!("I14 {entry} waits for {lock}, though it is its turn, by {name}")));
            }
        }
        self.arrive(writing, tickets.0);
        self.arrive(reading, tickets.1);
    }

    /// Looks at them after it ran.
    pub fn after(
        &mut self,
        now: Time,
        server: usize,
        store: &mut Store,
        call: &Call,
        before: &Before,
        reply: &Result<Reply, NodeError>,
    ) {
        let name = call.script.name;
        self.count(name);
        for (key, tenures, expires) in &before.locks {
            let (left, until) = (store.tenures(key), store.entry(key).map(|entry| entry.expires));
            let read = store.mode(key).as_deref() == Some("read");
            let mut wrong = |what: String| self.violations.push((now, format!("{what}, by {name} on server {server}")));
            // I6: one tenure, counted once, with a ttl that only grows.
            let owners: BTreeSet<&str> = left.iter().map(|field| owner(field)).collect();
            if owners.len() > 1 && !read {
                wrong(format!("I6 {key} holds {left:?}"));
            }
            if let Some(super::store::Value::Hash(fields)) = store.entry(key).map(|entry| entry.value.clone())
                && let Some((field, count)) = fields.iter().find(|(field, count)| count != "1" && field != "mode")
            {
                wrong(format!("I6 {key} counts {count} for {field}"));
            }
            match (expires, until) {
                (_, Some(None)) => wrong(format!("I6 {key} has no ttl")),
                // Of those that hold it now as they did before.
                (Some(old), Some(Some(new))) if new < *old && tenures.iter().any(|field| left.contains(field)) => {
                    wrong(format!("I6 the ttl of {key} shrank by {} ms", old - new));
                }
                _ => {}
            }
            // I7: a release touches its own tenure and no other.
            let own = ["read", "write", "leave", "upgrade", "downgrade"];
            if matches!(name, "release" | "leave")
                || name.strip_prefix("read_write/").is_some_and(|name| own.contains(&name))
            {
                let touched: Vec<&String> = tenures.iter().filter(|field| !left.contains(field)).collect();
                if let Some(other) = touched.iter().find(|field| Some(**field) != call.args.first()) {
                    wrong(format!("I7 {key} lost {other}"));
                }
            }
        }
        let token = match name {
            "repair" => call.args.get(3),
            "read_write/repair" => call.args.get(5),
            _ => None,
        };
        if let (Some(token), Ok(Reply::List(list))) = (token, reply)
            && *list == [Reply::Int(-1)]
        {
            let token = token.parse().unwrap_or_default();
            self.outvoted.insert((call.keys[0].clone(), token));
        }
        if let ("attach" | "read_write/attach", Ok(Reply::Int(left))) = (name, reply) {
            let (left, new) = (u64::try_from(*left).unwrap_or_default(), usize::from(name == "attach"));
            self.detach(now, &call.args[new], left * (SECOND / 1000));
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

    /// A holder was told of its token. I2: no token twice, and above all that were told before its first grant. An
    /// explicit owner of one client shares its hold, and so the token; readers share theirs, which no writer has.
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

    /// A tenure is about to get another token, above all that were told so far: above which?
    pub fn begins_anew(&mut self, lease: &Lease) -> u64 {
        let told = self.largest(lease.name());
        self.floors.insert(lease.owner().to_owned(), told);
        told
    }

    /// I13: a user attached a text, and has its lease. An acquire that arrives once more, after its tenure ended, draws a
    /// token that the text does not know.
    pub fn attached(&mut self, now: Time, plan: &Plan, number: usize, token: u64, held: bool) {
        let text = &mut self.texts[number];
        let (lock, had, twice) = (text.lock.clone(), text.token, std::mem::replace(&mut text.taken, true));
        if token != had {
            self.violated(now, format!("I13 attaching {lock} changed its token from {had} to {token}"));
        }
        let exclusive = plan.exclusive() && !self.is_repeated(number);
        if twice && exclusive {
            self.violated(now, format!("I13 {lock} with token {token} was attached twice from one text"));
        }
        let largest = self.largest(&lock);
        if held && largest > token && exclusive && self.tokens_promised {
            self.violated(now, format!("I13 {lock} with token {token} was attached after {largest} was drawn"));
        }
    }

    fn is_repeated(&self, number: usize) -> bool {
        self.again.contains(&self.texts[number].field)
    }

    /// A user's attach ended; what it led to may be there until then.
    pub fn tried(&mut self, number: usize, host: usize, until: Time) {
        let text = &mut self.texts[number];
        text.busy -= 1;
        let known = text.tried.entry(host).or_default();
        *known = until.max(*known);
    }

    /// I13: an attach that nobody else came in the way of found that a lease is over. Whoever was at it before makes it look
    /// so until that is undone; the same client waits for that. Where nobody may `CLIENT KILL`, a slow request may come
    /// after what undoes it. `dead`: the clients whose process was killed.
    pub fn attach_lost(
        &mut self,
        now: Time,
        plan: &Plan,
        (number, attempt): (usize, usize),
        host: usize,
        dead: &[bool],
    ) {
        let text = &self.texts[number];
        let undone_for_good = plan.allows_kill && !self.is_repeated(number);
        if !plan.present() || !text.is_good(now) || text.begun > attempt || !undone_for_good {
            return;
        }
        let limit = 2 * SECOND + 3 * plan.reply_timeout.as_nanos() as Time;
        let undone = |(other, last): (&usize, &Time)| {
            let idle = !dead[*other] && !self.stopped.contains(other);
            *other == host && now >= *last || idle && now > self.trouble.max(*last) + limit
        };
        if text.tried.iter().all(undone) {
            let (lock, token, left) = (&text.lock, text.token, (text.until - now) as f64 / 1e9);
            let what = format!("I13 host {host} could not attach {lock} with token {token}, good for {left:.3} s more");
            self.violated(now, what);
        }
    }

    /// The largest token of a lock that anybody was told.
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

    /// Writes what follows `read`. I4: nothing that was accepted gets lost.
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

    /// Reads once more. I4: nobody wrote meanwhile, or this is refused.
    pub fn read_again(&mut self, now: Time, lock: &str, token: u64, before: u64) {
        let changed = self.read(lock, token).is_some_and(|value| value != before);
        if changed && self.tokens_promised {
            self.violated(now, format!("I4 the register of {lock} changed under a reader"));
        }
    }

    /// Whether a tenure may be on a server though nobody holds it: its acquire arrived a second time, it was detached, or
    /// its owner has more of them.
    pub fn is_excused(&self, now: Time, field: &str) -> bool {
        let detached = self.detached.get(field).is_some_and(|until| now < *until);
        self.again.contains(field) || detached || field.starts_with('=')
    }

    /// I5: a tenure that nobody holds is gone from a server soon, unless it is excused.
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

    /// How many wait on a host for a lock.
    pub fn waiters(&self, host: usize, lock: &str) -> usize {
        self.waiting.values().filter(|(waiter, wanted, _)| *waiter == host && wanted == lock).count()
    }

    /// I10: a lock that is free is taken by whoever waits for it, twice the longest poll later at most; where there is a
    /// queue, also by those behind waiters that are gone.
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

/// The queues that a call is about: that of a lock, or those of writers and of readers.
fn queues(call: &Call) -> Vec<&String> {
    match call.script.name {
        "enter" | "leave" => call.keys.iter().skip(2).take(1).collect(),
        "read_write/read" | "read_write/write" | "read_write/leave" | "read_write/downgrade" => {
            call.keys.iter().skip(3).take(2).collect()
        }
        _ => Vec::new(),
    }
}

/// The explicit owner of a field, or the field.
pub fn owner(field: &str) -> &str {
    match field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':')) {
        Some((owner, _)) => owner,
        None => field,
    }
}
