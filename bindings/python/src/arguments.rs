//! Python's arguments as the core's. Whatever does not fit is `InvalidArgument` and names the argument; its value is
//! shown only where it cannot be a secret.

use std::{str::FromStr, time::Duration};

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict, PyString},
};
use redlock::{Config, LockError, LockOptions, Ttl, seconds};

use crate::errors::{Failure, Fallible};

pub(crate) fn invalid(argument: &'static str, detail: impl Into<String>) -> Failure {
    LockError::Invalid { argument, detail: detail.into() }.into()
}

/// Seconds, as a number or a `timedelta`.
pub(crate) fn duration(argument: &'static str, value: &Bound<'_, PyAny>) -> Fallible<Duration> {
    Ok(seconds(argument, number(argument, value)?)?)
}

fn number(argument: &'static str, value: &Bound<'_, PyAny>) -> Fallible<f64> {
    let number = || value.extract().or_else(|_| value.call_method0("total_seconds")?.extract());
    match number() {
        Ok(number) if !value.is_instance_of::<PyBool>() => Ok(number),
        _ => Err(invalid(argument, format!("must be a number of seconds or a timedelta, not {}", shown(value)))),
    }
}

fn shown(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(|_| "this".to_owned(), |text| text.to_string())
}

fn text(argument: &'static str, value: &Bound<'_, PyAny>) -> Fallible<String> {
    value.extract().map_err(|_| invalid(argument, "must be a string of valid Unicode"))
}

fn flag(argument: &'static str, value: &Bound<'_, PyAny>) -> Fallible<bool> {
    value.extract().map_err(|_| invalid(argument, format!("must be True or False, not {}", shown(value))))
}

/// How long `acquire` waits, by the rules of `threading.Lock`: `own` is the lock's.
pub(crate) fn wait(
    blocking: Option<&Bound<'_, PyAny>>,
    timeout: Option<&Bound<'_, PyAny>>,
    own: Option<Duration>,
) -> Fallible<Option<Duration>> {
    let blocking = blocking.map_or(Ok(true), PyAnyMethods::is_truthy)?;
    let timeout = timeout.map(|timeout| Ok::<_, Failure>((number("timeout", timeout)?, timeout))).transpose()?;
    match timeout {
        None if blocking => Ok(own),
        None => Ok(Some(Duration::ZERO)),
        Some(_) if !blocking => Err(invalid("timeout", "cannot be given when blocking is False")),
        Some((-1.0, _)) => Ok(None),
        Some((_, timeout)) => Ok(Some(duration("timeout", timeout)?)),
    }
}

/// A client's configuration from `urls` and keyword arguments. An option that is None has its default.
pub(crate) fn config(urls: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> Fallible<Config> {
    let mut config = if urls.is_instance_of::<PyString>() {
        Config::new([text("urls", urls)?])
    } else {
        let wrong = |_| invalid("urls", "must be a URL or a list of URLs");
        let each = urls.try_iter().map_err(wrong)?;
        Config::new(each.map(|url| text("urls", &url?)).collect::<Result<Vec<_>, _>>()?)
    };
    for (key, value) in options.into_iter().flatten() {
        let key: String = key.extract()?;
        if !OPTIONS.contains(&&*key) {
            let detail = format!("unexpected keyword argument '{key}'");
            return Err(PyTypeError::new_err(detail).into());
        }
        if value.is_none() {
            continue;
        }
        match &*key {
            "quorum" => {
                let quorum = value.extract().ok().filter(|_| !value.is_instance_of::<PyBool>());
                let detail = || format!("must be a whole number of at least 1, not {}", shown(&value));
                config.quorum = Some(quorum.ok_or_else(|| invalid("quorum", detail()))?);
            }
            "watchdog" => config.watchdog = duration("watchdog", &value)?,
            "prefix" => config.prefix = text("prefix", &value)?,
            "wire" => config.wire = word("wire", &value)?,
            "drift" => config.drift = number("drift", &value)?,
            "token_key" => config.token_key = word("token_key", &value)?,
            "max_ttl" => config.max_ttl = duration("max_ttl", &value)?,
            "patience" => config.patience = duration("patience", &value)?,
            "connect_timeout" => config.connect_timeout = duration("connect_timeout", &value)?,
            "reply_timeout" => config.reply_timeout = duration("reply_timeout", &value)?,
            "strict" => config.strict = flag("strict", &value)?,
            "quarantine" => config.quarantine = flag("quarantine", &value)?,
            "username" => config.username = Some(text("username", &value)?),
            "password" => config.password = Some(text("password", &value)?),
            "ca" => config.tls.ca = Some(text("ca", &value)?),
            "cert" => config.tls.cert = Some(text("cert", &value)?),
            "key" => config.tls.key = Some(text("key", &value)?),
            _ => {}
        }
    }
    Ok(config)
}

/// The options of a client.
const OPTIONS: [&str; 17] = [
    "quorum",
    "watchdog",
    "prefix",
    "wire",
    "drift",
    "token_key",
    "max_ttl",
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

/// One of the core's words.
fn word<T: FromStr<Err = LockError>>(argument: &'static str, value: &Bound<'_, PyAny>) -> Fallible<T> {
    Ok(text(argument, value)?.parse()?)
}

/// A lock's name.
pub(crate) fn name(value: &Bound<'_, PyAny>) -> Fallible<String> {
    text("name", value)
}

/// A lock's options.
pub(crate) fn lock_options(
    ttl: Option<&Bound<'_, PyAny>>,
    wait: Option<&Bound<'_, PyAny>>,
    owner: Option<&Bound<'_, PyAny>>,
    max_hold: Option<&Bound<'_, PyAny>>,
    reentrant: Option<&Bound<'_, PyAny>>,
) -> Fallible<LockOptions> {
    let mut options = LockOptions::default();
    options.ttl = match ttl {
        None => Ttl::Watchdog,
        Some(ttl) if ttl.extract::<String>().is_ok_and(|word| word == "adaptive") => Ttl::Adaptive,
        Some(ttl) if ttl.is_instance_of::<PyString>() => {
            let detail = format!("must be a number of seconds, a timedelta or 'adaptive', not {}", shown(ttl));
            return Err(invalid("ttl", detail));
        }
        Some(ttl) => Ttl::Fixed(duration("ttl", ttl)?),
    };
    options.wait = wait.map(|wait| duration("wait", wait)).transpose()?;
    options.owner = owner.map(|owner| text("owner", owner)).transpose()?;
    options.max_hold = max_hold.map(|max_hold| duration("max_hold", max_hold)).transpose()?;
    if let Some(reentrant) = reentrant {
        options.reentrant = flag("reentrant", reentrant)?;
    }
    Ok(options)
}
