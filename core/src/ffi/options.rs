//! Options as a host gives them, and how that host spells names and times.

use std::{str::FromStr, time::Duration};

use crate::{
    config::{Config, LockOptions, Ttl},
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
const CLIENT_OPTIONS: [&str; 19] = [
    "quorum",
    "watchdog",
    "prefix",
    "wire",
    "drift",
    "token_key",
    "token_ttl",
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
const LOCK_OPTIONS: [&str; 6] = ["ttl", "wait", "owner", "max_hold", "reentrant", "fair"];

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

    /// A time as a number in the host's unit.
    pub fn number(self, time: Duration) -> f64 {
        match self {
            Self::SnakeSeconds => time.as_secs_f64(),
            Self::CamelMillis => time.as_secs_f64() * 1000.0,
        }
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
                "token_ttl" => config.token_ttl = Some(self.duration(option, &value)?),
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
                "reentrant" => lock.reentrant = flag(option, &value)?,
                _ => lock.fair = flag(option, &value)?,
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
            LockError::Unavailable { causes, .. } => {
                (None, causes.iter().map(|each| (each.node.clone(), each.cause.clone())).collect())
            }
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

/// A number of things that there are; too many to be counted as 32 bits are refused as what they are.
pub(crate) fn count(argument: &'static str, value: &Setting) -> Result<u32, LockError> {
    Ok(u32::try_from(whole(argument, value, 0)?).unwrap_or(u32::MAX))
}

fn flag(argument: &'static str, value: &Setting) -> Result<bool, LockError> {
    match value {
        Setting::Flag(flag) => Ok(*flag),
        other => Err(LockError::invalid(argument, format!("must be true or false, not {}", other.shown()))),
    }
}
