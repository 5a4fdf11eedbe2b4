//! The functions of an event loop that start the core's calls. Each returns the call's result or, if the call is
//! pending, its number.

use napi::{
    Env, Result,
    bindgen_prelude::{Function, JsObjectValue, Object},
};
use napi_derive::napi;
use redlock::{
    Lease, LockError, Owner,
    ffi::{
        Call, Calls,
        Operation::{
            self, Acquire, Attach, Available, Close, Downgrade, Extend, ForceRelease, InitNodes, Inspect, IsValueThere,
            Leave, Locked, Lost, Ping, Release, ReleaseNewest, ReleaseValue, RetimeValue, TryUpgrade,
        },
    },
};

use crate::{
    client::{Client, Events},
    ends::StartedCall,
    event_loop::Loop,
    handle::Borrowed,
    lock::Lock,
    value::HeldValue,
    values::{Given, OrThrow, duration, text},
};

#[napi]
impl Loop {
    /// The functions that every use of a lock calls. They are closures, since a method looks up `self` first (ADR 32).
    #[napi]
    pub fn starters<'e>(&self, env: &'e Env) -> Result<Object<'e>> {
        let mut all = Object::new(env)?;
        self.starter(env, &mut all, "acquire", |calls, lock: &Lock, wait| {
            calls.start(Acquire(&lock.core, lock.request(wait)?))
        })?;
        self.starter(env, &mut all, "release", |calls, lease: &Lease, _| calls.start(Release(lease)))?;
        self.starter(env, &mut all, "leave", |calls, lease: &Lease, _| calls.start(Leave(lease)))?;
        self.starter(env, &mut all, "lost", |calls, lease: &Lease, _| calls.start(Lost(lease, None)))?;
        Ok(all)
    }

    /// Adds a function that starts a call with a lock or a lease, and perhaps a setting.
    fn starter<T: 'static>(
        &self,
        env: &Env,
        all: &mut Object<'_>,
        name: &str,
        start: impl Fn(&Calls, &T, Option<Given>) -> std::result::Result<Call, LockError> + 'static,
    ) -> Result<()> {
        let calls = self.calls.clone();
        let function: Function<'_, (), StartedCall> = env.create_function_from_closure(name, move |given| {
            let target: Borrowed<'_, T> = given.get(0)?;
            let setting = if given.length() > 1 { given.get(1)? } else { None };
            start(&calls, &target, setting).or_throw(given.env).map(StartedCall)
        })?;
        all.set_named_property(name, function)
    }
}

/// Defines methods that start a call and return its result or its number. Each line defines a method: its name, its
/// arguments, and the operation that it starts.
macro_rules! starters {
    ($($name:ident($($given:tt)*) => $operation:expr;)*) => {
        #[napi]
        impl Loop {
            $(
                #[napi]
                pub fn $name(&self, env: &Env, $($given)*) -> Result<StartedCall> {
                    let start = || self.calls.start($operation);
                    start().or_throw(env).map(StartedCall)
                }
            )*
        }
    };
}

starters! {
    // The newest lease of this lock object.
    release_newest(lock: Borrowed<'_, Lock>) => ReleaseNewest(&lock.core, Owner::Fresh);
    locked(lock: Borrowed<'_, Lock>) => Locked(&lock.core);
    inspect(lock: Borrowed<'_, Lock>) => Inspect(&lock.core);
    available(lock: Borrowed<'_, Lock>) => Available(&lock.core);
    extend(lease: Borrowed<'_, Lease>, ttl: Given) => Extend(&lease, duration("ttl", ttl)?);
    downgrade(lease: Borrowed<'_, Lease>) => Downgrade(&lease);
    try_upgrade(lease: Borrowed<'_, Lease>) => TryUpgrade(&lease);
    release_value(value: &HeldValue) => ReleaseValue(&value.core);
    retime_value(value: &HeldValue, how: String, millis: f64) => RetimeValue(&value.core, how.parse()?, millis as i64);
    is_value_there(value: &HeldValue) => IsValueThere(&value.core);
    ping(client: &Client) => Ping(&client.core);
    force_release(client: &Client, name: Given) => ForceRelease(&client.core, &text("name", name)?);
    init_nodes(client: &Client) => InitNodes(&client.core);
    attach(client: &Client, given: Given) => Attach(&client.core, &text("text", given)?, Owner::Fresh);
    close(client: &Client) => Close(&client.core);
    events(events: &Events) => Operation::Events(&events.core);
}
