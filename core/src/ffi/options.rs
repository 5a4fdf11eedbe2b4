//! Parses the options that a host gives, with the host's spelling of names and its unit of time.

use std::{str::FromStr, time::Duration};

use crate::{
    config::{Config, LARGEST_EXACT, LockOptions, MAX_TTL, Ttl},
    error::LockError,
    ffi::outcome::Failure,
};

/// The value of an option, as a host gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A string.
    Text(String),
    /// A number; a time is in the host's unit.
    Number(f64),
    /// A truth value.
    Flag(bool),
    /// Anything else, as the host prints it.
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

/// An option: its name in the core and its setter. A table of both cannot list an option that nothing sets.
type Choice<Options> = (&'static str, fn(&mut Options, Given) -> Result<(), LockError>);

/// The options of a client.
const CLIENT_OPTIONS: [Choice<Config>; 21] = [
    ("quorum", |config, given| given.whole(1).map(|count| config.quorum = Some(count))),
    ("watchdog", |config, given| given.duration().map(|ttl| config.watchdog = ttl)),
    ("prefix", |config, given| given.text().map(|prefix| config.prefix = prefix)),
    ("wire", |config, given| given.word().map(|wire| config.wire = wire)),
    ("drift", |config, given| given.number().map(|share| config.drift = share)),
    ("token_key", |config, given| given.word().map(|key| config.token_key = key)),
    ("token_ttl", |config, given| given.duration().map(|ttl| config.token_ttl = Some(ttl))),
    ("max_ttl", |config, given| given.duration().map(|ttl| config.max_ttl = ttl)),
    ("min_replicas", |config, given| {
        given.whole(0).map(|count| config.min_replicas = u32::try_from(count).unwrap_or(u32::MAX))
    }),
    ("patience", |config, given| given.duration().map(|limit| config.patience = limit)),
    ("connect_timeout", |config, given| given.duration().map(|limit| config.connect_timeout = limit)),
    ("reply_timeout", |config, given| given.duration().map(|limit| config.reply_timeout = limit)),
    ("strict", |config, given| given.flag().map(|strict| config.strict = strict)),
    ("quarantine", |config, given| given.flag().map(|quarantine| config.quarantine = quarantine)),
    ("username", |config, given| given.text().map(|name| config.username = Some(name))),
    ("password", |config, given| given.text().map(|password| config.password = Some(password))),
    ("identify", |config, given| given.flag().map(|identify| config.identify = identify)),
    ("app", |config, given| given.text().map(|app| config.app = Some(app))),
    ("ca", |config, given| given.text().map(|pem| config.tls.ca = Some(pem))),
    ("cert", |config, given| given.text().map(|pem| config.tls.cert = Some(pem))),
    ("key", |config, given| given.text().map(|pem| config.tls.key = Some(pem))),
];
/// The options of a lock.
const LOCK_OPTIONS: [Choice<LockOptions>; 7] = [
    ("ttl", |lock, given| given.ttl().map(|ttl| lock.ttl = ttl)),
    ("wait", |lock, given| given.duration().map(|limit| lock.wait = Some(limit))),
    ("owner", |lock, given| given.text().map(|owner| lock.owner = Some(owner))),
    ("max_hold", |lock, given| given.duration().map(|limit| lock.max_hold = Some(limit))),
    ("min_hold", |lock, given| given.duration().map(|time| lock.min_hold = Some(time))),
    ("reentrant", |lock, given| given.flag().map(|reentrant| lock.reentrant = reentrant)),
    ("fair", |lock, given| given.flag().map(|fair| lock.fair = fair)),
];

/// An option that a host gave. The methods that read its value fail with `invalid` if that is of another type.
struct Given {
    idiom: Idiom,
    /// The core's name of the option.
    name: &'static str,
    value: Setting,
}

impl Given {
    fn text(self) -> Result<String, LockError> {
        text(self.name, self.value)
    }

    fn word<T: FromStr<Err = LockError>>(self) -> Result<T, LockError> {
        self.text()?.parse()
    }

    fn number(self) -> Result<f64, LockError> {
        match self.value {
            Setting::Number(number) => Ok(number),
            _ => Err(self.refused("must be a number")),
        }
    }

    /// The core checks the upper limit.
    fn whole(self, least: u32) -> Result<usize, LockError> {
        match self.value {
            Setting::Number(number) if number.fract() == 0.0 && number >= f64::from(least) => Ok(number as usize),
            _ => Err(self.refused(&format!("must be a whole number of at least {least}"))),
        }
    }

    fn flag(self) -> Result<bool, LockError> {
        match self.value {
            Setting::Flag(flag) => Ok(flag),
            _ => Err(self.refused("must be true or false")),
        }
    }

    fn duration(self) -> Result<Duration, LockError> {
        self.idiom.duration(self.name, &self.value)
    }

    fn ttl(self) -> Result<Ttl, LockError> {
        match &self.value {
            Setting::Text(word) if word == "adaptive" => Ok(Ttl::Adaptive),
            Setting::Number(_) => self.duration().map(Ttl::Fixed),
            _ => Err(self.refused(&format!("must be {} or 'adaptive'", self.idiom.time()))),
        }
    }

    fn refused(&self, rule: &str) -> LockError {
        LockError::invalid(self.name, format!("{rule}, not {}", self.value.shown()))
    }
}

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

    /// Sets each option that the host gave. Fails with `invalid` for one that is not in `among`.
    fn set<Options>(
        self,
        options: &mut Options,
        among: &[Choice<Options>],
        given: impl IntoIterator<Item = (String, Setting)>,
    ) -> Result<(), LockError> {
        for (option, value) in given {
            let Some(&(name, set)) = among.iter().find(|(name, _)| self.spell(name) == option) else {
                let all: Vec<_> = among.iter().map(|(name, _)| self.spell(name)).collect();
                let detail = format!("there is no option {option:?}, only {}", all.join(", "));
                return Err(LockError::invalid("options", detail));
            };
            set(options, Given { idiom: self, name, value })?;
        }
        Ok(())
    }

    /// Parses a time in the host's unit. Fails with `invalid` for NaN, for a negative number and for more than 10
    /// years.
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
        // Without a result, it is more than a `Duration` can hold.
        Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= MAX_TTL).ok_or_else(|| {
            let given = match argument {
                _ if number.is_finite() => format!("{number} {}", self.unit()),
                "wait" => "without end; leave it out for no limit".to_owned(),
                "timeout" => "without end; -1 is no limit".to_owned(),
                _ => "without end".to_owned(),
            };
            LockError::invalid(argument, format!("must be at most 10 years, not {given}"))
        })
    }

    /// Converts a time to a number in the host's unit.
    pub fn number(self, time: Duration) -> f64 {
        match self {
            Self::SnakeSeconds => time.as_secs_f64(),
            Self::CamelMillis => time.as_secs_f64() * 1000.0,
        }
    }

    /// Makes the configuration of a client of these nodes. Fails with `invalid` for an unknown option and for a value
    /// of the wrong type; the rest is checked when the client is made.
    pub fn config(
        self,
        urls: impl IntoIterator<Item = String>,
        options: impl IntoIterator<Item = (String, Setting)>,
    ) -> Result<Config, LockError> {
        self.configured(Config::new(urls), options)
    }

    /// [`config`](Self::config) with the nodes of the environment variable `REDLOCK_URL`, as in [`Config::from_env`].
    pub fn config_from_env(self, options: impl IntoIterator<Item = (String, Setting)>) -> Result<Config, LockError> {
        self.configured(Config::from_env(), options)
    }

    /// Sets the options of a client, and the default of `watchdog`, which depends on `max_ttl`.
    fn configured(
        self,
        mut config: Config,
        options: impl IntoIterator<Item = (String, Setting)>,
    ) -> Result<Config, LockError> {
        let mut has_watchdog = false;
        let options = options.into_iter().inspect(|(name, _)| has_watchdog |= name == "watchdog");
        self.set(&mut config, &CLIENT_OPTIONS, options)?;
        if !has_watchdog {
            config.watchdog = config.default_watchdog();
        }
        Ok(config)
    }

    /// Makes the options of a lock. Fails as [`config`](Self::config) does.
    pub fn lock_options(self, options: impl IntoIterator<Item = (String, Setting)>) -> Result<LockOptions, LockError> {
        let mut lock = LockOptions::default();
        self.set(&mut lock, &LOCK_OPTIONS, options)?;
        Ok(lock)
    }

    /// Flattens an error for the host, with the names of arguments as the host spells them.
    pub fn failure(self, error: &LockError) -> Failure {
        let mut message = error.to_string();
        if let LockError::Deadlock { .. } = error {
            message = message.replace("try_upgrade()", &format!("{}()", self.spell("try_upgrade")));
        }
        if let LockError::Invalid { argument, .. } = error
            && *argument != "options"
        {
            message = message.replace("try_upgrade", &self.spell("try_upgrade"));
            let of_clients = CLIENT_OPTIONS.iter().map(|(name, _)| *name);
            let options = of_clients.chain(LOCK_OPTIONS.iter().map(|(name, _)| *name));
            for option in options.filter(|option| option.contains('_')) {
                message = message.replace(option, &self.spell(option));
            }
        }
        let (reason, causes) = match error {
            LockError::Lost { reason, .. } => (Some(reason.as_str()), Vec::new()),
            LockError::Unavailable { causes, .. } => {
                (None, causes.iter().map(|each| (each.node.clone(), each.cause.clone())).collect())
            }
            _ => (None, Vec::new()),
        };
        Failure { code: error.code(), message, reason, causes }
    }
}

/// The options of a drop-in shim's lock: a value that its library made, and a ttl in ms or none.
pub fn shim_options(value: String, ttl: Option<u64>) -> LockOptions {
    let ttl = ttl.map_or(Ttl::Never, |millis| Ttl::Fixed(Duration::from_millis(millis)));
    LockOptions { ttl, value: Some(value), ..LockOptions::default() }
}

/// Reads a string argument that is not an option. Fails with `invalid` for anything else.
pub fn text(argument: &'static str, value: Setting) -> Result<String, LockError> {
    match value {
        Setting::Text(text) => Ok(text),
        // Not shown: it may be a secret.
        _ => Err(LockError::invalid(argument, "must be a string of valid Unicode")),
    }
}

/// Reads a whole number of any sign, whose range the core checks. Fails with `invalid` for anything else.
pub(crate) fn whole(argument: &'static str, value: &Setting) -> Result<i64, LockError> {
    match value {
        Setting::Number(number) if number.abs() > LARGEST_EXACT as f64 => {
            Err(LockError::invalid(argument, format!("is out of range: {number:e}")))
        }
        Setting::Number(number) if number.fract() == 0.0 => Ok(*number as i64),
        _ => Err(LockError::invalid(argument, format!("must be a whole number, not {}", value.shown()))),
    }
}
