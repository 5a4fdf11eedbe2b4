//! The nemesis: servers behind proxies, and random faults, each of which starts, lasts for a while and ends before the
//! next. The seed alone decides them.
//!
//! A careful nemesis keeps the assumptions of `docs/guarantees.md`, so that exclusion must hold. For that, a campaign
//! chooses its faults (some void exclusion on a number of nodes), and the nemesis pauses after faults that make a node
//! lose its keys: never all nodes may have lost them at once, and without quarantine no more than 2q-N-1 within one
//! lease.

use std::{thread::sleep, time::Duration};

use fastrand::Rng;

use crate::{
    clocks::WallClock,
    proxy::{Cut, DIRECTIONS, Direction, Flow, Proxy},
    server::Server,
    wait_until,
};

/// A fault of servers, or of the network before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// `SIGSTOP`, later `SIGCONT`.
    Freeze,
    /// `CLIENT PAUSE`: requests wait; connections are accepted.
    Pause,
    /// `DEBUG SLEEP`: one long command.
    Sleep,
    /// `kill -9`, then a restart: empty, unless the servers are durable.
    Restart,
    /// `FLUSHALL`.
    Flush,
    /// Memory is full, and the policy evicts keys with a ttl: locks and counters.
    Evict,
    /// `SCRIPT FLUSH`.
    ForgetScripts,
    /// `CLIENT KILL` of every connection.
    Disconnect,
    /// A replica that stopped following takes over. The address moves to it.
    Failover,
    /// The wall clock of the first node is a minute ahead or behind for a while.
    Clock,
    /// The network is slow.
    Delay,
    /// Bytes of one direction, or both, are held back.
    Hold,
    /// The same, but the bytes are lost, and their connections with them.
    Lose,
    /// A connection is cut after some byte of a request or reply.
    CutBytes,
    /// The same, but the other direction continues.
    HalfClose,
    /// Some clients are cut off while a quorum restarts empty. With quarantine, no other client may get their locks.
    RestartBehindPartition,
    /// N-q nodes are cut off while clients acquire locks. They come back when the clock of another node jumps ahead.
    /// This breaks a majority quorum, and no larger one.
    JumpBehindOutage,
}

/// How far a clock jumps.
const JUMP: Duration = Duration::from_secs(60);
/// How long clients may take to notice that a node is empty.
const NOTICED: Duration = Duration::from_secs(30);
/// The marker of a node that votes, or will vote.
const MARKER: &str = "redlock_node";

/// Faults that may happen to any node, whatever its clients assume: none of them makes a node lose keys.
pub const HARMLESS: &[Fault] = &[
    Fault::Freeze,
    Fault::Pause,
    Fault::Sleep,
    Fault::ForgetScripts,
    Fault::Disconnect,
    Fault::Delay,
    Fault::Hold,
    Fault::Lose,
    Fault::CutBytes,
    Fault::HalfClose,
];

/// Servers, and two sides from which clients reach them.
pub struct Arena {
    servers: Vec<Server>,
    clocks: Vec<WallClock>,
    sides: [Vec<Proxy>; 2],
    options: Vec<String>,
    needed: usize,
    lease: Duration,
    quarantine: bool,
    careful: bool,
    available: bool,
}

/// The settings of an arena.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct Plan {
    /// The number of servers.
    pub nodes: usize,
    /// The quorum.
    pub needed: usize,
    /// Whether a server keeps its keys through a restart.
    pub durable: bool,
    /// If set, each server has its own clock, faster by this many parts per million.
    pub clocks: Option<i64>,
    /// The longest lease.
    pub lease: Duration,
    /// Whether clients keep restarted nodes from voting.
    pub quarantine: bool,
    /// Whether exclusion must hold.
    pub careful: bool,
    /// Whether a quorum must be able to answer at any time.
    pub available: bool,
}

impl Arena {
    /// Starts the servers and a proxy for each on both sides.
    pub fn start(plan: Plan) -> Self {
        let aof: &[&str] = if plan.durable { &["yes", "--appendfsync", "always"] } else { &["no"] };
        let options =
            [&["--enable-debug-command", "local", "--repl-diskless-sync-delay", "0", "--appendonly"], aof].concat();
        let faster = plan.clocks.unwrap_or_default();
        let clocks: Vec<WallClock> =
            (0..plan.nodes).filter(|_| plan.clocks.is_some()).map(|_| WallClock::new(faster)).collect();
        let servers: Vec<Server> = (0..plan.nodes)
            .map(|node| clocks.get(node).map_or_else(|| launch(&options, None), |clock| launch(&options, Some(clock))))
            .collect();
        let side = || servers.iter().map(|server| Proxy::start(server.port())).collect();
        Self {
            sides: [side(), side()],
            servers,
            clocks,
            options: options.into_iter().map(str::to_owned).collect(),
            needed: plan.needed,
            lease: plan.lease,
            quarantine: plan.quarantine && plan.nodes > 1,
            careful: plan.careful,
            available: plan.available,
        }
    }

    /// The URLs of the nodes for clients of this side.
    pub fn urls(&self, side: usize) -> Vec<String> {
        self.sides[side % 2].iter().map(Proxy::url).collect()
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Runs one fault on some of the servers, for a while. Calls `note` before it starts.
    pub fn strike(&mut self, fault: Fault, dice: &mut Rng, note: &mut dyn FnMut(String)) {
        let lasting = Duration::from_millis(dice.u64(10..=self.lease.as_millis() as u64 * 3 / 2));
        match fault {
            Fault::Freeze | Fault::Pause | Fault::Sleep => {
                let nodes = self.some(dice);
                note(format!("{fault:?} {nodes:?} for {lasting:?}"));
                self.suspend(fault, &nodes, lasting);
            }
            Fault::Restart | Fault::Flush | Fault::Evict | Fault::Failover => {
                let node = dice.usize(0..self.servers.len());
                note(format!("{fault:?} {node} within {lasting:?}"));
                self.forget(fault, node, lasting);
            }
            Fault::ForgetScripts | Fault::Disconnect => {
                let nodes = self.some(dice);
                note(format!("{fault:?} {nodes:?}"));
                for node in nodes {
                    let server = &self.servers[node];
                    if fault == Fault::ForgetScripts {
                        let _: () = server.command(&["SCRIPT", "FLUSH"]);
                    } else {
                        let _: i64 = server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
                        let _: i64 = server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                    }
                }
            }
            Fault::Clock => {
                let forward = dice.bool();
                note(format!("{fault:?} 0 {} for {lasting:?}", if forward { "ahead" } else { "behind" }));
                self.clocks[0].set(JUMP, forward);
                sleep(lasting);
                self.clocks[0].set(Duration::ZERO, true);
                self.recover(0);
            }
            Fault::Delay | Fault::Hold | Fault::Lose | Fault::CutBytes | Fault::HalfClose => {
                self.disturb(fault, lasting, dice, note);
            }
            Fault::RestartBehindPartition => {
                note(format!("{fault:?} {:?}", 0..self.needed));
                let all: Vec<usize> = (0..self.servers.len()).collect();
                self.flow(&[0], &all, Flow::Lose);
                for server in &mut self.servers[..self.needed] {
                    server.stop();
                    server.restart();
                }
                sleep(self.lease);
                self.flow(&[0], &all, Flow::Pass);
                if self.quarantine {
                    (0..self.needed).for_each(|node| self.recover(node));
                }
            }
            Fault::JumpBehindOutage => {
                note(format!("{fault:?} {:?}, then 0", self.needed..self.servers.len()));
                let away: Vec<usize> = (self.needed..self.servers.len()).collect();
                self.flow(&[0, 1], &away, Flow::Lose);
                // A holder at the end of the outage has its key on just these nodes.
                sleep(self.lease);
                self.flow(&[0, 1], &away, Flow::Pass);
                self.clocks[0].set(JUMP, true);
                sleep(self.lease / 2);
                self.clocks[0].set(Duration::ZERO, true);
                // No more than one jump within a lease.
                sleep(self.lease);
            }
        }
    }

    /// Some nodes: in 70 % of cases no more than the quorum can do without, otherwise up to all.
    fn some(&self, dice: &mut Rng) -> Vec<usize> {
        let all = self.servers.len();
        let most = if dice.f64() < 0.7 || self.available { (all - self.needed).max(1) } else { all };
        let mut nodes = dice.choose_multiple(0..all, dice.clone().usize(1..=most));
        nodes.sort_unstable();
        nodes
    }

    fn suspend(&mut self, fault: Fault, nodes: &[usize], lasting: Duration) {
        let milliseconds = lasting.as_millis().to_string();
        match fault {
            Fault::Freeze => {
                for node in nodes {
                    self.servers[*node].freeze();
                }
                sleep(lasting);
                for node in nodes {
                    self.servers[*node].thaw();
                }
            }
            Fault::Pause => {
                for node in nodes {
                    let _: () = self.servers[*node].command(&["CLIENT", "PAUSE", &milliseconds, "ALL"]);
                }
                sleep(lasting);
            }
            _ => std::thread::scope(|scope| {
                for node in nodes {
                    let server = &self.servers[*node];
                    let seconds = format!("{:.3}", lasting.as_secs_f64());
                    scope.spawn(move || server.command::<()>(&["DEBUG", "SLEEP", &seconds]));
                }
            }),
        }
    }

    /// Makes a node lose its keys, unless it is durable and only restarts.
    fn forget(&mut self, fault: Fault, node: usize, lasting: Duration) {
        let server = &mut self.servers[node];
        match fault {
            Fault::Restart => {
                server.stop();
                sleep(lasting / 4);
                server.restart();
            }
            Fault::Flush => server.command(&["FLUSHALL"]),
            Fault::Evict => {
                let _: () = server.command(&["CONFIG", "SET", "maxmemory-policy", "volatile-random"]);
                let _: () = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
                // Each command evicts, those of clients included.
                sleep(lasting / 8);
                let _: () = server.command(&["CONFIG", "SET", "maxmemory", "0"]);
            }
            _ => {
                let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
                let replica = launch(&options, self.clocks.get(node));
                let port = server.port().to_string();
                let _: () = replica.command(&["REPLICAOF", "127.0.0.1", &port]);
                let synchronised = || replica.command::<String>(&["INFO", "replication"]).contains("link_status:up");
                wait_until(NOTICED, "the replica follows", synchronised);
                // From here on the replica lags.
                let _: () = replica.command(&["REPLICAOF", "NO", "ONE"]);
                sleep(lasting / 2);
                server.stop();
                for side in &self.sides {
                    side[node].move_to(replica.port());
                }
                *server = replica;
            }
        }
        self.recover(node);
    }

    /// Waits until the node is harmless, so that the next node may lose its keys.
    fn recover(&self, node: usize) {
        if !self.careful || self.servers.len() == 1 {
            return;
        }
        if self.quarantine {
            let server = &self.servers[node];
            wait_until(NOTICED, "clients notice that the node forgot", || server.command(&["EXISTS", MARKER]));
        } else {
            sleep(self.lease);
        }
    }

    fn disturb(&mut self, fault: Fault, lasting: Duration, dice: &mut Rng, note: &mut dyn FnMut(String)) {
        let nodes = self.some(dice);
        let sides: &[usize] = [&[0, 1][..], &[0], &[1]][dice.usize(0..3)];
        let ways: &[Direction] = [&DIRECTIONS[..], &DIRECTIONS[..1], &DIRECTIONS[1..]][dice.usize(0..3)];
        let (byte, delay) = (dice.u64(0..1500), lasting / dice.u32(4..200));
        note(match fault {
            Fault::Delay => format!("{fault:?} {nodes:?} sides {sides:?} {ways:?} by {delay:?} for {lasting:?}"),
            Fault::CutBytes | Fault::HalfClose => format!("{fault:?} {nodes:?} sides {sides:?} {ways:?} after {byte}"),
            _ => format!("{fault:?} {nodes:?} sides {sides:?} {ways:?} for {lasting:?}"),
        });
        let proxies = || sides.iter().flat_map(|side| nodes.iter().map(|node| &self.sides[*side][*node]));
        for (proxy, way) in proxies().flat_map(|proxy| ways.iter().map(move |way| (proxy, *way))) {
            match fault {
                Fault::Delay => proxy.delay(way, delay),
                Fault::Hold => proxy.flow(way, Flow::Hold),
                Fault::Lose => proxy.flow(way, Flow::Lose),
                Fault::HalfClose => proxy.cut_after(way, byte, Cut::Half),
                _ => proxy.cut_after(way, byte, Cut::Whole),
            }
        }
        sleep(lasting);
        proxies().for_each(Proxy::heal);
    }

    fn flow(&self, sides: &[usize], nodes: &[usize], flow: Flow) {
        for (side, node) in sides.iter().flat_map(|side| nodes.iter().map(move |node| (*side, *node))) {
            for way in DIRECTIONS {
                self.sides[side][node].flow(way, flow);
            }
        }
    }
}

fn launch(options: &[&str], clock: Option<&WallClock>) -> Server {
    match clock {
        Some(clock) => Server::launch(options, &clock.environment()),
        None => Server::with_args(options),
    }
}
