//! The settings of clients and locks, as plain data. `validation` is the only place that checks them; the rest of the
//! crate relies on the validated [`Settings`].

mod settings;
mod validation;

use std::{fmt, str::FromStr, time::Duration};

pub(crate) use self::{
    settings::Settings,
    validation::{
        MAX_TTL, MIN_TTL, check_duration, check_owner, check_permits, check_slots, check_value,
        min_hold_refused_with_owner, no_meaning_for_semaphore, owner_refused_for_read_write,
    },
};
use crate::{error::LockError, url};

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

impl Wire {
    /// The word that [`FromStr`] reads.
    #[doc(hidden)]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redisson => "redisson",
            Self::Token => "token",
        }
    }
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

/// The default of `watchdog`.
const WATCHDOG: Duration = Duration::from_secs(30);

/// The settings of a client. `Config::new(urls)` has the defaults; change fields as needed. [`Client::new`] checks
/// them.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use std::time::Duration;
///
/// use redlock::{Client, Config};
///
/// let mut config = Config::new(["memory://a", "memory://b", "memory://c"]);
/// config.watchdog = Duration::from_secs(10);
/// config.prefix = "shop:".to_owned();
/// let client = Client::new(config.clone())?;
/// assert_eq!(client.nodes(), ["memory://a", "memory://b", "memory://c"]);
///
/// config.quorum = Some(1);
/// let error = Client::new(config).err().expect("1 of 3 is no majority");
/// assert_eq!(error.code(), "invalid");
/// # Ok(()) }
/// ```
///
/// [`Client::new`]: crate::Client::new
#[derive(Clone)]
#[non_exhaustive]
pub struct Config {
    /// One URL for each node: `redis://`, `unix://`, `redis+cluster://`, `redis+sentinel://` or `memory://`; with TLS
    /// `rediss://`, `rediss+cluster://` or `rediss+sentinel://`. See `docs/deployments.md`.
    pub urls: Vec<String>,
    /// How many nodes must agree: from a majority to all. Default `None`: a majority.
    pub quorum: Option<usize>,
    /// The ttl of the leases that the watchdog renews. From 300 ms to 10 years, and on a quorum at most `max_ttl`.
    /// Default: 30 s. With a shorter `max_ttl` on a quorum, set both: see
    /// [`default_watchdog`](Config::default_watchdog).
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
    /// From 60 s to 10 years, and on a quorum at least the quarantine (`max_ttl` plus drift). Default `None`: an hour,
    /// or the quarantine if that is longer. Not with [`TokenKey::Redisson`].
    ///
    /// A node's clock seeds the next counter. Tokens still increase if that clock is set back by up to this time, and
    /// on a quorum if the nodes' clocks differ by up to this time.
    pub token_ttl: Option<Duration>,
    /// The longest ttl of a lease on a quorum. A restarted node does not vote for this time plus the share `drift`.
    /// From 50 ms to 10 years, and on a quorum from 300 ms, the least `watchdog`. Default: 60 s.
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
    /// The user for nodes whose URL has none. Default: none.
    pub username: Option<String>,
    /// The password for nodes whose URL has none. Default: none.
    pub password: Option<String>,
    /// How many replicas of a node must acknowledge a lock (`WAIT`) before the node's grant counts. From 0 to 1000; not
    /// with `memory://`. Default: 0.
    pub min_replicas: u32,
    /// Whether the client names its connections, so that `CLIENT LIST` shows host, process and program of each. Default:
    /// true.
    pub identify: bool,
    /// The name of the program that other processes see, such as that of the service. From 1 to 64 bytes. Default `None`:
    /// the environment variable `REDLOCK_APP`, else `OTEL_SERVICE_NAME`, else the file name of the program.
    pub app: Option<String>,
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
            .field("identify", &self.identify)
            .field("app", &self.app)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// The defaults, for the nodes with these URLs. Checks nothing.
    pub fn new<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            quorum: None,
            watchdog: WATCHDOG,
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
            identify: true,
            app: None,
            tls: Tls::default(),
        }
    }

    /// The default of `watchdog` for these nodes and this `max_ttl`: 30 s, or on a quorum `max_ttl` if that is shorter.
    /// The packages of other languages and the command line use it unless `watchdog` is given.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use redlock::Config;
    ///
    /// let mut config = Config::new(["redis://a", "redis://b", "redis://c"]);
    /// config.max_ttl = Duration::from_secs(20);
    /// config.watchdog = config.default_watchdog();
    /// assert_eq!(config.watchdog, Duration::from_secs(20));
    /// ```
    pub fn default_watchdog(&self) -> Duration {
        if self.urls.len() > 1 { WATCHDOG.min(self.max_ttl) } else { WATCHDOG }
    }

    /// The defaults, for the nodes in a comma-separated list of URLs, as in `REDLOCK_URL`. The URL of a cluster or of
    /// Sentinels may itself list several addresses, separated by commas. Checks nothing.
    ///
    /// ```
    /// use redlock::Config;
    ///
    /// assert_eq!(Config::from_list("redis://a, redis://b").urls, ["redis://a", "redis://b"]);
    /// assert_eq!(Config::from_list("redis+cluster://a:7000,b:7000").urls, ["redis+cluster://a:7000,b:7000"]);
    /// ```
    pub fn from_list(urls: &str) -> Self {
        let mut nodes: Vec<String> = Vec::new();
        for part in urls.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match nodes.last_mut() {
                Some(last) if !part.contains("://") && url::may_list_addresses(last) => {
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
        let urls = std::env::var_os("REDLOCK_URL").filter(|urls| !urls.is_empty());
        // One that is not Unicode is tried as it can be read. It must not lead to the default.
        Self::from_list(&urls.map_or("redis://127.0.0.1:6379".into(), |urls| urls.to_string_lossy().into_owned()))
    }
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

/// A time in ms, rounded up: what has begun counts.
pub(crate) fn millis_up(time: Duration) -> u64 {
    time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u64::MAX)
}

/// The options of a lock, which its acquires use. [`Client::lock`](crate::Client::lock) checks them.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use std::time::Duration;
///
/// use redlock::{Client, Config, LockOptions, Ttl};
///
/// let client = Client::new(Config::new(["memory://lock_options"]))?;
/// let mut options = LockOptions::default();
/// options.ttl = Ttl::Fixed(Duration::from_secs(600));
/// options.wait = Some(Duration::from_secs(5));
/// options.owner = Some("user-42".to_owned());
/// let lease = client.lock("seat-7", options)?.acquire_blocking()?;
/// assert_eq!(lease.owner(), "user-42");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockOptions {
    /// The ttl of a lease, and whether the watchdog renews it. Default: [`Ttl::Watchdog`].
    pub ttl: Ttl,
    /// How long an acquire waits for the lock: zero for one try, 10 years at most. Default `None`: without limit.
    pub wait: Option<Duration>,
    /// An explicit owner, which is the same owner in every process. 1 to 256 bytes; not for read/write locks and
    /// semaphores. Default `None`: the owner that the caller passes, such as a thread or a task.
    pub owner: Option<String>,
    /// The longest time for which the watchdog keeps the lock. From 50 ms to 10 years; not with a fixed ttl. Default
    /// `None`: without limit.
    pub max_hold: Option<Duration>,
    /// For how long the lock stays taken at least, counted from the grant, however early it is released. After a release
    /// nobody holds it, and everybody waits for the rest of that time, the caller too. For jobs that run once a tick in
    /// a fleet whose clocks differ. From 50 ms to 10 years, and on a quorum at most `max_ttl`; not above `max_hold` or a
    /// fixed ttl, not with an explicit owner, and not for semaphores. Of a read/write lock only writers have it. Default
    /// `None`: a release frees the lock.
    pub min_hold: Option<Duration>,
    /// Whether the owner may acquire the lock again while it holds it. Default: true.
    pub reentrant: bool,
    /// Whether waiters get the lock in the order in which they asked. A server keeps their queue and hands the lock
    /// from one to the next. Needs one server, cluster or Sentinel service. Use the same setting everywhere the name is
    /// used: an acquire without it overtakes the queue. Default: false.
    pub fair: bool,
    /// The text that stands in the key while the lock is held, instead of a generated one. Each acquire is then an
    /// owner of its own. Like `SET NX`, it is granted only while the key does not exist, even if the key has this same
    /// value. The value must be new for each acquire: after a lost reply, a late clean-up deletes the key by its
    /// value, and would delete a newer lock with the same value. Only with [`Wire::Token`]; for drop-in shims.
    #[doc(hidden)]
    pub value: Option<String>,
}

impl LockOptions {
    /// Whether no acquire nests: with a chosen value or without a ttl, each acquire is an owner of its own.
    pub(crate) fn never_nests(&self) -> bool {
        self.value.is_some() || self.ttl == Ttl::Never
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self {
            ttl: Ttl::Watchdog,
            wait: None,
            owner: None,
            max_hold: None,
            min_hold: None,
            reentrant: true,
            fair: false,
            value: None,
        }
    }
}
