//! The plan that a seed stands for: the number of servers and clients, the behaviour of clocks and network, the faults
//! with their times, and the promises that hold all the same. The plan is complete before the run, so that leaving out
//! one fault changes nothing else.

use std::{fmt, time::Duration};

use fastrand::Rng;
use redlock::Config;

use super::{SECOND, Time, store::Refuses, world::Weather};

/// A fault, or its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server's process is stopped by a signal.
    Freeze(usize),
    /// It continues.
    Thaw(usize),
    /// A server's process dies.
    Crash(usize),
    /// It is started again, with its keys or without.
    Restart(usize, bool),
    /// All keys of a server are removed.
    Flush(usize),
    /// A server refuses something.
    Refuse(usize, Refuses),
    /// The key of a lock is deleted everywhere.
    Delete(usize),
    /// A replica copies the server's keys.
    Replicate(usize),
    /// That replica takes the server's place.
    Failover(usize),
    /// A server's wall clock is set forward by this many µs, or back.
    ServerClock(usize, i64),
    /// Nothing passes between a host and a server until this time: no requests, no replies, or neither.
    Partition(usize, usize, bool, bool, Time),
    /// A connection is cut.
    Cut(usize, usize),
    /// A client's process is stopped by a signal.
    Stop(usize),
    /// A client's machine is suspended.
    Suspend(usize),
    /// A stopped or suspended client continues.
    Resume(usize),
    /// A client's process is killed.
    Kill(usize),
    /// A client's wall clock is set forward by this many ns, or back.
    HostClock(usize, i64),
}

impl Fault {
    /// The name under which it is counted.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Freeze(_) => "freeze server",
            Self::Thaw(_) => "thaw server",
            Self::Crash(_) => "crash",
            Self::Restart(_, true) => "restart",
            Self::Restart(_, false) => "restart empty",
            Self::Flush(_) => "flush",
            Self::Refuse(_, Refuses::Nothing) => "accept",
            Self::Refuse(_, Refuses::OutOfMemory) => "out of memory",
            Self::Refuse(_, Refuses::ReadOnly) => "read only",
            Self::Refuse(_, Refuses::Busy) => "busy",
            Self::Delete(_) => "delete",
            Self::Replicate(_) => "replicate",
            Self::Failover(_) => "failover",
            Self::ServerClock(..) => "server clock",
            Self::Partition(..) => "partition",
            Self::Cut(..) => "cut",
            Self::Stop(_) => "stop client",
            Self::Suspend(_) => "suspend client",
            Self::Resume(_) => "resume client",
            Self::Kill(_) => "kill client",
            Self::HostClock(..) => "client clock",
        }
    }
}

/// The kinds of faults that a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No server loses keys. Everything is promised.
    Faithful,
    /// Only a minority of servers has faults, and no client has. No lease may be lost.
    Minority,
    /// Only servers that the quorum can do without lose their keys. Quarantine keeps them from voting.
    Forgetful,
    /// With a quorum `q` above the majority, `2q-N-1` servers may lose their keys or have wrong clocks.
    Safe,
    /// The servers' wall clocks jump again and again, so that keys expire early and counters are ahead of the time.
    /// Tokens must increase all the same.
    Clocks,
    /// All faults. Only what needs no assumption is promised.
    Wild,
}

/// The plan of a run.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent settings of a run")]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The kinds of faults.
    pub class: Class,
    /// The number of servers.
    pub nodes: usize,
    /// The number of servers that form a quorum.
    pub quorum: usize,
    /// The number of clients, each on a host of its own.
    pub hosts: usize,
    /// The number of users of each client.
    pub actors: usize,
    /// The number of locks that the users compete for.
    pub locks: usize,
    /// The share of acquires that use one of two explicit owners, which all hosts share.
    pub owners: f64,
    /// Whether the locks are fair: one server keeps the order of the waiters.
    pub fair: bool,
    /// Whether the locks are read/write locks.
    pub read_write: bool,
    /// The number of slots, if the locks are semaphores.
    pub permits: Option<u32>,
    /// The share of calls during which a user is away at times.
    pub absent: f64,
    /// The rates of the hosts' clocks.
    pub host_rates: Vec<f64>,
    /// The rates of the servers' clocks, and their offsets in µs.
    pub server_clocks: Vec<(f64, i64)>,
    /// The network.
    pub weather: Weather,
    /// Whether every write of a server survives a crash.
    pub durable: bool,
    /// Whether clients may use `CLIENT KILL`.
    pub allows_kill: bool,
    /// The faults, with their times.
    pub faults: Vec<(Time, Fault)>,
    /// When the faults end.
    pub calm: Time,
    /// When the run ends.
    pub end: Time,
    /// The ttl of leases that the watchdog renews.
    pub watchdog: Duration,
    /// The time-out of a reply.
    pub reply_timeout: Duration,
    /// The longest ttl.
    pub max_ttl: Duration,
    /// How long a token counter is kept after its last use. Set in runs that hold some locks for longer.
    pub token_ttl: Option<Duration>,
    /// The longest `min_hold`, in runs that have any.
    pub min_hold: Option<Duration>,
    /// Whether tokens are promised to increase.
    pub tokens: bool,
    /// Whether quarantine is on.
    pub quarantine: bool,
}

impl Plan {
    /// The plan of a seed.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5eed_0000);
        let class = match rng.u32(0..20) {
            0..=8 => Class::Faithful,
            9..=11 => Class::Minority,
            12..=14 => Class::Forgetful,
            15..=16 => Class::Safe,
            17 => Class::Clocks,
            _ => Class::Wild,
        };
        let permits = (seed % 32 == 14).then_some((seed / 32 % 3) as u32 + 1);
        // Only on a single server waiters of a semaphore have places in a queue.
        let queued = permits.is_some() && (seed / 96).is_multiple_of(2);
        let nodes = match class {
            Class::Faithful | Class::Wild if queued => 1,
            Class::Faithful | Class::Wild => [1, 1, 3, 3, 3, 5][rng.usize(0..6)],
            Class::Minority | Class::Forgetful | Class::Clocks => [3, 3, 5][rng.usize(0..3)],
            Class::Safe => 5,
        };
        let quorum = match class {
            Class::Safe => rng.usize(4..=5),
            _ if rng.u32(0..6) == 0 => rng.usize(nodes / 2 + 1..=nodes),
            _ => nodes / 2 + 1,
        };
        let (hosts, actors, locks) = (rng.usize(2..=3), rng.usize(1..=3), rng.usize(1..=2));
        let faithful = matches!(class, Class::Faithful | Class::Minority | Class::Clocks);
        // A server that lost its counters continues from its clock, so the clocks must agree.
        let drift = if faithful { 0.045 } else { 0.0004 };
        let rate = |rng: &mut Rng, by: f64| 1.0 + (rng.f64() * 2.0 - 1.0) * by;
        let host_rates = (0..hosts).map(|_| rate(&mut rng, 0.045)).collect();
        let server_clocks = (0..nodes).map(|_| (rate(&mut rng, drift), rng.i64(-5_000..5_000))).collect();
        let quick = rng.u64(30_000..400_000);
        let rough = class != Class::Minority && rng.bool();
        let weather = Weather {
            delay: (quick, quick * rng.u64(2..30)),
            slow: if rough && rng.bool() { rng.f64() * 0.05 } else { 0.0 },
            slowest: rng.u64(SECOND / 50..4 * SECOND),
            duplicates: if rough && rng.u32(0..3) == 0 { rng.f64() * 0.05 } else { 0.0 },
            cuts: if rough && rng.bool() { rng.f64() * 0.05 } else { 0.0 },
            lost_messages: if rng.u32(0..3) == 0 { rng.f64() * 0.5 } else { 0.0 },
        };
        let watchdog = Duration::from_millis(rng.u64(300..3_000));
        // A long ttl shows keys that are left behind: a short one would end them before the check.
        let longest = if class == Class::Faithful && rng.u32(0..3) == 0 { 20_000 } else { 4_000 };
        let max_ttl = watchdog.max(Duration::from_millis(rng.u64(500..longest)));
        let calm = rng.u64(8 * SECOND..25 * SECOND);
        let mut plan = Self {
            seed,
            class,
            nodes,
            quorum,
            hosts,
            actors,
            locks,
            // Some runs test explicit owners that several hosts share.
            owners: if seed % 8 == 5 { 0.7 } else { 0.1 },
            // Fair locks exist only on a single server.
            fair: nodes == 1 && !seed.is_multiple_of(3) && seed % 8 != 1,
            read_write: seed % 8 == 1,
            permits,
            absent: 0.0,
            host_rates,
            server_clocks,
            weather,
            durable: faithful,
            allows_kill: rng.u32(0..8) > 0,
            faults: Vec::new(),
            calm,
            // Long enough for a quarantine, for the lease of a dead client, and for a turn of every user.
            end: calm + 40 * SECOND,
            watchdog,
            reply_timeout: Duration::from_millis(rng.u64(100..1_500)),
            max_ttl,
            token_ttl: None,
            min_hold: None,
            tokens: true,
            quarantine: true,
        };
        if plan.permits.is_some() {
            (plan.fair, plan.owners) = (false, 0.0);
            if queued && nodes == 1 {
                (plan.actors, plan.locks) = (3, 1);
            }
        }
        if class == Class::Clocks {
            plan.set_clocks(&mut rng);
        }
        // Other runs test callers that are away, and leases that pass from user to user.
        if seed % 8 == 3 {
            plan.send_users_away(&mut rng);
        }
        // Further runs test locks that are held for long. A counter must outlive the jump of a clock that is set back.
        if seed % 16 == 7 && class != Class::Clocks {
            plan.hold_for_long(&mut rng);
        }
        // In further runs locks stay taken after their release.
        if seed % 16 == 10 {
            plan.min_hold = Some(plan.max_ttl.min(Duration::from_secs(10)));
        }
        let count = if rng.u32(0..8) == 0 { 0 } else { rng.usize(1..14) };
        for _ in 0..count {
            plan.add_fault(&mut rng);
        }
        plan.faults.sort_by_key(|(time, _)| *time);
        let some = |is: fn(&Fault) -> bool| plan.faults.iter().any(|(_, fault)| is(fault));
        let forgets = some(|fault| matches!(fault, Fault::Flush(_) | Fault::Failover(_) | Fault::Restart(_, false)));
        let jumps = plan.sets_server_clocks();
        // Tokens need only the counters. A server that lost its counters continues from its clock, which must be right.
        // If all servers lose their keys at once, only the clocks are left.
        plan.tokens = !(forgets && (jumps || class == Class::Wild && nodes > 1));
        // Readers draw no token. After a failover to an older counter they use its value until the next writer.
        plan.tokens &= !(plan.read_write && some(|fault| matches!(fault, Fault::Failover(_))));
        plan
    }

    /// Sets one server's clock 90 s ahead for a while, which leaves every counter ahead. After that, clocks jump
    /// forward again and again, so that keys expire early.
    fn set_clocks(&mut self, rng: &mut Rng) {
        self.locks = 1;
        self.weather.slow = 0.1;
        self.weather.slowest = rng.u64(SECOND / 50..SECOND);
        let server = rng.usize(0..self.nodes);
        self.faults.push((SECOND / 5, Fault::ServerClock(server, 90_000_000)));
        self.faults.push((2 * SECOND, Fault::ServerClock(server, -90_000_000)));
        let mut time = 2 * SECOND;
        while time < self.calm - SECOND {
            time += rng.u64(SECOND / 20..SECOND / 2);
            let ttl = self.max_ttl.as_micros() as i64;
            self.faults
                .push((time, Fault::ServerClock(rng.usize(0..self.nodes), rng.i64(ttl / 2..2 * ttl).min(2_000_000))));
        }
    }

    /// Users are away for longer than an uncollected grant is kept. Leases live long enough to be handed on.
    fn send_users_away(&mut self, rng: &mut Rng) {
        self.absent = 0.4;
        self.owners = 0.05;
        self.actors = rng.usize(2..=3);
        let longest = if self.class == Class::Faithful { 30_000 } else { 8_000 };
        self.max_ttl = Duration::from_millis(rng.u64(2_000..longest));
        self.watchdog = self.max_ttl.mul_f64(rng.f64() * 0.8 + 0.2);
        self.calm = rng.u64(20 * SECOND..50 * SECOND);
        self.end = self.calm + 110 * SECOND;
    }

    /// Some locks are held for longer than their counters would live.
    fn hold_for_long(&mut self, rng: &mut Rng) {
        self.token_ttl = Some(Duration::from_secs(60));
        self.calm = rng.u64(100 * SECOND..140 * SECOND);
        self.end = self.calm + 40 * SECOND;
    }

    /// Adds one fault and its end.
    fn add_fault(&mut self, rng: &mut Rng) {
        let start = rng.u64(SECOND / 10..self.calm - SECOND);
        let length = match rng.u32(0..3) {
            0 => rng.u64(SECOND / 1000..SECOND / 5),
            1 => rng.u64(SECOND / 5..2 * SECOND),
            _ => rng.u64(SECOND..8 * SECOND),
        };
        let end = (start + length).min(self.calm);
        let minority = self.nodes - self.quorum;
        // If only a few servers may have faults, they are the same ones for the whole run.
        let troubled = match self.class {
            Class::Minority | Class::Forgetful => minority,
            Class::Safe => 2 * self.quorum - self.nodes - 1,
            Class::Faithful | Class::Clocks | Class::Wild => self.nodes,
        };
        if troubled == 0 {
            return;
        }
        let server = rng.usize(0..troubled);
        let host = rng.usize(0..self.hosts);
        let mut add = |time: Time, fault: Fault| self.faults.push((time, fault));
        let keeps = match self.class {
            Class::Faithful | Class::Minority | Class::Clocks => true,
            Class::Forgetful | Class::Safe => false,
            Class::Wild => rng.bool(),
        };
        match rng.u32(0..16) {
            0 | 1 => {
                add(start, Fault::Freeze(server));
                add(end, Fault::Thaw(server));
            }
            2 | 3 => {
                add(start, Fault::Crash(server));
                // Longer than the difference between the servers' clocks.
                add(end.max(start + SECOND / 4), Fault::Restart(server, keeps));
            }
            4 => {
                let refuses = [Refuses::OutOfMemory, Refuses::ReadOnly, Refuses::Busy][rng.usize(0..3)];
                add(start, Fault::Refuse(server, refuses));
                add(end, Fault::Refuse(server, Refuses::Nothing));
            }
            5 | 6 => {
                let (there, back) = [(true, true), (true, false), (false, true)][rng.usize(0..3)];
                add(start, Fault::Partition(host, server, there, back, end));
            }
            7 if !matches!(self.class, Class::Faithful | Class::Minority | Class::Clocks) => {
                add(start, Fault::Flush(server));
            }
            9 if self.class == Class::Wild => {
                add(start, Fault::Replicate(server));
                add(end, Fault::Failover(server));
            }
            10 if matches!(self.class, Class::Safe | Class::Wild) => {
                add(start, Fault::ServerClock(server, rng.i64(-4_000_000..4_000_000)));
            }
            11 | 12 if self.class == Class::Minority => add(start, Fault::Delete(rng.usize(0..self.locks))),
            7..=14 if self.class == Class::Minority => {}
            8..=10 => {
                add(start, Fault::Stop(host));
                add(end, Fault::Resume(host));
            }
            11 | 12 => {
                add(start, Fault::Suspend(host));
                add(end, Fault::Resume(host));
            }
            13 => add(start, Fault::Kill(host)),
            14 => add(start, Fault::HostClock(host, rng.i64(-3_000_000_000..3_000_000_000))),
            _ => add(start, Fault::Cut(host, server)),
        }
    }

    /// The configuration of every client.
    pub fn config(&self) -> Config {
        let mut config = Config::new((0..self.nodes).map(|node| format!("memory://sim-{node}")));
        config.quorum = (self.quorum > self.nodes / 2 + 1).then_some(self.quorum);
        config.watchdog = self.watchdog;
        config.max_ttl = self.max_ttl;
        config.token_ttl = self.token_ttl;
        config.reply_timeout = self.reply_timeout;
        config.connect_timeout = self.reply_timeout;
        config.patience = Duration::from_secs(2);
        config.quarantine = self.quarantine;
        config
    }

    /// True if a fault sets a server's wall clock.
    pub fn sets_server_clocks(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::ServerClock(..)))
    }

    /// True if a server keeps a queue in which each waiter has a place.
    pub fn queues(&self) -> bool {
        self.fair || self.read_write && self.nodes == 1
    }

    /// True if at most one owner may hold a lock at any time.
    pub fn exclusive(&self) -> bool {
        !matches!(self.class, Class::Wild | Class::Clocks)
    }

    /// True if a lock's key must be on a quorum of servers for as long as its holder counts it as held.
    pub fn present(&self) -> bool {
        self.class == Class::Faithful
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, quorum {} of {}, {} clients with {} users{}{}{} on {} {}locks, watchdog {:?}, max_ttl {:?}, replies \
             within {:?}, calm at {} s",
            self.seed,
            self.class,
            self.quorum,
            self.nodes,
            self.hosts,
            self.actors,
            if self.absent > 0.0 { " that are away at times" } else { "" },
            if self.token_ttl.is_some() { " that hold for long at times" } else { "" },
            if self.min_hold.is_some() { " with min_hold at times" } else { "" },
            self.locks,
            match self.permits {
                Some(permits) => format!("semaphores of {permits} "),
                None if self.read_write => "read/write ".to_owned(),
                None => String::new(),
            },
            self.watchdog,
            self.max_ttl,
            self.reply_timeout,
            self.calm / SECOND,
        )?;
        writeln!(f, "client clocks {:?}, server clocks {:?}", self.host_rates, self.server_clocks)?;
        write!(f, "{:?}", self.weather)
    }
}
