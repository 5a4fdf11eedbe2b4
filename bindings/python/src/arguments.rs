//! Converts Python's arguments into the core's. A wrong value raises `InvalidArgument`, which names the argument.

use std::time::Duration;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyDict, PyFloat, PyString},
};
use redlock::{
    Config, LockError, LockOptions,
    ffi::{Idiom::SnakeSeconds, Part, Setting},
};

use crate::errors::{Failure, Fallible};

pub(crate) fn invalid(argument: &'static str, detail: impl Into<String>) -> Failure {
    LockError::Invalid { argument, detail: detail.into() }.into()
}

/// Converts a value; a `timedelta` becomes its seconds.
fn setting(value: &Bound<'_, PyAny>) -> Setting {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Setting::Flag(flag.is_true());
    }
    if let Ok(text) = value.extract() {
        return Setting::Text(text);
    }
    let number = value.extract().or_else(|_| value.call_method0("total_seconds")?.extract());
    number.map_or_else(|_| Setting::Other(shown(value)), Setting::Number)
}

fn shown(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(|_| "this".to_owned(), |text| text.to_string())
}

/// Converts the options, and parses them. An option that is None has its default, but its name must be known, too.
fn parsed<T>(
    options: Option<&Bound<'_, PyDict>>,
    parse: impl Fn(Vec<(String, Setting)>) -> Result<T, LockError>,
) -> Fallible<T> {
    let mut settings = Vec::new();
    for (name, value) in options.into_iter().flatten() {
        let (name, is_default) = (name.to_string(), value.is_none());
        let given = (name, setting(&value));
        if !is_default {
            settings.push(given);
        } else if let Err(error @ LockError::Invalid { argument: "options", .. }) = parse(vec![given]) {
            return Err(unexpected(error));
        }
    }
    parse(settings).map_err(unexpected)
}

/// An unknown option raises `TypeError`, as in any function with keyword arguments.
fn unexpected(error: LockError) -> Failure {
    match error {
        LockError::Invalid { argument: "options", detail } => PyTypeError::new_err(detail).into(),
        error => error.into(),
    }
}

/// Converts a duration: seconds, as a number or a `timedelta`.
pub(crate) fn duration(argument: &'static str, value: &Bound<'_, PyAny>) -> Fallible<Duration> {
    Ok(SnakeSeconds.duration(argument, &setting(value))?)
}

/// How long `acquire` waits, by the rules of `threading.Lock`. `own` is the lock's own `wait`.
pub(crate) fn wait(
    blocking: Option<&Bound<'_, PyAny>>,
    timeout: Option<&Bound<'_, PyAny>>,
    own: Option<Duration>,
) -> Fallible<Option<Duration>> {
    let blocking = blocking.map_or(Ok(true), flag)?;
    let Some(timeout) = timeout else { return Ok(if blocking { own } else { Some(Duration::ZERO) }) };
    if !blocking {
        return Err(invalid("timeout", "cannot be given when blocking is False"));
    }
    match timeout.extract::<f64>() {
        Ok(-1.0) => Ok(None),
        Ok(seconds) if seconds < 0.0 => {
            Err(invalid("timeout", format!("must be at least 0, or -1 for no limit, not {seconds}")))
        }
        _ => Ok(Some(duration("timeout", timeout)?)),
    }
}

/// Converts `blocking`. 0 and 1 are right, too, as for `threading.Lock`; another number may be meant for `timeout`.
fn flag(value: &Bound<'_, PyAny>) -> Fallible<bool> {
    match value.extract::<i64>() {
        Ok(0) => Ok(false),
        Ok(1) => Ok(true),
        _ => Err(invalid("blocking", format!("must be True or False, not {}", shown(value)))),
    }
}

/// A client's configuration from the environment and keyword arguments.
pub(crate) fn config_from_env(options: Option<&Bound<'_, PyDict>>) -> Fallible<Config> {
    parsed(options, |settings| SnakeSeconds.config_from_env(settings))
}

/// A client's configuration from `urls` and keyword arguments.
pub(crate) fn config(urls: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> Fallible<Config> {
    let wrong = || invalid("urls", "must be a URL or a list of URLs, in valid Unicode");
    let urls: Vec<String> = if urls.is_instance_of::<PyString>() {
        vec![urls.extract::<String>().map_err(|_| wrong())?]
    } else {
        let each = urls.try_iter().map_err(|_| wrong())?;
        each.map(|url| url?.extract()).collect::<PyResult<_>>().map_err(|_| wrong())?
    };
    parsed(options, |settings| SnakeSeconds.config(urls.clone(), settings))
}

/// A lock's name.
pub(crate) fn name(value: &Bound<'_, PyAny>) -> Fallible<String> {
    value.extract().map_err(|_| invalid("name", "must be a string of valid Unicode"))
}

/// The text of a detached lease.
pub(crate) fn text(value: &Bound<'_, PyAny>) -> Fallible<String> {
    value.extract().map_err(|_| invalid("text", "must be a string of valid Unicode"))
}

/// Converts a number of slots. A `float` is none, even if it is whole.
fn slots(value: &Bound<'_, PyAny>) -> Setting {
    if value.is_instance_of::<PyFloat>() { Setting::Other(shown(value)) } else { setting(value) }
}

/// Which lock of a name: None, "read" or "write" of a read/write lock, or `(n, permits)` for n slots of a semaphore.
pub(crate) fn part(value: Option<&Bound<'_, PyAny>>) -> Fallible<Part> {
    match value {
        None => Ok(Part::Whole),
        Some(value) => match value.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() {
            Ok((n, of)) => Ok(Part::permits(&slots(&n), &slots(&of))?),
            Err(_) => Ok(Part::named(value.extract().ok())),
        },
    }
}

/// Refuses an option that no lock has, and lists those that this kind of lock has. The core decides on the `others`,
/// which only other kinds have.
fn check_names(part: Part, options: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let (known, others): (&[&str], &[&str]) = match part {
        Part::Whole => return Ok(()),
        Part::Read | Part::Write => (&["ttl", "wait", "max_hold", "min_hold", "reentrant"], &["owner", "fair"]),
        Part::Permits { .. } => (&["permits", "ttl", "wait", "max_hold"], &["owner", "fair", "min_hold", "reentrant"]),
    };
    for (name, _) in options.into_iter().flatten() {
        let name = name.to_string();
        if !known.contains(&name.as_str()) && !others.contains(&name.as_str()) {
            return Err(PyTypeError::new_err(format!("there is no option {name:?}, only {}", known.join(", "))));
        }
    }
    Ok(())
}

/// The options of a lock.
pub(crate) fn lock_options(part: Part, options: Option<&Bound<'_, PyDict>>) -> Fallible<LockOptions> {
    check_names(part, options)?;
    parsed(options, |settings| SnakeSeconds.lock_options(settings))
}
