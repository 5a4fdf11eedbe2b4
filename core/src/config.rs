//! The settings of clients and locks, as plain data, and the only place that validates them. The rest of the crate
//! relies on validated settings; a client sends nothing before the validation.

use std::{collections::HashSet, fmt, str::FromStr, time::Duration};

use crate::{
    error::LockError,
    url::{self, Endpoint, Transport},
};

/// How a lock is written on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Wire {
    /// A hash, as Redisson's `RLock` writes it. It and the locks of Java processes that use Redisson exclude each
    /// other.
    #[default]
    Redisson,
    /// A string, as `SET name value NX PX ttl` writes it. It and the locks of redis-py, node-redlock, redsync and
    /// similar libraries exclude each other.
    Token,
}

/// The key of a lock's token counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenKey {
    /// `redlock_token:{name}`, kept for `token_ttl` after its last use.
    #[default]
    Redlock,
    /// `redisson_lock_token:{name}`, shared with Redisson's `RFencedLock` and kept for ever.
    Redisson,
}

impl FromStr for Wire {
    type Err = LockError;

    fn from_str(word: &str) -> Result<Self, LockError> {
        match word {
            "redisson" => Ok(Self::Redisson),
            "token" => Ok(Self::Token),
            other => Err(LockError::invalid("wire", format!("must be \"redisson\" or \"token\", not {other:?}"))),
        }
    }
}

impl FromStr for TokenKey {
    type Err = LockError;

    fn from_str(word: &str) -> Result<Self, LockError> {
        match word {
            "redlock" => Ok(Self::Redlock),
            "redisson" => Ok(Self::Redisson),
            other => {
                Err(LockError::invalid("token_key", format!("must be \"redlock\" or \"redisson\", not {other:?}")))
            }
        }
    }
}

/// The settings of a client. `Config::new(urls)` has the defaults; change fields as needed.
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// One URL for each node: `redis://`, `unix://`, `redis+cluster://`, `redis+sentinel://` or `memory://`; with TLS
    /// `rediss://`, `rediss+cluster://` or `rediss+sentinel://`. See `docs/deployments.md`.
    pub urls: Vec<String>,
    /// How many nodes must agree: from a majority to all. Default `None`: a majority.
    pub quorum: Option<usize>,
    /// The ttl of the leases that the watchdog renews. From 300 ms to 10 years, and on a quorum at most `max_ttl`.
    /// Default: 30 s.
    pub watchdog: Duration,
    /// The text before every lock name. Prefix and name together have at most 1024 bytes. Default: empty.
    pub prefix: String,
    /// How an exclusive lock is written. Default: [`Wire::Redisson`].
    pub wire: Wire,
    /// How much faster a server's clock may run than this process's, as a share. A lease counts as over earlier by that
    /// share of its ttl. From 0.01 to below 0.5. Default: 0.1.
    pub drift: f64,
    /// The key of the token counters. Default: [`TokenKey::Redlock`].
    pub token_key: TokenKey,
    /// How long a token counter is kept after its last use; a held lock keeps its counter for as long as it is held.
    /// From 60 s to 10 years, and on a quorum at least as long as a restarted node does not vote. Default `None`: an
    /// hour, or that minimum if it is longer. Not with [`TokenKey::Redisson`].
    ///
    /// A node's clock seeds the next counter. Tokens still increase if that clock is set back by up to this time, and
    /// on a quorum if the nodes' clocks differ by up to this time.
    pub token_ttl: Option<Duration>,
    /// The longest ttl of a lease on a quorum. A restarted node does not vote for this time plus the share `drift`.
    /// From 50 ms to 10 years. Default: 60 s.
    pub max_ttl: Duration,
    /// For how long a waiting acquire tries again while fewer nodes than the quorum answer. Then it fails with
    /// [`LockError::Unavailable`]. A try fails at once. From 1 ms to 10 years. Default: 5 s.
    pub patience: Duration,
    /// The time limit for opening a connection. From 1 ms to 10 years. Default: 2 s.
    pub connect_timeout: Duration,
    /// The time limit for a node's reply. From 1 ms to 10 years. Default: 2 s.
    pub reply_timeout: Duration,
    /// Whether a new deployment of a quorum needs `init_nodes()`. If false, the first acquire writes the markers when
    /// no node has one; if true, it fails. Default: false.
    pub strict: bool,
    /// Whether a node of a quorum that lost its keys does not vote until no earlier lease can still be held. Default:
    /// true. Only tests turn it off.
    pub quarantine: bool,
    /// User for nodes whose URL has none.
    pub username: Option<String>,
    /// Password for nodes whose URL has none.
    pub password: Option<String>,
    /// How many replicas of a node must acknowledge a lock (`WAIT`) before the node's grant counts. From 0 to 1000; not
    /// with `memory://`. Default: 0.
    pub min_replicas: u32,
    /// Certificates and keys for nodes with TLS.
    pub tls: Tls,
}

/// Certificates and keys for nodes with TLS. Each is PEM text, or the path of a PEM file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// CA certificates to trust instead of the system's. Default: the system's.
    pub ca: Option<String>,
    /// The client's certificate; needs `key`. Default: none.
    pub cert: Option<String>,
    /// The client's private key; needs `cert`. Default: none.
    pub key: Option<String>,
}

impl fmt::Debug for Config {
    /// Leaves out credentials, and every part of a URL that may contain them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let urls: Vec<_> = self.urls.iter().map(|url| url::without_credentials(url)).collect();
        f.debug_struct("Config")
            .field("urls", &urls)
            .field("quorum", &self.quorum)
            .field("watchdog", &self.watchdog)
            .field("prefix", &self.prefix)
            .field("wire", &self.wire)
            .field("drift", &self.drift)
            .field("token_key", &self.token_key)
            .field("token_ttl", &self.token_ttl)
            .field("max_ttl", &self.max_ttl)
            .field("patience", &self.patience)
            .field("connect_timeout", &self.connect_timeout)
            .field("reply_timeout", &self.reply_timeout)
            .field("strict", &self.strict)
            .field("quarantine", &self.quarantine)
            .field("min_replicas", &self.min_replicas)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The defaults, for the nodes with these URLs.
    pub fn new<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            quorum: None,
            watchdog: Duration::from_secs(30),
            prefix: String::new(),
            wire: Wire::default(),
            drift: 0.1,
            token_key: TokenKey::default(),
            token_ttl: None,
            max_ttl: Duration::from_secs(60),
            patience: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            reply_timeout: Duration::from_secs(2),
            strict: false,
            quarantine: true,
            username: None,
            password: None,
            min_replicas: 0,
            tls: Tls::default(),
        }
    }

    /// The defaults, for the nodes in a comma-separated list of URLs, as in `REDLOCK_URL`. The URL of a cluster or of
    /// Sentinels may itself list several addresses, separated by commas.
    pub fn from_list(urls: &str) -> Self {
        let mut nodes: Vec<String> = Vec::new();
        for part in urls.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match nodes.last_mut() {
                Some(last) if !part.contains("://") && url::lists_several(last) => {
                    *last = format!("{last},{part}");
                }
                _ => nodes.push(part.to_owned()),
            }
        }
        Self::new(nodes)
    }

    /// The defaults, for the nodes in the environment variable `REDLOCK_URL`. If that is unset or empty, the node is
    /// `redis://127.0.0.1:6379`.
    pub fn from_env() -> Self {
        let urls = std::env::var("REDLOCK_URL").ok().filter(|urls| !urls.is_empty());
        Self::from_list(urls.as_deref().unwrap_or("redis://127.0.0.1:6379"))
    }

    /// Checks every field and parses the URLs.
    pub(crate) fn validate(self) -> Result<Settings, LockError> {
        let count = self.urls.len();
        if count == 0 {
            return Err(LockError::invalid("urls", "at least one node is needed"));
        }
        let endpoints = self
            .urls
            .iter()
            .map(|url| Endpoint::parse(url, self.username.as_deref(), self.password.as_deref()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = endpoints.iter().find(|e| !seen.insert(&e.transport)) {
            return Err(LockError::invalid("urls", format!("{} is listed twice", twice.transport)));
        }
        let majority = count / 2 + 1;
        let majority = if mutant!(HalfQuorum) { (count / 2).max(1) } else { majority };
        let quorum = self.quorum.unwrap_or(majority);
        if !(majority..=count).contains(&quorum) {
            let detail = format!("must be from {majority} (a majority of {count}) to {count}, not {quorum}");
            return Err(LockError::invalid("quorum", detail));
        }
        if !(0.01..0.5).contains(&self.drift) {
            return Err(LockError::invalid("drift", format!("must be from 0.01 to below 0.5, not {}", self.drift)));
        }
        for (argument, timeout) in [
            ("connect_timeout", self.connect_timeout),
            ("reply_timeout", self.reply_timeout),
            ("patience", self.patience),
        ] {
            if timeout < Duration::from_millis(1) || timeout > MAX_TTL {
                return Err(LockError::invalid(argument, format!("must be from 1 ms to 10 years, not {timeout:?}")));
            }
        }
        if self.min_replicas > MOST_REPLICAS {
            let detail = format!("must be from 0 to {MOST_REPLICAS}, not {}", self.min_replicas);
            return Err(LockError::invalid("min_replicas", detail));
        }
        if self.min_replicas > 0
            && let Some(memory) = endpoints.iter().find(|e| matches!(e.transport, Transport::Memory { .. }))
        {
            return Err(LockError::invalid("min_replicas", format!("{} has no replicas", memory.transport)));
        }
        if self.tls.cert.is_some() != self.tls.key.is_some() {
            return Err(LockError::invalid("cert", "a client certificate needs its key, and a key its certificate"));
        }
        check_duration("max_ttl", self.max_ttl, MIN_TTL)?;
        check_duration("watchdog", self.watchdog, MIN_WATCHDOG)?;
        let settings = Settings { endpoints, quorum, majority_of: count, config: self };
        settings.check_quorum_ttl("watchdog", settings.config.watchdog)?;
        if let Some(ttl) = settings.config.token_ttl {
            settings.check_token_ttl(ttl)?;
        }
        Ok(settings)
    }
}

pub(crate) const MIN_TTL: Duration = Duration::from_millis(50);
const MIN_WATCHDOG: Duration = Duration::from_millis(300);
/// The shortest `token_ttl`: in each half of it, every held lock sends a request to prolong its counter.
const MIN_TOKEN_TTL: Duration = Duration::from_secs(60);
/// The default `token_ttl`.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// The longest lease, and the upper limit of every duration that a caller gives.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The largest `min_replicas`: more replicas than a server has.
const MOST_REPLICAS: u32 = 1000;
/// The most permits of a semaphore.
const MOST_PERMITS: u32 = 65_536;
/// Subtracted from a lease's validity in addition to the drift: the resolution of Redis' own clock, with room.
const RESOLUTION: Duration = Duration::from_millis(2);

pub(crate) fn check_duration(argument: &'static str, value: Duration, least: Duration) -> Result<(), LockError> {
    if value < least || value > MAX_TTL {
        return Err(LockError::invalid(argument, format!("must be from {least:?} to 10 years, not {value:?}")));
    }
    Ok(())
}

/// How long a token counter must live for a lease of `ttl`: as long as the lease, but zero for a lease without end.
/// Otherwise such a lease would keep its counter for ever, long after its release.
fn ending(ttl: Duration) -> Duration {
    if ttl == NEVER { Duration::ZERO } else { ttl }
}

/// Checks the name of an explicit owner.
pub(crate) fn check_owner(name: &str) -> Result<(), LockError> {
    if !(1..=256).contains(&name.len()) {
        return Err(LockError::invalid("owner", format!("must have 1 to 256 bytes, not {}", name.len())));
    }
    Ok(())
}

/// The error for an explicit owner of a read/write lock.
pub(crate) fn check_unnamed() -> Result<(), LockError> {
    let detail = "has no meaning for a read/write lock: its owners are those of one client";
    Err(LockError::invalid("owner", detail))
}

/// The error for an explicit owner of a semaphore's permit.
pub(crate) fn check_unowned() -> Result<(), LockError> {
    Err(LockError::invalid("owner", "has no meaning for a semaphore: each acquire is a permit of its own"))
}

/// Checks the number of slots that an acquire wants. `of`: the number of permits of the semaphore.
pub(crate) fn check_slots(n: u32, of: u32) -> Result<(), LockError> {
    if !(1..=of).contains(&n) {
        return Err(LockError::invalid("n", format!("must be from 1 to {of}, the number of permits, not {n}")));
    }
    Ok(())
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) quorum: usize,
    majority_of: usize,
}

impl Settings {
    /// How long a lease of `ttl` counts as held, from the moment its request was sent.
    pub(crate) fn validity(&self, ttl: Duration) -> Duration {
        if mutant!(NoMargin) {
            return ttl;
        }
        ttl.mul_f64(1.0 - self.config.drift).saturating_sub(RESOLUTION)
    }

    /// How long a node that lost its keys does not vote.
    pub(crate) fn quarantine(&self) -> Duration {
        self.config.max_ttl.mul_f64(1.0 + self.config.drift)
    }

    /// How long a counter is kept after its last use; `None` for ever.
    pub(crate) fn token_ttl(&self) -> Option<Duration> {
        match self.config.token_key {
            TokenKey::Redlock => Some(self.config.token_ttl.unwrap_or(TOKEN_TTL.max(self.least_token_ttl()))),
            TokenKey::Redisson => None,
        }
    }

    /// How long a counter is kept after an acquire with a lease of `ttl` wrote it; `None` for ever.
    pub(crate) fn counter_ttl(&self, ttl: Duration) -> Option<Duration> {
        self.token_ttl().map(|kept| kept.max(ending(ttl)))
    }

    /// How long a counter is kept after it was prolonged for a lease of `ttl`; `None` for ever. Half of it is at least
    /// the lease: a counter is prolonged when less than half is left, and so outlives every lease.
    pub(crate) fn prolonged_counter_ttl(&self, ttl: Duration) -> Option<Duration> {
        self.token_ttl().map(|kept| kept.max(ending(ttl) * 2))
    }

    /// The shortest `token_ttl` of this deployment. A node that lost its counters starts from its clock when it votes
    /// again; until then no counter that other nodes still have may expire.
    fn least_token_ttl(&self) -> Duration {
        if self.majority_of > 1 { self.quarantine().max(MIN_TOKEN_TTL) } else { MIN_TOKEN_TTL }
    }

    fn check_token_ttl(&self, ttl: Duration) -> Result<(), LockError> {
        if self.config.token_key == TokenKey::Redisson {
            return Err(LockError::invalid(
                "token_ttl",
                "has no effect on Redisson's counters, which are kept for ever",
            ));
        }
        check_duration("token_ttl", ttl, self.least_token_ttl())
    }

    /// Whether nodes have markers: only if several nodes vote.
    pub(crate) fn guarded(&self) -> bool {
        self.majority_of > 1 && self.config.quarantine
    }

    /// Whether any node is a cluster.
    pub(crate) fn on_cluster(&self) -> bool {
        self.endpoints.iter().any(|endpoint| matches!(endpoint.transport, Transport::Cluster { .. }))
    }

    /// How long to wait for a reply that is of no use once `left` is over.
    pub(crate) fn reply_within(&self, left: Duration) -> Duration {
        self.config.reply_timeout.min(left).max(Duration::from_millis(1))
    }

    /// How long to wait for a reply to a request about a lease of `ttl`.
    pub(crate) fn reply_timeout(&self, ttl: Duration) -> Duration {
        self.reply_within(self.validity(ttl))
    }

    pub(crate) fn check_quorum_ttl(&self, argument: &'static str, ttl: Duration) -> Result<(), LockError> {
        // Only drop-in shims use a ttl above `MAX_TTL`, and such a lease outlives every server anyway.
        if self.majority_of > 1 && ttl.min(MAX_TTL) > self.config.max_ttl {
            let detail = format!(
                "{ttl:?} is more than the client's max_ttl of {:?}, which bounds every ttl on a quorum",
                self.config.max_ttl
            );
            return Err(LockError::invalid(argument, detail));
        }
        Ok(())
    }

    /// Checks a fixed ttl. A drop-in shim may use every ttl that its library allows.
    fn check_fixed(&self, ttl: Duration, options: &LockOptions) -> Result<(), LockError> {
        if options.value.is_none() {
            return self.check_ttl("ttl", ttl);
        }
        if ttl < Duration::from_millis(1) || ttl >= NEVER {
            return Err(LockError::invalid("ttl", format!("must be from 1 ms to below 2^53 ms, not {ttl:?}")));
        }
        self.check_quorum_ttl("ttl", ttl)
    }

    /// Checks a ttl that a caller gave.
    pub(crate) fn check_ttl(&self, argument: &'static str, ttl: Duration) -> Result<(), LockError> {
        check_duration(argument, ttl, MIN_TTL)?;
        self.check_quorum_ttl(argument, ttl)
    }

    /// Checks a lock's name and options; returns its key.
    pub(crate) fn check_lock(&self, name: &str, options: &LockOptions) -> Result<String, LockError> {
        let key = format!("{}{name}", self.config.prefix);
        if name.is_empty() || key.len() > 1024 {
            let detail = format!("must have 1 to 1024 bytes together with the prefix, not {}", key.len());
            return Err(LockError::invalid("name", detail));
        }
        if key.contains('\0') {
            return Err(LockError::invalid("name", "must not contain NUL"));
        }
        if self.on_cluster() && !shares_a_slot(&key) {
            let detail = "on a cluster, braces must be those of one {tag} that is not empty";
            return Err(LockError::invalid("name", detail));
        }
        self.check_shim(options)?;
        if options.fair && self.majority_of > 1 {
            let detail = "needs one server, cluster or Sentinel service: the queues of several would be in different orders, \
                          and those first in them would block each other";
            return Err(LockError::invalid("fair", detail));
        }
        if options.fair && options.is_alone() {
            return Err(LockError::invalid("fair", "needs a ttl, and no value of one's own"));
        }
        if let Ttl::Fixed(ttl) = options.ttl {
            self.check_fixed(ttl, options)?;
        }
        if let Some(owner) = &options.owner {
            check_owner(owner)?;
        }
        if let Some(wait) = options.wait
            && wait > MAX_TTL
        {
            return Err(LockError::invalid("wait", format!("must be at most 10 years, not {wait:?}")));
        }
        if let Some(max_hold) = options.max_hold {
            check_duration("max_hold", max_hold, MIN_TTL)?;
            if options.ttl.is_fixed() {
                let detail = "bounds how long the watchdog keeps a lock; a fixed ttl is its own bound";
                return Err(LockError::invalid("max_hold", detail));
            }
        }
        Ok(key)
    }

    /// Checks the name and the options of a read/write lock; returns its key.
    pub(crate) fn check_read_write(&self, name: &str, options: &LockOptions) -> Result<String, LockError> {
        if options.fair {
            return Err(LockError::invalid("fair", "is not for read/write locks: they have an order of their own"));
        }
        let key = self.check_lock(name, options)?;
        if options.owner.is_some() {
            check_unnamed()?;
        }
        if options.is_alone() {
            return Err(LockError::invalid("ttl", "is needed for a read/write lock, and no value of one's own"));
        }
        Ok(key)
    }

    /// Checks the name and the options of a semaphore; returns its key.
    pub(crate) fn check_semaphore(&self, name: &str, permits: u32, options: &LockOptions) -> Result<String, LockError> {
        if !(1..=MOST_PERMITS).contains(&permits) {
            return Err(LockError::invalid("permits", format!("must be from 1 to {MOST_PERMITS}, not {permits}")));
        }
        if options.fair {
            return Err(LockError::invalid("fair", "is not for semaphores: they always go to whoever asked first"));
        }
        let key = self.check_lock(name, options)?;
        if self.majority_of > 1 {
            let detail = "of a semaphore needs one server, cluster or Sentinel service";
            return Err(LockError::invalid("nodes", detail));
        }
        if options.owner.is_some() {
            check_unowned()?;
        }
        if options.is_alone() {
            return Err(LockError::invalid("ttl", "is needed for a semaphore, and no value of one's own"));
        }
        Ok(key)
    }

    /// Checks the options that exist only for drop-in shims.
    fn check_shim(&self, options: &LockOptions) -> Result<(), LockError> {
        if !options.is_alone() {
            return Ok(());
        }
        let argument = if options.value.is_some() { "value" } else { "ttl" };
        if self.config.wire != Wire::Token {
            return Err(LockError::invalid(argument, "a value of one's own and no ttl need wire=\"token\""));
        }
        if options.owner.is_some() {
            return Err(LockError::invalid("owner", "cannot be given with a value of one's own, nor without a ttl"));
        }
        if options.ttl == Ttl::Never && self.majority_of > 1 {
            return Err(LockError::invalid(
                "ttl",
                "is needed on a quorum, where the client's max_ttl bounds every ttl",
            ));
        }
        options.value.as_deref().map_or(Ok(()), check_value)
    }
}

/// Checks the text that a caller chose as the value of a key.
pub(crate) fn check_value(value: &str) -> Result<(), LockError> {
    if !(1..=65_536).contains(&value.len()) {
        return Err(LockError::invalid("value", format!("must have 1 to 65536 bytes, not {}", value.len())));
    }
    Ok(())
}

/// The ttl of a lease, and whether the watchdog renews it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ttl {
    /// A ttl of [`Config::watchdog`], which the watchdog renews until the lock is released, lost or an orphan.
    #[default]
    Watchdog,
    /// A fixed ttl, which the watchdog does not renew. From 50 ms to 10 years, and on a quorum at most `max_ttl`.
    Fixed(Duration),
    /// A renewed ttl of four times the average time for which this lock is held. From 2 s to [`Config::watchdog`],
    /// which is also the ttl while no average is known.
    Adaptive,
    /// No ttl, as in some other libraries. The lock is held until it is released, even if its holder dies. Only the
    /// next `extend` or `release` detects a loss. Each acquire is an owner of its own. Only on one node, with
    /// [`Wire::Token`]; for drop-in shims.
    #[doc(hidden)]
    Never,
}

/// The largest integer of a fencing token or a time: a double represents every integer up to it, and scripts count in
/// doubles.
pub(crate) const LARGEST_EXACT: i64 = 1 << 53;

/// The ttl that stands for a lease without end: longer than every fixed ttl of a shim, and small enough for arithmetic.
pub(crate) const NEVER: Duration = Duration::from_millis(LARGEST_EXACT.unsigned_abs());

impl Ttl {
    /// Whether the watchdog does not renew it.
    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed(_) | Self::Never)
    }
}

/// A ttl as an argument of a script: in ms, -1 for a lease without end.
pub(crate) fn wire_ttl(ttl: Duration) -> String {
    if ttl == NEVER { "-1".to_owned() } else { ttl.as_millis().to_string() }
}

/// The options of a lock, which its acquires use.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockOptions {
    /// The ttl of a lease, and whether the watchdog renews it. Default: [`Ttl::Watchdog`].
    pub ttl: Ttl,
    /// How long an acquire waits for the lock: `None` for ever, zero for one try, 10 years at most. Default: `None`.
    pub wait: Option<Duration>,
    /// An explicit owner, which is the same owner in every process. 1 to 256 bytes; not for read/write locks and
    /// semaphores. Default `None`: the owner that the caller passes, such as a thread or a task.
    pub owner: Option<String>,
    /// The longest time for which the watchdog keeps the lock. From 50 ms to 10 years; not with a fixed ttl. Default
    /// `None`: no limit.
    pub max_hold: Option<Duration>,
    /// Whether the owner may acquire the lock again while it holds it. Default: true.
    pub reentrant: bool,
    /// Whether waiters get the lock in the order in which they asked. A server keeps their queue and hands the lock
    /// from one to the next. Needs one server, cluster or Sentinel service. Use the same setting everywhere the name is
    /// used: an acquire without it overtakes the queue. Default: false.
    pub fair: bool,
    /// The text that stands in the key while the lock is held, instead of a generated one. Each acquire is then an
    /// owner of its own. Like `SET NX`, it is granted only while the key does not exist, even if the key has this same
    /// value. The value must be new for each acquire: a request whose reply was lost is undone by its value, perhaps
    /// later. Only with [`Wire::Token`]; for drop-in shims.
    #[doc(hidden)]
    pub value: Option<String>,
}

impl LockOptions {
    /// Whether each acquire is an owner of its own, in which no other acquire can nest.
    pub(crate) fn is_alone(&self) -> bool {
        self.value.is_some() || self.ttl == Ttl::Never
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self { ttl: Ttl::Watchdog, wait: None, owner: None, max_hold: None, reentrant: true, fair: false, value: None }
    }
}

/// Whether all keys that derive from this lock key share its hash tag: braces are added only to a key that has none.
fn shares_a_slot(key: &str) -> bool {
    match (key.split_once('{'), key.contains('}')) {
        (None, closed) => !closed,
        (Some((before, rest)), _) => {
            !before.contains('}')
                && !rest.contains('{')
                && rest.split_once('}').is_some_and(|(tag, after)| !tag.is_empty() && !after.contains('}'))
        }
    }
}
