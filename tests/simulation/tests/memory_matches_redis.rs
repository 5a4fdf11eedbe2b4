//! Compares the in-memory node, and the server of the simulation, with a real redis-server: the same random calls go to
//! both, and everything that a client could notice must be the same. This is why other tests may run on them.
//!
//! Numbers are compared exactly, except for those that depend on the moment (times, the rest of a ttl, tokens), since
//! each side reads its own clock. For these a tolerance applies, which every ttl used exceeds by far, and each granted
//! token is computed anew from the time in its reply. `REDLOCK_SEED` repeats a run, `REDLOCK_DIFF_STEPS` makes it
//! longer.

use std::{
    collections::{BTreeMap, VecDeque},
    env,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::FutureExt;
use redis::Value;
use redlock::{
    Wire,
    process::driver::Driver,
    protocol::script::{Reply, Script, ScriptCall, read_write_scripts, scripts, semaphore_scripts},
    server::{
        Node, NodeError, NodeErrorKind, SentOn, Subscription,
        memory::{Memory, MemoryNode},
    },
};
use redlock_servers::server::{SOCKET, Server};
use redlock_simulation::store::Store;

const LOCKS: [&str; 4] = ["lock:a", "lock:b", "lock:c", "lock:d"];
/// Read/write locks.
const READ_WRITE: [&str; 2] = ["lock:e", "lock:f"];
/// Semaphores.
const SEMAPHORES: [&str; 2] = ["lock:g", "lock:h"];
const READERS: [&str; 4] = ["u:1", "u:2", "u:3", "u:44"];
const MARKERS: [&str; 2] = ["marker:1", "marker:2"];
const AVERAGES: [&str; 2] = ["hold:a", "hold:b"];
const MISSING: &str = "never written";
/// "=a:12" contains "=a:1", the last two have no tenure number.
const FIELDS: [&str; 9] = ["u:1", "u:2", "=a:1", "=a:12", "=a:2", "=b:1", "=a:b:3", "=a:x", "no colon"];
/// Fields that stand for the rest of a `min_hold`.
const RESTS: [&str; 2] = ["~u:1", "~u:2"];
/// "!" is a chosen value.
const OWNERS: [&str; 4] = ["", "=a", "=b", "!"];
/// Far from each other and from 0, so that no comparison of two ttls depends on the moment at which it is made.
const TTLS: [&str; 4] = ["60000", "120000", "600000", "3600000"];
const CLIENTS: [&str; 2] = ["one", "two"];
const TOLERANCE_MS: i64 = 5_000;
const TOLERANCE_US: i64 = 5_000_000;

fn counter(lock: &str) -> String {
    format!("counter:{lock}")
}

fn note(lock: &str) -> String {
    format!("note:{lock}")
}

fn channel(lock: &str) -> String {
    format!("channel:{lock}")
}

fn queue(lock: &str) -> String {
    format!("queue:{lock}")
}

fn alive(lock: &str) -> String {
    format!("alive:{lock}")
}

/// The channel on which a client in a lock's queue learns of its turn.
fn wake(lock: &str, client: &str) -> String {
    format!("wake:{lock}:{client}")
}

fn readers(lock: &str) -> String {
    format!("readers:{lock}")
}

/// The channel on which the end of a read/write lock is announced.
fn inside_channel(lock: &str) -> String {
    format!("inside:{lock}")
}

/// The key that lives as long as a reader's lease.
fn note_of(lock: &str, reader: &str) -> String {
    format!("{}:{reader}:rwlock_timeout:1", notes(lock))
}

/// The prefix of the keys of a lock's readers.
fn notes(lock: &str) -> String {
    format!("{{{lock}}}")
}

/// The scripts that grant slots.
const GRANT_SLOTS: [&str; 3] = ["semaphore/acquire", "semaphore/take", "semaphore/relocate"];
/// The keys of a semaphore besides the one with its name.
const BESIDE: [&str; 3] = ["slots", "taken", "slot_tokens"];

/// Slots, each with its token.
type Drawn = Vec<(i64, i64)>;

/// Slots of a permit.
const SLOTS: [&str; 7] = ["0", "1", "2", "0,1", "1,2", "0,1,2", "3"];

/// All names that may have a channel.
fn all_names() -> impl Iterator<Item = &'static &'static str> {
    LOCKS.iter().chain(&READ_WRITE).chain(&SEMAPHORES)
}

/// All channels of a lock.
fn channels(lock: &str) -> Vec<String> {
    let mut channels = vec![channel(lock), inside_channel(lock)];
    channels.extend(CLIENTS.map(|client| wake(lock, client)));
    channels
}

/// The result of a call, as its caller sees it.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Reply(Reply),
    WrongType,
    Failed,
}

impl Outcome {
    fn of_redis(result: redis::RedisResult<Value>) -> Self {
        fn convert(value: Value) -> Option<Reply> {
            match value {
                Value::Int(number) => Some(Reply::Int(number)),
                Value::BulkString(bytes) => Some(Reply::Text(String::from_utf8(bytes).ok()?)),
                Value::Array(list) => list.into_iter().map(convert).collect::<Option<_>>().map(Reply::List),
                _ => None,
            }
        }
        match result.and_then(Value::extract_error) {
            // A reply that cannot be converted, such as nil, is as useless to a caller as an error.
            Ok(value) => convert(value).map_or(Self::Failed, Self::Reply),
            Err(error) if error.code() == Some("WRONGTYPE") => Self::WrongType,
            Err(error) => {
                assert!(error.code().is_some(), "the connection failed: {error}");
                Self::Failed
            }
        }
    }

    /// Splits a vote, or each vote of a list, into a list of its parts. A counter may be no number.
    fn spelled_out(self) -> Self {
        if let Self::Reply(Reply::List(votes)) = self {
            let each = votes.into_iter().map(|vote| match Self::Reply(vote).spelled_out() {
                Self::Reply(vote) => vote,
                Self::WrongType | Self::Failed => unreachable!("a vote stays one"),
            });
            return Self::Reply(Reply::List(each.collect()));
        }
        let Self::Reply(Reply::Text(text)) = &self else { return self };
        let one = |text: &str| text.parse().map_or_else(|_| Reply::Text(text.to_owned()), Reply::Int);
        // Slots have a token each.
        let part = |text: &str| {
            if text.contains(':') { Reply::List(text.split([':', ',']).map(one).collect()) } else { one(text) }
        };
        let place: Vec<&str> = text.split(' ').collect();
        if place.len() == 5 {
            return Self::Reply(Reply::List(place.into_iter().map(part).collect()));
        }
        let parts = text.split_once(' ').and_then(|(code, rest)| Some((code, rest.rsplit_once(' ')?)));
        parts.map_or(self.clone(), |(code, (value, time))| {
            Self::Reply(Reply::List([code, value, time].map(part).into()))
        })
    }

    /// Splits the slots of the grants in the reply to a release from their tokens.
    fn with_grants_spelled_out(self) -> Self {
        let Self::Reply(Reply::List(mut list)) = self else { return self };
        for slots in list.iter_mut().skip(2).step_by(2) {
            let Reply::Text(text) = slots else { continue };
            *slots =
                Reply::List(text.split([':', ',']).map(|part| Reply::Int(part.parse().expect("a number"))).collect());
        }
        Self::Reply(Reply::List(list))
    }

    /// Sorts permits by owner, since leases that end at the same moment come in either order.
    fn by_owner(self) -> Self {
        let Self::Reply(Reply::List(list)) = self else { return self };
        let mut permits: Vec<&[Reply]> = list.chunks(3).collect();
        permits.sort_by_key(|permit| format!("{:?}", permit[0]));
        Self::Reply(Reply::List(permits.concat()))
    }

    /// Sorts the fields of a semaphore's hash. A lost one is written again in the order in which the leases end, and
    /// some end at the same moment.
    fn in_any_order(self) -> Self {
        let Self::Reply(Reply::List(mut list)) = self else { return self };
        let fields = list.iter().position(|one| matches!(one, Reply::Text(_))).unwrap_or(list.len());
        list[fields..].sort_by_key(|field| format!("{field:?}"));
        Self::Reply(Reply::List(list))
    }

    fn list(&self) -> &[Reply] {
        match self {
            Self::Reply(reply) => reply.list().unwrap_or_default(),
            _ => &[],
        }
    }

    fn int(&self, index: usize) -> Option<i64> {
        self.list().get(index).and_then(Reply::int)
    }

    /// The kind of outcome, for statistics.
    fn code(&self) -> String {
        match self {
            Self::Reply(Reply::Int(number)) if (-2..=4).contains(number) => number.to_string(),
            Self::Reply(Reply::List(list)) => match list.first() {
                Some(Reply::Int(number)) if (-2..=4).contains(number) => number.to_string(),
                _ => "list".into(),
            },
            Self::Reply(_) => "value".into(),
            Self::WrongType => "wrong type".into(),
            Self::Failed => "failed".into(),
        }
    }
}

/// An argument that may differ between the sides.
#[derive(Clone, Debug)]
enum Arg {
    Same(String),
    /// The value of the counter on that side, plus this number.
    Counter(i64),
    /// The slots that a semaphore granted to a field on that side, and their tokens, plus this number.
    Drawn(String, String, i64),
}

#[derive(Clone, Debug)]
enum Step {
    Call { script: &'static Script, keys: Vec<String>, args: Vec<Arg> },
    Set(String, String),
    Hset(String, String),
    Del(String),
    Expire(String, Duration),
    ExpireNow(String),
    Flush,
}

fn same<T: ToString + ?Sized>(value: &T) -> Arg {
    Arg::Same(value.to_string())
}

/// An implementation that is compared with a real server.
trait Other {
    fn eval(&mut self, call: ScriptCall) -> Result<Reply, NodeError>;
    fn delete(&mut self, key: &str) -> bool;
    fn set(&mut self, key: &str, value: &str);
    fn hset(&mut self, key: &str, field: &str) -> bool;
    fn expire(&mut self, key: &str, ttl: Duration) -> bool;
    fn exists(&mut self, key: &str) -> bool;
    fn flush(&mut self);
    /// How many messages arrived on a channel.
    fn heard(&self, channel: &str) -> u64;
}

/// The in-memory node.
struct InMemory {
    node: Arc<MemoryNode>,
    memory: Memory,
    heard: BTreeMap<String, Subscription>,
}

impl InMemory {
    fn new(name: &str) -> Self {
        let node = MemoryNode::open(name, None);
        let subscribe = |channel: String| (channel.clone(), at_once(node.subscribe(channel)).expect("subscribed"));
        let heard = all_names().flat_map(|lock| channels(lock)).map(subscribe).collect();
        Self { node, memory: Memory::named(name), heard }
    }
}

impl Other for InMemory {
    fn eval(&mut self, call: ScriptCall) -> Result<Reply, NodeError> {
        at_once(self.node.eval(Driver::Caller, call, Duration::from_secs(60), SentOn::default()))
    }

    fn delete(&mut self, key: &str) -> bool {
        self.memory.delete(key)
    }

    fn set(&mut self, key: &str, value: &str) {
        self.memory.set(key, value);
    }

    fn hset(&mut self, key: &str, field: &str) -> bool {
        self.memory.hset(key, field)
    }

    fn expire(&mut self, key: &str, ttl: Duration) -> bool {
        self.memory.expire(key, ttl)
    }

    fn exists(&mut self, key: &str) -> bool {
        self.memory.exists(key)
    }

    fn flush(&mut self) {
        self.memory.flush();
    }

    fn heard(&self, channel: &str) -> u64 {
        *self.heard[channel].messages.borrow()
    }
}

/// The server of the simulation, with the real time as its clock.
#[derive(Default)]
struct Simulated {
    store: Store,
    heard: BTreeMap<String, u64>,
}

impl Simulated {
    fn command(&mut self, words: &[&str]) -> Result<i64, String> {
        self.store.now = wall_micros();
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        self.store.integer(&words)
    }
}

impl Other for Simulated {
    fn eval(&mut self, call: ScriptCall) -> Result<Reply, NodeError> {
        self.store.now = wall_micros();
        let reply = self.store.run(&call);
        for channel in self.store.published.drain(..) {
            *self.heard.entry(channel).or_default() += 1;
        }
        reply
    }

    fn delete(&mut self, key: &str) -> bool {
        self.command(&["DEL", key]) == Ok(1)
    }

    fn set(&mut self, key: &str, value: &str) {
        self.command(&["SET", key, value]).expect("written");
    }

    fn hset(&mut self, key: &str, field: &str) -> bool {
        self.command(&["HSET", key, field, "1"]).is_ok()
    }

    fn expire(&mut self, key: &str, ttl: Duration) -> bool {
        self.command(&["PEXPIRE", key, &ttl.as_millis().to_string()]) == Ok(1)
    }

    fn exists(&mut self, key: &str) -> bool {
        self.command(&["EXISTS", key]) == Ok(1)
    }

    fn flush(&mut self) {
        self.store.keys.clear();
    }

    fn heard(&self, channel: &str) -> u64 {
        self.heard.get(channel).copied().unwrap_or_default()
    }
}

/// A call of a script that Redis has.
fn on_redis(script: &Script, keys: &[String], args: &[String]) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(&script.sha).arg(keys.len()).arg(keys).arg(args);
    call
}

/// The keys of `inspect` for a lock.
fn of_lock(key: &str, counter: &str) -> Vec<String> {
    vec![key.to_owned(), counter.to_owned()]
}

/// The keys of `inspect` for a read/write lock.
fn of_read_write(key: &str) -> Vec<String> {
    vec![key.to_owned(), MISSING.to_owned(), readers(key)]
}

struct Diff {
    random: fastrand::Rng,
    seed: u64,
    redis: redis::Connection,
    memory: Box<dyn Other>,
    heard_redis: redis::Connection,
    /// Messages from Redis, by channel.
    heard: BTreeMap<String, u64>,
    recent: VecDeque<String>,
    commands: u64,
    outcomes: BTreeMap<String, u64>,
    /// The slots of each field of the semaphore of this step.
    slots: BTreeMap<String, String>,
    /// For each semaphore and field the slots that it was granted last, with their tokens, on Redis and in memory.
    drawn: BTreeMap<(String, String), [Drawn; 2]>,
}

impl Diff {
    fn new(server: &Server, memory: Box<dyn Other>, seed: u64) -> Self {
        let mut redis = server.connect().expect("redis is up");
        for script in all_scripts() {
            let sha: String =
                redis::cmd("SCRIPT").arg("LOAD").arg(&script.source).query(&mut redis).expect("a script that compiles");
            assert_eq!(sha, script.sha);
        }
        let mut heard_redis = server.connect().expect("redis is up");
        for channel in all_names().flat_map(|lock| channels(lock)) {
            let subscribed =
                heard_redis.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel).get_packed_command());
            subscribed.and_then(|()| heard_redis.recv_response()).expect("subscribed");
        }
        Self {
            random: fastrand::Rng::with_seed(seed),
            seed,
            redis,
            memory,
            heard_redis,
            heard: BTreeMap::new(),
            recent: VecDeque::new(),
            commands: 0,
            outcomes: BTreeMap::new(),
            slots: BTreeMap::new(),
            drawn: BTreeMap::new(),
        }
    }

    fn fail(&self, what: &str) -> ! {
        let recent: Vec<_> = self.recent.iter().map(String::as_str).collect();
        panic!("REDLOCK_SEED={}: {what}\nlast steps:\n{}", self.seed, recent.join("\n"))
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.random.usize(..all.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    /// Runs a script on both sides. Returns the outcomes on Redis and in memory.
    fn both(&mut self, script: &'static Script, keys: &[String], args: [Vec<String>; 2]) -> [Outcome; 2] {
        let [redis_args, memory_args] = args;
        let redis = Outcome::of_redis(on_redis(script, keys, &redis_args).query(&mut self.redis));
        self.same_in_memory(script, keys, memory_args, redis)
    }

    /// Runs scripts without arguments on both sides, those on Redis in one round trip.
    fn each(&mut self, calls: &[(&'static Script, Vec<String>)]) {
        let sent: Vec<u8> =
            calls.iter().flat_map(|(script, keys)| on_redis(script, keys, &[]).get_packed_command()).collect();
        self.redis.send_packed_command(&sent).expect("sent");
        for (script, keys) in calls {
            let redis = Outcome::of_redis(self.redis.recv_response());
            self.same_in_memory(script, keys, Vec::new(), redis);
        }
    }

    /// Runs a script in memory, too. Fails unless the outcome is that on Redis. Returns both.
    fn same_in_memory(
        &mut self,
        script: &'static Script,
        keys: &[String],
        args: Vec<String>,
        mut redis: Outcome,
    ) -> [Outcome; 2] {
        self.commands += 1;
        let call = ScriptCall::new(script, keys.to_vec(), args);
        let mut memory = match self.memory.eval(call) {
            Ok(reply) => Outcome::Reply(reply),
            Err(error) if error.kind == NodeErrorKind::WrongType => Outcome::WrongType,
            Err(error) => {
                assert_eq!(error.kind, NodeErrorKind::Refused, "{error}");
                Outcome::Failed
            }
        };
        let admits =
            ["acquire", "enter", "read_write/read", "read_write/read_batch", "read_write/write", "read_write/upgrade"];
        if admits.contains(&script.name) || GRANT_SLOTS.contains(&script.name) {
            (redis, memory) = (redis.spelled_out(), memory.spelled_out());
        }
        if script.name == "semaphore/leave" {
            (redis, memory) = (redis.with_grants_spelled_out(), memory.with_grants_spelled_out());
        }
        if script.name == "semaphore/inspect" {
            (redis, memory) = (redis.by_owner(), memory.by_owner());
        }
        if keys.first().is_some_and(|key| key.starts_with(BESIDE[0])) {
            (redis, memory) = (redis.in_any_order(), memory.in_any_order());
        }
        if !alike(script.name, &redis, &memory) {
            self.fail(&format!("{} {:?} {keys:?}: redis {redis:?}, memory {memory:?}", script.name, script.wire));
        }
        [redis, memory]
    }

    fn inspect(&mut self, wire: Wire, key: &str, counter: &str) -> [Outcome; 2] {
        self.both(&scripts(wire).inspect, &of_lock(key, counter), [Vec::new(), Vec::new()])
    }

    fn inspect_inside(&mut self, key: &str) -> [Outcome; 2] {
        self.both(&read_write_scripts().inspect, &of_read_write(key), [Vec::new(), Vec::new()])
    }

    fn inspect_permits(&mut self, key: &str) -> [Outcome; 2] {
        self.both(&semaphore_scripts().inspect, &[key.to_owned()], [Vec::new(), Vec::new()])
    }

    /// Compares all keys.
    fn compare_stores(&mut self) {
        let mut keys: Vec<String> = [&MARKERS[..], &AVERAGES[..]].concat().into_iter().map(String::from).collect();
        keys.extend(LOCKS.iter().flat_map(|lock| [lock.to_string(), counter(lock), note(lock)]));
        keys.extend(LOCKS.iter().chain(&READ_WRITE).flat_map(|lock| [queue(lock), alive(lock)]));
        for lock in READ_WRITE {
            keys.extend([lock.to_owned(), counter(lock), note(lock), readers(lock)]);
            keys.extend([format!("wqueue:{lock}"), format!("rqueue:{lock}")]);
            keys.extend(READERS.iter().chain(&RESTS).chain(&["java:1", ""]).map(|reader| note_of(lock, reader)));
            keys.extend(FIELDS.iter().filter(|field| !READERS.contains(field)).map(|field| note_of(lock, field)));
        }
        for name in SEMAPHORES {
            keys.extend([name.to_owned(), note(name), queue(name), alive(name)]);
            keys.extend(BESIDE.map(|kind| format!("{kind}:{name}")));
        }
        for some in keys.chunks(32) {
            let looks = some.iter().flat_map(|key| {
                [
                    (&semaphore_scripts().inspect, vec![key.clone()]),
                    (&scripts(Wire::Redisson).inspect, of_lock(key, MISSING)),
                    (&scripts(Wire::Token).inspect, of_lock(key, MISSING)),
                    (&read_write_scripts().inspect, of_read_write(key)),
                ]
            });
            self.each(&looks.collect::<Vec<_>>());
        }
        let size: usize = redis::cmd("DBSIZE").query(&mut self.redis).expect("a size");
        let known = keys.iter().filter(|key| self.memory.exists(key)).count();
        if size != known {
            self.fail(&format!("redis has {size} keys, memory {known}"));
        }
    }

    fn compare_messages(&mut self) {
        // All messages published so far arrive before this one.
        let last = channel(LOCKS[0]);
        let heard: u64 = redis::cmd("PUBLISH").arg(&last).arg("end").query(&mut self.redis).expect("published");
        assert_eq!(heard, 1);
        loop {
            let message = self.heard_redis.recv_response().expect("a message");
            let (_, channel, payload): (String, String, String) = redis::from_redis_value(message).expect("a message");
            if payload == "end" {
                break;
            }
            assert!(payload == "0" || payload == "1" && !channel.starts_with("wake:"), "{payload} on {channel}");
            *self.heard.entry(channel).or_default() += 1;
        }
        for channel in all_names().flat_map(|lock| channels(lock)) {
            let redis = self.heard.get(&channel).copied().unwrap_or_default();
            let memory = self.memory.heard(&channel);
            if redis != memory {
                self.fail(&format!("{channel}: redis sent {redis} messages, memory {memory}"));
            }
        }
    }

    /// Provokes what hardly ever happens by chance: a lock that another program wrote without a ttl.
    fn provoke(&mut self) {
        for lock in ["lock:a", "lock:b"] {
            let written = Step::Hset(lock.to_owned(), "somebody".to_owned());
            let enter = self.enter(Wire::Redisson, lock, &[]);
            let end = vec![same(""), same(&channel(lock))];
            let end =
                Step::Call { script: &scripts(Wire::Redisson).end, keys: vec![lock.to_owned(), note(lock)], args: end };
            for step in [Step::Del(lock.to_owned()), written, enter, end] {
                self.carry_out(step, &[]);
            }
        }
    }

    /// One random step.
    fn step(&mut self) {
        if self.chance(20) {
            return self.step_of_semaphore();
        }
        let inside = self.chance(25);
        let lock = if inside { self.pick(&READ_WRITE) } else { self.pick(&LOCKS) };
        // Each lock has a wire of its own, but a client may be configured for the other one.
        let own = if inside || lock < "lock:c" { Wire::Redisson } else { Wire::Token };
        let other = if own == Wire::Token { Wire::Redisson } else { Wire::Token };
        let wire = if inside || self.chance(92) { own } else { other };
        let [redis, memory] = if inside { self.inspect_inside(lock) } else { self.inspect(wire, lock, MISSING) };
        // Uses only fields that are the same on both sides: a counter or a marker that was written to this key differs.
        let held: Vec<String> = redis
            .list()
            .iter()
            .zip(memory.list())
            .skip(if inside { 3 } else { 2 })
            .filter_map(|(redis, memory)| match redis {
                Reply::Text(field) if redis == memory => Some(field.clone()),
                _ => None,
            })
            .collect();
        let step = match () {
            () if inside && self.chance(96) => self.inside(lock, &held),
            () if !inside && self.chance(12) => self.foreign(lock),
            () => self.call(wire, lock, &held),
        };
        self.carry_out(step, &held);
    }

    fn step_of_semaphore(&mut self) {
        let name = self.pick(&SEMAPHORES);
        let [redis, memory] = self.inspect_permits(name);
        let both = redis.list().iter().zip(memory.list()).step_by(3);
        let held: Vec<String> = both
            .filter_map(|(redis, memory)| match redis {
                Reply::Text(field) if redis == memory => Some(field.clone()),
                _ => None,
            })
            .collect();
        self.slots = redis
            .list()
            .chunks(3)
            .filter_map(|permit| match permit {
                [Reply::Text(field), Reply::Text(slots), _] => Some((field.clone(), slots.clone())),
                _ => None,
            })
            .collect();
        let step = self.permit(name, &held);
        self.carry_out(step, &held);
    }

    fn carry_out(&mut self, step: Step, held: &[String]) {
        if self.recent.len() == 30 {
            self.recent.pop_front();
        }
        self.recent.push_back(match &step {
            // Without the script's source.
            Step::Call { script, keys, args } => {
                format!("{} {:?} {keys:?} {args:?}", script.name, script.wire)
            }
            write => format!("{write:?}"),
        });
        match step {
            Step::Call { script, keys, args } => self.run(script, &keys, &args, held),
            step => self.write(step),
        }
    }

    fn run(&mut self, script: &'static Script, keys: &[String], args: &[Arg], held: &[String]) {
        let second = keys.get(1).map_or(MISSING, String::as_str).to_owned();
        let counters = self.inspect(Wire::Token, MISSING, &second).map(|before| before.int(1));
        let resolve = |side: usize| -> Vec<String> {
            let resolved = args.iter().map(|arg| match arg {
                Arg::Same(text) => text.clone(),
                Arg::Counter(plus) => (counters[side].unwrap_or_default() + plus).to_string(),
                Arg::Drawn(name, field, plus) => {
                    let drawn = self.drawn.get(&(name.clone(), field.clone())).map(|sides| &sides[side][..]);
                    let each = drawn.unwrap_or(&[(0, 1)]).iter();
                    each.map(|(slot, token)| format!("{slot}:{}", (token + plus).max(1))).collect::<Vec<_>>().join(",")
                }
            });
            resolved.collect()
        };
        let arguments = [resolve(0), resolve(1)];
        let outcomes = self.both(script, keys, arguments.clone());
        let seen = match (script.name, &outcomes[0]) {
            (
                "renew" | "read_write/renew" | "semaphore/renew" | "read_write/read_batch" | "read_write/leave_batch",
                Outcome::Reply(Reply::List(list)),
            ) => list.iter().map(|reply| Outcome::Reply(reply.clone()).code()).collect(),
            ("semaphore/leave", Outcome::Reply(Reply::List(_))) => vec!["granted".to_owned()],
            (_, outcome) => vec![outcome.code()],
        };
        for code in seen {
            let key = format!("{} {:?} {code}", script.name, script.wire);
            *self.outcomes.entry(key).or_default() += 1;
        }
        match script.name {
            "acquire" if keys[0] != keys[1] && keys.get(2) != keys.get(1) => {
                for side in [0, 1] {
                    let known = (counters[side], held.contains(&arguments[side][0]));
                    if let Some(wrong) = wrong_token(&outcomes[side], &arguments[side], known) {
                        self.fail(&format!("{} {wrong}", ["redis", "memory"][side]));
                    }
                }
            }
            name if GRANT_SLOTS.contains(&name) && outcomes[0].int(0) == Some(1) => {
                let slots = |outcome: &Outcome| -> Drawn {
                    let drawn = outcome.list()[1].list().expect("slots and tokens");
                    drawn.chunks(2).map(|one| (one[0].int().expect("a slot"), one[1].int().expect("a token"))).collect()
                };
                let known = (keys[0].clone(), arguments[0][0].clone());
                self.drawn.insert(known, outcomes.each_ref().map(slots));
            }
            "end" | "read_write/end" | "semaphore/end" => {
                // The note of a lock without a ttl lives for a second only. Deletes it, so that it does not expire
                // during a comparison.
                let note = keys.last().expect("a note").clone();
                let [left, _] = self.inspect(Wire::Token, &note, MISSING);
                if left.int(0).is_some_and(|ttl| (0..=1000).contains(&ttl)) {
                    self.write(Step::Del(note));
                }
            }
            _ => {}
        }
    }

    /// Changes a key from outside, on both sides.
    fn write(&mut self, step: Step) {
        self.commands += 1;
        let mut command = redis::Cmd::new();
        let existed = match step {
            Step::Set(key, value) => {
                command.arg("SET").arg(&key).arg(&value);
                self.memory.set(&key, &value);
                None
            }
            Step::Hset(key, field) => {
                command.arg("HSET").arg(&key).arg(&field).arg("1");
                let written = self.memory.hset(&key, &field);
                let outcome = Outcome::of_redis(command.query(&mut self.redis));
                if written != (outcome != Outcome::WrongType) {
                    self.fail(&format!("HSET {key}: redis {outcome:?}, memory {written}"));
                }
                return;
            }
            Step::Del(key) => {
                command.arg("DEL").arg(&key);
                Some(self.memory.delete(&key))
            }
            Step::Expire(key, ttl) => {
                command.arg("PEXPIRE").arg(&key).arg(ttl.as_millis() as u64);
                Some(self.memory.expire(&key, ttl))
            }
            Step::ExpireNow(key) => {
                let ttl = Duration::from_millis(1);
                command.arg("PEXPIRE").arg(&key).arg(1);
                let existed = self.memory.expire(&key, ttl);
                let told: i64 = command.query(&mut self.redis).expect("an answer");
                if (told == 1) != existed {
                    self.fail(&format!("PEXPIRE {key}: redis {told}, memory {existed}"));
                }
                let mut exists = redis::cmd("EXISTS");
                exists.arg(&key);
                while exists.query(&mut self.redis).expect("an answer") || self.memory.exists(&key) {
                    std::thread::yield_now();
                }
                return;
            }
            Step::Flush => {
                command.arg("FLUSHALL");
                self.memory.flush();
                None
            }
            Step::Call { .. } => unreachable!("scripts are run by `run`"),
        };
        let reply: Value = command.query(&mut self.redis).expect("an answer");
        if existed.is_some_and(|existed| reply != Value::Int(i64::from(existed))) {
            self.fail(&format!("{command:?}: redis {reply:?}, memory {existed:?}"));
        }
    }

    fn any_key(&mut self, lock: &str) -> String {
        match self.random.u32(..10) {
            0..6 => lock.to_owned(),
            6..8 => counter(lock),
            8 if self.chance(50) => [queue(lock), alive(lock)][self.random.usize(..2)].clone(),
            8 => note(lock),
            _ if self.chance(80) => self.pick(&MARKERS).to_owned(),
            _ => self.pick(&AVERAGES).to_owned(),
        }
    }

    fn foreign(&mut self, lock: &str) -> Step {
        let key = self.any_key(lock);
        match self.random.u32(..100) {
            0..20 => {
                // Among them values that a counter, a marker and a lock may have, and values that they never should.
                let values = ["5", "4000000000000000", "abc", "run1 0", "run2  7", "x:1", "=a:1"];
                Step::Set(key, self.pick(&values).to_owned())
            }
            20..40 => Step::Hset(key, self.pick(&FIELDS).to_owned()),
            40..75 => Step::Del(key),
            75..88 => {
                let ttl = self.pick(&TTLS).parse().expect("a number");
                Step::Expire(key, Duration::from_millis(ttl))
            }
            88..99 => Step::ExpireNow(key),
            _ => Step::Flush,
        }
    }

    fn field(&mut self, held: &[String]) -> String {
        if !held.is_empty() && self.chance(60) {
            return held[self.random.usize(..held.len())].clone();
        }
        self.pick(&FIELDS).to_owned()
    }

    fn ttl(&mut self) -> String {
        // The client refuses a ttl of 0 before it sends anything. The scripts must treat it alike nevertheless.
        if self.chance(1) {
            return "0".into();
        }
        // -1 stands for no ttl.
        if self.chance(3) { "-1".into() } else { self.pick(&TTLS).to_owned() }
    }

    /// The given key, or once in a while another one.
    fn other_key(&mut self, right: String) -> String {
        if self.chance(98) {
            return right;
        }
        let lock = self.pick(&LOCKS);
        self.any_key(lock)
    }

    fn counter_ttl(&mut self) -> Arg {
        same(self.pick(&["0", "86400000"]))
    }

    fn call(&mut self, wire: Wire, lock: &str, held: &[String]) -> Step {
        let all = scripts(wire);
        let key = lock.to_owned();
        let field = self.field(held);
        match self.random.u32(..100) {
            0..24 => self.acquire(wire, lock, held),
            24..34 => self.enter(wire, lock, held),
            34..38 => self.leave(wire, lock, &field),
            38..50 => {
                let keys = vec![key, self.other_key(counter(lock))];
                let granted = if self.chance(80) { Arg::Counter(0) } else { same(self.pick(&["7", "abc"])) };
                let agreed = Arg::Counter([1, 1000, 3_600_000_000][self.random.usize(..3)]);
                let args = vec![same(&field), granted, agreed, self.counter_ttl()];
                Step::Call { script: &all.bump, keys, args }
            }
            50..56 => self.repair(wire, lock, &field),
            56..62 => {
                let (mut keys, mut args) = (Vec::new(), Vec::new());
                for i in 0..self.random.usize(..5) {
                    let lock = if i == 0 { lock } else { self.pick(&LOCKS) };
                    keys.extend([lock.to_owned(), self.other_key(note(lock))]);
                    let field = if self.chance(3) { String::new() } else { self.field(held) };
                    args.extend([same(&field), same(&self.ttl())]);
                }
                Step::Call { script: &all.renew, keys, args }
            }
            62..65 => {
                let (mut keys, mut args) = (Vec::new(), Vec::new());
                for i in 0..self.random.usize(..4) {
                    let lock = if i == 0 { lock } else { self.pick(&LOCKS) };
                    keys.extend([lock.to_owned(), self.other_key(counter(lock))]);
                    let token = if self.chance(20) { 5 } else { wall_micros() };
                    args.extend([same(&self.field(held)), same(&token), same(&self.ttl())]);
                }
                Step::Call { script: &all.prolong, keys, args }
            }
            65..71 => {
                let args = vec![same(&field), same(&channel(lock))];
                Step::Call { script: &all.release, keys: vec![key], args }
            }
            71..74 => {
                let (rest, ttl) = (self.pick(&RESTS), self.pick(&TTLS));
                let args = vec![same(&field), same(rest), same(ttl), same(&channel(lock))];
                Step::Call { script: &all.rest, keys: vec![key], args }
            }
            // Ends the lock as a read/write lock, as a client does that saw one a moment ago.
            74 => {
                let keys = vec![key, counter(lock), readers(lock), note(lock)];
                let args = vec![same(&notes(lock)), same(&channel(lock)), same(&inside_channel(lock))];
                Step::Call { script: &read_write_scripts().end, keys, args }
            }
            75..80 => {
                let keys = vec![key, self.other_key(note(lock))];
                let args = vec![same(self.pick(&OWNERS)), same(&channel(lock))];
                Step::Call { script: &all.end, keys, args }
            }
            80..84 => {
                let keys = vec![key, self.other_key(counter(lock))];
                Step::Call { script: &all.inspect, keys, args: Vec::new() }
            }
            84..88 => {
                let how = self.pick(&["add", "replace", "set"]).to_owned();
                // Also an earlier time, but none that passes during the comparison.
                let time = if self.chance(10) { self.pick(&["0", "-1", "-9999999999"]) } else { self.pick(&TTLS) };
                let args = vec![same(&field), same(time), same(&how)];
                Step::Call { script: &all.retime, keys: vec![key], args }
            }
            88..92 => {
                let (new, ttl) = (self.pick(&FIELDS), self.ttl());
                let ttl = if self.chance(30) { "0".to_owned() } else { ttl };
                let args = vec![same(&field), same(new), same(&ttl)];
                Step::Call { script: &all.attach, keys: vec![key], args }
            }
            92..96 => {
                let average = self.pick(&AVERAGES).to_owned();
                let sample = match self.random.u32(..4) {
                    0 => -1,
                    1 => self.random.i64(0..3),
                    _ => self.random.i64(0..100_000_000),
                };
                let args = vec![same(&sample), same(self.pick(&["60000", "86400000"]))];
                Step::Call { script: &all.learn, keys: vec![self.other_key(average)], args }
            }
            _ => {
                let marker = self.pick(&MARKERS).to_owned();
                let seen = wall_micros() - if self.chance(80) { 0 } else { 60_000_000 };
                let mut args = vec![same(self.pick(&["new", "lost", "init"])), same(&seen)];
                args.push(same(self.pick(&["run1", "run2"])));
                args.extend([same("0"), same("0")]);
                Step::Call { script: &all.provision, keys: vec![marker], args }
            }
        }
    }

    fn enter(&mut self, wire: Wire, lock: &str, held: &[String]) -> Step {
        let (field, owner) = (self.field(held), self.pick(&OWNERS[..3]));
        let keys = vec![lock.to_owned(), self.other_key(counter(lock)), queue(lock), self.other_key(alive(lock))];
        let mut args = vec![same(&field), same(owner), same(self.pick(&TTLS)), self.counter_ttl()];
        args.push(same(self.pick(&CLIENTS)));
        // Long, so that no client's places expire during a comparison; 0 takes no place.
        args.push(same(self.pick(&["0", "900000", "7200000"])));
        args.push(same(&format!("wake:{lock}")));
        args.push(same(self.pick(&["1", "1", "0"])));
        Step::Call { script: &scripts(wire).enter, keys, args }
    }

    fn leave(&mut self, wire: Wire, lock: &str, field: &str) -> Step {
        let keys = vec![lock.to_owned(), self.other_key(counter(lock)), queue(lock), self.other_key(alive(lock))];
        let entry = format!("{}/{}/{field}", self.pick(&TTLS), self.pick(&CLIENTS));
        let entry = if self.chance(20) { String::new() } else { entry };
        let mut args = vec![same(field), same(&entry), self.counter_ttl(), same(&channel(lock))];
        args.extend([same(&format!("wake:{lock}")), same(self.pick(&["1", "1", "0"]))]);
        Step::Call { script: &scripts(wire).leave, keys, args }
    }

    /// A request about a read/write lock, or a change that a client of Redisson makes to it.
    fn inside(&mut self, lock: &str, held: &[String]) -> Step {
        let all = read_write_scripts();
        let field = if !held.is_empty() && self.chance(60) { self.field(held) } else { self.pick(&READERS).to_owned() };
        let (queues, key) = ([format!("wqueue:{lock}"), format!("rqueue:{lock}"), alive(lock)], lock.to_owned());
        let mut keys = vec![key, counter(lock), readers(lock)];
        let mut args = vec![same(&field), self.counter_ttl(), same(&notes(lock))];
        let how = self.pick(&["1", "1", "1", "0", "i"]);
        let waiting = [same(&format!("wake:{lock}")), same(how), same(&inside_channel(lock)), same("0")];
        let (ttl, client) = (self.pick(&TTLS), self.pick(&CLIENTS));
        match self.random.u32(..100) {
            0..44 => {
                let mut script = if self.chance(60) { &all.read } else { &all.write };
                keys.extend(queues);
                args.extend(waiting);
                let lease = self.pick(&["0", "900000", "7200000"]);
                args.extend([same(ttl), same(client), same(lease), same("0")]);
                if self.chance(10) {
                    self.guard(&mut keys, &mut args);
                } else if script.name == "read_write/read" && self.chance(40) {
                    args.extend(self.others(&field));
                    script = &all.read_batch;
                }
                Step::Call { script, keys, args }
            }
            44..64 => {
                keys.extend(queues);
                args.extend(waiting);
                let entry = format!("{}/{client}/{}", self.pick(&TTLS), if how == "i" { "" } else { &field });
                let was_granted = self.chance(70);
                args.push(same(if was_granted { "" } else { &entry }));
                if was_granted && self.chance(40) {
                    args.extend(self.others(&field));
                    return Step::Call { script: &all.leave_batch, keys, args };
                }
                Step::Call { script: &all.leave, keys, args }
            }
            64..67 => {
                keys.extend(queues);
                args.extend(waiting);
                Step::Call { script: &all.downgrade, keys, args }
            }
            67..69 => {
                keys.extend(queues);
                args.extend(waiting);
                args.extend([same(self.pick(&RESTS)), same(ttl)]);
                Step::Call { script: &all.rest, keys, args }
            }
            69..75 => {
                args.extend([same(ttl), same("0")]);
                if self.chance(10) {
                    self.guard(&mut keys, &mut args);
                }
                Step::Call { script: &all.upgrade, keys, args }
            }
            75..79 => {
                let granted = if self.chance(80) { Arg::Counter(0) } else { same("7") };
                args.extend([granted, Arg::Counter([1, 1000, 3_600_000_000][self.random.usize(..3)])]);
                Step::Call { script: &all.bump, keys, args }
            }
            79..85 => self.renew_inside(lock, held),
            85..89 => {
                keys.push(note(lock));
                let token = Arg::Counter(self.pick(&["-1000", "0", "1000"]).parse().expect("a number"));
                args.extend([same(self.pick(&["r", "w"])), same(ttl), token]);
                if self.chance(20) {
                    self.guard(&mut keys, &mut args);
                }
                Step::Call { script: &all.repair, keys, args }
            }
            89..92 => {
                let ttl = if self.chance(30) { "0" } else { ttl };
                args.extend([same(self.pick(&READERS)), same(ttl)]);
                Step::Call { script: &all.attach, keys, args }
            }
            92 => {
                let keys = vec![lock.to_owned(), counter(lock), readers(lock), self.other_key(note(lock))];
                let args = vec![same(&notes(lock)), same(&channel(lock)), same(&inside_channel(lock))];
                Step::Call { script: &all.end, keys, args }
            }
            93 => Step::Hset(lock.to_owned(), "java:1".to_owned()),
            94..96 => Step::Set(format!("{}:java:1:rwlock_timeout:1", notes(lock)), "1".to_owned()),
            96..98 => {
                let reader = self.pick(&READERS);
                let notes = [format!("{}:java:1:rwlock_timeout:1", notes(lock)), readers(lock), lock.to_owned()];
                if self.chance(50) {
                    return Step::Del(notes[self.random.usize(..3)].clone());
                }
                Step::ExpireNow(if self.chance(50) { lock.to_owned() } else { note_of(lock, reader) })
            }
            _ => {
                // A lock of another kind by the same name.
                let (field, keys) = (self.pick(&FIELDS), vec![lock.to_owned(), counter(lock)]);
                let args = vec![same(field), same(""), same(ttl), self.counter_ttl(), same("0")];
                Step::Call { script: &scripts(Wire::Redisson).acquire, keys, args }
            }
        }
    }

    fn renew_inside(&mut self, lock: &str, held: &[String]) -> Step {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for i in 0..self.random.usize(..4) {
            let lock = if i == 0 { lock } else { self.pick(&READ_WRITE) };
            keys.extend([lock.to_owned(), note(lock), readers(lock)]);
            let field = self.field(held);
            let ttl = if self.chance(30) { "0" } else { self.pick(&TTLS) };
            args.extend([same(&field), same(ttl), same(&notes(lock))]);
        }
        Step::Call { script: &read_write_scripts().renew, keys, args }
    }

    /// Some of the readers beside `field`, one at least.
    fn others(&mut self, field: &str) -> Vec<Arg> {
        let mut others = READERS.into_iter().filter(|reader| *reader != field).map(same).collect::<Vec<_>>();
        self.random.shuffle(&mut others);
        others.truncate(self.random.usize(1..4));
        others
    }

    /// A request about a semaphore, or another change to its keys.
    fn permit(&mut self, name: &str, held: &[String]) -> Step {
        let all = semaphore_scripts();
        let field = if !held.is_empty() && self.chance(50) { self.field(held) } else { self.pick(&READERS).to_owned() };
        let beside = BESIDE.map(|kind| format!("{kind}:{name}"));
        let mut keys = vec![name.to_owned()];
        keys.extend(beside.clone());
        let mut args = vec![same(&field)];
        let how = self.pick(&["1", "1", "1", "0", "i", "i"]);
        let turn = [self.counter_ttl(), same(&format!("wake:{name}")), same(how), same("0")];
        // A field always makes the same request.
        let sum = field.bytes().map(usize::from).sum::<usize>();
        let (ttl, client, count) = (TTLS[sum % 4], CLIENTS[sum / 2 % 2], ["1", "1", "2", "3"][sum % 4]);
        let of = ["3", "3", "4", "12"][sum / 3 % 4];
        let lease = self.pick(&["0", "900000", "900000", "7200000"]);
        match self.random.u32(..100) {
            0..26 => {
                keys.extend([queue(name), alive(name)]);
                args.extend(turn);
                args.extend([count, of, ttl, client, lease].map(same));
                Step::Call { script: &all.acquire, keys, args }
            }
            26..40 => {
                keys.extend([queue(name), alive(name)]);
                args.extend(turn);
                let start = self.pick(&["0", "1", "2"]);
                args.extend([count, of, ttl, start].map(same));
                args.push(self.proposal());
                if self.chance(15) {
                    self.guard(&mut keys, &mut args);
                }
                Step::Call { script: &all.take, keys, args }
            }
            40..46 => {
                keys.extend([queue(name), alive(name)]);
                args.extend(turn);
                args.push(same(self.pick(&SLOTS)));
                args.push(self.proposal());
                if self.chance(15) {
                    self.guard(&mut keys, &mut args);
                }
                Step::Call { script: &all.relocate, keys, args }
            }
            46..50 => {
                args.push(turn[0].clone());
                let more = [0, 0, 1, 1000][self.random.usize(..4)];
                args.extend([0, more].map(|plus| Arg::Drawn(name.to_owned(), field.clone(), plus)));
                Step::Call { script: &all.bump, keys, args }
            }
            50..55 => {
                keys.extend([queue(name), alive(name), note(name)]);
                args.extend(turn);
                let of_field = if self.chance(70) { field.clone() } else { self.pick(&READERS).to_owned() };
                let plus = [-1000, 0, 1000][self.random.usize(..3)];
                args.extend([Arg::Drawn(name.to_owned(), of_field, plus), same(ttl)]);
                if self.chance(15) {
                    self.guard(&mut keys, &mut args);
                }
                Step::Call { script: &all.repair, keys, args }
            }
            55..66 => {
                keys.extend([queue(name), alive(name)]);
                args.extend(turn);
                let entry = format!("{ttl}/{client}/{count}:{of}/{field}");
                args.push(same(if self.chance(70) { "" } else { &entry }));
                args.push(same(self.pick(&["", CLIENTS[0], CLIENTS[1]])));
                Step::Call { script: &all.leave, keys, args }
            }
            66..74 => {
                let (mut keys, mut args) = (Vec::new(), Vec::new());
                for i in 0..self.random.usize(..4) {
                    let name = if i == 0 { name } else { self.pick(&SEMAPHORES) };
                    keys.extend([name.to_owned(), note(name), format!("slots:{name}"), format!("taken:{name}")]);
                    let field = self.field(held);
                    args.extend([same(&field), same(if self.chance(30) { "0" } else { self.pick(&TTLS) })]);
                    args.push(self.slots_of(&field));
                }
                Step::Call { script: &all.renew, keys, args }
            }
            74..79 => {
                let (ttl, old) = (if self.chance(30) { "0" } else { ttl }, self.field(held));
                args.extend([same(&old), same(ttl), self.slots_of(&old)]);
                Step::Call { script: &all.attach, keys, args }
            }
            79..81 => {
                keys.extend([queue(name), alive(name), note(name)]);
                args.extend(turn);
                Step::Call { script: &all.end, keys, args }
            }
            81..93 => {
                keys.extend([queue(name), alive(name)]);
                let key = keys[self.random.usize(..keys.len())].clone();
                if self.chance(50) { Step::Del(key) } else { Step::ExpireNow(key) }
            }
            93..95 => Step::Expire(keys[self.random.usize(..4)].clone(), Duration::from_secs(7200)),
            95 => Step::Set(keys[self.random.usize(..4)].clone(), "5".to_owned()),
            96 => Step::Hset(name.to_owned(), self.pick(&FIELDS).to_owned()),
            _ => {
                // A lock by the same name.
                let (keys, args) = (vec![name.to_owned()], vec![same(self.pick(&FIELDS)), same(&channel(name))]);
                Step::Call { script: &scripts(Wire::Redisson).release, keys, args }
            }
        }
    }

    /// The slots of a field, or once in a while others.
    fn slots_of(&mut self, field: &str) -> Arg {
        let known = self.slots.get(field).cloned();
        known.filter(|_| self.chance(85)).map_or_else(|| same(self.pick(&SLOTS)), |slots| same(&slots))
    }

    fn proposal(&mut self) -> Arg {
        let apart = [None, None, Some(-3_600_000_000), Some(-5_000), Some(5_000), Some(3_600_000_000)];
        same(&apart[self.random.usize(..6)].map_or(0, |apart: i64| wall_micros() + apart))
    }

    fn guard(&mut self, keys: &mut Vec<String>, args: &mut Vec<Arg>) {
        keys.push(self.pick(&MARKERS).to_owned());
        args.push(same(self.pick(&["0", "36000000000"])));
        args.extend([same(self.pick(&["run1", "run2"])), same("0"), same(self.pick(&["0", "1"]))]);
    }

    fn repair(&mut self, wire: Wire, lock: &str, field: &str) -> Step {
        // `Arg::Counter` refers to the counter in the second key.
        let mut keys = vec![lock.to_owned(), self.other_key(counter(lock)), self.other_key(note(lock))];
        let token = Arg::Counter(self.pick(&["-1000", "0", "1000"]).parse().expect("a number"));
        let mut args = vec![same(field), same(self.pick(&OWNERS)), same(&self.ttl()), token, self.counter_ttl()];
        if self.chance(35) {
            let marker = self.pick(&MARKERS).to_owned();
            keys.push(self.other_key(marker));
            args.push(same(self.pick(&["0", "36000000000"])));
            args.extend([same(self.pick(&["run1", "run2"])), same("0"), same(self.pick(&["0", "1"]))]);
        }
        Step::Call { script: &scripts(wire).repair, keys, args }
    }

    fn acquire(&mut self, wire: Wire, lock: &str, held: &[String]) -> Step {
        // Half of the tries name a field that holds the lock, so that all paths are used.
        let (field, owner) = (self.field(held), self.pick(&OWNERS));
        let mut keys = vec![lock.to_owned(), self.other_key(counter(lock))];
        let mut args = vec![same(&field), same(owner), same(&self.ttl()), self.counter_ttl()];
        args.push(self.proposal());
        if self.chance(35) {
            let marker = self.pick(&MARKERS).to_owned();
            keys.push(self.other_key(marker));
            args.push(same(self.pick(&["0", "36000000000"])));
            args.push(same(self.pick(&["run1", "run1", "run1", "run2"])));
            let lost = (wall_micros() - 100_000_000).to_string();
            args.extend([same(self.pick(&["0", &lost])), same(self.pick(&["0", "1"]))]);
        }
        Step::Call { script: &scripts(wire).acquire, keys, args }
    }
}

/// How far a proposed token may be from the node's time, µs.
const PROPOSAL_SLACK: i64 = 20_000;

/// Describes what is wrong with a granted token, given the counter and whether the field held the lock before.
fn wrong_token(outcome: &Outcome, args: &[String], known: (Option<i64>, bool)) -> Option<String> {
    let (Some(1), Some(token), Some(now)) = (outcome.int(0), outcome.int(1), outcome.int(2)) else {
        return None;
    };
    let (before, held) = known;
    let proposal = match args[4].parse::<i64>().expect("a number") {
        0 => now,
        proposal => proposal.clamp(now - PROPOSAL_SLACK, now + PROPOSAL_SLACK),
    };
    // A counter that is no number was not written by a lock.
    let fresh = before.map_or(proposal, |before| proposal.max(before + 2));
    // A tenure of an explicit owner draws anew: another of its tenures may have the last token.
    let expected = before.filter(|_| held && args[1].is_empty()).unwrap_or(fresh);
    let soon = (wall_micros() - now).abs() < TOLERANCE_US;
    (token != expected || !soon).then(|| format!("granted {token} at {now}, expected {expected} after {before:?}"))
}

/// Whether two outcomes are the same, except for the moment at which they were made.
fn alike(script: &str, redis: &Outcome, memory: &Outcome) -> bool {
    fn reply(script: &str, redis: &Reply, memory: &Reply) -> bool {
        match (redis, memory) {
            (Reply::Int(a), Reply::Int(b)) => int(script, *a, *b),
            (Reply::Text(a), Reply::Text(b)) => text(a, b),
            (Reply::List(a), Reply::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| reply(script, a, b)),
            _ => false,
        }
    }
    fn int(script: &str, redis: i64, memory: i64) -> bool {
        let apart = (redis - memory).abs();
        match redis.min(memory) {
            _ if apart == 0 => true,
            // Tokens, times and the rest of a quarantine, or an average learned from a key that holds a token.
            1_000_000_000.. => apart < TOLERANCE_US,
            // TTLs.
            1_001.. => {
                let told = ["acquire", "enter", "inspect", "attach"].contains(&script);
                (told || script.contains('/')) && apart < TOLERANCE_MS
            }
            // The note of a lock without a ttl.
            1.. => script == "inspect" && redis.max(memory) <= 1_000,
            _ => false,
        }
    }
    fn text(redis: &str, memory: &str) -> bool {
        if redis == memory {
            return true;
        }
        let moment = |a: &str, b: &str| match (a.parse(), b.parse()) {
            (Ok(a), Ok(b)) => a > 1_000_000_000_i64 && int("", a, b),
            _ => false,
        };
        // A note of ended tenures is padded with spaces, and its words are in any order.
        let words = |text: &str| {
            let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            words.sort();
            words
        };
        if words(redis) == words(memory) {
            return true;
        }
        match (redis.trim().split_once(' '), memory.trim().split_once(' ')) {
            (Some((run, since)), Some((other, moved))) => run == other && moment(since, moved),
            _ => moment(redis.trim(), memory.trim()),
        }
    }
    match (redis, memory) {
        (Outcome::Reply(a), Outcome::Reply(b)) => reply(script, a, b),
        _ => redis == memory,
    }
}

fn all_scripts() -> impl Iterator<Item = &'static Script> {
    let of_locks = [Wire::Redisson, Wire::Token].into_iter().flat_map(|wire| scripts(wire).all());
    of_locks.chain(read_write_scripts().all()).chain(semaphore_scripts().all())
}

/// Returns the result of a future that is ready at once, as those of the in-memory node are.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an answer at once")
}

fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_micros() as i64
}

/// Outcomes that must have occurred, or the comparison would prove little.
const EXPECTED: &[&str] = &[
    "acquire Redisson 0",
    "acquire Redisson 1",
    "acquire Redisson 2",
    "acquire Redisson 3",
    "acquire Redisson 4",
    "acquire Redisson wrong type",
    "acquire Redisson failed",
    "acquire Token 0",
    "acquire Token 1",
    "acquire Token 3",
    "acquire Token 4",
    "acquire Token wrong type",
    "acquire Token failed",
    "enter Redisson 0",
    "enter Redisson 1",
    "enter Redisson 2",
    "enter Redisson wrong type",
    "enter Token 0",
    "enter Token 1",
    "enter Token wrong type",
    "leave Redisson 0",
    "leave Redisson 1",
    "leave Token 0",
    "leave Token 1",
    "leave Token wrong type",
    "bump Redisson 0",
    "bump Redisson 1",
    "bump Redisson wrong type",
    "bump Token 0",
    "bump Token 1",
    "bump Token wrong type",
    "renew Redisson -2",
    "renew Redisson -1",
    "renew Redisson 0",
    "renew Redisson 1",
    "renew Token -2",
    "renew Token -1",
    "renew Token 0",
    "renew Token 1",
    "prolong Redisson 0",
    "prolong Redisson 1",
    "prolong Token 0",
    "prolong Token 1",
    "repair Redisson -2",
    "repair Redisson -1",
    "repair Redisson 0",
    "repair Redisson 1",
    "repair Redisson wrong type",
    "repair Token -2",
    "repair Token -1",
    "repair Token 0",
    "repair Token 1",
    "repair Token wrong type",
    "release Redisson 0",
    "release Redisson 1",
    "release Token 0",
    "release Token 1",
    "rest Redisson 0",
    "rest Redisson 1",
    "rest Token 0",
    "rest Token 1",
    "end Redisson -2",
    "end Redisson -1",
    "end Redisson 0",
    "end Redisson 1",
    "end Redisson wrong type",
    "end Token 0",
    "end Token 1",
    "end Token wrong type",
    "attach Redisson -2",
    "attach Redisson value",
    "attach Redisson wrong type",
    "attach Token -2",
    "attach Token value",
    "attach Token wrong type",
    "retime Redisson 0",
    "retime Redisson 1",
    "retime Token 0",
    "retime Token 1",
    "learn Redisson value",
    "learn Token value",
    "provision Redisson 0",
    "provision Redisson 1",
    "provision Token 0",
    "provision Token 1",
    "read_write/read Redisson 0",
    "read_write/read Redisson 1",
    "read_write/read Redisson 2",
    "read_write/read Redisson 3",
    "read_write/read_batch Redisson 0",
    "read_write/read_batch Redisson 1",
    "read_write/leave_batch Redisson 0",
    "read_write/leave_batch Redisson 1",
    "read_write/write Redisson 0",
    "read_write/write Redisson 1",
    "read_write/leave Redisson 0",
    "read_write/leave Redisson 1",
    "read_write/rest Redisson 0",
    "read_write/rest Redisson 1",
    "read_write/downgrade Redisson 0",
    "read_write/downgrade Redisson 1",
    "read_write/upgrade Redisson 0",
    "read_write/upgrade Redisson 1",
    "read_write/upgrade Redisson 2",
    "read_write/bump Redisson 0",
    "read_write/bump Redisson 1",
    "read_write/renew Redisson -2",
    "read_write/renew Redisson -1",
    "read_write/renew Redisson 0",
    "read_write/renew Redisson 1",
    "read_write/renew Redisson 2",
    "read_write/repair Redisson -2",
    "read_write/repair Redisson -1",
    "read_write/repair Redisson 1",
    "read_write/repair Redisson 2",
    "inspect Redisson -2",
    "read_write/end Redisson -1",
    "read_write/end Redisson 0",
    "read_write/end Redisson 1",
    "read_write/end Redisson 2",
    "read_write/attach Redisson -2",
    "read_write/attach Redisson value",
    "semaphore/acquire Redisson 0",
    "semaphore/acquire Redisson 1",
    "semaphore/acquire Redisson 2",
    "semaphore/acquire Redisson wrong type",
    "semaphore/take Redisson 0",
    "semaphore/take Redisson 1",
    "semaphore/take Redisson 2",
    "semaphore/take Redisson 3",
    "semaphore/take Redisson 4",
    "semaphore/take Redisson wrong type",
    "semaphore/relocate Redisson 0",
    "semaphore/relocate Redisson 1",
    "semaphore/bump Redisson 0",
    "semaphore/bump Redisson 1",
    "semaphore/repair Redisson -2",
    "semaphore/repair Redisson -1",
    "semaphore/repair Redisson 0",
    "semaphore/repair Redisson 1",
    "semaphore/leave Redisson 0",
    "semaphore/leave Redisson 1",
    "semaphore/leave Redisson granted",
    "semaphore/renew Redisson -1",
    "semaphore/renew Redisson 0",
    "semaphore/renew Redisson 1",
    "semaphore/end Redisson 1",
    "semaphore/attach Redisson -2",
    "semaphore/attach Redisson value",
];

#[test]
fn memory_matches_redis() {
    compare(|seed| Box::new(InMemory::new(&format!("diff {seed}"))), 40_000);
}

#[test]
fn the_simulation_matches_redis() {
    compare(|_| Box::new(Simulated::default()), 100_000);
}

fn compare(other: impl Fn(u64) -> Box<dyn Other>, usual: u64) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("REDLOCK_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = number("REDLOCK_DIFF_STEPS").unwrap_or(usual);
    let server = Server::with_args(&["--unixsocket", SOCKET]);
    let mut diff = Diff::new(&server, other(seed), seed);
    for step in 1..=steps {
        diff.step();
        if step % 1000 == 0 {
            diff.provoke();
        }
        if step % 100 == 0 || step == steps {
            diff.compare_stores();
            diff.compare_messages();
        }
    }
    println!("REDLOCK_SEED={seed}: {} commands, {:?}", diff.commands, diff.heard);
    for (outcome, count) in &diff.outcomes {
        println!("{count:>8} {outcome}");
    }
    let absent: Vec<_> = EXPECTED.iter().filter(|outcome| !diff.outcomes.contains_key(**outcome)).collect();
    if steps >= 20_000 && !absent.is_empty() {
        diff.fail(&format!("these never happened: {absent:?}"));
    }
}
