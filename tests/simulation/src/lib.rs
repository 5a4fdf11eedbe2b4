//! Deterministic simulation: the unchanged core, clients on hosts with clocks of their own, servers that run the real
//! scripts, and a network, all in one thread and in simulated time. The seed decides everything, so the seed repeats a
//! run.
//!
//! The invariants, each under the assumptions of the run (see [`plan::Class`]):
//!
//! | | |
//! |---|---|
//! | I1 | leases of different owners on one lock, or on one slot of a semaphore, are never valid at once, except those of readers; a lease is held only while its key is on a quorum; no call returns a lease that is over |
//! | I2 | no token is drawn twice, and each is larger than all tokens returned before its first grant; the readers between two writers share one token, between those of the writers |
//! | I3 | a lost or released lease is never held again, and a loss is reported once |
//! | I4 | a register that checks tokens on reads and writes loses no update, and does not change between two reads of one reader |
//! | I5 | a tenure without a holder, and a place without a waiter, disappears from the servers |
//! | I6 | a lock has one owner, or readers, each counted once, and a ttl that never shrinks |
//! | I7 | a release removes no other tenure |
//! | I8 | every call ends in time, and once the faults are over every lock can be acquired and released |
//! | I9 | nested leases share one tenure, and nesting in a lost tenure fails |
//! | I10 | a waiter gets a free lock within the time of two polls |
//! | I11 | a renewed lease is not lost while faults affect only a minority of servers |
//! | I12 | a closed client leaves no task, connection or subscription behind |
//! | I13 | a detached lease can be attached until it is over, once, and keeps its token |
//! | I14 | no waiter in the queue of a lock is overtaken while its client lives; the lock is not handed to a waiter whose client is gone; readers wait behind a waiting writer; no waiter waits when it is its turn |
//! | I15 | on some server the lock's counter is at least the token of its holder |
//! | I16 | a lock that was released stays taken until its `min_hold` is over, and no longer |
//!
//! A run has a period of faults. Then every fault ends, and the run checks that all locks are usable and nothing is
//! left behind.

pub mod absence;
pub mod check;
pub mod host;
pub mod hunt;
pub mod node;
pub mod plan;
pub mod store;
pub mod workload;
pub mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use fastrand::Rng;
use redlock::{Client, Event as ClientEvent, LostReason, Mutant, mutate, server::Node};

use self::{
    absence::Absence,
    check::{Checks, owner, slot_name},
    host::Host,
    node::SimNode,
    plan::{Class, Fault, Plan},
    store::{Refuses, Store},
    workload::{Actor, LEASES, lock_name},
    world::{Event, Server, World},
};
use redlock_servers::locked;

/// True time in ns since the start of a run.
pub type Time = u64;

/// One second.
pub const SECOND: Time = 1_000_000_000;
/// The longest time between two checks of the invariants.
const SAMPLE: Time = SECOND / 10;

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The violations, with their times.
    pub violations: Vec<(Time, String)>,
    /// A hash of all events; it differs if any event of two runs differs.
    pub digest: u64,
    /// The number of events.
    pub events: u64,
    /// How often each kind of event happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// How often a script ran during a fault or just after it.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
    /// The trace, if requested.
    pub lines: Vec<String>,
}

/// A client that counts a lock as held: host, owner, token, whether it reads.
type Believer = (usize, String, u64, bool);

struct Simulation {
    plan: Arc<Plan>,
    hosts: Vec<Host>,
    clients: Vec<Option<Client>>,
    frozen: Vec<Arc<Mutex<Vec<Time>>>>,
    rng: Rng,
}

/// Runs a plan.
pub fn run(plan: Plan, verbose: bool) -> Report {
    fastrand::seed(plan.seed);
    let mut rng = Rng::with_seed(plan.seed);
    let servers = plan
        .server_clocks
        .iter()
        .map(|(rate, offset)| {
            let mut server = Server::new(*rate, *offset);
            server.durable = plan.durable;
            server.allows_kill = plan.allows_kill;
            server
        })
        .collect();
    let checks = Checks::new(&plan);
    let mut world = World::new(rng.fork(), servers, plan.hosts, plan.weather, checks, verbose);
    for (time, fault) in &plan.faults {
        world.at(*time, Event::Fault(*fault));
    }
    world.at(SAMPLE, Event::Sample);
    world.at(plan.calm, Event::Calm);
    world.at(plan.end, Event::End);
    world::put(Some(world));
    LEASES.take();
    let mut simulation = Simulation {
        hosts: plan.host_rates.iter().map(|rate| Host::new(0, *rate)).collect(),
        clients: Vec::new(),
        frozen: (0..plan.hosts).map(|_| Arc::default()).collect(),
        plan: Arc::new(plan),
        rng,
    };
    simulation.start();
    simulation.go();
    simulation.finish()
}

/// Runs the plan of a seed, with a mutant in the core if there is one.
pub fn run_mutant(mutant: Option<Mutant>, seed: u64, verbose: bool) -> Report {
    mutate(mutant);
    let report = run(Plan::new(seed), verbose);
    mutate(None);
    report
}

impl Simulation {
    fn start(&mut self) {
        for number in 0..self.plan.hosts {
            let nodes: Vec<Arc<dyn Node>> = (0..self.plan.nodes)
                .map(|server| SimNode::new(number, server, self.plan.reply_timeout) as Arc<dyn Node>)
                .collect();
            let events = Arc::new(move |event: &ClientEvent| {
                world::with(|world| {
                    let now = host::here();
                    world.checks.count(event.kind());
                    world.note(now, (number, event.kind()), || format!("host {number}: {event}"));
                    if let (Some((name, token)), Some(reason)) = (event.lock(), event.reason()) {
                        world.checks.losses.push((now, number, name.to_owned(), token, reason));
                    }
                });
            });
            let host = &self.hosts[number];
            let client = host.inside(|| Client::with_nodes(self.plan.config(), events, nodes)).expect("a valid plan");
            for _ in 0..self.plan.actors {
                let actor = Actor {
                    absence: Absence::default(),
                    host: number,
                    client: client.clone(),
                    rng: self.rng.fork(),
                    locks: self.plan.locks,
                    plan: self.plan.clone(),
                    frozen: self.frozen[number].clone(),
                };
                host.inside(|| host.start(actor.live()));
            }
            self.clients.push(Some(client));
        }
    }

    /// Runs all events until the end.
    fn go(&mut self) {
        loop {
            let Some(Some(mut next)) = world::with(|world| world.next()) else { return };
            // Run every host up to the next event. A host that sends something on the way may add an earlier event.
            while let Some(number) = self.behind(next) {
                self.hosts[number].run(next);
                next = world::with(|world| world.next()).flatten().unwrap_or(next).min(next);
            }
            let Some(Some(event)) = world::with(World::pop) else { return };
            match event {
                Event::Sample => self.sample(),
                Event::Fault(fault) => self.fault(fault),
                Event::Calm => self.calm(),
                Event::End => return,
                event => {
                    world::with(|world| world.happen(event));
                }
            }
            if world::with(|world| world.checks.violations.len() > 20).unwrap_or_default() {
                return;
            }
        }
    }

    /// A random host whose time is before `time`.
    fn behind(&mut self, time: Time) -> Option<usize> {
        let behind = self.hosts.iter().enumerate().filter(|(_, host)| host.runs() && host.now < time);
        self.rng.choice(behind.map(|(number, _)| number).collect::<Vec<_>>())
    }

    // ---- faults -----------------------------------------------------------------------------------------------------

    fn fault(&mut self, fault: Fault) {
        let serious = self.plan.class != Class::Minority;
        world::with(|world| {
            let now = world.now;
            world.checks.count(fault.kind());
            if serious {
                // Connections and clients take some time to recover.
                world.checks.trouble = world.checks.trouble.max(now + 3 * SECOND);
            }
            world.recent.insert(fault.kind(), now + 2 * SECOND);
            world.note(now, fault.kind(), || format!("FAULT {fault:?}"));
            match fault {
                Fault::Freeze(server) => world.servers[server].frozen = world.servers[server].up,
                Fault::Thaw(server) => world.thaw(server),
                Fault::Crash(server) => world.crash(server),
                Fault::Restart(server, keeps) if !world.servers[server].up => {
                    if !keeps {
                        world.servers[server].store.keys.clear();
                    }
                    world.restart(server);
                }
                Fault::Flush(server) if world.servers[server].up => world.servers[server].store.keys.clear(),
                Fault::Refuse(server, what) => world.servers[server].store.refuses = what,
                Fault::Delete(lock) => {
                    for server in &mut world.servers {
                        let there = server.look(now).tenures(&lock_name(lock));
                        world.checks.void.extend(there.iter().map(|field| owner(field).to_owned()));
                        server.store.keys.remove(&lock_name(lock));
                    }
                }
                Fault::Replicate(server) => world.servers[server].replica = world.servers[server].store.keys.clone(),
                Fault::Failover(server) => {
                    world.crash(server);
                    world.servers[server].store.keys = world.servers[server].replica.clone();
                    world.checks.forget_queues();
                    world.restart(server);
                    // A promoted replica does not know which keys it lacks.
                    world.servers[server].lost_at = 0;
                }
                Fault::ServerClock(server, by) => world.servers[server].offset += by,
                Fault::Partition(host, server, there, back, until) => {
                    for (cut, direction) in [(there, false), (back, true)] {
                        if cut {
                            world.block(host, server, direction, until);
                        }
                    }
                    if serious {
                        world.checks.trouble = world.checks.trouble.max(until + 3 * SECOND);
                    }
                }
                Fault::Cut(host, server) => {
                    if let Some(conn) = world.some_connection(host, server) {
                        world.cut(conn, now);
                    }
                }
                _ => {}
            }
        });
        let now = world::with(|world| world.now).unwrap_or_default();
        match fault {
            Fault::Stop(host) if self.hosts[host].runs() => self.hosts[host].freeze(),
            Fault::Suspend(host) if self.hosts[host].runs() => self.hosts[host].suspend(now),
            Fault::Resume(host) => self.resume(host, now),
            Fault::Kill(host) if self.hosts[host].runs() && self.hosts.iter().filter(|h| !h.is_dead()).count() > 1 => {
                self.kill(host);
            }
            Fault::HostClock(host, by) => self.hosts[host].set_wall(by),
            _ => {}
        }
    }

    fn resume(&mut self, host: usize, now: Time) {
        if self.hosts[host].frozen && !self.hosts[host].is_dead() {
            locked(&self.frozen[host]).push(now);
            self.hosts[host].resume(now);
        }
    }

    fn kill(&mut self, number: usize) {
        world::with(|world| world.bury(number));
        let host = &mut self.hosts[number];
        let runtime = host.kill();
        // The values dropped here can no longer send anything.
        let leases: Vec<_> =
            LEASES.with_borrow_mut(|leases| leases.extract_if(.., |lease| lease.host == number).collect());
        let client = self.clients[number].take();
        host.inside(|| drop((leases, client, runtime)));
    }

    /// Ends all faults.
    fn calm(&mut self) {
        let now = world::with(|world| {
            let now = world.now;
            world.unblock();
            world.weather.slow = 0.0;
            world.weather.cuts = 0.0;
            world.weather.duplicates = 0.0;
            world.weather.lost_messages = 0.0;
            for server in 0..world.servers.len() {
                world.servers[server].store.refuses = Refuses::Nothing;
                if world.servers[server].frozen {
                    world.thaw(server);
                }
                if !world.servers[server].up {
                    world.restart(server);
                }
            }
            world.note(now, "calm", || "CALM");
            now
        });
        for host in 0..self.hosts.len() {
            self.resume(host, now.unwrap_or_default());
        }
    }

    // ---- invariants -------------------------------------------------------------------------------------------------

    /// Checks every lease and every lock.
    fn sample(&mut self) {
        let Some(now) = world::with(|world| world.now) else { return };
        let mut held: BTreeMap<String, Vec<Believer>> = BTreeMap::new();
        let (mut findings, mut believed) = (Vec::new(), BTreeSet::new());
        let void = world::with(|world| world.checks.void.clone()).unwrap_or_default();
        let mut leases = LEASES.take();
        for tracked in &mut leases {
            let host = &self.hosts[tracked.host];
            if !host.runs() {
                continue;
            }
            let lease = &tracked.lease;
            let is_held = host.observe(now, || lease.held());
            if is_held && tracked.ended {
                findings.push(format!("I3 {} with token {} is held again", tracked.lock, lease.token()));
            }
            tracked.ended |= !is_held;
            if is_held {
                believed.insert(lease.owner().to_owned());
            }
            if is_held && !void.contains(lease.owner()) {
                let mut note = |name: String, token: u64| {
                    let holders = held.entry(name).or_default();
                    holders.push((tracked.host, lease.owner().to_owned(), token, lease.reads()));
                };
                if self.plan.permits.is_none() {
                    note(tracked.lock.clone(), lease.token());
                }
                // Each slot of a permit is a lock.
                lease.slots().iter().for_each(|slot| note(slot_name(&tracked.lock, slot.number), slot.token));
            }
        }
        let newer = LEASES.take();
        leases.extend(newer);
        LEASES.set(leases);
        for (lock, holders) in &held {
            let owners: BTreeSet<&str> = holders.iter().map(|(_, owner, ..)| &**owner).collect();
            let read = holders.iter().all(|(.., reads)| *reads);
            if owners.len() > 1 && !read && self.plan.exclusive() {
                findings.push(format!("I1 {lock} is held by {holders:?}"));
            }
            if self.plan.present() {
                findings.extend(self.absent(now, lock, holders));
                // Readers draw no token, and slots have no counter that a query finds.
                if !self.plan.read_write && self.plan.permits.is_none() {
                    findings.extend(Self::without_counter(now, lock, holders));
                }
            }
        }
        let running: Vec<bool> = self.hosts.iter().map(Host::runs).collect();
        world::with(|world| {
            world.checks.stopped = (0..running.len()).filter(|host| !running[*host]).collect();
            for finding in findings {
                world.checks.violated(now, finding);
            }
            for lock in 0..self.plan.locks {
                let name = lock_name(lock);
                let taken = world.servers.iter_mut().any(|server| !server.look(now).live(&name).is_empty());
                if taken {
                    world.checks.free.remove(&name);
                } else {
                    world.checks.free.entry(name).or_insert(now);
                }
            }
            // Servers in quarantine let every client wait.
            if !matches!(self.plan.class, Class::Faithful | Class::Minority) || self.plan.weather.slow > 0.0 {
                world.checks.trouble = now;
            }
            let troubled = world.servers.iter().any(|s| !s.up || s.frozen || s.store.refuses != Refuses::Nothing);
            if troubled {
                world.checks.trouble = now;
            }
            let queued = self.plan.fair || self.plan.read_write || self.plan.permits.is_some();
            let limit = if queued { 12 * SECOND } else { 6 * SECOND };
            world.checks.look_at_waiters(now, limit, |host| running[host]);
            let mut orphans = BTreeSet::new();
            for lock in 0..self.plan.locks {
                let name = lock_name(lock);
                for server in 0..world.servers.len() {
                    for field in world.servers[server].look(now).live(&name) {
                        let holder = world.checks.fields.get(field.trim_start_matches('~'));
                        let excused = believed.contains(&field)
                            || world.checks.is_excused(now, &field)
                            || holder.is_none_or(|host| !running[*host] || world.is_cut_off(*host, server));
                        if !excused {
                            orphans.insert((server, field));
                        }
                    }
                }
            }
            // A user that is away is not counted as a waiter.
            if self.plan.queues() && self.plan.absent == 0.0 {
                orphans.extend(abandoned_places(world, now, self.plan.locks, &running));
            }
            // If a server's clock was set back, a key outlives every cleanup.
            if self.plan.allows_kill && !self.plan.sets_server_clocks() {
                let limit = 2 * SECOND + 3 * self.plan.reply_timeout.as_nanos() as Time;
                world.checks.look_at_orphans(now, orphans, limit);
            }
            if world.next().is_some() && world.trace.events > 0 {
                let pending = now / SAMPLE * SAMPLE + SAMPLE;
                if now % SAMPLE == 0 {
                    world.at(pending, Event::Sample);
                }
            }
        });
    }

    /// I1: the key of each holder is on a quorum of servers.
    fn absent(&self, now: Time, lock: &str, holders: &[Believer]) -> Vec<String> {
        let tenures: Vec<Vec<String>> =
            world::with(|world| world.servers.iter_mut().map(|server| fields_of(server.look(now), lock)).collect())
                .unwrap_or_default();
        let there = |holder: &str| {
            let mine = |field: &String| field == holder || owner(field) == holder;
            tenures.iter().filter(|fields| fields.iter().any(mine)).count()
        };
        holders
            .iter()
            .filter(|(_, holder, ..)| there(holder) < self.plan.quorum)
            .map(|(host, holder, token, _)| {
                format!("I1 host {host} believes in {lock} with token {token} of {holder}, which is at {tenures:?}")
            })
            .collect()
    }

    /// I15: a query for the holder of a lock finds the holder's token.
    fn without_counter(now: Time, lock: &str, holders: &[Believer]) -> Vec<String> {
        let counters = world::with(|world| world.servers.iter_mut().map(|s| s.look(now).counter(lock)).collect());
        let counters: Vec<u64> = counters.unwrap_or_default();
        let lacks = |(_, _, token, _): &&Believer| counters.iter().all(|counter| counter < token);
        let told = |(host, holder, token, _): &Believer| {
            format!("I15 host {host} holds {lock} with token {token} of {holder}, and the counters are {counters:?}")
        };
        holders.iter().filter(lacks).map(told).collect()
    }

    /// Closes all clients and checks what they leave behind.
    fn finish(mut self) -> Report {
        let now = self.plan.end;
        let broken = world::with(|world| !world.checks.violations.is_empty()).unwrap_or_default();
        if !broken {
            self.look_at_leftovers(now);
        }
        let leases = LEASES.take();
        for tracked in leases {
            let host = &self.hosts[tracked.host];
            host.inside(|| drop(tracked));
        }
        let clients = std::mem::take(&mut self.clients);
        for (host, client) in self.hosts.iter_mut().zip(clients) {
            host.inside(|| drop(client));
        }
        let world = world::put(None);
        for host in &mut self.hosts {
            let runtime = host.kill();
            host.inside(|| drop(runtime));
        }
        let mut world = world.expect("a simulation runs");
        self.look_at_losses(&mut world);
        Report {
            digest: world.trace.digest(),
            events: world.trace.events,
            lines: world.trace.lines.take().unwrap_or_default(),
            violations: world.checks.violations,
            counts: world.checks.counts,
            pairs: world.checks.pairs,
        }
    }

    /// I5 and I12.
    fn look_at_leftovers(&mut self, now: Time) {
        let dead: BTreeSet<usize> = (0..self.hosts.len()).filter(|host| self.hosts[*host].is_dead()).collect();
        world::with(|world| {
            for lock in 0..self.plan.locks {
                for number in 0..world.servers.len() {
                    for field in world.servers[number].look(now).live(&lock_name(lock)) {
                        let excused = world.checks.is_excused(now, &field)
                            || world.checks.fields.get(&field).is_some_and(|host| dead.contains(host))
                            || self.plan.sets_server_clocks();
                        if !excused {
                            world.checks.violated(now, format!("I5 {field} is left on server {number}"));
                        }
                    }
                }
            }
        });
        for (host, client) in self.hosts.iter().zip(std::mem::take(&mut self.clients)) {
            if let Some(client) = client {
                host.inside(|| host.start(async move { client.close().await }));
            }
        }
        // A client closes within a second, and its last requests arrive.
        world::with(|world| world.at(now + 3 * SECOND, Event::End));
        self.go();
        let tasks: Vec<usize> = self.hosts.iter().filter(|host| !host.is_dead()).map(Host::tasks).collect();
        world::with(|world| {
            let subscriptions: usize = world.servers.iter().map(Server::subscriptions).sum();
            let connections = world.connections();
            if tasks.iter().sum::<usize>() + subscriptions + connections > 0 {
                let left = format!("{tasks:?} tasks, {connections} connections, {subscriptions} subscriptions");
                world.checks.violated(now, format!("I12 closed clients left {left}"));
            }
        });
    }

    /// I3: a lease is lost only once. I11: a renewed lease is not lost without a reason.
    fn look_at_losses(&self, world: &mut World) {
        let mut seen = BTreeSet::new();
        let losses = std::mem::take(&mut world.checks.losses);
        for (time, host, lock, token, reason) in &losses {
            // Readers share tokens, and so may slots.
            let unique = !self.plan.read_write && self.plan.permits.is_none();
            if !seen.insert((*host, lock.clone(), *token)) && unique {
                world.checks.violated(*time, format!("I3 {lock} with token {token} was lost twice"));
            }
            let lease = (lock.clone(), *token);
            let renewed = world.checks.renewed.contains(&lease) && !world.checks.outvoted.contains(&lease);
            let ran_out = matches!(reason, LostReason::Unreachable | LostReason::Expired);
            if self.plan.class == Class::Minority && renewed && ran_out {
                world.checks.violated(*time, format!("I11 {lock} with token {token} was lost: {reason}"));
            }
        }
    }
}

/// The live tenures of a lock on a server; of a semaphore's slot, the permits that have it there.
fn fields_of(store: &mut Store, lock: &str) -> Vec<String> {
    let Some((semaphore, slot)) = lock.rsplit_once('#') else { return store.live(lock) };
    let of = |(_, slots): &(String, Vec<u32>)| slots.iter().any(|one| one.to_string() == slot);
    store.permits(semaphore).into_iter().filter(of).map(|(field, _)| field).collect()
}

/// I5: finds clients that have more places in a lock's queues than waiters.
fn abandoned_places(world: &mut World, now: Time, locks: usize, running: &[bool]) -> Vec<(usize, String)> {
    let mut abandoned = Vec::new();
    for lock in (0..locks).map(lock_name) {
        let kinds = ["redlock_queue", "redlock_wqueue", "redlock_rqueue"];
        let of = |kind| world.servers[0].look(now).members(&format!("{kind}:{{{lock}}}"));
        let places: Vec<(i64, String)> = kinds.into_iter().flat_map(of).collect();
        for (host, _) in running.iter().enumerate().filter(|(_, runs)| **runs) {
            let fields = places.iter().filter_map(|(_, entry)| entry.splitn(3, '/').nth(2));
            let own =
                |field: &&str| world.checks.fields.get(*field) == Some(&host) && !world.checks.again.contains(*field);
            if fields.filter(own).count() > world.checks.waiters(host, &lock) && !world.is_cut_off(host, 0) {
                abandoned.push((0, format!("a place of host {host} in the queue of {lock}")));
            }
        }
    }
    abandoned
}
