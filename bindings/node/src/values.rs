//! Converts JavaScript's values to the core's, and the core's to JavaScript's.

use std::{ptr, time::Duration};

use napi::{
    Env, Error, Result, Status, Unknown, ValueType,
    bindgen_prelude::{FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue},
    sys, type_of,
};
use napi_derive::napi;
use redlock::{
    LockError,
    ffi::{self, Idiom, Setting, Value},
};

use crate::handle::Handle;

/// JavaScript's spelling: names like `maxTtl`, times in milliseconds.
pub(crate) const NODE: Idiom = Idiom::CamelMillis;

/// A value of a type that no option has, as JavaScript's text for it.
#[napi(object, object_to_js = false)]
pub struct Shown {
    pub shown: String,
}

/// The value of an option.
pub struct Given(Setting);

impl FromNapiValue for Given {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> Result<Self> {
        // SAFETY: each conversion matches the type of the value.
        unsafe {
            Ok(Self(match type_of!(env, value)? {
                ValueType::String => Setting::Text(String::from_napi_value(env, value)?),
                ValueType::Number => Setting::Number(f64::from_napi_value(env, value)?),
                ValueType::Boolean => Setting::Flag(bool::from_napi_value(env, value)?),
                _ => Setting::Other(Shown::from_napi_value(env, value)?.shown),
            }))
        }
    }
}

impl TypeName for Given {
    fn type_name() -> &'static str {
        "Given"
    }

    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

impl ValidateNapiValue for Given {
    unsafe fn validate(_: sys::napi_env, _: sys::napi_value) -> Result<sys::napi_value> {
        Ok(ptr::null_mut())
    }
}

/// Options, in the order of the caller.
pub(crate) type Options = Vec<(String, Given)>;

pub(crate) fn settings(options: Options) -> impl Iterator<Item = (String, Setting)> {
    options.into_iter().map(|(name, Given(setting))| (name, setting))
}

/// A string.
pub(crate) fn text(argument: &'static str, Given(setting): Given) -> std::result::Result<String, LockError> {
    ffi::text(argument, setting)
}

/// `n` slots of a semaphore with `of` slots.
pub(crate) fn permits(Given(n): &Given, Given(of): &Given) -> std::result::Result<ffi::Part, LockError> {
    ffi::Part::permits(n, of)
}

/// A time.
pub(crate) fn duration(argument: &'static str, Given(setting): Given) -> std::result::Result<Duration, LockError> {
    NODE.duration(argument, &setting)
}

/// An error as a plain object, which the façade converts to an instance of its class.
#[napi(object, object_from_js = false)]
pub struct Failure {
    pub code: &'static str,
    pub message: String,
    pub reason: Option<&'static str>,
    pub causes: Vec<(String, String)>,
}

impl From<&LockError> for Failure {
    fn from(error: &LockError) -> Self {
        let ffi::Failure { code, message, reason, causes } = NODE.failure(error);
        Self { code, message, reason, causes }
    }
}

/// Throws an error as a [`Failure`].
pub(crate) trait OrThrow<T> {
    fn or_throw(self, env: &Env) -> Result<T>;
}

impl<T> OrThrow<T> for std::result::Result<T, LockError> {
    fn or_throw(self, env: &Env) -> Result<T> {
        self.map_err(|error| match env.throw(Failure::from(&error)) {
            Ok(()) => Error::from_status(Status::PendingException),
            Err(error) => error,
        })
    }
}

/// The holder of a lock.
#[napi(object, object_from_js = false)]
pub struct LockInfo {
    pub kind: &'static str,
    pub owner: String,
    pub owners: Vec<String>,
    pub ttl: Option<f64>,
    pub token: u64,
    pub host: Option<String>,
    pub pid: Option<u32>,
    pub app: Option<String>,
    /// Milliseconds since the epoch.
    pub since: Option<f64>,
}

impl From<redlock::LockInfo> for LockInfo {
    fn from(info: redlock::LockInfo) -> Self {
        let since = info.since_micros().map(|micros| micros as f64 / 1000.0);
        let redlock::LockInfo { kind, owner, owners, ttl, token, host, pid, app, .. } = info;
        Self { kind: kind.as_str(), owner, owners, ttl: ttl.map(|ttl| NODE.number(ttl)), token, host, pid, app, since }
    }
}

/// The state of one node.
#[napi(object, object_from_js = false)]
pub struct NodeStatus {
    pub node: String,
    pub ok: bool,
    pub run: Option<String>,
    pub version: Option<String>,
    pub cause: Option<String>,
}

impl From<ffi::NodeStatus> for NodeStatus {
    fn from(ffi::NodeStatus { node, ok, run, version, cause }: ffi::NodeStatus) -> Self {
        Self { node, ok, run, version, cause }
    }
}

/// An event.
#[napi(object, object_from_js = false)]
pub struct Event {
    pub kind: &'static str,
    pub message: String,
    pub warning: bool,
    pub name: Option<String>,
    pub token: Option<u64>,
    pub reason: Option<&'static str>,
    pub node: Option<String>,
    pub count: Option<f64>,
}

impl From<redlock::Event> for Event {
    fn from(event: redlock::Event) -> Self {
        Self {
            kind: event.kind(),
            message: event.to_string(),
            warning: event.is_warning(),
            name: event.lock().map(|(name, _)| name.to_owned()),
            token: event.lock().map(|(_, token)| token),
            reason: event.reason().map(redlock::LostReason::as_str),
            node: event.node().map(str::to_owned),
            count: event.count().map(|count| count as f64),
        }
    }
}

/// The result of a call.
pub(crate) fn result(env: &Env, value: Value) -> Result<Unknown<'_>> {
    match value {
        Value::Nothing => ().into_unknown(env),
        Value::Flag(flag) => flag.into_unknown(env),
        Value::Count(count) => count.into_unknown(env),
        Value::Lease(lease) => Handle(lease).into_unknown(env),
        Value::Released(how) => how.into_unknown(env),
        Value::Info(info) => info.map(|info| LockInfo::from(*info)).into_unknown(env),
        Value::Nodes(nodes) => nodes.into_iter().map(NodeStatus::from).collect::<Vec<_>>().into_unknown(env),
        Value::Lost(reason) => reason.into_unknown(env),
        Value::Events(events) => events.into_iter().map(Event::from).collect::<Vec<_>>().into_unknown(env),
    }
}
