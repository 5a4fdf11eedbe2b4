//! The checks of settings, names and arguments. A client sends nothing before they passed.

use std::{collections::HashSet, time::Duration};

use super::{Config, LockOptions, NEVER, Settings, TokenKey, Ttl, Wire};
use crate::{
    error::LockError,
    url::{Endpoint, Transport},
};

/// The shortest ttl that a caller may give.
pub(crate) const MIN_TTL: Duration = Duration::from_millis(50);
/// The shortest ttl that the watchdog can renew in time.
const MIN_WATCHDOG: Duration = Duration::from_millis(300);
/// The longest lease, and the upper limit of every duration that a caller gives.
pub(crate) const MAX_TTL: Duration = Duration::from_secs(10 * 365 * 86_400);
/// The largest `min_replicas`: more replicas than a server has.
const MOST_REPLICAS: u32 = 1000;
/// The longest name of a program: connections of most clients can be named with the whole of it.
const MOST_APP_BYTES: usize = 64;
/// The most permits of a semaphore.
const MOST_PERMITS: i64 = 65_536;

impl Config {
    /// Checks every field and parses the URLs.
    pub(crate) fn validate(self) -> Result<Settings, LockError> {
        let endpoints = self.check_urls()?;
        let count = endpoints.len();
        let quorum = self.check_quorum(count)?;
        if !(0.01..0.5).contains(&self.drift) {
            return Err(LockError::invalid("drift", format!("must be from 0.01 to below 0.5, not {}", self.drift)));
        }
        for (argument, timeout) in [
            ("connect_timeout", self.connect_timeout),
            ("reply_timeout", self.reply_timeout),
            ("patience", self.patience),
        ] {
            if timeout < Duration::from_millis(1) || timeout > MAX_TTL {
                return Err(LockError::invalid(
                    argument,
                    format!("must be from 1 ms to 10 years, not {}", given(timeout)),
                ));
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
        if let Some(app) = &self.app
            && !(1..=MOST_APP_BYTES).contains(&app.len())
        {
            return Err(LockError::invalid("app", format!("must have 1 to {MOST_APP_BYTES} bytes, not {}", app.len())));
        }
        if self.tls.cert.is_some() != self.tls.key.is_some() {
            return Err(LockError::invalid("cert", "a client certificate needs its key, and a key its certificate"));
        }
        check_duration("max_ttl", self.max_ttl, MIN_TTL)?;
        if count > 1 && self.max_ttl < MIN_WATCHDOG {
            let detail =
                format!("must be at least {MIN_WATCHDOG:?} on a quorum, the least watchdog, not {:?}", self.max_ttl);
            return Err(LockError::invalid("max_ttl", detail));
        }
        check_duration("watchdog", self.watchdog, MIN_WATCHDOG)?;
        let settings = Settings { endpoints, quorum, node_count: count, config: self };
        settings.check_quorum_ttl("watchdog", settings.config.watchdog)?;
        if let Some(ttl) = settings.config.token_ttl {
            settings.check_token_ttl(ttl)?;
        }
        Ok(settings)
    }

    fn check_urls(&self) -> Result<Vec<Endpoint>, LockError> {
        if self.urls.is_empty() {
            return Err(LockError::invalid("urls", "at least one node is needed"));
        }
        let (user, password, count) = (self.username.as_deref(), self.password.as_deref(), self.urls.len());
        let parse = |(index, url): (usize, &String)| {
            Endpoint::parse(url, user, password).map_err(|error| match error {
                LockError::Invalid { argument, detail } if count > 1 => {
                    LockError::invalid(argument, format!("number {} of {count}: {detail}", index + 1))
                }
                error => error,
            })
        };
        let endpoints = self.urls.iter().enumerate().map(parse).collect::<Result<Vec<_>, _>>()?;
        let mut seen = HashSet::new();
        if let Some(twice) = endpoints.iter().find(|e| !seen.insert(&e.transport)) {
            return Err(LockError::invalid("urls", format!("{} is listed twice", twice.transport)));
        }
        Ok(endpoints)
    }

    /// The quorum of `count` nodes.
    fn check_quorum(&self, count: usize) -> Result<usize, LockError> {
        let majority = count / 2 + 1;
        let majority = if mutant!(HalfQuorum) { (count / 2).max(1) } else { majority };
        let quorum = self.quorum.unwrap_or(majority);
        if !(majority..=count).contains(&quorum) {
            let detail = format!("must be from {majority} (a majority of {count}) to {count}, not {quorum}");
            return Err(LockError::invalid("quorum", detail));
        }
        Ok(quorum)
    }
}

/// Checks a duration that must be from `least` to ten years.
pub(crate) fn check_duration(argument: &'static str, value: Duration, least: Duration) -> Result<(), LockError> {
    if value < least || value > MAX_TTL {
        let detail = format!("must be from {least:?} to 10 years, not {}", given(value));
        return Err(LockError::invalid(argument, detail));
    }
    Ok(())
}

/// A time as its caller may have written it.
fn given(time: Duration) -> String {
    if time.is_zero() { "0".to_owned() } else { format!("{time:?}") }
}

/// Checks the name of an explicit owner.
pub(crate) fn check_owner(name: &str) -> Result<(), LockError> {
    if !(1..=256).contains(&name.len()) {
        return Err(LockError::invalid("owner", format!("must have 1 to 256 bytes, not {}", name.len())));
    }
    Ok(())
}

/// The error for an explicit owner of a read/write lock.
pub(crate) fn owner_refused_for_read_write() -> LockError {
    LockError::invalid("owner", "has no meaning for a read/write lock: its owners are those of one client")
}

/// The error for an option about owners, given for a semaphore.
pub(crate) fn no_meaning_for_semaphore(argument: &'static str) -> LockError {
    LockError::invalid(argument, "has no meaning for a semaphore: each acquire is a permit of its own")
}

/// The error for a `min_hold` of an explicit owner, who may hold the lock several times at once.
pub(crate) fn min_hold_refused_with_owner() -> LockError {
    LockError::invalid("min_hold", "cannot be combined with an explicit owner")
}

/// Checks the number of permits of a semaphore.
pub(crate) fn check_permits(permits: impl Into<i64>) -> Result<(), LockError> {
    let permits = permits.into();
    if !(1..=MOST_PERMITS).contains(&permits) {
        return Err(LockError::invalid("permits", format!("must be from 1 to {MOST_PERMITS}, not {permits}")));
    }
    Ok(())
}

/// Checks the number of slots that an acquire wants. `of`: the number of permits of the semaphore.
pub(crate) fn check_slots(n: impl Into<i64>, of: impl Into<i64>) -> Result<(), LockError> {
    let (n, of) = (n.into(), of.into());
    if !(1..=of).contains(&n) {
        return Err(LockError::invalid("n", format!("must be from 1 to {of}, the number of permits, not {n}")));
    }
    Ok(())
}

impl Settings {
    fn check_token_ttl(&self, ttl: Duration) -> Result<(), LockError> {
        if self.config.token_key == TokenKey::Redisson {
            return Err(LockError::invalid(
                "token_ttl",
                "has no effect on Redisson's counters, which are kept for ever",
            ));
        }
        check_duration("token_ttl", ttl, self.least_token_ttl())
    }

    pub(crate) fn check_quorum_ttl(&self, argument: &'static str, ttl: Duration) -> Result<(), LockError> {
        // Only drop-in shims use a ttl above `MAX_TTL`, and such a lease outlives every server anyway.
        if self.node_count > 1 && ttl.min(MAX_TTL) > self.config.max_ttl {
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
        if name.is_empty() {
            return Err(LockError::invalid("name", "must not be empty"));
        }
        if key.len() > 1024 {
            let detail = format!("must have at most 1024 bytes together with the prefix, not {}", key.len());
            return Err(LockError::invalid("name", detail));
        }
        if key.contains('\0') {
            return Err(LockError::invalid("name", "must not contain NUL"));
        }
        if self.on_cluster() && !shares_a_slot(&key) {
            let detail = "on a cluster, the name may contain braces only as one non-empty {tag}";
            return Err(LockError::invalid("name", detail));
        }
        self.check_shim(options)?;
        if options.fair && self.node_count > 1 {
            let detail = "needs one server, cluster or Sentinel service: the queues of several would be in different orders, \
                          and those first in them would block each other";
            return Err(LockError::invalid("fair", detail));
        }
        if options.fair && options.never_nests() {
            return Err(LockError::invalid("fair", "cannot be combined with a chosen value or with no ttl"));
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
        if let Some(min_hold) = options.min_hold {
            self.check_min_hold(min_hold, options)?;
        }
        Ok(key)
    }

    fn check_min_hold(&self, min_hold: Duration, options: &LockOptions) -> Result<(), LockError> {
        if options.owner.is_some() {
            return Err(min_hold_refused_with_owner());
        }
        if options.never_nests() {
            let detail = "cannot be combined with a chosen value or with no ttl";
            return Err(LockError::invalid("min_hold", detail));
        }
        check_duration("min_hold", min_hold, MIN_TTL)?;
        self.check_quorum_ttl("min_hold", min_hold)?;
        let bound = match options.ttl {
            Ttl::Fixed(ttl) => Some(("ttl", ttl)),
            _ => options.max_hold.map(|max_hold| ("max_hold", max_hold)),
        };
        if let Some((name, longest)) = bound.filter(|(_, longest)| min_hold > *longest) {
            let detail = format!("{min_hold:?} is more than the {name} of {longest:?}, which ends the lock earlier");
            return Err(LockError::invalid("min_hold", detail));
        }
        Ok(())
    }

    /// Checks the name and the options of a read/write lock; returns its key.
    pub(crate) fn check_read_write(&self, name: &str, options: &LockOptions) -> Result<String, LockError> {
        if options.fair {
            return Err(LockError::invalid("fair", "is not for read/write locks: they have an order of their own"));
        }
        let key = self.check_lock(name, options)?;
        if options.owner.is_some() {
            return Err(owner_refused_for_read_write());
        }
        if options.never_nests() {
            return Err(LockError::invalid(
                "ttl",
                "a read/write lock cannot be combined with a chosen value or with no ttl",
            ));
        }
        Ok(key)
    }

    /// Checks the name and the options of a semaphore; returns its key.
    pub(crate) fn check_semaphore(&self, name: &str, permits: u32, options: &LockOptions) -> Result<String, LockError> {
        check_permits(permits)?;
        if options.fair {
            return Err(LockError::invalid("fair", "is not for semaphores: they always go to whoever asked first"));
        }
        if options.min_hold.is_some() {
            return Err(LockError::invalid("min_hold", "is not for semaphores"));
        }
        let key = self.check_lock(name, options)?;
        if options.owner.is_some() {
            return Err(no_meaning_for_semaphore("owner"));
        }
        if !options.reentrant {
            return Err(no_meaning_for_semaphore("reentrant"));
        }
        if options.never_nests() {
            return Err(LockError::invalid("ttl", "a semaphore cannot be combined with a chosen value or with no ttl"));
        }
        Ok(key)
    }

    /// Checks the options that exist only for drop-in shims.
    fn check_shim(&self, options: &LockOptions) -> Result<(), LockError> {
        if !options.never_nests() {
            return Ok(());
        }
        let argument = if options.value.is_some() { "value" } else { "ttl" };
        if self.config.wire != Wire::Token {
            return Err(LockError::invalid(argument, "a chosen value, or a lock without a ttl, needs wire=\"token\""));
        }
        if options.owner.is_some() {
            return Err(LockError::invalid("owner", "needs a ttl, and cannot be combined with a chosen value"));
        }
        if options.ttl == Ttl::Never && self.node_count > 1 {
            return Err(LockError::invalid(
                "ttl",
                "is needed on a quorum, where the client's max_ttl bounds every ttl",
            ));
        }
        options.value.as_deref().map_or(Ok(()), check_value)
    }
}

/// Checks a chosen value.
pub(crate) fn check_value(value: &str) -> Result<(), LockError> {
    if !(1..=65_536).contains(&value.len()) {
        return Err(LockError::invalid("value", format!("must have 1 to 65536 bytes, not {}", value.len())));
    }
    Ok(())
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
