//! Converts options and errors between Kotlin and the core.

use std::{collections::HashMap, time::Duration};

use redlock::{
    LockError,
    ffi::{self, Idiom},
};

/// How Kotlin spells.
pub(crate) const IDIOM: Idiom = Idiom::CamelMillis;

/// The value of an option; times are in milliseconds.
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

/// A time in milliseconds.
pub(crate) fn duration(argument: &'static str, millis: f64) -> Result<Duration, LockError> {
    IDIOM.duration(argument, &ffi::Setting::Number(millis))
}

/// How long to wait, in milliseconds; without end: for ever.
pub(crate) fn wait(millis: f64) -> Result<Option<Duration>, LockError> {
    if millis == f64::INFINITY { Ok(None) } else { duration("wait", millis).map(Some) }
}

/// What one node said.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Cause {
    /// The node's address.
    node: String,
    /// What it said, or why it said nothing.
    cause: String,
}

/// An error of the core.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Failure {
    /// The code: what Kotlin picks the class by.
    code: String,
    /// The text for people.
    detail: String,
    /// Why the lock was lost.
    reason: Option<String>,
    /// What each node said.
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

/// Why a call did not return.
#[derive(Debug, thiserror::Error, uniffi::Error)]
pub(crate) enum Refusal {
    /// The core said so.
    #[error("{failure:?}")]
    Failed {
        /// What it said.
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

/// What a method returns.
pub(crate) type Fallible<T> = Result<T, Refusal>;
