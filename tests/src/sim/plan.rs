//! What a seed stands for: how many servers and clients, how their clocks and the network behave, what goes wrong and
//! when, and which promises hold all the same. A plan decides before the run, so that leaving out a fault changes
//! nothing else.

use std::{fmt, time::Duration};

use fastrand::Rng;
use redlock::Config;

use super::{SECOND, Time, store::Refuses, world::Weather};

/// Something that goes wrong, or well again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server's process is stopped by a signal.
    Freeze(usize),
    /// It goes on.
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
    /// A replica remembers what the server has.
    Replicate(usize),
    /// That replica takes the server's place.
    Failover(usize),
    /// A server's wall clock is set by so many µs.
    ServerClock(usize, i64),
    /// Nothing passes between a host and a server until then: requests, replies, or both.
    Partition(usize, usize, bool, bool, Time),
    /// A connection is cut.
    Cut(usize, usize),
    /// A client's process is stopped by a signal.
    Stop(usize),
    /// A client's machine is suspended.
    Suspend(usize),
    /// Either goes on.
    Resume(usize),
    /// A client's process is killed.
    Kill(usize),
    /// A client's wall clock is set by so many ns.
    HostClock(usize, i64),
}

impl Fault {
    /// Its name, for counting.
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

/// What goes wrong in a run, as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No server forgets: everything is promised.
    Faithful,
    /// Only a minority of servers is in trouble, and no client: nothing may be lost.
    Minority,
    /// Fewer servers than a quorum needs lose their keys; quarantine keeps them from voting.
    Forgetful,
    /// With a safety quorum, `2q-N-1` servers may forget or have wrong clocks.
    Safe,
    /// The servers' wall clocks jump time and again, so that keys end early and counters are ahead of the time: tokens
    /// must be in order all the same.
    Clocks,
    /// Everything: only what needs no assumption is promised.
    Wild,
}

/// A run.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are what a run is made of, and independent")]
pub struct Plan {
    /// What it was made from.
    pub seed: u64,
    /// What goes wrong.
    pub class: Class,
    /// How many servers, and how many of them decide.
    pub nodes: usize,
    /// The quorum.
    pub quorum: usize,
    /// How many clients on hosts of their own.
    pub hosts: usize,
    /// How many users each has.
    pub actors: usize,
    /// How many locks they want.
    pub locks: usize,
    /// How often they do so as one of two owners that all hosts know.
    pub owners: f64,
    /// Whether a server keeps the order of those that wait.
    pub fair: bool,
    /// Whether the locks are read/write locks.
    pub read_write: bool,
    /// How often a user is away while a call of its is under way.
    pub absent: f64,
    /// How fast the clocks of the hosts run.
    pub host_rates: Vec<f64>,
    /// How fast those of the servers run, and how far they are off in µs.
    pub server_clocks: Vec<(f64, i64)>,
    /// The network.
    pub weather: Weather,
    /// Whether servers keep their keys for certain.
    pub durable: bool,
    /// Whether clients may kill connections.
    pub allows_kill: bool,
    /// What happens when.
    pub faults: Vec<(Time, Fault)>,
    /// When nothing goes wrong any more, and when the run ends.
    pub calm: Time,
    /// The end.
    pub end: Time,
    /// The watchdog's lease.
    pub watchdog: Duration,
    /// How long a reply may take.
    pub reply_timeout: Duration,
    /// The longest ttl.
    pub max_ttl: Duration,
    /// How long a token counter is kept, where some locks are held for longer.
    pub token_ttl: Option<Duration>,
    /// Whether tokens are promised to be in order.
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
        let nodes = match class {
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
        // A server that lost its counters goes on from its clock: then the clocks must agree.
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
        // What is left behind shows only if it does not die by itself.
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
            // Some runs are about what owners that several hosts share do to each other.
            owners: if seed % 8 == 5 { 0.7 } else { 0.1 },
            // Only where one server decides.
            fair: nodes == 1 && !seed.is_multiple_of(3) && seed % 8 != 1,
            read_write: seed % 8 == 1,
            absent: 0.0,
            host_rates,
            server_clocks,
            weather,
            durable: faithful,
            allows_kill: rng.u32(0..8) > 0,
            faults: Vec::new(),
            calm,
            // Long enough for quarantine, for a dead client's lease, and for everybody to have a turn.
            end: calm + 40 * SECOND,
            watchdog,
            reply_timeout: Duration::from_millis(rng.u64(100..1_500)),
            max_ttl,
            token_ttl: None,
            tokens: true,
            quarantine: true,
        };
        if class == Class::Clocks {
            plan.set_clocks(&mut rng);
        }
        // Others about callers that are away, and leases that go from hand to hand.
        if seed % 8 == 3 {
            plan.send_users_away(&mut rng);
        }
        // And others about locks that are held for long. A counter must outlive what a clock is set back by.
        if seed % 16 == 7 && class != Class::Clocks {
            plan.hold_for_long(&mut rng);
        }
        let count = if rng.u32(0..8) == 0 { 0 } else { rng.usize(1..14) };
        for _ in 0..count {
            plan.add_fault(&mut rng);
        }
        plan.faults.sort_by_key(|(time, _)| *time);
        let some = |is: fn(&Fault) -> bool| plan.faults.iter().any(|(_, fault)| is(fault));
        let forgets = some(|fault| matches!(fault, Fault::Flush(_) | Fault::Failover(_) | Fault::Restart(_, false)));
        let jumps = plan.sets_server_clocks();
        // Counters are all that tokens need. A server that lost them goes on from its clock, which must be right; and
        // when all forget at once, the clocks are the only memory left.
        plan.tokens = !(forgets && (jumps || class == Class::Wild && nodes > 1));
        // Readers draw none: on a counter of before they go on from there until somebody writes.
        plan.tokens &= !(plan.read_write && some(|fault| matches!(fault, Fault::Failover(_))));
        plan
    }

    /// A clock that was far ahead for a while leaves every counter ahead; then keys end early, again and again.
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

    /// Users are away for longer than what they are offered stands, and leases live long enough to be handed on.
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

    /// Some locks are held until their counters would have ended.
    fn hold_for_long(&mut self, rng: &mut Rng) {
        self.token_ttl = Some(Duration::from_secs(60));
        self.calm = rng.u64(100 * SECOND..140 * SECOND);
        self.end = self.calm + 40 * SECOND;
    }

    /// Adds one fault and what ends it.
    fn add_fault(&mut self, rng: &mut Rng) {
        let start = rng.u64(SECOND / 10..self.calm - SECOND);
        let length = match rng.u32(0..3) {
            0 => rng.u64(SECOND / 1000..SECOND / 5),
            1 => rng.u64(SECOND / 5..2 * SECOND),
            _ => rng.u64(SECOND..8 * SECOND),
        };
        let end = (start + length).min(self.calm);
        let minority = self.nodes - self.quorum;
        // The same few servers throughout, where only a few may be in trouble.
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
                // Longer than the clocks of the servers are apart.
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

    /// Whether wall clocks of servers are set.
    pub fn sets_server_clocks(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::ServerClock(..)))
    }

    /// Whether a server keeps queues in which each that waits has a place.
    pub fn queues(&self) -> bool {
        self.fair || self.read_write && self.nodes == 1
    }

    /// Whether at most one owner may hold a lock at any time.
    pub fn exclusive(&self) -> bool {
        !matches!(self.class, Class::Wild | Class::Clocks)
    }

    /// Whether the key of a hold must be on a quorum of servers for as long as its holder believes.
    pub fn present(&self) -> bool {
        self.class == Class::Faithful
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, quorum {} of {}, {} clients with {} users{}{} on {} {}locks, watchdog {:?}, max_ttl {:?}, replies \
             within {:?}, calm at {} s",
            self.seed,
            self.class,
            self.quorum,
            self.nodes,
            self.hosts,
            self.actors,
            if self.absent > 0.0 { " that are away at times" } else { "" },
            if self.token_ttl.is_some() { " that hold for long at times" } else { "" },
            self.locks,
            if self.read_write { "read/write " } else { "" },
            self.watchdog,
            self.max_ttl,
            self.reply_timeout,
            self.calm / SECOND,
        )?;
        writeln!(f, "client clocks {:?}, server clocks {:?}", self.host_rates, self.server_clocks)?;
        write!(f, "{:?}", self.weather)
    }
}
