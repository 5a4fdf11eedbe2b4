//! Converts options and errors between Kotlin and the core.

use std::{collections::HashMap, time::Duration};

use redlock::{
    LockError,
    ffi::{self, Idiom},
};

/// Names and times as Kotlin writes them: camelCase, milliseconds.
pub(crate) const IDIOM: Idiom = Idiom::CamelMillis;

/// The value of an option. Times are numbers of milliseconds.
#[derive(Debug, uniffi::Enum)]
pub(crate) enum Setting {
    /// A string.
    Text {
        /// The string.
        value: String,
    },
    /// A number.
    Number {
        /// The number.
        value: f64,
    },
    /// A truth value.
    Flag {
        /// The truth value.
        value: bool,
    },
}

/// Options by name.
pub(crate) type Settings = HashMap<String, Setting>;

impl From<Setting> for ffi::Setting {
    fn from(setting: Setting) -> Self {
        match setting {
            Setting::Text { value } => Self::Text(value),
            Setting::Number { value } => Self::Number(value),
            Setting::Flag { value } => Self::Flag(value),
        }
    }
}

/// Options as the core takes them.
pub(crate) fn options(settings: Settings) -> impl Iterator<Item = (String, ffi::Setting)> {
    settings.into_iter().map(|(name, value)| (name, value.into()))
}

/// Converts milliseconds. The error names `argument`.
pub(crate) fn duration(argument: &'static str, millis: f64) -> Result<Duration, LockError> {
    IDIOM.duration(argument, &ffi::Setting::Number(millis))
}

/// Converts the `wait` of an acquire, in milliseconds. Infinity means for ever: `None`.
pub(crate) fn wait(millis: f64) -> Result<Option<Duration>, LockError> {
    if millis == f64::INFINITY { Ok(None) } else { duration("wait", millis).map(Some) }
}

/// Why one node did not help.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Cause {
    /// The node's address.
    node: String,
    /// The node's error reply, or why no reply came.
    cause: String,
}

/// An error of the core.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Failure {
    /// The error code, by which Kotlin chooses the exception class.
    code: String,
    /// The message for people.
    detail: String,
    /// Why the lock was lost; `None` for other errors.
    reason: Option<String>,
    /// Why each node that did not help failed.
    causes: Vec<Cause>,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let ffi::Failure { code, message, reason, causes } = IDIOM.failure(&error);
        Self {
            code: code.to_owned(),
            detail: message,
            reason: reason.map(str::to_owned),
            causes: causes.into_iter().map(|(node, cause)| Cause { node, cause }).collect(),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error, uniffi::Error)]
pub(crate) enum Refusal {
    /// The core returned an error.
    #[error("{failure:?}")]
    Failed {
        /// The error.
        failure: Failure,
    },
    /// The calling thread was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        Self::Failed { failure: error.into() }
    }
}

/// The result of a method that Kotlin calls.
pub(crate) type Fallible<T> = Result<T, Refusal>;
