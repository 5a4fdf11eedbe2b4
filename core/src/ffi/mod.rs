//! What every language layer needs and none should write twice: options as a host gives them, errors as they cross the
//! boundary, and calls that run in the background and end in a host's event loop.
//!
//! A binding turns its language's values into [`Setting`]s, says how that language spells ([`Idiom`]), and delegates to
//! [`Calls`] or to the core itself.

use std::{
    future::Future,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::{Mutex, mpsc};

#[cfg(target_os = "linux")]
use crate::ffi::reactor::Turns;
use crate::{
    acquire::Request,
    client::{Client, NodeStatus},
    compat::{HeldValue, Retime},
    config::{Config, LockOptions, Ttl},
    error::{LockError, LostReason, NodeCause},
    event::{Event, EventSink},
    ffi::completions::{Begun, Bridge, within},
    lease::Lease,
    lock::{Lock, LockInfo},
    owner::Owner,
    process::{driver::Driver, fork::Tied},
    tenure::ReleaseOutcome,
};

pub mod completions;
#[cfg(target_os = "linux")]
pub mod reactor;

/// The value of an option, as a host gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A string.
    Text(String),
    /// A number; a time is in the host's unit.
    Number(f64),
    /// A truth value.
    Flag(bool),
    /// Anything else, as the host shows it.
    Other(String),
}

impl Setting {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Other(shown) => shown.clone(),
        }
    }
}

/// How a host spells names and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idiom {
    /// `max_ttl`, in seconds.
    SnakeSeconds,
    /// `maxTtl`, in milliseconds.
    CamelMillis,
}

/// The options of a client.
const CLIENT_OPTIONS: [&str; 18] = [
    "quorum",
    "watchdog",
    "prefix",
    "wire",
    "drift",
    "token_key",
    "max_ttl",
    "min_replicas",
    "patience",
    "connect_timeout",
    "reply_timeout",
    "strict",
    "quarantine",
    "username",
    "password",
    "ca",
    "cert",
    "key",
];
/// The options of a lock.
const LOCK_OPTIONS: [&str; 5] = ["ttl", "wait", "owner", "max_hold", "reentrant"];

impl Idiom {
    fn unit(self) -> &'static str {
        match self {
            Self::SnakeSeconds => "seconds",
            Self::CamelMillis => "milliseconds",
        }
    }

    fn time(self) -> &'static str {
        match self {
            Self::SnakeSeconds => "a number of seconds or a timedelta",
            Self::CamelMillis => "a number of milliseconds",
        }
    }

    /// One of the core's names as this host spells it.
    fn spell(self, name: &str) -> String {
        match self {
            Self::SnakeSeconds => name.to_owned(),
            Self::CamelMillis => {
                let mut words = name.split('_');
                let first = words.next().unwrap_or_default().to_owned();
                words.fold(first, |spelled, word| {
                    let (initial, rest) = word.split_at(word.len().min(1));
                    spelled + &initial.to_uppercase() + rest
                })
            }
        }
    }

    /// The core's name of an option.
    fn known(self, option: &str, among: &[&'static str]) -> Result<&'static str, LockError> {
        among.iter().copied().find(|known| self.spell(known) == option).ok_or_else(|| {
            let all: Vec<_> = among.iter().map(|known| self.spell(known)).collect();
            LockError::invalid("options", format!("there is no option {option:?}, only {}", all.join(", ")))
        })
    }

    /// A time in the host's unit. Fails with `invalid` for NaN, for less than nothing and for more than 10 years.
    pub fn duration(self, argument: &'static str, value: &Setting) -> Result<Duration, LockError> {
        let Setting::Number(number) = *value else {
            let detail = format!("must be {}, not {}", self.time(), value.shown());
            return Err(LockError::invalid(argument, detail));
        };
        if number.is_nan() || number < 0.0 {
            let detail = format!("must be a number of {} of at least 0, not {number}", self.unit());
            return Err(LockError::invalid(argument, detail));
        }
        let seconds = if self == Self::CamelMillis { number / 1000.0 } else { number };
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            LockError::invalid(argument, format!("must be at most 10 years, not {number} {}", self.unit()))
        })
    }

    /// The configuration of a client of these nodes. Fails with `invalid` for an unknown option and for a value that is
    /// none of its kind; the rest is checked when the client is made.
    pub fn config(
        self,
        urls: impl IntoIterator<Item = String>,
        options: impl IntoIterator<Item = (String, Setting)>,
    ) -> Result<Config, LockError> {
        self.set(Config::new(urls), options)
    }

    /// `config`, with the nodes of the environment.
    pub fn config_from_env(self, options: impl IntoIterator<Item = (String, Setting)>) -> Result<Config, LockError> {
        self.set(Config::from_env(), options)
    }

    fn set(
        self,
        mut config: Config,
        options: impl IntoIterator<Item = (String, Setting)>,
    ) -> Result<Config, LockError> {
        for (option, value) in options {
            let option = self.known(&option, &CLIENT_OPTIONS)?;
            match option {
                "quorum" => config.quorum = Some(whole(option, &value, 1)?),
                "watchdog" => config.watchdog = self.duration(option, &value)?,
                "prefix" => config.prefix = text(option, value)?,
                "wire" => config.wire = word(option, value)?,
                "drift" => config.drift = number(option, &value)?,
                "token_key" => config.token_key = word(option, value)?,
                "max_ttl" => config.max_ttl = self.duration(option, &value)?,
                "min_replicas" => config.min_replicas = whole(option, &value, 0)? as u32,
                "patience" => config.patience = self.duration(option, &value)?,
                "connect_timeout" => config.connect_timeout = self.duration(option, &value)?,
                "reply_timeout" => config.reply_timeout = self.duration(option, &value)?,
                "strict" => config.strict = flag(option, &value)?,
                "quarantine" => config.quarantine = flag(option, &value)?,
                "username" => config.username = Some(text(option, value)?),
                "password" => config.password = Some(text(option, value)?),
                "ca" => config.tls.ca = Some(text(option, value)?),
                "cert" => config.tls.cert = Some(text(option, value)?),
                _ => config.tls.key = Some(text(option, value)?),
            }
        }
        Ok(config)
    }

    /// The options of a lock; fails as `config` does.
    pub fn lock_options(self, options: impl IntoIterator<Item = (String, Setting)>) -> Result<LockOptions, LockError> {
        let mut lock = LockOptions::default();
        for (option, value) in options {
            let option = self.known(&option, &LOCK_OPTIONS)?;
            match option {
                "ttl" if value == Setting::Text("adaptive".to_owned()) => lock.ttl = Ttl::Adaptive,
                "ttl" if matches!(value, Setting::Number(_)) => lock.ttl = Ttl::Fixed(self.duration(option, &value)?),
                "ttl" => {
                    let detail = format!("must be {} or 'adaptive', not {}", self.time(), value.shown());
                    return Err(LockError::invalid(option, detail));
                }
                "wait" => lock.wait = Some(self.duration(option, &value)?),
                "owner" => lock.owner = Some(text(option, value)?),
                "max_hold" => lock.max_hold = Some(self.duration(option, &value)?),
                _ => lock.reentrant = flag(option, &value)?,
            }
        }
        Ok(lock)
    }

    /// An error as it crosses the boundary, with the names of arguments as the host spells them.
    pub fn failure(self, error: &LockError) -> Failure {
        let mut message = error.to_string();
        if let LockError::Invalid { argument, .. } = error
            && *argument != "options"
        {
            for option in CLIENT_OPTIONS.iter().chain(&LOCK_OPTIONS).filter(|option| option.contains('_')) {
                message = message.replace(option, &self.spell(option));
            }
        }
        let (reason, causes) = match error {
            LockError::Lost { reason, .. } => (Some(reason.as_str()), Vec::new()),
            LockError::Unavailable { causes, .. } => (None, causes.clone()),
            _ => (None, Vec::new()),
        };
        Failure { code: error.code(), message, reason, causes }
    }
}

/// How a drop-in shim takes a lock: with a value of its library's making, and a ttl in ms or none at all.
pub fn shim_options(value: String, ttl: Option<u64>) -> LockOptions {
    let ttl = ttl.map_or(Ttl::Never, |millis| Ttl::Fixed(Duration::from_millis(millis)));
    LockOptions { ttl, value: Some(value), ..LockOptions::default() }
}

/// A string, for whatever is none of the options. Fails with `invalid` for anything else.
pub fn text(argument: &'static str, value: Setting) -> Result<String, LockError> {
    match value {
        Setting::Text(text) => Ok(text),
        // Not shown: it may be a secret.
        _ => Err(LockError::invalid(argument, "must be a string of valid Unicode")),
    }
}

fn word<T: FromStr<Err = LockError>>(argument: &'static str, value: Setting) -> Result<T, LockError> {
    text(argument, value)?.parse()
}

fn number(argument: &'static str, value: &Setting) -> Result<f64, LockError> {
    match value {
        Setting::Number(number) => Ok(*number),
        other => Err(LockError::invalid(argument, format!("must be a number, not {}", other.shown()))),
    }
}

fn whole(argument: &'static str, value: &Setting, least: u32) -> Result<usize, LockError> {
    match value {
        Setting::Number(number) if number.fract() == 0.0 && (f64::from(least)..=1e6).contains(number) => {
            Ok(*number as usize)
        }
        other => {
            let detail = format!("must be a whole number of at least {least}, not {}", other.shown());
            Err(LockError::invalid(argument, detail))
        }
    }
}

fn flag(argument: &'static str, value: &Setting) -> Result<bool, LockError> {
    match value {
        Setting::Flag(flag) => Ok(*flag),
        other => Err(LockError::invalid(argument, format!("must be true or false, not {}", other.shown()))),
    }
}

/// An error, flat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, which is the contract.
    pub code: &'static str,
    /// The text for people.
    pub message: String,
    /// Why the lock was lost; only with code `lost`.
    pub reason: Option<&'static str>,
    /// What each node said; only with code `unavailable`.
    pub causes: Vec<NodeCause>,
}

/// What a call resulted in.
#[derive(Debug)]
pub enum Value {
    /// It is done.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A lease. Dropping it releases nothing once it was drained.
    Lease(Lease),
    /// How a release ended.
    Outcome(ReleaseOutcome),
    /// Who holds a lock.
    Info(Option<LockInfo>),
    /// What the nodes say of themselves.
    Nodes(Vec<NodeStatus>),
    /// Why a lease was lost; `None` when it ended otherwise.
    Lost(Option<LostReason>),
    /// What happened since the last time; empty when nothing will happen any more.
    Events(Vec<Event>),
}

/// The end of a call.
pub type Outcome = Result<Value, LockError>;

/// A call that began: its end, if it needed no waiting, or its number.
pub type Call = Begun<Outcome>;

/// The host now owns the lease: collecting it releases nothing.
fn keep(outcome: &Outcome) {
    if let Ok(Value::Lease(lease)) = outcome {
        lease.keep();
    }
}

/// The calls of one event loop. Each starts at once and returns its number; its end comes out of [`Calls::drain`],
/// and `wake` tells once that there is something to drain. They belong to the process that made them: in a child of a
/// fork every call fails with `closed`.
pub struct Calls {
    bridge: Tied<Arc<Bridge<Outcome>>>,
    /// Where a thread that fetches waits, unless it watches a descriptor.
    woken: Option<std::sync::Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl Calls {
    /// Calls whose `wake` runs on the library's threads: it must return at once and run nothing of the host's.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { bridge: Tied::new(Bridge::new(wake)), woken: None }
    }

    /// Calls of an event loop that watches [`Calls::fd`], and drains whenever that is readable. Their round trips to a
    /// single server are made by the loop's own thread. Fails when the process has no descriptor left.
    #[cfg(target_os = "linux")]
    pub fn hosted() -> std::io::Result<Self> {
        Ok(Self { bridge: Tied::new(Bridge::hosted(Turns::of_event_loop()?)), woken: None })
    }

    /// Calls that any thread begins, and that one thread of the host's, which does nothing else, fetches the ends of
    /// ([`Calls::fetch`]). On Linux these threads make the round trips to a single server.
    pub fn fetched() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(turns) = Turns::attended() {
            return Self { bridge: Tied::new(Bridge::hosted(turns)), woken: None };
        }
        let (wake, woken) = std::sync::mpsc::channel();
        // The receiver is kept beside it.
        let bridge = Bridge::new(move || wake.send(()).unwrap_or_default());
        Self { bridge: Tied::new(bridge), woken: Some(woken.into()) }
    }

    /// Blocks until calls ended, for the thread that fetches: see [`Calls::drain`].
    pub fn fetch(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        loop {
            if let Some(woken) = &self.woken {
                let woken = woken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                woken.recv().map_err(|_| LockError::Closed)?;
            }
            #[cfg(target_os = "linux")]
            if let Some(fd) = self.fd() {
                // Interrupted by a signal it looks, and waits again.
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
            }
            let ended = self.drain()?;
            if !ended.is_empty() {
                return Ok(ended);
            }
        }
    }

    /// What an event loop watches for readability, if it takes turns.
    #[cfg(target_os = "linux")]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.bridge.get()?.turns().map(|turns| turns.fd())
    }

    /// Sends what was begun while other calls were under way. A host that takes turns does so soon after each call that
    /// is pending: at the end of the turn in which it was made, so that calls made together are sent together.
    #[cfg(target_os = "linux")]
    pub fn flush(&self) {
        if let Some(bridge) = self.bridge.get() {
            bridge.turn();
        }
    }

    /// Gives up every call, since the event loop runs no more. What must not be cut short goes on in the background.
    pub fn end(&self) {
        #[cfg(target_os = "linux")]
        if let Some(turns) = self.bridge.get().and_then(|bridge| bridge.turns()) {
            turns.close();
        }
    }

    fn bridge(&self) -> Result<&Arc<Bridge<Outcome>>, LockError> {
        self.bridge.get().ok_or(LockError::Closed)
    }

    /// Begins a call that the host drives if it can, else in the background: to its end, unless it
    /// `may_be_cut`.
    fn begin<F>(
        &self,
        may_be_cut: bool,
        driver: impl FnOnce(u64) -> Driver,
        call: impl FnOnce(Driver) -> F,
    ) -> Result<Call, LockError>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let bridge = self.bridge()?;
        #[cfg(not(target_os = "linux"))]
        let _ = driver;
        #[cfg(target_os = "linux")]
        if let Some(turns) = bridge.turns()
            && let driver @ Driver::Host(_) = driver(turns.id())
        {
            let begun = bridge.begin(turns, call(driver));
            if let Begun::Done(outcome) = &begun {
                keep(outcome);
            }
            return Ok(begun);
        }
        let call = call(Driver::Background);
        Ok(Begun::Pending(if may_be_cut { bridge.watch(call) } else { bridge.run(call) }))
    }

    fn run(&self, future: impl Future<Output = Outcome> + Send + 'static) -> Result<u64, LockError> {
        Ok(self.bridge()?.run(future))
    }

    /// The number of a call, for a host to which nothing else can be returned: negative if it ended already, so that
    /// [`Calls::take`] has its end.
    pub fn number(&self, call: Call) -> Result<i64, LockError> {
        Ok(match call {
            Begun::Pending(id) => id.cast_signed(),
            Begun::Done(outcome) => -self.bridge()?.keep(outcome).cast_signed(),
        })
    }

    /// The end of a call whose number is negative; fails with `closed` if it was taken before.
    pub fn take(&self, number: i64) -> Outcome {
        self.bridge()?.take(number.unsigned_abs()).unwrap_or(Err(LockError::Closed))
    }

    /// The calls that ended since the last time. The host now owns their leases: collecting one releases nothing.
    pub fn drain(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        let ended = self.bridge()?.drain();
        for (_, outcome) in &ended {
            keep(outcome);
        }
        Ok(ended)
    }

    /// Gives up a call that was not drained. An acquire leaves nothing behind; what must not be cut short, such as a
    /// release, goes on. False: it was drained before.
    pub fn abandon(&self, id: u64) -> bool {
        self.bridge.get().is_some_and(|bridge| bridge.abandon(id))
    }

    /// Starts an acquire: a `Lease`.
    pub fn acquire(&self, lock: &Lock, request: Request) -> Result<Call, LockError> {
        let call = |driver| lock.acquire_in(driver, request).map(|lease| lease.map(Value::Lease));
        self.begin(true, |host| lock.host_driver(host), call)
    }

    /// Starts `lock.release()`: an `Outcome`.
    pub fn release_newest(&self, lock: &Lock, owner: &Owner) -> Result<Call, LockError> {
        let call = |driver| lock.release_in(driver, owner).map(|outcome| outcome.map(Value::Outcome));
        self.begin(false, |host| lock.host_driver(host), call)
    }

    /// Starts to end a block of this owner: `Nothing`.
    pub fn leave_newest(&self, lock: &Lock, owner: &Owner) -> Result<Call, LockError> {
        let call = |driver| lock.leave_in(driver, owner).map(|left| left.map(|()| Value::Nothing));
        self.begin(false, |host| lock.host_driver(host), call)
    }

    /// Starts `lock.locked()`: a `Flag`.
    pub fn locked(&self, lock: &Lock) -> Result<u64, LockError> {
        let locked = lock.locked();
        self.run(async move { locked.await.map(Value::Flag) })
    }

    /// Starts `lock.inspect()`: an `Info`.
    pub fn inspect(&self, lock: &Lock) -> Result<u64, LockError> {
        let info = lock.inspect();
        self.run(async move { info.await.map(Value::Info) })
    }

    /// Starts `lease.release()`: an `Outcome`.
    pub fn release(&self, lease: &Lease) -> Result<Call, LockError> {
        let call = |driver| lease.release_in(driver).map(|outcome| outcome.map(Value::Outcome));
        self.begin(false, |host| lease.host_driver(host), call)
    }

    /// Starts to end the block of a lease: `Nothing`.
    pub fn leave(&self, lease: &Lease) -> Result<Call, LockError> {
        let call = |driver| lease.leave_in(driver).map(|left| left.map(|()| Value::Nothing));
        self.begin(false, |host| lease.host_driver(host), call)
    }

    /// Starts `lease.extend()`: `Nothing`.
    pub fn extend(&self, lease: &Lease, ttl: Duration) -> Result<Call, LockError> {
        let call = |driver| lease.extend_in(driver, ttl).map(|extended| extended.map(|()| Value::Nothing));
        self.begin(false, |host| lease.host_driver(host), call)
    }

    /// Waits for the end of a lease: `Lost`. Giving it up ends the waiting and nothing else.
    pub fn lost(&self, lease: &Lease) -> Result<u64, LockError> {
        self.lost_within(lease, None)
    }

    /// `lost`, but for no longer than `limit`.
    pub fn lost_within(&self, lease: &Lease, limit: Option<Duration>) -> Result<u64, LockError> {
        let lost = lease.lost();
        Ok(self.bridge()?.listen(async move { Ok(Value::Lost(within(limit, lost).await.flatten())) }))
    }

    /// Starts `value.release()`: a `Flag`.
    pub fn release_value(&self, value: &HeldValue) -> Result<u64, LockError> {
        let released = value.release();
        self.run(async move { released.await.map(Value::Flag) })
    }

    /// Starts `value.retime()`: a `Flag`.
    pub fn retime_value(&self, value: &HeldValue, how: Retime, millis: i64) -> Result<u64, LockError> {
        let changed = value.retime(how, millis);
        self.run(async move { changed.await.map(Value::Flag) })
    }

    /// Starts `value.is_there()`: a `Flag`.
    pub fn is_value_there(&self, value: &HeldValue) -> Result<u64, LockError> {
        let there = value.is_there();
        self.run(async move { there.await.map(Value::Flag) })
    }

    /// Starts `client.ping()`: `Nodes`.
    pub fn ping(&self, client: &Client) -> Result<u64, LockError> {
        let pinged = client.ping();
        self.run(async move { pinged.await.map(Value::Nodes) })
    }

    /// Starts `client.force_release()`: a `Flag`.
    pub fn force_release(&self, client: &Client, name: &str) -> Result<u64, LockError> {
        let released = client.force_release(name);
        self.run(async move { released.await.map(Value::Flag) })
    }

    /// Starts `client.init_nodes()`: `Nothing`.
    pub fn init_nodes(&self, client: &Client) -> Result<u64, LockError> {
        let provisioned = client.init_nodes();
        self.run(async move { provisioned.await.map(|()| Value::Nothing) })
    }

    /// Starts `client.attach()`: a `Lease`.
    pub fn attach(&self, client: &Client, text: &str, owner: Owner) -> Result<u64, LockError> {
        let attached = client.attach_unseen(text, owner);
        self.run(async move { attached.await.map(Value::Lease) })
    }

    /// Starts `client.close()`: `Nothing`.
    pub fn close(&self, client: &Client) -> Result<u64, LockError> {
        let closed = client.close();
        self.run(async move {
            closed.await;
            Ok(Value::Nothing)
        })
    }

    /// Waits until something happened: `Events`.
    pub fn events(&self, events: &Events) -> Result<u64, LockError> {
        let events = events.clone();
        self.events_of(async move { events.next().await })
    }

    /// `events`, for a host that fetches them in a way of its own.
    pub fn events_of(&self, next: impl Future<Output = Vec<Event>> + Send + 'static) -> Result<u64, LockError> {
        Ok(self.bridge()?.watch(async move { Ok(Value::Events(next.await)) }))
    }
}

/// What waits to be fetched at most; more than that is dropped.
const CAPACITY: usize = 10_000;

/// What happened, waiting for its host.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Arc<Mutex<mpsc::Receiver<Event>>>,
    verbose: Arc<AtomicBool>,
}

impl Events {
    /// A sink for clients, and where the host fetches what went in. The library's threads only queue.
    pub fn queue() -> (EventSink, Self) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let verbose = Arc::new(AtomicBool::new(false));
        let wanted = verbose.clone();
        let sink: EventSink = Arc::new(move |event| {
            if event.is_warning() || wanted.load(Relaxed) {
                // A host that fetches nothing gets no more than the first ones.
                let _ = sender.try_send(event.clone());
            }
        });
        (sink, Self { queue: Arc::new(Mutex::new(receiver)), verbose })
    }

    /// Whether events that are no warnings are wanted too. Each costs the host a wake-up, so at first they are not.
    pub fn set_verbose(&self, verbose: bool) {
        self.verbose.store(verbose, Relaxed);
    }

    /// Waits until something happened; nothing once no client uses the sink any more.
    pub async fn next(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.queue.lock().await.recv_many(&mut events, CAPACITY).await;
        events
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn options(list: &[(&str, Setting)]) -> Vec<(String, Setting)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    fn refused<T>(result: Result<T, LockError>, idiom: Idiom) -> String {
        result.err().map(|error| idiom.failure(&error).message).unwrap()
    }

    #[test]
    fn options_are_spelled_as_their_host_spells() {
        let node = Idiom::CamelMillis;
        let given = options(&[("maxTtl", Setting::Number(1500.0)), ("tokenKey", Setting::Text("redisson".to_owned()))]);
        let config = node.config(["memory://".to_owned()], given).unwrap();
        assert_eq!(config.max_ttl, Duration::from_millis(1500));
        assert_eq!(config.token_key, crate::TokenKey::Redisson);
        let python = Idiom::SnakeSeconds;
        let config = python.config(["memory://".to_owned()], options(&[("max_ttl", Setting::Number(1.5))])).unwrap();
        assert_eq!(config.max_ttl, Duration::from_millis(1500));

        let unknown = refused(node.config([], options(&[("max_ttl", Setting::Number(1.0))])), node);
        assert!(unknown.contains("\"max_ttl\"") && unknown.contains("maxTtl, minReplicas, patience"), "{unknown}");
        let wrong = refused(node.lock_options(options(&[("maxHold", Setting::Flag(true))])), node);
        assert_eq!(wrong, "maxHold: must be a number of milliseconds, not true");
        let wrong = refused(python.lock_options(options(&[("max_hold", Setting::Number(-1.0))])), python);
        assert_eq!(wrong, "max_hold: must be a number of seconds of at least 0, not -1");
        let secret = refused(node.config([], options(&[("password", Setting::Number(1234.0))])), node);
        assert!(secret.starts_with("password: ") && !secret.contains("1234"), "{secret}");
    }

    #[test]
    fn a_lock_takes_a_time_or_adaptive() {
        let idiom = Idiom::CamelMillis;
        let ttl = |value: Setting| idiom.lock_options(options(&[("ttl", value)])).map(|lock| lock.ttl);
        assert_eq!(ttl(Setting::Number(250.0)).unwrap(), Ttl::Fixed(Duration::from_millis(250)));
        assert_eq!(ttl(Setting::Text("adaptive".to_owned())).unwrap(), Ttl::Adaptive);
        let wrong = refused(ttl(Setting::Text("soon".to_owned())), idiom);
        assert_eq!(wrong, "ttl: must be a number of milliseconds or 'adaptive', not \"soon\"");
        assert!(ttl(Setting::Number(f64::INFINITY)).is_err() && ttl(Setting::Number(f64::NAN)).is_err());
    }

    #[test]
    fn calls_end_in_the_queue_of_their_host() {
        let (wake, woken) = channel();
        let calls = Calls::new(move || wake.send(()).unwrap());
        let (sink, events) = Events::queue();
        events.set_verbose(true);
        let client = Client::with_events(Config::new(["memory://host-calls"]), sink).unwrap();
        let lock = client.lock("x", LockOptions::default()).unwrap();
        let end = |id: u64| {
            woken.recv().unwrap();
            let mut ended = calls.drain().unwrap();
            assert_eq!(ended.len(), 1);
            assert_eq!(ended[0].0, id);
            ended.remove(0).1
        };
        let Begun::Pending(acquire) = calls.acquire(&lock, lock.request(Owner::Fresh)).unwrap() else {
            panic!("nobody took turns")
        };
        let Ok(Value::Lease(lease)) = end(acquire) else { panic!("no lease") };
        assert!(matches!(end(calls.locked(&lock).unwrap()), Ok(Value::Flag(true))));
        let Ok(Value::Events(seen)) = end(calls.events(&events).unwrap()) else { panic!("no events") };
        assert_eq!(seen[0].kind(), "acquired");
        let in_vain = calls.lost_within(&lease, Some(Duration::ZERO)).unwrap();
        assert!(matches!(end(in_vain), Ok(Value::Lost(None))));
        let lost = calls.lost(&lease).unwrap();
        assert!(matches!(calls.release_newest(&lock, &Owner::Fresh).map(|_| ()), Ok(())));
        let mut ended = Vec::new();
        while ended.len() < 2 {
            woken.recv().unwrap();
            ended.extend(calls.drain().unwrap());
        }
        let of_lost = ended.into_iter().find(|(id, _)| *id == lost).unwrap();
        assert!(matches!(of_lost.1, Ok(Value::Lost(None))));
        drop((lease, lock, client));
        // The released events first, then the end of the queue.
        loop {
            let Ok(Value::Events(seen)) = end(calls.events(&events).unwrap()) else { panic!("no events") };
            if seen.is_empty() {
                break;
            }
        }
    }
}
