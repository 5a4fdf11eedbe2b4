//! The node behind `memory://`: a Redis inside this process, for tests and for programs that need no server. It owns
//! the stores, one a name, and runs each script as a function over a store; a randomised test compares every one of
//! them with the script on a real server. [`Memory`] breaks a store on purpose, so that outages can be tested.
//!
//! A store belongs to the process that made it: after a fork the child finds an empty one, and never takes a lock that
//! may have been held when it was forked.
//!
//! States of a store: up → (`freeze`) → frozen → (`thaw`) → up; up or frozen → (`stop`) → stopped → (`start`) → up and
//! empty. Up answers at once, frozen keeps requests in order for later, stopped refuses them.

use std::{
    collections::{BTreeMap, HashMap},
    future::pending,
    mem,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::sync::Mutex;
use tokio::{
    select,
    sync::{oneshot, watch},
    time::sleep,
};

use crate::{
    clock::{self, Deadline, Stamp},
    config::Wire,
    event::{Event, EventSink},
    process::runtime,
    protocol::script::{Call, Reply},
    server::{BoxFuture, Lane, Link, Node, NodeError, NodeErrorKind, NodeInfo, Sent, Subscription},
};

/// The store of a `memory://` URL, to look into it, to break it and to mend it.
///
/// ```
/// use redlock::server::memory::Memory;
///
/// let store = Memory::named("orders"); // what clients of memory://orders talk to
/// store.freeze(); // like a server that was suspended
/// store.thaw();
/// ```
///
/// Its methods act on the store at once, whether it is up, frozen or stopped. A handle can be made before or after
/// the clients and is worth no more than the name.
#[derive(Clone, Debug)]
pub struct Memory {
    name: String,
}

impl Memory {
    /// The store behind `memory://name`; an empty name is the one behind `memory://`.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Removes a key, as `DEL`; tells whether it existed. Announces nothing.
    pub fn delete(&self, key: &str) -> bool {
        self.with(|commands| commands.del(key))
    }

    /// Writes a string without a ttl over whatever the key holds, as `SET`.
    pub fn set(&self, key: &str, value: &str) {
        self.with(|commands| commands.insert(key, Value::Text(value.to_owned()), None));
    }

    /// Adds a field to a hash, as `HSET`; a new hash has no ttl. Returns `false`, and does nothing, if the key holds
    /// a string.
    pub fn hset(&self, key: &str, field: &str) -> bool {
        self.with(|commands| commands.hset(key, field)).is_ok()
    }

    /// Lets a key expire after `ttl`, rounded up to milliseconds, as `PEXPIRE`; tells whether it existed.
    pub fn expire(&self, key: &str, ttl: Duration) -> bool {
        self.with(|commands| commands.pexpire(key, millis(ttl)))
    }

    /// Whether a key exists, as `EXISTS`.
    pub fn exists(&self, key: &str) -> bool {
        self.with(|commands| commands.exists(key))
    }

    /// Removes all keys, as `FLUSHALL`.
    pub fn flush(&self) {
        self.store().state.lock().keys.clear();
    }

    /// Kills the server: all keys are lost, subscriptions end, requests fail until [`start`](Self::start). Requests
    /// that waited in a frozen store never run.
    pub fn stop(&self) {
        let store = self.store();
        {
            let mut state = store.state.lock();
            if matches!(state.status, Status::Stopped) {
                return;
            }
            state.status = Status::Stopped;
            state.keys.clear();
            state.subscribers.clear();
        }
        store.changed();
    }

    /// Starts a stopped server: it is empty and has a new run id. Does nothing if it runs.
    pub fn start(&self) {
        let store = self.store();
        {
            let mut state = store.state.lock();
            if !matches!(state.status, Status::Stopped) {
                return;
            }
            // Numbers of subscribers are not reused: one that outlived the old run must not end one of the new run.
            let (commands, last_subscriber) = (state.commands, state.last_subscriber);
            *state = State { commands, last_subscriber, ..State::new() };
        }
        store.changed();
    }

    /// Suspends the server: requests wait until [`thaw`](Self::thaw) or their time-out. Those that timed out still
    /// run when it thaws, in order and before later ones. Keys go on expiring.
    pub fn freeze(&self) {
        let store = self.store();
        let mut state = store.state.lock();
        if matches!(state.status, Status::Up) {
            state.status = Status::Frozen(Vec::new());
        }
    }

    /// Resumes a frozen server; what waited runs before this returns.
    pub fn thaw(&self) {
        let store = self.store();
        let answers: Vec<Deliver> = {
            let mut state = store.state.lock();
            match mem::replace(&mut state.status, Status::Up) {
                Status::Frozen(waiting) => waiting.into_iter().map(|job| job(&mut state)).collect(),
                other => {
                    state.status = other;
                    return;
                }
            }
        };
        // Outside the lock: an answer that nobody waits for is dropped here, and a dropped subscription locks the store.
        for deliver in answers {
            deliver();
        }
        store.changed();
    }

    /// How many subscriptions a channel has, as `PUBSUB NUMSUB`.
    pub fn subscribers(&self, channel: &str) -> usize {
        self.store().state.lock().subscribers.get(channel).map_or(0, Vec::len)
    }

    /// How many script calls the store executed since the process made it, failed ones included.
    pub fn commands(&self) -> u64 {
        self.store().state.lock().commands
    }

    // Looked up each time, so that a handle made before a fork means the child's store in the child.
    fn store(&self) -> Arc<Store> {
        find(runtime::generation(), &self.name)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Commands<'_>) -> T) -> T {
        act(&mut Commands { state: &mut self.store().state.lock(), now: clock::now() })
    }
}

/// A client's view of a store.
pub struct MemoryNode(Arc<Session>);

impl MemoryNode {
    /// Opens the store behind `memory://name`, which is made if need be. Several clients share it. `events` learns
    /// when the store stops answering this client, and when it answers again.
    pub fn open(name: &str, events: Option<EventSink>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self(Arc::new(Session {
            name: format!("memory://{name}"),
            number: NEXT.fetch_add(1, Relaxed),
            store: find(runtime::generation(), name),
            events,
            down: AtomicBool::new(false),
            closed: watch::Sender::new(false),
        })))
    }
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn eval(&self, lane: Lane, call: Call, timeout: Duration, sent: Sent) -> BoxFuture<Result<Reply, NodeError>> {
        let session = Arc::clone(&self.0);
        at_once(Box::pin(session.request(Some((lane, sent)), Some(timeout), |state| state.run_script(call))))
    }

    fn eval_after(&self, _: Link, call: Call, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        // A store has one queue: whatever was sent before runs before.
        let session = Arc::clone(&self.0);
        at_once(Box::pin(session.request(None, Some(timeout), |state| state.run_script(call))))
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        let session = Arc::clone(&self.0);
        let (store, node) = (Arc::clone(&session.store), session.number);
        Box::pin(session.request(None, None, move |state| {
            state.last_subscriber += 1;
            let number = state.last_subscriber;
            let (sender, messages) = watch::channel(0);
            let all = state.subscribers.entry(channel.clone()).or_default();
            all.push(Subscriber { number, node, sender });
            Ok(Subscription { messages, guard: Box::new(Unsubscribe { store, channel, number }) })
        }))
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        let session = Arc::clone(&self.0);
        Box::pin(session.request(None, Some(timeout), |state| Ok(NodeInfo::new(Some(state.run.clone()), None))))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        if self.0.forked() {
            // The parent's channel has a lock of its own.
            return watch::channel(0).1;
        }
        self.0.store.changes.subscribe()
    }

    fn close(&self) {
        if self.0.forked() {
            return;
        }
        self.0.closed.send_replace(true);
        self.0.store.state.lock().subscribers.retain(|_, all| {
            all.retain(|subscriber| subscriber.node != self.0.number);
            !all.is_empty()
        });
    }
}

/// Sends a request when it is made, not when somebody first asks for its answer: as on a network, where all nodes have
/// it by the time a quorum has answered.
fn at_once<T: Send + 'static>(mut request: BoxFuture<T>) -> BoxFuture<T> {
    match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
        Poll::Pending => request,
    }
}

/// What a client's node is made of; a request keeps it alive.
struct Session {
    name: String,
    number: u64,
    store: Arc<Store>,
    events: Option<EventSink>,
    /// Whether the last request found the store stopped or frozen.
    down: AtomicBool,
    closed: watch::Sender<bool>,
}

impl Session {
    /// Has the store do `work`: now, once it thaws, or never. Notes in `sent` when it may be done.
    async fn request<T: Send + 'static>(
        self: Arc<Self>,
        sent: Option<(Lane, Sent)>,
        timeout: Option<Duration>,
        work: impl FnOnce(&mut State) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        if self.forked() {
            return Err(NodeError::new(NodeErrorKind::NotRun, "opened before a fork"));
        }
        let mut closed = self.closed.subscribe();
        if *closed.borrow_and_update() {
            return Err(NodeError::new(NodeErrorKind::NotRun, "closed"));
        }
        let mut reply = match self.submit(sent, work) {
            Ok(Submitted::Done(result)) => {
                self.answers();
                return result;
            }
            Ok(Submitted::Waits(reply)) => reply,
            Err(error) => {
                self.fails(&error);
                return Err(error);
            }
        };
        let expired = async {
            match timeout {
                Some(timeout) => sleep(timeout).await,
                None => pending().await,
            }
        };
        let error = select! {
            biased;
            result = &mut reply => match result {
                Ok(result) => {
                    self.answers();
                    return result;
                }
                Err(_) => "stopped before it answered".to_owned(),
            },
            _ = closed.wait_for(|closed| *closed) => {
                return Err(NodeError::new(NodeErrorKind::Unknown, "closed before it answered"));
            }
            () = expired => format!("no reply within {:?}", timeout.unwrap_or_default()),
        };
        let error = NodeError::new(NodeErrorKind::Unknown, error);
        self.fails(&error);
        Err(error)
    }

    /// The part of a request under the store's lock.
    fn submit<T: Send + 'static>(
        &self,
        sent: Option<(Lane, Sent)>,
        work: impl FnOnce(&mut State) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<Submitted<T>, NodeError> {
        let mut state = self.store.state.lock();
        if matches!(state.status, Status::Stopped) {
            return Err(NodeError::new(NodeErrorKind::NotRun, "stopped"));
        }
        if let Some((lane, sent)) = sent {
            let run = Some(state.run.clone());
            sent.set(Link { lane, number: self.number, peer: None, run, server: None });
        }
        if let Status::Frozen(waiting) = &mut state.status {
            let (sender, reply) = oneshot::channel();
            waiting.push(Box::new(move |state| {
                let result = work(state);
                Box::new(move || drop(sender.send(result)))
            }));
            return Ok(Submitted::Waits(reply));
        }
        Ok(Submitted::Done(work(&mut state)))
    }

    fn forked(&self) -> bool {
        self.store.generation != runtime::generation()
    }

    fn answers(&self) {
        if self.down.swap(false, Relaxed) {
            self.emit(&Event::NodeUp { node: self.name.clone() });
        }
    }

    fn fails(&self, error: &NodeError) {
        if !self.down.swap(true, Relaxed) {
            let (node, cause) = (self.name.clone(), error.detail.clone());
            self.emit(&Event::NodeDown { node, cause });
        }
    }

    fn emit(&self, event: &Event) {
        if let Some(events) = &self.events {
            events(event);
        }
    }
}

/// What became of a request.
enum Submitted<T> {
    Done(Result<T, NodeError>),
    Waits(oneshot::Receiver<Result<T, NodeError>>),
}

/// Ends a subscription when dropped.
struct Unsubscribe {
    store: Arc<Store>,
    channel: String,
    number: u64,
}

impl Drop for Unsubscribe {
    fn drop(&mut self) {
        if self.store.generation != runtime::generation() {
            return;
        }
        let mut state = self.store.state.lock();
        if let Some(all) = state.subscribers.get_mut(&self.channel) {
            all.retain(|subscriber| subscriber.number != self.number);
            if all.is_empty() {
                state.subscribers.remove(&self.channel);
            }
        }
    }
}

/// The stores of one process.
struct Generation {
    number: u64,
    stores: Mutex<BTreeMap<String, Arc<Store>>>,
    /// Those of a child, in the child.
    next: OnceLock<&'static Generation>,
}

impl Generation {
    const fn new(number: u64) -> Self {
        Self { number, stores: Mutex::new(BTreeMap::new()), next: OnceLock::new() }
    }
}

/// The store of a name in a fork generation. Reads its way past older generations without taking their locks.
fn find(generation: u64, name: &str) -> Arc<Store> {
    static FIRST: Generation = Generation::new(0);
    let mut at = &FIRST;
    while at.number != generation {
        if let Some(next) = at.next.get() {
            at = next;
        } else {
            // Leaked, as `'static` asks. Not `get_or_init`: a fork must not catch it while it waits for memory.
            let _ = at.next.set(Box::leak(Box::new(Generation::new(generation))));
        }
    }
    Arc::clone(at.stores.lock().entry(name.to_owned()).or_insert_with(|| {
        let (state, changes) = (Mutex::new(State::new()), watch::Sender::new(0));
        Arc::new(Store { generation, state, changes })
    }))
}

struct Store {
    generation: u64,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

impl Store {
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A request that waits for a thaw: does its work and returns what hands over the answer.
type Job = Box<dyn FnOnce(&mut State) -> Deliver + Send>;
type Deliver = Box<dyn FnOnce() + Send>;

enum Status {
    Up,
    Frozen(Vec<Job>),
    Stopped,
}

/// One run of the server.
struct State {
    status: Status,
    run: String,
    started: i64,
    commands: u64,
    keys: HashMap<String, Entry>,
    /// How many keys there may be before expired ones are looked for.
    sweep_at: usize,
    subscribers: HashMap<String, Vec<Subscriber>>,
    last_subscriber: u64,
}

const SWEEP_AT_LEAST: usize = 1024;

struct Entry {
    value: Value,
    expires: Option<Deadline>,
}

enum Value {
    Text(String),
    /// In the order of insertion, as Redis keeps small hashes. What the fields hold is never read by a script.
    Hash(Vec<String>),
}

struct Subscriber {
    number: u64,
    node: u64,
    sender: watch::Sender<u64>,
}

impl State {
    fn new() -> Self {
        Self {
            status: Status::Up,
            run: uuid::Uuid::new_v4().simple().to_string(),
            started: clock::now().wall_micros(),
            commands: 0,
            keys: HashMap::new(),
            sweep_at: SWEEP_AT_LEAST,
            subscribers: HashMap::new(),
            last_subscriber: 0,
        }
    }

    fn run_script(&mut self, call: Call) -> Result<Reply, NodeError> {
        let Call { script, keys, mut args, identify, .. } = call;
        if identify {
            args.extend([self.run.clone(), self.started.to_string(), "0".to_owned()]);
        }
        self.commands += 1;
        let mut lock = Wired { wire: script.wire, redis: Commands { state: self, now: clock::now() } };
        let result = match script.name {
            "acquire" => lock.acquire(&keys, &args),
            "bump" => lock.bump(&keys, &args),
            "renew" => lock.renew(&keys, &args),
            "repair" => lock.repair(&keys, &args),
            "release" => lock.release(&keys, &args),
            "end" => lock.end(&keys, &args),
            "inspect" => lock.inspect(&keys),
            "attach" => lock.attach(&keys, &args),
            "retime" => lock.retime(&keys, &args),
            "learn" => lock.redis.learn(&keys, &args),
            "provision" => lock.redis.provision(&keys, &args),
            other => Err(Fault::Script(format!("unknown script {other:?}"))),
        };
        result.map_err(|fault| match fault {
            Fault::WrongType => NodeError::new(
                NodeErrorKind::WrongType,
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            Fault::Script(detail) => NodeError::new(NodeErrorKind::Refused, detail),
        })
    }
}

/// Why a script ends early. As on Redis, what it wrote until then stays.
enum Fault {
    WrongType,
    Script(String),
}

/// Redis' commands, as far as the scripts use them, at one moment: time stands still during a script.
struct Commands<'a> {
    state: &'a mut State,
    now: Stamp,
}

impl Commands<'_> {
    fn time(&self) -> i64 {
        self.now.wall_micros()
    }

    /// The entry of a key, unless it expired.
    fn entry(&mut self, key: &str) -> Option<&mut Entry> {
        let now = self.now;
        if self.state.keys.get(key).is_some_and(|entry| entry.expired(now)) {
            self.state.keys.remove(key);
        }
        self.state.keys.get_mut(key)
    }

    /// Writes a key over whatever it held.
    fn insert(&mut self, key: &str, value: Value, expires: Option<Deadline>) {
        let (now, state) = (self.now, &mut *self.state);
        state.keys.insert(key.to_owned(), Entry { value, expires });
        if state.keys.len() > state.sweep_at {
            // Rarely, so that it costs each write little; else keys that nobody asks for again would pile up.
            state.keys.retain(|_, entry| !entry.expired(now));
            state.sweep_at = SWEEP_AT_LEAST.max(2 * state.keys.len());
        }
    }

    fn exists(&mut self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    fn del(&mut self, key: &str) -> bool {
        self.exists(key) && self.state.keys.remove(key).is_some()
    }

    /// Milliseconds left, -1 without a ttl, -2 without the key.
    fn pttl(&mut self, key: &str) -> i64 {
        let now = self.now;
        match self.entry(key) {
            None => -2,
            Some(entry) => entry.expires.map_or(-1, |expires| millis(expires.left_at(now))),
        }
    }

    /// Tells whether the key existed. A ttl that is not positive deletes it.
    fn pexpire(&mut self, key: &str, ttl: i64) -> bool {
        if ttl <= 0 {
            return self.del(key);
        }
        let expires = Some(self.after(ttl));
        self.entry(key).map(|entry| entry.expires = expires).is_some()
    }

    fn get(&mut self, key: &str) -> Result<Option<&str>, Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Hash(_)) => Err(Fault::WrongType),
        }
    }

    /// `tonumber(redis.call('GET', key) or 0)`; the inner `None` is Lua's nil, for what is no number.
    fn get_number(&mut self, key: &str) -> Result<Option<f64>, Fault> {
        Ok(self.get(key)?.map_or(Some(0.0), |text| text.trim().parse().ok()))
    }

    fn set(&mut self, key: &str, value: String) {
        self.insert(key, Value::Text(value), None);
    }

    fn set_px(&mut self, key: &str, value: String, ttl: i64) -> Result<(), Fault> {
        if ttl <= 0 {
            return Err(Fault::Script("ERR invalid expire time in 'set' command".to_owned()));
        }
        let expires = Some(self.after(ttl));
        self.insert(key, Value::Text(value), expires);
        Ok(())
    }

    /// The fields of a hash; none if the key does not exist.
    fn hkeys(&mut self, key: &str) -> Result<&[String], Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(Value::Text(_)) => Err(Fault::WrongType),
        }
    }

    fn hset(&mut self, key: &str, field: &str) -> Result<(), Fault> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => self.insert(key, Value::Hash(vec![field.to_owned()]), None),
            Some(Value::Text(_)) => return Err(Fault::WrongType),
            Some(Value::Hash(fields)) if fields.iter().any(|other| other == field) => {}
            Some(Value::Hash(fields)) => fields.push(field.to_owned()),
        }
        Ok(())
    }

    fn hdel(&mut self, key: &str, field: &str) -> Result<(), Fault> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => {}
            Some(Value::Text(_)) => return Err(Fault::WrongType),
            Some(Value::Hash(fields)) => {
                fields.retain(|other| other != field);
                if fields.is_empty() {
                    self.state.keys.remove(key);
                }
            }
        }
        Ok(())
    }

    fn publish(&mut self, channel: &str) {
        for subscriber in self.state.subscribers.get(channel).into_iter().flatten() {
            subscriber.sender.send_modify(|count| *count += 1);
        }
    }

    fn after(&self, ttl: i64) -> Deadline {
        Deadline::new(self.now, Duration::from_millis(ttl.max(0) as u64))
    }

    /// `lua/learn.lua`
    fn learn(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let ([key, ..], [sample, ttl, ..]) = (keys, args) else { return Err(missing()) };
        let (sample, ttl) = (number(sample)? as f64, number(ttl)?);
        let average = self.get_number(key)?.ok_or_else(|| not_a_number(key))?;
        if sample < 0.0 {
            return Ok(Reply::Int(average as i64));
        }
        // Exactly 0 is what `get_number` gives for a missing key.
        let average = if average == 0.0 { sample } else { 0.8 * average + 0.2 * sample };
        self.set_px(key, format!("{average:.0}"), ttl)?;
        Ok(Reply::Int(average as i64))
    }

    /// `lua/provision.lua`
    fn provision(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let ([marker, ..], [kind, seen, run, ..]) = (keys, args) else { return Err(missing()) };
        let now = self.time();
        if kind != "init" && (self.exists(marker) || now - number(seen)? > 1_000_000) {
            return Ok(Reply::Int(0));
        }
        let since = if kind == "lost" { now } else { 0 };
        self.set(marker, format!("{run} {since}"));
        Ok(Reply::Int(1))
    }
}

impl Entry {
    fn expired(&self, now: Stamp) -> bool {
        self.expires.is_some_and(|expires| expires.left_at(now).is_zero())
    }
}

/// The scripts whose effect depends on how a lock is written.
struct Wired<'a> {
    wire: Wire,
    redis: Commands<'a>,
}

/// The preludes, `lua/wire_*.lua`.
impl Wired<'_> {
    fn holds(&mut self, key: &str, field: &str) -> Result<bool, Fault> {
        Ok(match self.wire {
            Wire::Redisson => self.redis.hkeys(key)?.iter().any(|other| other == field),
            Wire::Token => self.redis.get(key)? == Some(field),
        })
    }

    fn fields(&mut self, key: &str) -> Result<Vec<String>, Fault> {
        Ok(match self.wire {
            Wire::Redisson => self.redis.hkeys(key)?.to_vec(),
            Wire::Token => self.redis.get(key)?.into_iter().map(str::to_owned).collect(),
        })
    }

    fn put(&mut self, key: &str, field: &str, ttl: i64) -> Result<(), Fault> {
        match self.wire {
            Wire::Redisson => {
                self.redis.pexpire(key, ttl);
                self.redis.hset(key, field)?;
                self.redis.pexpire(key, ttl);
                Ok(())
            }
            Wire::Token if ttl == -1 => {
                self.redis.set(key, field.to_owned());
                Ok(())
            }
            Wire::Token => self.redis.set_px(key, field.to_owned(), ttl),
        }
    }

    fn remove(&mut self, key: &str, field: &str) -> Result<(), Fault> {
        match self.wire {
            Wire::Redisson => self.redis.hdel(key, field),
            Wire::Token => {
                self.redis.del(key);
                Ok(())
            }
        }
    }

    fn rename(&mut self, key: &str, old: &str, new: &str, ttl: i64) -> Result<(), Fault> {
        self.put(key, new, ttl)?;
        match self.wire {
            Wire::Redisson => self.redis.hdel(key, old),
            Wire::Token => Ok(()),
        }
    }

    fn joins(&mut self, key: &str, owner: &str) -> Result<bool, Fault> {
        Ok(match self.wire {
            Wire::Redisson => self.redis.hkeys(key)?.iter().all(|field| owner_of(field) == Some(owner)),
            Wire::Token => false,
        })
    }

    fn eternal_is_lock(&self) -> bool {
        self.wire == Wire::Token
    }
}

/// The scripts. Each does what the comment at the top of its file says, command by command in the same order.
impl Wired<'_> {
    /// `lua/acquire.lua`
    fn acquire(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let [key, counter, marker @ ..] = keys else { return Err(missing()) };
        let [field, owner, ttl, proposal, window, counter_ttl, node @ ..] = args else {
            return Err(missing());
        };
        let (mut ttl, now) = (number(ttl)?, self.redis.time());

        if let [marker, ..] = marker
            && let Some((code, left)) = self.refuses(marker, node)?
        {
            return Ok(ints([code, left, now]));
        }

        if owner != "!" && self.holds(key, field)? {
            if self.redis.pttl(key) < ttl {
                self.redis.pexpire(key, ttl);
            }
            return Ok(match self.redis.get_number(counter)? {
                Some(token) => ints([1, token as i64, now]),
                // A Lua list ends before its first nil.
                None => Reply::List(vec![Reply::Int(1)]),
            });
        }

        let pttl = self.redis.pttl(key);
        if pttl != -2 {
            if pttl == -1 && !self.eternal_is_lock() {
                return Ok(ints([2, 0, now]));
            }
            if owner.is_empty() || !self.joins(key, owner)? {
                return Ok(ints([0, pttl, now]));
            }
            ttl = ttl.max(pttl);
        }

        let next = self.redis.get_number(counter)?.ok_or_else(|| not_a_number(counter))? as i64 + 1;
        let (proposal, window) = (number(proposal)?, number(window)?);
        let proposal = if proposal == 0 { now } else { proposal };
        let token = next.max(proposal.min(now + window).max(now - window));
        self.set_counter(counter, token.to_string(), counter_ttl)?;
        self.put(key, field, ttl)?;
        Ok(ints([1, token, now]))
    }

    /// `lua/bump.lua`
    fn bump(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let [key, counter, ..] = keys else { return Err(missing()) };
        let [field, granted, agreed, counter_ttl, ..] = args else { return Err(missing()) };
        if !self.holds(key, field)? || self.redis.get(counter)? != Some(granted) {
            return Ok(Reply::Int(0));
        }
        self.set_counter(counter, agreed.clone(), counter_ttl)?;
        Ok(Reply::Int(1))
    }

    /// `refuses` of `lua/wire.lua`
    fn refuses(&mut self, marker: &str, node: &[String]) -> Result<Option<(i64, i64)>, Fault> {
        let [quarantine, run, lost, durable, ..] = node else { return Err(missing()) };
        let now = self.redis.time();
        let Some(mark) = self.redis.get(marker)? else { return Ok(Some((4, 0))) };
        let parsed = parse_mark(mark);
        let mut since = parsed.map(|(_, since)| since.to_owned());
        if parsed.map(|(run, _)| run) != Some(run) {
            if durable != "1" {
                since = Some(if lost == "0" { now.to_string() } else { lost.clone() });
            }
            let since = since.as_ref().ok_or_else(|| not_a_number(marker))?;
            self.redis.set(marker, format!("{run} {since}"));
        }
        let since = number(&since.ok_or_else(|| not_a_number(marker))?)?;
        let left = since + number(quarantine)? - now;
        Ok((left > 0).then_some((3, left)))
    }

    /// `lua/repair.lua`
    fn repair(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let [key, counter, note, marker @ ..] = keys else { return Err(missing()) };
        let [field, owner, ttl, token, counter_ttl, node @ ..] = args else { return Err(missing()) };
        let code = |code| Ok(Reply::List(vec![Reply::Int(code)]));
        if let [marker, ..] = marker
            && self.refuses(marker, node)?.is_some()
        {
            return code(0);
        }
        if self.redis.get(note)?.is_some_and(|ended| ended.contains(&format!(" {field} "))) {
            return code(-2);
        }
        let (ttl, pttl) = (number(ttl)?, self.redis.pttl(key));
        if self.holds(key, field)? {
            if pttl < ttl {
                self.redis.pexpire(key, ttl);
            }
            return code(1);
        }
        if pttl != -2 && (pttl == -1 || owner.is_empty() || !self.joins(key, owner)?) {
            return code(-1);
        }
        let known = self.redis.get_number(counter)?.ok_or_else(missing)?;
        if known < token.parse().map_err(|_| missing())? {
            self.set_counter(counter, token.clone(), counter_ttl)?;
        }
        self.put(key, field, ttl.max(pttl))?;
        code(1)
    }

    /// `lua/renew.lua`
    fn renew(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let mut replies = Vec::new();
        for (i, tenure) in keys.chunks_exact(2).enumerate() {
            let [key, note] = tenure else { break };
            let Some([field, ttl]) = args.get(2 * i..2 * i + 2) else { return Err(missing()) };
            let ttl = number(ttl)?;
            // A key of another type is somebody else's.
            let reply = if self.holds(key, field).unwrap_or(false) {
                if ttl > 0 && self.redis.pttl(key) < ttl {
                    self.redis.pexpire(key, ttl);
                }
                1
            } else if note != key
                && self.redis.get(note).unwrap_or(None).is_some_and(|ended| ended.contains(&format!(" {field} ")))
            {
                -2
            } else if self.redis.exists(key) {
                -1
            } else {
                0
            };
            replies.push(Reply::Int(reply));
        }
        Ok(Reply::List(replies))
    }

    /// `lua/release.lua`
    fn release(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let ([key, ..], [field, channel, ..]) = (keys, args) else { return Err(missing()) };
        if !self.holds(key, field).unwrap_or(false) {
            return Ok(Reply::Int(0));
        }
        self.remove(key, field)?;
        self.announce_free(key, channel);
        Ok(Reply::Int(1))
    }

    /// `lua/end.lua`
    fn end(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let ([key, note, ..], [owner, channel, ..]) = (keys, args) else { return Err(missing()) };
        let pttl = self.redis.pttl(key);
        let mut ended = self.fields(key)?;
        if ended.is_empty() {
            return Ok(Reply::Int(0));
        }
        if pttl == -1 && !self.eternal_is_lock() {
            return Ok(Reply::Int(-1));
        }
        ended.retain(|field| owner.is_empty() || owner_of(field) == Some(owner));
        let mut count = 0;
        for field in &ended {
            self.remove(key, field)?;
            count += 1;
        }
        if count > 0 {
            self.redis.set_px(note, format!(" {} ", ended.join(" ")), pttl.max(1000))?;
            self.announce_free(key, channel);
        }
        Ok(Reply::Int(count))
    }

    /// `lua/inspect.lua`
    fn inspect(&mut self, keys: &[String]) -> Result<Reply, Fault> {
        let [key, counter, ..] = keys else { return Err(missing()) };
        let fields = self.fields(key)?;
        let mut reply = vec![Reply::Int(self.redis.pttl(key))];
        // A nil is left out of the Lua list as well.
        reply.extend(self.redis.get_number(counter)?.map(|token| Reply::Int(token as i64)));
        reply.extend(fields.into_iter().map(Reply::Text));
        Ok(Reply::List(reply))
    }

    /// `lua/attach.lua`
    fn attach(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let ([key, ..], [old, new, ttl, ..]) = (keys, args) else { return Err(missing()) };
        let pttl = self.redis.pttl(key);
        if self.holds(key, new)? {
            return Ok(Reply::Int(pttl));
        }
        let ttl = pttl.max(number(ttl)?);
        if !self.holds(key, old)? || ttl <= 0 {
            return Ok(Reply::Int(-2));
        }
        self.rename(key, old, new, ttl)?;
        Ok(Reply::Int(ttl))
    }

    /// `lua/retime.lua`
    fn retime(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let ([key, ..], [field, time, how, ..]) = (keys, args) else { return Err(missing()) };
        let time = number(time)?;
        if !self.holds(key, field).unwrap_or(false) {
            return Ok(Reply::Int(0));
        }
        let pttl = self.redis.pttl(key);
        if pttl == -1 && how != "set" {
            return Ok(Reply::Int(0));
        }
        self.redis.pexpire(key, if how == "add" { time + pttl } else { time });
        Ok(Reply::Int(1))
    }

    fn set_counter(&mut self, counter: &str, token: String, ttl: &str) -> Result<(), Fault> {
        if ttl == "0" {
            self.redis.set(counter, token);
            return Ok(());
        }
        let ttl = number(ttl)?;
        self.redis.set_px(counter, token, ttl)
    }

    fn announce_free(&mut self, key: &str, channel: &str) {
        if !self.redis.exists(key) {
            self.redis.publish(channel);
        }
    }
}

/// `field:match('^(.*):%d+$')`: the owner in a field.
fn owner_of(field: &str) -> Option<&str> {
    let (owner, tenure) = field.rsplit_once(':')?;
    (!tenure.is_empty() && tenure.bytes().all(|b| b.is_ascii_digit())).then_some(owner)
}

/// `mark:match('^(%S+) (%d+)$')`: the run and the moment in a marker.
fn parse_mark(mark: &str) -> Option<(&str, &str)> {
    let (run, since) = mark.split_once(' ')?;
    let whole = !run.is_empty() && !run.contains(|c: char| c.is_ascii_whitespace());
    let number = !since.is_empty() && since.bytes().all(|b| b.is_ascii_digit());
    (whole && number).then_some((run, since))
}

/// Rounded up, so that a key that exists never seems to have no time left, and a new one has all of it.
fn millis(time: Duration) -> i64 {
    time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i64::MAX)
}

fn ints<const N: usize>(numbers: [i64; N]) -> Reply {
    Reply::List(numbers.map(Reply::Int).into())
}

fn number(text: &str) -> Result<i64, Fault> {
    text.parse().map_err(|_| not_a_number(text))
}

fn not_a_number(what: &str) -> Fault {
    Fault::Script(format!("ERR {what:?} is not, or does not hold, what the script needs"))
}

fn missing() -> Fault {
    Fault::Script("ERR too few KEYS or ARGV for the script".to_owned())
}

#[cfg(test)]
mod tests {
    use futures_util::poll;

    use super::*;
    use crate::protocol::script::scripts;

    const LONG: Duration = Duration::from_secs(60);

    fn store(name: &str) -> (Memory, Arc<MemoryNode>) {
        (Memory::named(name), MemoryNode::open(name, None))
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(ToString::to_string).collect()
    }

    fn acquire(field: &str) -> Call {
        let args = texts(&[field, "", "60000", "0", "20000", "0"]);
        Call::new(&scripts(Wire::Redisson).acquire, texts(&["lock", "counter"]), args)
    }

    fn release(field: &str) -> Call {
        Call::new(&scripts(Wire::Redisson).release, texts(&["lock"]), texts(&[field, "channel"]))
    }

    fn eval(node: &MemoryNode, call: Call, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        node.eval(Lane::Background, call, timeout, Sent::default())
    }

    /// The first number of a reply: what became of an acquire.
    fn code(result: Result<Reply, NodeError>) -> i64 {
        let reply = result.expect("an answer");
        reply.list().and_then(|list| list[0].int()).expect("a list that begins with a number")
    }

    #[tokio::test]
    async fn clients_share_a_store_by_name() {
        let (memory, node) = store("shared");
        let (_, other) = store("shared");
        let (_, apart) = store("not shared");
        assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 1);
        assert_eq!(code(eval(&other, acquire("b:1"), LONG).await), 0);
        assert_eq!(code(eval(&apart, acquire("b:1"), LONG).await), 1);
        assert_eq!(memory.commands(), 2);
        assert!(memory.delete("lock") && !memory.delete("lock"));
        assert_eq!(code(eval(&other, acquire("b:1"), LONG).await), 1);
    }

    #[tokio::test]
    async fn a_key_expires() {
        let (memory, node) = store("expires");
        assert!(!memory.expire("lock", LONG));
        assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 1);
        assert!(memory.expire("lock", Duration::from_millis(1)));
        while memory.exists("lock") {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(eval(&node, acquire("b:1"), LONG).await), 1);
        assert!(memory.expire("lock", Duration::ZERO) && !memory.exists("lock"));
    }

    #[test]
    fn time_stands_still_in_a_script_and_ends_a_key_at_its_deadline() {
        let mut state = State::new();
        let now = clock::now();
        let mut commands = Commands { state: &mut state, now };
        assert!(commands.set_px("key", String::new(), 50).is_ok());
        assert_eq!(commands.pttl("key"), 50);
        commands.state.keys.get_mut("key").expect("set above").expires = Some(Deadline::new(now, Duration::ZERO));
        assert_eq!(commands.pttl("key"), -2);
        assert!(commands.state.keys.is_empty());
    }

    #[test]
    fn expired_keys_do_not_pile_up() {
        let mut state = State::new();
        let mut commands = Commands { state: &mut state, now: clock::now() };
        for i in 0..10 * SWEEP_AT_LEAST {
            let expires = Some(Deadline::new(commands.now, Duration::ZERO));
            commands.insert(&i.to_string(), Value::Text(String::new()), expires);
        }
        assert!(state.keys.len() <= SWEEP_AT_LEAST);
    }

    #[tokio::test]
    async fn a_key_of_another_type_is_a_conflict() {
        let (memory, node) = store("conflict");
        memory.set("lock", "a string");
        let error = eval(&node, acquire("a:1"), LONG).await.expect_err("a string is no lock");
        assert_eq!(error.kind, NodeErrorKind::WrongType);
        assert!(!memory.hset("lock", "field"));
        memory.flush();
        assert!(memory.hset("lock", "field"));
        assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 2);
    }

    #[tokio::test]
    async fn a_stopped_store_refuses_and_comes_back_empty() {
        let (memory, node) = store("stopped");
        let mut changes = node.changes();
        let run = node.ping(LONG).await.expect("up").run;
        assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 1);
        let mut broken = node.subscribe("channel".into()).await.expect("up");

        memory.stop();
        assert!(changes.changed().await.is_ok());
        assert!(broken.messages.changed().await.is_err());
        let sent = Sent::default();
        let refused = node.eval(Lane::Caller, acquire("a:1"), LONG, sent.clone()).await;
        assert_eq!(refused.expect_err("stopped").kind, NodeErrorKind::NotRun);
        assert!(sent.get().is_none());
        assert!(node.subscribe("channel".into()).await.is_err());

        memory.start();
        assert!(changes.changed().await.is_ok());
        assert!(!memory.exists("lock"));
        let again = node.ping(LONG).await.expect("up").run;
        assert_ne!(run, again);
        let mut fresh = node.subscribe("channel".into()).await.expect("up");
        // What is left of the old run touches nothing of the new one.
        drop(broken);
        assert_eq!(code(node.eval(Lane::Caller, acquire("a:1"), LONG, sent.clone()).await), 1);
        assert_eq!(sent.get().and_then(|link| link.run.clone()), again);
        assert_eq!(eval(&node, release("a:1"), LONG).await, Ok(Reply::Int(1)));
        assert!(fresh.messages.changed().await.is_ok());
        assert_eq!(*fresh.messages.borrow(), 1);
    }

    #[tokio::test]
    async fn a_frozen_store_runs_what_waited_in_order_also_what_timed_out() {
        let (memory, node) = store("frozen");
        memory.freeze();
        let short = Duration::from_millis(1);
        let late = eval(&node, acquire("a:1"), short).await.expect_err("frozen");
        assert_eq!(late.kind, NodeErrorKind::Unknown);
        let mut second = eval(&node, acquire("b:1"), LONG);
        assert!(poll!(&mut second).is_pending());
        let mut dropped = eval(&node, release("a:1"), LONG);
        assert!(poll!(&mut dropped).is_pending());
        drop(dropped);
        // Sent when it is made, as on a network.
        drop(eval(&node, release("a:1"), LONG));
        let mut subscription = node.subscribe("channel".into());
        assert!(poll!(&mut subscription).is_pending());
        let mut given_up = node.subscribe("channel".into());
        assert!(poll!(&mut given_up).is_pending());
        drop(given_up);
        assert_eq!(memory.commands(), 0);

        memory.thaw();
        assert_eq!(memory.commands(), 4);
        assert_eq!(code(second.await), 0);
        let subscription = subscription.await.expect("thawed");
        assert_eq!(*subscription.messages.borrow(), 0);
        // Released by the request whose caller had gone; the lock is free again.
        assert_eq!(code(eval(&node, acquire("c:1"), LONG).await), 1);
        drop(subscription);
        assert!(node.0.store.state.lock().subscribers.is_empty());
    }

    #[tokio::test]
    async fn a_store_that_is_stopped_while_frozen_forgets_what_waited() {
        let (memory, node) = store("frozen and stopped");
        memory.freeze();
        let mut waits = eval(&node, acquire("a:1"), LONG);
        assert!(poll!(&mut waits).is_pending());
        memory.stop();
        assert_eq!(waits.await.expect_err("stopped").kind, NodeErrorKind::Unknown);
        memory.thaw();
        assert!(node.ping(LONG).await.is_err());
        memory.start();
        assert_eq!(memory.commands(), 0);
    }

    #[tokio::test]
    async fn a_closed_node_fails_alone() {
        let (_, node) = store("closed");
        let (_, other) = store("closed");
        let mut ends = node.subscribe("channel".into()).await.expect("up");
        let mut stays = other.subscribe("channel".into()).await.expect("up");
        node.close();
        assert!(ends.messages.changed().await.is_err());
        let error = eval(&node, acquire("a:1"), LONG).await.expect_err("closed");
        assert_eq!(error.kind, NodeErrorKind::NotRun);
        assert_eq!(code(eval(&other, acquire("a:1"), LONG).await), 1);
        assert_eq!(eval(&other, release("a:1"), LONG).await, Ok(Reply::Int(1)));
        assert!(stays.messages.changed().await.is_ok());
    }

    #[tokio::test]
    async fn it_identifies_itself() {
        let (memory, node) = store("marked");
        let started = node.0.store.state.lock().started;
        let mark = |kind: &str| {
            let args = texts(&[kind, &clock::now().wall_micros().to_string()]);
            let keys = texts(&["marker"]);
            Call { identify: true, ..Call::new(&scripts(Wire::Token).provision, keys, args) }
        };
        let vote = || {
            let mut call = acquire("a:1");
            call.keys.push("marker".into());
            call.args.push("60000000".into());
            Call { identify: true, ..call }
        };
        assert_eq!(code(eval(&node, vote(), LONG).await), 4);
        assert_eq!(eval(&node, mark("new"), LONG).await, Ok(Reply::Int(1)));
        assert_eq!(eval(&node, mark("new"), LONG).await, Ok(Reply::Int(0)));
        assert_eq!(code(eval(&node, vote(), LONG).await), 1);
        memory.set("marker", "another-run 0");
        assert_eq!(code(eval(&node, vote(), LONG).await), 3);
        let mut state = node.0.store.state.lock();
        let expected = format!("{} {started}", state.run);
        let mut commands = Commands { state: &mut state, now: clock::now() };
        assert!(matches!(commands.get("marker"), Ok(Some(mark)) if mark == expected));
    }

    #[tokio::test]
    async fn outages_are_reported_once() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let memory = Memory::named("events");
        let events: EventSink = Arc::new(move |event| sink.lock().push(event.to_string()));
        let node = MemoryNode::open("events", Some(events));
        memory.stop();
        assert!(node.ping(LONG).await.is_err() && node.ping(LONG).await.is_err());
        memory.start();
        assert!(node.ping(LONG).await.is_ok() && node.ping(LONG).await.is_ok());
        let expected = ["node memory://events does not answer: stopped", "node memory://events answers again"];
        assert_eq!(*seen.lock(), expected);
    }

    #[test]
    fn each_process_has_its_own_stores() {
        let parent = find(0, "forked");
        parent.state.lock().commands = 7;
        // A child finds its own although the parent's registry and store are locked, for ever.
        let held = parent.state.lock();
        let child = find(3, "forked");
        assert_eq!(child.state.lock().commands, 0);
        assert!(Arc::ptr_eq(&child, &find(3, "forked")));
        drop(held);
        assert!(Arc::ptr_eq(&parent, &find(0, "forked")));
    }
}
