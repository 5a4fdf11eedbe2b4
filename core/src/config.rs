//! Settings: plain data, and the one place that validates it. What passes here is what the rest of the crate relies
//! on; nothing is sent before it passed.

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
    /// A hash, as Redisson's `RLock` writes it: excludes Java processes that use Redisson.
    #[default]
    Redisson,
    /// A string, as `SET name value NX PX ttl` writes it: excludes redis-py, node-redlock, redsync and their like.
    Token,
}

/// Where fencing tokens are counted.
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
    /// How many nodes must agree, from a majority to all. Default: a majority.
    pub quorum: Option<usize>,
    /// The lease that the watchdog keeps alive, at least 300 ms. Default: 30 s.
    pub watchdog: Duration,
    /// Put before every lock name. Default: nothing.
    pub prefix: String,
    /// How a lock is written. Default: Redisson's format.
    pub wire: Wire,
    /// How much faster a server's clock may run than this one's, as a share; a lease counts as over that much
    /// earlier. From 0.01 to below 0.5, default 0.1.
    pub drift: f64,
    /// Where fencing tokens are counted.
    pub token_key: TokenKey,
    /// How long a fencing token's counter is kept after its last use; it is kept for as long as the lock is held, too. A
    /// node's clock seeds the next counter, so this is how far that clock may be set back, and on a quorum how far the
    /// nodes' clocks may differ, and tokens still increase. At least 60 s, and on a quorum as long as a restarted node does
    /// not vote. Default: an hour, or that if it is longer. Not with [`TokenKey::Redisson`].
    pub token_ttl: Option<Duration>,
    /// The longest ttl used on a quorum, and so how long a restarted node does not vote. Default: 60 s.
    pub max_ttl: Duration,
    /// How long fewer than a quorum may answer before a waiting acquire gives up as unavailable. Default: 5 s.
    pub patience: Duration,
    /// How long a connection may take. Default: 2 s.
    pub connect_timeout: Duration,
    /// How long a reply may take. Default: 2 s.
    pub reply_timeout: Duration,
    /// Refuse nodes without a marker until `init_nodes()` vouched for them, even when none has one. Default: false.
    pub strict: bool,
    /// Keep restarted nodes of a quorum from voting until no lease from before can be alive. Only tests turn it off.
    pub quarantine: bool,
    /// User for nodes whose URL names none.
    pub username: Option<String>,
    /// Password for nodes whose URL has none.
    pub password: Option<String>,
    /// How many replicas of a node must have acknowledged a lock before it counts as taken there (`WAIT`). Default: 0.
    pub min_replicas: u32,
    /// TLS material for `rediss://`.
    pub tls: Tls,
}

/// PEM files for `rediss://`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// Certificates to trust instead of the system's.
    pub ca: Option<String>,
    /// This client's certificate.
    pub cert: Option<String>,
    /// This client's private key.
    pub key: Option<String>,
}

impl fmt::Debug for Config {
    /// Without credentials, and without what a URL may hide them in.
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
    /// The defaults, for these nodes.
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

    /// The nodes of a comma-separated list of URLs, as `REDLOCK_URL` has it. A URL may list several addresses itself.
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

    /// The nodes of the environment variable `REDLOCK_URL`, or else `redis://127.0.0.1:6379`.
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
/// Each half of it costs a request for every lock that is held.
const MIN_TOKEN_TTL: Duration = Duration::from_secs(60);
/// How long a counter is kept by default.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// The longest lease, and the longest of all times a caller gives.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 86_400);
/// More than a server has.
const MOST_REPLICAS: u32 = 1000;
/// The most permits of a semaphore.
const MOST_PERMITS: u32 = 65_536;
/// What validity loses besides the drift share: the resolution of Redis' own clock, with room.
const RESOLUTION: Duration = Duration::from_millis(2);

pub(crate) fn check_duration(argument: &'static str, value: Duration, least: Duration) -> Result<(), LockError> {
    if value < least || value > MAX_TTL {
        return Err(LockError::invalid(argument, format!("must be from {least:?} to 10 years, not {value:?}")));
    }
    Ok(())
}

/// A lease, as far as its counter must outlive it. One without end would keep its counter for ever, too, long after its
/// release.
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

/// Refuses the name of an owner of a read/write lock.
pub(crate) fn check_unnamed() -> Result<(), LockError> {
    let detail = "has no meaning for a read/write lock: its owners are those of one client";
    Err(LockError::invalid("owner", detail))
}

/// Refuses the name of an owner of a semaphore's permit.
pub(crate) fn check_unowned() -> Result<(), LockError> {
    Err(LockError::invalid("owner", "has no meaning for a semaphore: each acquire is a permit of its own"))
}

/// Checks how many slots of so many are wanted.
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

    /// How long a counter is kept that an acquire with a lease of `ttl` writes; `None` for ever.
    pub(crate) fn counter_ttl(&self, ttl: Duration) -> Option<Duration> {
        self.token_ttl().map(|kept| kept.max(ending(ttl)))
    }

    /// How long a counter is kept that is prolonged for a lease of `ttl`; `None` for ever. Half of it is never less than the
    /// lease, so that a counter which is prolonged whenever less than half of it is left outlives every lease.
    pub(crate) fn prolonged_counter_ttl(&self, ttl: Duration) -> Option<Duration> {
        self.token_ttl().map(|kept| kept.max(ending(ttl) * 2))
    }

    /// A node that lost its counters starts from its clock once it votes again: no counter that others still have may have
    /// ended by then.
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

    /// Whether nodes carry markers: only where several vote.
    pub(crate) fn guarded(&self) -> bool {
        self.majority_of > 1 && self.config.quarantine
    }

    /// Whether a node is a cluster.
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
        // Only shims have longer ones than the longest `max_ttl`, and those outlive every server anyway.
        if self.majority_of > 1 && ttl.min(MAX_TTL) > self.config.max_ttl {
            let detail = format!(
                "{ttl:?} is more than the client's max_ttl of {:?}, which bounds every ttl on a quorum",
                self.config.max_ttl
            );
            return Err(LockError::invalid(argument, detail));
        }
        Ok(())
    }

    /// Checks a fixed lease. One of a drop-in shim is as short or long as its library allows.
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

    /// Checks what exists for drop-in shims alone.
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

/// Checks the text that is to stand in a key.
pub(crate) fn check_value(value: &str) -> Result<(), LockError> {
    if !(1..=65_536).contains(&value.len()) {
        return Err(LockError::invalid("value", format!("must have 1 to 65536 bytes, not {}", value.len())));
    }
    Ok(())
}

/// How long a lease lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ttl {
    /// The client's watchdog lease, renewed until release or death.
    #[default]
    Watchdog,
    /// A fixed time, never renewed. From 50 ms to 10 years; on a quorum to `max_ttl`.
    Fixed(Duration),
    /// A renewed lease whose length follows how long this lock is usually held: four times the average hold, from
    /// 2 s to the watchdog's lease.
    Adaptive,
    /// No ttl at all, as some peers lock: held until it is released, whatever becomes of its holder, and a loss is seen
    /// by the next `extend` or `release` alone. Each acquire is an owner of its own. Only on one node, with
    /// [`Wire::Token`]; made for drop-in shims.
    #[doc(hidden)]
    Never,
}

/// The largest number that a double tells from the next one: scripts count in doubles.
pub(crate) const LARGEST_EXACT: i64 = 1 << 53;

/// The length of a lease that never ends: more than the fixed ones that shims take, and little enough to count with.
pub(crate) const NEVER: Duration = Duration::from_millis(LARGEST_EXACT.unsigned_abs());

impl Ttl {
    /// Whether the watchdog leaves it alone.
    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Self::Fixed(_) | Self::Never)
    }
}

/// A lease as the scripts know it.
pub(crate) fn wire_ttl(ttl: Duration) -> String {
    if ttl == NEVER { "-1".to_owned() } else { ttl.as_millis().to_string() }
}

/// How a lock is taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockOptions {
    /// The lease. Default: the watchdog's.
    pub ttl: Ttl,
    /// How long to wait for the lock; `None` for ever, zero for one try. Default: for ever.
    pub wait: Option<Duration>,
    /// An owner across processes; `None` for the host's own idea of one. 1 to 256 bytes.
    pub owner: Option<String>,
    /// How long the watchdog keeps the lock at most. Default: for ever.
    pub max_hold: Option<Duration>,
    /// Whether its owner may take it again while it holds it. Default: true.
    pub reentrant: bool,
    /// Whether those that want it get it in the order in which they asked: a server keeps their queue, and hands the lock
    /// from one to the next. Needs one server, cluster or Sentinel service, and the same setting everywhere the name is
    /// used: who takes it otherwise goes ahead of the queue. Default: false.
    pub fair: bool,
    /// The text that stands in the key while it is held, instead of one that is drawn. Each acquire is then an owner of
    /// its own and is granted only while there is no key, not even with this value: as `SET NX`. It must be new for
    /// each acquire, since a request whose reply was lost is undone by its value, perhaps later. Only with
    /// [`Wire::Token`]; made for drop-in shims.
    #[doc(hidden)]
    pub value: Option<String>,
}

impl LockOptions {
    /// Whether each acquire is an owner of its own that nobody joins.
    pub(crate) fn is_alone(&self) -> bool {
        self.value.is_some() || self.ttl == Ttl::Never
    }
}

impl Default for LockOptions {
    fn default() -> Self {
        Self { ttl: Ttl::Watchdog, wait: None, owner: None, max_hold: None, reentrant: true, fair: false, value: None }
    }
}

/// Whether all keys of a lock, which are made of this one, have its hash tag: braces are added only to a name without.
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
