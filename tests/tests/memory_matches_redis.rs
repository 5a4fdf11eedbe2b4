//! Holds the in-memory node, and the server of the simulation, against a real redis-server: the same random calls go to
//! both, and whatever a client could notice must be the same. This is what allows other tests to run on them.
//!
//! Numbers are compared exactly, except for what depends on the moment (times, what is left of a ttl, tokens): each
//! side reads its own clock. There a tolerance applies, which every ttl used exceeds by far, and each granted token
//! is computed anew from the time in its reply. `REDLOCK_SEED` repeats a run, `REDLOCK_DIFF_STEPS` makes it longer.

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::FutureExt;
use redis::Value;
use redlock::{
    Wire,
    process::driver::Driver,
    protocol::script::{Call, Reply, Script, scripts},
    server::{
        Node, NodeError, NodeErrorKind, SentOn, Subscription,
        memory::{Memory, MemoryNode},
    },
};
use redlock_tests::sim::store::Store;

const LOCKS: [&str; 4] = ["lock:a", "lock:b", "lock:c", "lock:d"];
const MARKERS: [&str; 2] = ["marker:1", "marker:2"];
const AVERAGES: [&str; 2] = ["hold:a", "hold:b"];
const MISSING: &str = "never written";
/// "=a:12" contains "=a:1", the last two have no tenure number.
const FIELDS: [&str; 9] = ["u:1", "u:2", "=a:1", "=a:12", "=a:2", "=b:1", "=a:b:3", "=a:x", "no colon"];
/// "!" is a value of the caller's choosing.
const OWNERS: [&str; 4] = ["", "=a", "=b", "!"];
/// Far from each other and from 0, so that no comparison of two depends on the moment it is made.
const TTLS: [&str; 4] = ["60000", "120000", "600000", "3600000"];
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

/// A redis-server of our own, behind a socket in a directory of its own.
struct Server {
    process: Child,
    directory: PathBuf,
    client: redis::Client,
}

impl Server {
    fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let directory = env::temp_dir().join(format!("redlock-diff-{}-{number}", std::process::id()));
        fs::create_dir_all(&directory).expect("a temporary directory");
        let socket = directory.join("redis.sock");
        let mut process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-server must be installed");
        let log = process.stdout.take().expect("piped");
        let ready = |line: &String| line.contains("ready to accept connections");
        let up = BufReader::new(log).lines().map_while(Result::ok).any(|line| ready(&line));
        let client = redis::Client::open(format!("redis+unix://{}", socket.display()));
        let server = Self { process, directory, client: client.expect("a valid URL") };
        assert!(up, "redis-server did not start");
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing to do about an error but to leave a process or a directory behind.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What a caller learns from a call.
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
            // A reply of nothing is as useless to a caller as an error.
            Ok(value) => convert(value).map_or(Self::Failed, Self::Reply),
            Err(error) if error.code() == Some("WRONGTYPE") => Self::WrongType,
            Err(error) => {
                assert!(error.code().is_some(), "the connection failed: {error}");
                Self::Failed
            }
        }
    }

    /// A vote as the list of what it says: a counter may be no number.
    fn spelled_out(self) -> Self {
        let Self::Reply(Reply::Text(text)) = &self else { return self };
        let part = |text: &str| text.parse().map_or_else(|_| Reply::Text(text.to_owned()), Reply::Int);
        let parts = text.split_once(' ').and_then(|(code, rest)| Some((code, rest.rsplit_once(' ')?)));
        parts.map_or(self.clone(), |(code, (value, time))| {
            Self::Reply(Reply::List([code, value, time].map(part).into()))
        })
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

    /// What kind of outcome it is, for statistics.
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
    /// The counter as it is on that side, plus so much.
    Counter(i64),
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

/// What is held against a real server.
trait Other {
    fn eval(&mut self, call: Call) -> Result<Reply, NodeError>;
    fn delete(&mut self, key: &str) -> bool;
    fn set(&mut self, key: &str, value: &str);
    fn hset(&mut self, key: &str, field: &str) -> bool;
    fn expire(&mut self, key: &str, ttl: Duration) -> bool;
    fn exists(&mut self, key: &str) -> bool;
    fn flush(&mut self);
    /// How many messages a channel got.
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
        let subscribe = |lock: &&str| {
            let channel = channel(lock);
            (channel.clone(), at_once(node.subscribe(channel)).expect("subscribed"))
        };
        let heard = LOCKS.iter().map(subscribe).collect();
        Self { node, memory: Memory::named(name), heard }
    }
}

impl Other for InMemory {
    fn eval(&mut self, call: Call) -> Result<Reply, NodeError> {
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

/// The server of the simulation, at the real time.
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
    fn eval(&mut self, call: Call) -> Result<Reply, NodeError> {
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
}

impl Diff {
    fn new(server: &Server, memory: Box<dyn Other>, seed: u64) -> Self {
        let mut redis = server.client.get_connection().expect("redis is up");
        for script in all_scripts() {
            let sha: String =
                redis::cmd("SCRIPT").arg("LOAD").arg(&script.source).query(&mut redis).expect("a script that compiles");
            assert_eq!(sha, script.sha);
        }
        let mut heard_redis = server.client.get_connection().expect("redis is up");
        for lock in LOCKS {
            let subscribed =
                heard_redis.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel(lock)).get_packed_command());
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

    /// Runs a script on both sides: what Redis answered, and what the memory answered.
    fn both(&mut self, script: &'static Script, keys: &[String], args: [Vec<String>; 2]) -> [Outcome; 2] {
        self.commands += 1;
        let [redis_args, memory_args] = args;
        let mut eval = redis::cmd("EVALSHA");
        eval.arg(&script.sha).arg(keys.len()).arg(keys).arg(redis_args);
        let mut redis = Outcome::of_redis(eval.query(&mut self.redis));
        let call = Call::new(script, keys.to_vec(), memory_args);
        let mut memory = match self.memory.eval(call) {
            Ok(reply) => Outcome::Reply(reply),
            Err(error) if error.kind == NodeErrorKind::WrongType => Outcome::WrongType,
            Err(error) => {
                assert_eq!(error.kind, NodeErrorKind::Refused, "{error}");
                Outcome::Failed
            }
        };
        if script.name == "acquire" {
            (redis, memory) = (redis.spelled_out(), memory.spelled_out());
        }
        if !alike(script.name, &redis, &memory) {
            self.fail(&format!("{} {:?} {keys:?}: redis {redis:?}, memory {memory:?}", script.name, script.wire));
        }
        [redis, memory]
    }

    fn inspect(&mut self, wire: Wire, key: &str, counter: &str) -> [Outcome; 2] {
        let keys = [key.to_owned(), counter.to_owned()];
        self.both(&scripts(wire).inspect, &keys, [Vec::new(), Vec::new()])
    }

    /// Compares all there is.
    fn compare_stores(&mut self) {
        let mut keys: Vec<String> = [&MARKERS[..], &AVERAGES[..]].concat().into_iter().map(String::from).collect();
        keys.extend(LOCKS.iter().flat_map(|lock| [lock.to_string(), counter(lock), note(lock)]));
        for key in &keys {
            for wire in [Wire::Redisson, Wire::Token] {
                self.inspect(wire, key, MISSING);
            }
        }
        let size: usize = redis::cmd("DBSIZE").query(&mut self.redis).expect("a size");
        let known = keys.iter().filter(|key| self.memory.exists(key)).count();
        if size != known {
            self.fail(&format!("redis has {size} keys, memory {known}"));
        }
    }

    fn compare_messages(&mut self) {
        // All that was published comes before this.
        let last = channel(LOCKS[0]);
        let heard: u64 = redis::cmd("PUBLISH").arg(&last).arg("end").query(&mut self.redis).expect("published");
        assert_eq!(heard, 1);
        loop {
            let message = self.heard_redis.recv_response().expect("a message");
            let (_, channel, payload): (String, String, String) = redis::from_redis_value(message).expect("a message");
            if payload == "end" {
                break;
            }
            assert_eq!(payload, "0");
            *self.heard.entry(channel).or_default() += 1;
        }
        for lock in LOCKS {
            let redis = self.heard.get(&channel(lock)).copied().unwrap_or_default();
            let memory = self.memory.heard(&channel(lock));
            if redis != memory {
                self.fail(&format!("{lock}: redis sent {redis} messages, memory {memory}"));
            }
        }
    }

    /// One random step.
    fn step(&mut self) {
        let lock = self.pick(&LOCKS);
        // Each lock has a wire of its own, but somebody may be configured differently.
        let own = if lock < "lock:c" { Wire::Redisson } else { Wire::Token };
        let other = if own == Wire::Token { Wire::Redisson } else { Wire::Token };
        let wire = if self.chance(92) { own } else { other };
        let [redis, memory] = self.inspect(wire, lock, MISSING);
        // A counter or a marker that was written to this key differs, and would not be the same argument.
        let held: Vec<String> = redis
            .list()
            .iter()
            .zip(memory.list())
            .filter_map(|(redis, memory)| match redis {
                Reply::Text(field) if redis == memory => Some(field.clone()),
                _ => None,
            })
            .collect();
        let step = if self.chance(12) { self.foreign(lock) } else { self.call(wire, lock, &held) };
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
            Step::Call { script, keys, args } => self.run(script, &keys, &args, &held),
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
            });
            resolved.collect()
        };
        let arguments = [resolve(0), resolve(1)];
        let outcomes = self.both(script, keys, arguments.clone());
        let seen = match (script.name, &outcomes[0]) {
            ("renew", Outcome::Reply(Reply::List(list))) => {
                list.iter().map(|reply| Outcome::Reply(reply.clone()).code()).collect()
            }
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
            "end" => {
                // The note of a lock without a ttl lives for a second only: do not let it end in a comparison.
                let [note, _] = self.inspect(Wire::Token, &second, MISSING);
                if note.int(0).is_some_and(|ttl| (0..=1000).contains(&ttl)) {
                    self.write(Step::Del(second));
                }
            }
            _ => {}
        }
    }

    /// Something that is done to a key from outside, on both sides.
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
            8 => note(lock),
            _ if self.chance(80) => self.pick(&MARKERS).to_owned(),
            _ => self.pick(&AVERAGES).to_owned(),
        }
    }

    fn foreign(&mut self, lock: &str) -> Step {
        let key = self.any_key(lock);
        match self.random.u32(..100) {
            0..20 => {
                // Among them what a counter, a marker and a lock may hold, and what they never should.
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
        // A ttl of nothing is refused long before; a script must not do something else with it all the same.
        if self.chance(1) {
            return "0".into();
        }
        // None at all.
        if self.chance(3) { "-1".into() } else { self.pick(&TTLS).to_owned() }
    }

    /// The counter of the lock, once in a while something else.
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
            0..38 => self.acquire(wire, lock, held),
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
            65..74 => {
                let args = vec![same(&field), same(&channel(lock))];
                Step::Call { script: &all.release, keys: vec![key], args }
            }
            74..80 => {
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
                // To an earlier time as well, but to none that passes while the two are compared.
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

    fn repair(&mut self, wire: Wire, lock: &str, field: &str) -> Step {
        // Told by its second key which counter is meant.
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
        // Half of the tries ask for what is held, so that all paths are used.
        let (field, owner) = (self.field(held), self.pick(&OWNERS));
        let mut keys = vec![lock.to_owned(), self.other_key(counter(lock))];
        let proposal = match self.random.u32(..6) {
            0 => wall_micros() - 3_600_000_000,
            1 => wall_micros() - 5_000,
            2 => wall_micros() + 5_000,
            3 => wall_micros() + 3_600_000_000,
            _ => 0,
        };
        let mut args = vec![same(&field), same(owner), same(&self.ttl()), self.counter_ttl()];
        args.push(same(&proposal));
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

/// How far from a node's time a proposed token counts, µs.
const PROPOSAL_SLACK: i64 = 20_000;

/// What is wrong with a granted token, given the counter and whether the field held the lock before.
fn wrong_token(outcome: &Outcome, args: &[String], known: (Option<i64>, bool)) -> Option<String> {
    let (Some(1), Some(token), Some(now)) = (outcome.int(0), outcome.int(1), outcome.int(2)) else {
        return None;
    };
    let (before, held) = known;
    let proposal = match args[4].parse::<i64>().expect("a number") {
        0 => now,
        proposal => proposal.clamp(now - PROPOSAL_SLACK, now + PROPOSAL_SLACK),
    };
    // What is no number was not written by a lock.
    let fresh = before.map_or(proposal, |before| proposal.max(before + 1));
    let expected = before.filter(|_| held).unwrap_or(fresh);
    let soon = (wall_micros() - now).abs() < TOLERANCE_US;
    (token != expected || !soon).then(|| format!("granted {token} at {now}, expected {expected} after {before:?}"))
}

/// Whether two outcomes are the same but for the moment they were made in.
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
            // Tokens, times and what is left of a quarantine; an average learned from a key that holds a token.
            1_000_000_000.. => apart < TOLERANCE_US,
            // TTLs.
            1_001.. => matches!(script, "acquire" | "inspect" | "attach") && apart < TOLERANCE_MS,
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
        // A note of ended tenures is padded with spaces.
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
    [Wire::Redisson, Wire::Token].into_iter().flat_map(|wire| scripts(wire).all())
}

/// The in-memory node needs no time.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an answer at once")
}

fn wall_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    since.as_micros() as i64
}

/// What must have happened, else the comparison proves little.
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
];

#[test]
fn memory_matches_redis() {
    compare(|seed| Box::new(InMemory::new(&format!("diff {seed}"))), 20_000);
}

#[test]
fn the_simulation_matches_redis() {
    compare(|_| Box::new(Simulated::default()), 100_000);
}

fn compare(other: impl Fn(u64) -> Box<dyn Other>, usual: u64) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("REDLOCK_SEED").unwrap_or_else(|| fastrand::u64(..));
    let steps = number("REDLOCK_DIFF_STEPS").unwrap_or(usual);
    let server = Server::start();
    let mut diff = Diff::new(&server, other(seed), seed);
    for step in 1..=steps {
        diff.step();
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
