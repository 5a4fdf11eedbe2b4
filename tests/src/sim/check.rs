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
    /// Since when a server has a tenure that nobody holds.
    orphans: BTreeMap<(usize, String), Time>,
    /// Until when something is or was wrong.
    pub trouble: Time,
    tokens_promised: bool,
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
pub struct Before(Vec<(String, Vec<String>, Option<i64>)>);

impl Checks {
    /// For a plan.
    pub fn new(plan: &Plan) -> Self {
        Self { tokens_promised: plan.tokens, absences: plan.absent > 0.0, ..Self::default() }
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
        if matches!(call.script.name, "acquire" | "attach" | "repair") {
            self.again.extend(call.args.iter().filter(|arg| arg.contains(':')).cloned());
        }
    }

    /// A client asks a node for something.
    pub fn asked(&mut self, call: &Call) {
        match (call.script.name, &call.args[..]) {
            // Where it arrives late it lives for its ttl, whatever became of the call.
            ("attach", [_, new, ..]) => drop(self.detached.entry(new.clone()).or_default()),
            ("acquire", [field, _, ttl, ..]) if self.absences => {
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
            "learn" | "provision" | "inspect" => Vec::new(),
            _ => call.keys.iter().take(1).collect(),
        }
    }

    /// Looks at the locks of a call before it runs.
    pub fn before(&mut self, store: &mut Store, call: &Call) -> Before {
        let look = |key: &String| {
            let tenures = store.tenures(key);
            (key.clone(), tenures, store.entry(key).and_then(|entry| entry.expires))
        };
        Before(Self::locks(call).into_iter().map(look).collect())
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
        for (key, tenures, expires) in &before.0 {
            let (left, until) = (store.tenures(key), store.entry(key).map(|entry| entry.expires));
            let mut wrong = |what: String| self.violations.push((now, format!("{what}, by {name} on server {server}")));
            // I6: one tenure, counted once, with a ttl that only grows.
            let owners: BTreeSet<&str> = left.iter().map(|field| owner(field)).collect();
            if owners.len() > 1 {
                wrong(format!("I6 {key} holds {left:?}"));
            }
            if let Some(super::store::Value::Hash(fields)) = store.entry(key).map(|entry| entry.value.clone())
                && let Some((field, count)) = fields.iter().find(|(_, count)| count != "1")
            {
                wrong(format!("I6 {key} counts {count} for {field}"));
            }
            match (expires, until) {
                (_, Some(None)) => wrong(format!("I6 {key} has no ttl")),
                (Some(old), Some(Some(new))) if new < *old => {
                    wrong(format!("I6 the ttl of {key} shrank by {} ms", old - new));
                }
                _ => {}
            }
            // I7: a release touches its own tenure and no other.
            if name == "release" {
                let touched: Vec<&String> = tenures.iter().filter(|field| !left.contains(field)).collect();
                if let Some(other) = touched.iter().find(|field| Some(**field) != call.args.first()) {
                    wrong(format!("I7 {key} lost {other}"));
                }
            }
        }
        let granted = matches!(reply, Ok(Reply::List(list)) if list.first() == Some(&Reply::Int(1)));
        if name == "repair" && *reply == Ok(Reply::List(vec![Reply::Int(-1)])) {
            let token = call.args[3].parse().unwrap_or_default();
            self.outvoted.insert((call.keys[0].clone(), token));
        }
        if let ("attach", Ok(Reply::Int(left))) = (name, reply) {
            let left = u64::try_from(*left).unwrap_or_default();
            self.detach(now, &call.args[1], left * (SECOND / 1000));
        }
        if name == "acquire" && granted {
            let told = self.told.get(&call.keys[0]).copied().unwrap_or_default();
            self.floors.entry(call.args[0].clone()).or_insert(told);
        }
    }

    /// A holder was told of its token. I2: no token twice, and above all that were told before its first grant. An
    /// explicit owner of one client shares its hold, and so the token.
    pub fn told(&mut self, now: Time, lock: &str, owner: &str, floor: u64, token: u64) {
        if !self.tokens_promised {
            return;
        }
        let shared = !owner.contains(':');
        match self.tokens.insert((lock.to_owned(), token), owner.to_owned()) {
            Some(other) if shared && other == owner => return,
            Some(other) => self.violated(now, format!("I2 token {token} of {lock} was drawn by {other} and {owner}")),
            None => {}
        }
        let floor = self.floors.get(owner).copied().unwrap_or(floor);
        if token <= floor {
            self.violated(now, format!("I2 token {token} of {lock} came after {floor}"));
        }
        let told = self.told.entry(lock.to_owned()).or_default();
        *told = token.max(*told);
    }

    /// I13: a user attached a text, and has its lease.
    pub fn attached(&mut self, now: Time, plan: &Plan, number: usize, token: u64, held: bool) {
        let text = &mut self.texts[number];
        let (lock, had, twice) = (text.lock.clone(), text.token, std::mem::replace(&mut text.taken, true));
        if token != had {
            self.violated(now, format!("I13 attaching {lock} changed its token from {had} to {token}"));
        }
        if twice && plan.exclusive() && !self.is_repeated(number) {
            self.violated(now, format!("I13 {lock} with token {token} was attached twice from one text"));
        }
        let largest = self.largest(&lock);
        if held && largest > token && plan.exclusive() && self.tokens_promised {
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

    /// I10: a lock that is free is taken by whoever waits for it, twice the longest poll later at most.
    pub fn look_at_waiters(&mut self, now: Time, running: impl Fn(usize) -> bool) {
        let late = self.waiting.values().find(|(host, lock, since)| {
            let Some(free) = self.free.get(lock) else { return false };
            let since = (*since).max(*free).max(self.trouble);
            running(*host) && now > since + 6 * SECOND
        });
        if let Some((host, lock, _)) = late.cloned() {
            self.violated(now, format!("I10 a user on host {host} waits for {lock}, which is free"));
            self.waiting.clear();
        }
    }
}

/// The explicit owner of a field, or the field.
pub fn owner(field: &str) -> &str {
    match field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':')) {
        Some((owner, _)) => owner,
        None => field,
    }
}
