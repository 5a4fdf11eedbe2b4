//! The world between the hosts: the network and the servers, as one queue of events in true time. All randomness comes
//! from the seed, and every event goes into a trace, so that a run can be repeated and read.
//!
//! A connection delivers packets in order, each with its own delay, until it is cut; packets sent before the cut may
//! still arrive. A frozen server keeps its inbox; a crashed one loses it. As with TCP, a live connection loses nothing:
//! a partition or a half-open connection delays packets until it heals or is cut.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    fmt::Display,
    hash::{DefaultHasher, Hash, Hasher},
};

use fastrand::Rng;
use redlock::{
    Lease,
    protocol::script::{Reply, ScriptCall},
    server::NodeError,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    SECOND, Time,
    check::Checks,
    host,
    plan::Fault,
    store::{Entry, Store},
};

thread_local! { static WORLD: RefCell<Option<World>> = const { RefCell::new(None) }; }

/// Runs `act` on the world of the running simulation. `None` if there is none, for a value that outlived it.
pub fn with<T>(act: impl FnOnce(&mut World) -> T) -> Option<T> {
    WORLD.with_borrow_mut(|world| world.as_mut().map(act))
}

/// Starts or ends a simulation on this thread. Returns the previous world.
pub fn put(world: Option<World>) -> Option<World> {
    WORLD.replace(world)
}

/// The world of one run.
pub struct World {
    /// The time of the last event.
    pub now: Time,
    /// The random numbers of the network.
    pub rng: Rng,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event>,
    last: u64,
    /// The servers.
    pub servers: Vec<Server>,
    conns: BTreeMap<u64, Conn>,
    subs: BTreeMap<u64, Sub>,
    /// Hosts whose process was killed; they send nothing.
    pub dead: Vec<bool>,
    /// The behaviour of the network.
    pub weather: Weather,
    /// Until when nothing passes from a host to a server (`false`), or back (`true`).
    blocked: BTreeMap<(usize, usize, bool), Time>,
    /// Current and recent faults, and until when they count.
    pub recent: BTreeMap<&'static str, Time>,
    /// The checks of the invariants.
    pub checks: Checks,
    /// The trace.
    pub trace: Trace,
}

/// The present behaviour of the network.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The shortest and the longest usual delay, ns.
    pub delay: (Time, Time),
    /// The share of packets that are delayed for longer, as by retransmission.
    pub slow: f64,
    /// The longest such delay, ns.
    pub slowest: Time,
    /// The share of requests that arrive a second time, later.
    pub duplicates: f64,
    /// The share of requests during which the connection is cut.
    pub cuts: f64,
    /// The share of published messages that are lost.
    pub lost_messages: f64,
}

/// An event at a moment.
#[allow(missing_docs, reason = "the description of the variant names the fields")]
pub enum Event {
    /// A request reaches its server.
    Arrives { conn: u64, id: u64, ask: Ask },
    /// A request reaches its server a second time; no one waits for the reply.
    ArrivesAgain { server: usize, call: ScriptCall },
    /// A reply reaches its client.
    Answers { conn: u64, id: u64, answer: Answer },
    /// The client learns that a connection is broken.
    Breaks { conn: u64 },
    /// The server learns that a connection is broken.
    Ends { conn: u64 },
    /// A message reaches a subscriber.
    Message { sub: u64 },
    /// A subscriber leaves.
    Leaves { server: usize, sub: u64 },
    /// A fault, or its end.
    Fault(Fault),
    /// The invariants are checked.
    Sample,
    /// The faults end.
    Calm,
    /// The run is over.
    End,
}

/// A client's request to a server.
#[derive(Debug)]
pub enum Ask {
    /// The first request of a connection.
    Hello,
    /// Runs a script.
    Script(ScriptCall),
    /// Runs a script after a connection is closed.
    ScriptAfter(u64, ScriptCall),
    /// Requests a sign of life.
    Ping,
    /// Subscribes to a channel.
    Subscribe(String, u64),
}

/// A server's reply.
#[allow(missing_docs, reason = "the description of the variant names the fields")]
pub enum Answer {
    /// To `Hello` and `Ping`: the server's run.
    Facts { run: String },
    /// To a script, and whether the other connection is closed for certain.
    Script(Result<Reply, NodeError>, bool),
    /// To `Subscribe`.
    Subscribed,
}

/// A connection's notice to the node that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A reply arrived.
    Heard(u64),
    /// The connection is broken.
    Broken(u64),
}

struct Conn {
    host: usize,
    server: usize,
    /// Whether the client, and the server, still has it.
    client: bool,
    open: bool,
    /// When the last packet in each direction arrives.
    last: [Time; 2],
    waiting: BTreeMap<u64, oneshot::Sender<Answer>>,
    owner: mpsc::UnboundedSender<Notice>,
}

struct Sub {
    host: usize,
    /// The connection that carries it.
    conn: Option<u64>,
    messages: watch::Sender<u64>,
}

/// A simulated server.
#[allow(clippy::struct_excessive_bools, reason = "they are independent")]
pub struct Server {
    /// Its keys.
    pub store: Store,
    /// The number of its run.
    pub run: u64,
    /// Whether its process runs.
    pub up: bool,
    /// Whether its process is stopped by a signal.
    pub frozen: bool,
    /// The nanoseconds that its clock advances in one true nanosecond.
    pub rate: f64,
    /// The offset of its wall clock, µs.
    pub offset: i64,
    /// When it may last have lost keys, µs on its clock.
    pub lost_at: i64,
    /// Whether every write survives a crash.
    pub durable: bool,
    /// Whether its users may `CLIENT KILL`.
    pub allows_kill: bool,
    /// The keys of a lagging replica.
    pub replica: BTreeMap<String, Entry>,
    inbox: VecDeque<Event>,
    /// The subscriptions of the present run, by channel: subscription and connection.
    channels: BTreeMap<String, Vec<(u64, u64)>>,
}

impl Server {
    /// A new, empty server.
    pub fn new(rate: f64, offset: i64) -> Self {
        let mut server = Self {
            store: Store::default(),
            run: 0,
            up: true,
            frozen: false,
            rate,
            offset,
            lost_at: 0,
            durable: false,
            allows_kill: true,
            replica: BTreeMap::new(),
            inbox: VecDeque::new(),
            channels: BTreeMap::new(),
        };
        server.lost_at = server.wall(0);
        server
    }

    /// Its wall clock, µs.
    pub fn wall(&self, now: Time) -> i64 {
        1_700_000_000_000_000 + (now as f64 * self.rate / 1000.0) as i64 + self.offset
    }

    /// Its store, with the clock set to now.
    pub fn look(&mut self, now: Time) -> &mut Store {
        self.store.now = self.wall(now);
        &mut self.store
    }

    /// The number of its subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.channels.values().map(Vec::len).sum()
    }
}

/// All events: as a hash that any difference changes, and as text if requested.
#[derive(Default)]
pub struct Trace {
    hash: DefaultHasher,
    /// The lines, if requested.
    pub lines: Option<Vec<String>>,
    /// The number of events.
    pub events: u64,
}

impl Trace {
    /// The hash.
    pub fn digest(&self) -> u64 {
        self.hash.finish()
    }
}

impl World {
    /// A lock was released. If no server has the tenure any more, those that had it keep the lock taken until its
    /// `min_hold` is over.
    pub fn begin_rest(&mut self, now: Time, lease: &Lease) {
        let there = |server: &mut Server| server.look(now).tenures(lease.name()).iter().any(|one| one == lease.owner());
        if !self.servers.iter_mut().any(there) {
            self.checks.begin_rest(lease);
        }
    }

    /// A world without events.
    pub fn new(rng: Rng, servers: Vec<Server>, hosts: usize, weather: Weather, checks: Checks, verbose: bool) -> Self {
        Self {
            now: 0,
            rng,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            last: 0,
            servers,
            conns: BTreeMap::new(),
            subs: BTreeMap::new(),
            dead: vec![false; hosts],
            weather,
            blocked: BTreeMap::new(),
            recent: BTreeMap::new(),
            checks,
            trace: Trace { lines: verbose.then(Vec::new), ..Trace::default() },
        }
    }

    /// Records an event. `what` goes into the hash; `text` is made only for readers.
    pub fn note<D: Display>(&mut self, time: Time, what: impl Hash, text: impl FnOnce() -> D) {
        self.trace.events += 1;
        (time, what).hash(&mut self.trace.hash);
        if let Some(lines) = &mut self.trace.lines {
            lines.push(format!("{:>12.6} {}", time as f64 / 1e9, text()));
        }
    }

    /// Adds an event to the queue.
    pub fn at(&mut self, time: Time, event: Event) {
        self.last += 1;
        self.queue.push(Reverse((time, self.last)));
        self.events.insert(self.last, event);
    }

    /// The time of the next event.
    pub fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((time, _))| *time)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<Event> {
        let Reverse((time, number)) = self.queue.pop()?;
        self.now = self.now.max(time);
        self.events.remove(&number)
    }

    fn delay(&mut self) -> Time {
        let (least, most) = self.weather.delay;
        let usual = self.rng.u64(least..=most);
        if self.weather.slow > 0.0 && self.rng.f64() < self.weather.slow {
            usual + self.rng.u64(0..=self.weather.slowest)
        } else {
            usual
        }
    }

    /// The arrival time of a packet that is sent now. `back`: from the server.
    fn arrival(&mut self, conn: u64, now: Time, back: bool) -> Time {
        let delay = self.delay();
        let Some(link) = self.conns.get_mut(&conn) else { return now + delay };
        let healed = self.blocked.get(&(link.host, link.server, back)).copied().unwrap_or_default();
        let time = (now.max(healed) + delay).max(link.last[usize::from(back)] + 1);
        link.last[usize::from(back)] = time;
        time
    }

    /// Lets nothing pass in one direction until `until`.
    pub fn block(&mut self, host: usize, server: usize, back: bool, until: Time) {
        self.blocked.insert((host, server, back), until);
    }

    /// True if a partition separates a host from a server, or did within the last 3 s.
    pub fn is_cut_off(&self, host: usize, server: usize) -> bool {
        let recently = |until: &Time| until + 3 * SECOND > self.now;
        [false, true].iter().any(|back| self.blocked.get(&(host, server, *back)).is_some_and(recently))
    }

    /// Lets everything pass again.
    pub fn unblock(&mut self) {
        self.blocked.clear();
    }

    // ---- clients --------------------------------------------------------------------------------------------------

    /// Opens a connection from a host to a server. Its first request is `Hello`.
    pub fn open(&mut self, host: usize, server: usize, owner: mpsc::UnboundedSender<Notice>) -> u64 {
        self.last += 1;
        let conn = Conn { host, server, client: true, open: true, last: [0; 2], waiting: BTreeMap::new(), owner };
        self.conns.insert(self.last, conn);
        self.last
    }

    /// Sends a request. The receiver fails when the connection breaks.
    pub fn ask(&mut self, number: u64, ask: Ask) -> oneshot::Receiver<Answer> {
        let (answer, reply) = oneshot::channel();
        let now = host::here().max(self.now);
        let Some(conn) = self.conns.get_mut(&number).filter(|conn| conn.client) else { return reply };
        let (host, server) = (conn.host, conn.server);
        if self.dead[host] {
            return reply;
        }
        host::sent();
        self.last += 1;
        let id = self.last;
        conn.waiting.insert(id, answer);
        if let Ask::Subscribe(_, sub) = &ask
            && let Some(sub) = self.subs.get_mut(sub)
        {
            sub.conn = Some(number);
        }
        let time = self.arrival(number, now, false);
        self.note(now, (host, server, "ask"), || format!("host {host} → server {server}: {}", describe(&ask)));
        if let Ask::Script(call) = &ask
            && matches!(
                call.script.name,
                "acquire"
                    | "enter"
                    | "attach"
                    | "read_write/read"
                    | "read_write/write"
                    | "read_write/attach"
                    | "semaphore/acquire"
                    | "semaphore/take"
                    | "semaphore/attach"
            )
        {
            let fields = call.args.iter().take(2).filter(|arg| arg.contains(':'));
            self.checks.asked(call);
            self.checks.fields.extend(fields.map(|field| (field.clone(), host)));
        }
        if self.weather.duplicates > 0.0
            && let Ask::Script(call) = &ask
            // No client resends a downgrade, and no connection delivers it twice: after an upgrade, a second one would
            // undo that.
            && call.script.name != "read_write/downgrade"
            && self.rng.f64() < self.weather.duplicates
        {
            let later = time + self.rng.u64(0..3_000_000_000);
            self.at(later, Event::ArrivesAgain { server, call: call.clone() });
        }
        if self.weather.cuts > 0.0 && self.rng.f64() < self.weather.cuts {
            // Before or after the request, or the reply, or neither.
            let cut = now + self.rng.u64(0..4 * (time - now));
            self.cut(number, cut);
        }
        self.at(time, Event::Arrives { conn: number, id, ask });
        reply
    }

    /// Cuts a connection. Each side learns of it after its own delay.
    pub fn cut(&mut self, conn: u64, time: Time) {
        let (one, other) = (self.delay(), self.delay());
        self.at(time + one, Event::Breaks { conn });
        self.at(time + other, Event::Ends { conn });
    }

    /// True if the client still has the connection.
    pub fn is_open(&self, conn: u64) -> bool {
        self.conns.get(&conn).is_some_and(|conn| conn.client)
    }

    /// The client closes a connection. Packets that it sent before still arrive.
    pub fn close(&mut self, conn: u64) {
        let now = host::here().max(self.now);
        if let Some(known) = self.conns.get_mut(&conn).filter(|conn| conn.client) {
            known.client = false;
            known.waiting.clear();
            let time = self.arrival(conn, now, false);
            host::sent();
            self.at(time, Event::Ends { conn });
        }
    }

    /// Creates a subscription. Returns its number and the receiver of its messages.
    pub fn subscriber(&mut self, host: usize) -> (u64, watch::Receiver<u64>) {
        self.last += 1;
        let (messages, receiver) = watch::channel(0);
        self.subs.insert(self.last, Sub { host, conn: None, messages });
        (self.last, receiver)
    }

    /// A subscriber leaves.
    pub fn leave(&mut self, server: usize, sub: u64) {
        let now = host::here().max(self.now);
        if self.subs.remove(&sub).is_some_and(|known| !self.dead[known.host]) {
            let time = now + self.delay();
            host::sent();
            self.at(time, Event::Leaves { server, sub });
        }
    }

    /// The number of connections that clients have.
    pub fn connections(&self) -> usize {
        self.conns.values().filter(|conn| conn.client).count()
    }

    /// A random connection from a host to a server, for a fault.
    pub fn some_connection(&mut self, host: usize, server: usize) -> Option<u64> {
        let known: Vec<u64> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.client && conn.host == host && conn.server == server)
            .map(|(number, _)| *number)
            .collect();
        self.rng.choice(known)
    }

    /// Ends the connections of a killed process, which receives nothing any more.
    pub fn bury(&mut self, host: usize) {
        self.dead[host] = true;
        let now = self.now;
        let known: Vec<u64> = self.conns.iter().filter(|(_, c)| c.host == host && c.client).map(|(n, _)| *n).collect();
        for conn in known {
            if let Some(known) = self.conns.get_mut(&conn) {
                known.client = false;
                known.waiting.clear();
            }
            let time = self.arrival(conn, now, false);
            self.at(time, Event::Ends { conn });
        }
        self.subs.retain(|_, sub| sub.host != host);
    }

    // ---- servers --------------------------------------------------------------------------------------------------

    /// Kills a server. Requests in its inbox and its connections are lost.
    pub fn crash(&mut self, server: usize) {
        let now = self.now;
        let machine = &mut self.servers[server];
        machine.up = false;
        machine.frozen = false;
        machine.inbox.clear();
        machine.channels.clear();
        let known: Vec<u64> =
            self.conns.iter().filter(|(_, c)| c.server == server && c.open).map(|(number, _)| *number).collect();
        for conn in known {
            if let Some(known) = self.conns.get_mut(&conn) {
                known.open = false;
            }
            let time = self.arrival(conn, now, true);
            self.at(time, Event::Breaks { conn });
        }
    }

    /// Starts a crashed server.
    pub fn restart(&mut self, server: usize) {
        let now = self.now;
        let machine = &mut self.servers[server];
        machine.up = true;
        machine.run += 1;
        machine.lost_at = machine.wall(now);
    }

    /// Continues a frozen server, which executes its inbox in order.
    pub fn thaw(&mut self, server: usize) {
        self.servers[server].frozen = false;
        for event in std::mem::take(&mut self.servers[server].inbox) {
            self.happen(event);
        }
    }

    /// Carries out an event of the network.
    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Arrives { conn, id, ask } => self.arrive(conn, id, ask),
            Event::ArrivesAgain { server, call } => {
                let machine = &mut self.servers[server];
                if machine.frozen {
                    machine.inbox.push_back(Event::ArrivesAgain { server, call });
                } else if machine.up {
                    let now = self.now;
                    self.note(now, (server, "again"), || format!("server {server} again: {}", call.script.name));
                    self.checks.repeated(&call);
                    let _ = self.execute(server, &call);
                }
            }
            Event::Answers { conn, id, answer } => {
                let Some(known) = self.conns.get_mut(&conn).filter(|conn| conn.client) else { return };
                if let Some(waiting) = known.waiting.remove(&id) {
                    // The caller may have stopped waiting.
                    let _ = waiting.send(answer);
                }
                let _ = known.owner.send(Notice::Heard(conn));
            }
            Event::Breaks { conn } => {
                let now = self.now;
                let Some(known) = self.conns.get_mut(&conn).filter(|conn| conn.client) else { return };
                known.client = false;
                known.waiting.clear();
                let _ = known.owner.send(Notice::Broken(conn));
                let (host, server) = (known.host, known.server);
                // Its subscriptions end with it.
                self.subs.retain(|_, sub| sub.conn != Some(conn));
                self.note(now, (host, server, "breaks"), || format!("host {host} lost a connection to {server}"));
            }
            Event::Ends { conn } => self.end(conn),
            Event::Message { sub } => {
                if let Some(sub) = self.subs.get(&sub) {
                    sub.messages.send_modify(|count| *count += 1);
                }
            }
            Event::Leaves { server, sub } => {
                let channels = &mut self.servers[server].channels;
                for all in channels.values_mut() {
                    all.retain(|(known, _)| *known != sub);
                }
                channels.retain(|_, all| !all.is_empty());
            }
            Event::Fault(_) | Event::Sample | Event::Calm | Event::End => {}
        }
    }

    fn end(&mut self, conn: u64) {
        let Some(known) = self.conns.get_mut(&conn) else { return };
        known.open = false;
        let channels = &mut self.servers[known.server].channels;
        for all in channels.values_mut() {
            all.retain(|(_, carrier)| *carrier != conn);
        }
        channels.retain(|_, all| !all.is_empty());
    }

    fn arrive(&mut self, conn: u64, id: u64, ask: Ask) {
        let now = self.now;
        let Some(known) = self.conns.get(&conn) else { return };
        let server = known.server;
        if !self.servers[server].up || !known.open {
            // The connection is refused, or reset.
            let time = self.arrival(conn, now, true);
            self.at(time, Event::Breaks { conn });
            return;
        }
        if self.servers[server].frozen {
            self.servers[server].inbox.push_back(Event::Arrives { conn, id, ask });
            return;
        }
        let answer = match ask {
            Ask::Hello | Ask::Ping => Answer::Facts { run: self.run_id(server) },
            Ask::Script(call) => Answer::Script(self.execute(server, &call), true),
            Ask::ScriptAfter(other, call) => {
                let killed = self.servers[server].allows_kill;
                if killed {
                    self.end(other);
                    let time = self.arrival(other, now, true);
                    self.at(time, Event::Breaks { conn: other });
                }
                Answer::Script(self.execute(server, &call), killed)
            }
            Ask::Subscribe(channel, sub) => {
                self.servers[server].channels.entry(channel).or_default().push((sub, conn));
                Answer::Subscribed
            }
        };
        let time = self.arrival(conn, now, true);
        self.at(time, Event::Answers { conn, id, answer });
    }

    /// The run id of a server.
    pub fn run_id(&self, server: usize) -> String {
        format!("run-{server}-{}", self.servers[server].run)
    }

    fn execute(&mut self, server: usize, call: &ScriptCall) -> Result<Reply, NodeError> {
        let (now, run) = (self.now, self.run_id(server));
        let machine = &mut self.servers[server];
        let mut call = call.clone();
        if call.identify {
            let identity = vec![run, machine.lost_at.to_string(), u8::from(machine.durable).to_string()];
            call = call.with(Vec::new(), identity);
        }
        machine.store.now = machine.wall(now);
        for (fault, until) in &self.recent {
            if *until > now {
                self.checks.met(fault, call.script.name);
            }
        }
        let before = self.checks.before(&mut machine.store, &call);
        let reply = machine.store.run(&call);
        self.checks.after(now, server, &mut machine.store, &call, &before, &reply);
        let published = std::mem::take(&mut machine.store.published);
        let listeners: Vec<(u64, u64)> =
            published.iter().filter_map(|channel| machine.channels.get(channel)).flatten().copied().collect();
        self.note(now, (server, call.script.name, code(&reply)), || {
            format!("server {server} {} {:?} {:?} = {reply:?}", call.script.name, call.keys, call.args)
        });
        for (sub, conn) in listeners {
            let time = self.arrival(conn, now, true);
            if self.weather.lost_messages > 0.0 && self.rng.f64() < self.weather.lost_messages {
                self.note(now, (server, "loses"), || format!("a message of server {server} gets lost"));
            } else {
                self.at(time, Event::Message { sub });
            }
        }
        reply
    }
}

/// The part of a reply that decides its effect on the caller, without its times.
fn code(reply: &Result<Reply, NodeError>) -> i64 {
    match reply {
        Ok(Reply::Int(code)) => *code,
        Ok(Reply::List(list)) => list.iter().find_map(Reply::int).unwrap_or_default(),
        Ok(Reply::Text(_)) => -100,
        Err(error) => -101 - error.kind as i64,
    }
}

fn describe(ask: &Ask) -> String {
    match ask {
        Ask::Hello => "hello".to_owned(),
        Ask::Ping => "ping".to_owned(),
        Ask::Script(call) => format!("{} {:?}", call.script.name, call.args.first()),
        Ask::ScriptAfter(conn, call) => format!("{} {:?} after connection {conn}", call.script.name, call.args.first()),
        Ask::Subscribe(channel, _) => format!("subscribe {channel}"),
    }
}
