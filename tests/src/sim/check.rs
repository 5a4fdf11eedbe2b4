//! The invariants, each under the assumptions of its run. Named as in the list at the head of this module's parent.

use std::collections::{BTreeMap, BTreeSet};

use redlock::{
    LostReason,
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
    /// Tenures that were handed over by a detach.
    pub detached: BTreeSet<String>,
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

/// What a script found.
pub struct Before(Vec<(String, Vec<String>, Option<i64>)>);

impl Checks {
    /// For a plan.
    pub fn new(plan: &Plan) -> Self {
        Self { tokens_promised: plan.tokens, ..Self::default() }
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

    fn locks(call: &Call) -> Vec<&String> {
        match call.script.name {
            "renew" => call.keys.iter().step_by(2).collect(),
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
    pub fn is_excused(&self, field: &str) -> bool {
        self.again.contains(field) || self.detached.contains(field) || field.starts_with('=')
    }

    /// I5: a tenure that nobody holds is gone from a server soon, unless it is excused.
    pub fn look_at_orphans(&mut self, now: Time, there: BTreeSet<(usize, String)>, limit: Time) {
        self.orphans.retain(|known, _| there.contains(known));
        for known in there {
            self.orphans.entry(known).or_insert(now);
        }
        let late = self.orphans.iter().find(|(_, since)| now > self.trouble.max(**since) + limit);
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
