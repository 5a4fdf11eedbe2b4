//! The calls of one event loop. A method starts a call, and returns its result or, if the call is pending, its number.
//! The event loop is woken when pending calls end, and takes their results.

use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};

use futures_util::future::join_all;
use napi::{
    Env, Error, JsError, Result, Unknown,
    bindgen_prelude::{FnArgs, Function, JsObjectValue, Object, ToNapiValue},
    sys,
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
        Outcome, block,
        completions::Started,
    },
};

use crate::{
    at_exit,
    client::{Client, Events},
    delivery::{Delivery, Taker},
    handle::Held,
    lock::Lock,
    value::HeldValue,
    values::{Failure, Given, OrThrow, duration, result, text},
    waker::Waker,
    watch::Watch,
};
#[cfg(target_os = "linux")]
use {crate::poll::Poll, std::os::fd::AsRawFd};

/// A function without arguments.
type Listener<'env> = Function<'env, (), ()>;
/// The clients of an event loop.
type Clients = Arc<Mutex<Vec<Weak<redlock::Client>>>>;

/// The way in which an event loop is woken. `Loop` drops it before the calls, whose descriptor it may watch.
enum Wakes {
    /// The event loop itself watches a descriptor.
    #[cfg(target_os = "linux")]
    Poll(#[allow(dead_code, reason = "dropped")] Poll),
    /// A thread waits for results and wakes the event loop.
    Watch(#[allow(dead_code, reason = "dropped")] Watch),
    /// The thread that completes a call wakes the event loop.
    Waker,
}

/// The calls of one event loop.
#[napi]
pub struct Loop {
    _wakes: Wakes,
    calls: Arc<Calls>,
    clients: Clients,
}

impl Loop {
    /// The calls of an event loop of Node.
    fn of_node(env: &Env, take: &Taker<'_>) -> Result<(Arc<Calls>, Wakes)> {
        #[cfg(target_os = "linux")]
        if let Ok(calls) = Calls::hosted().map(Arc::new)
            && let Some(fd) = calls.fd()
            && let Some(poll) = Poll::new(env, fd.as_raw_fd(), Delivery::new(env, take, &calls)?)?
        {
            return Ok((calls, Wakes::Poll(poll)));
        }
        let waker = Arc::new(OnceLock::<Waker>::new());
        let known = waker.clone();
        let calls = Arc::new(Calls::new(move || {
            if let Some(waker) = known.get() {
                waker.wake();
            }
        }));
        // Not too late: no call was started yet, so there was no result to wake for.
        let _ = waker.set(Waker::new(env, Delivery::new(env, take, &calls)?)?);
        Ok((calls, Wakes::Waker))
    }

    /// The calls of an event loop of Bun or Deno, whose libuv functions do not work as Node's (ADR 41).
    fn watched(env: &Env, take: &Taker<'_>) -> Result<(Arc<Calls>, Wakes)> {
        #[cfg(unix)]
        at_exit::hooks::register();
        let calls = Arc::new(Calls::watched());
        let watch = Watch::new(env, &calls, Delivery::new(env, take, &calls)?)?;
        Ok((calls, Wakes::Watch(watch)))
    }

    fn closed_with(self, env: &Env) -> Result<Self> {
        let ending = (self.calls.clone(), self.clients.clone());
        env.add_env_cleanup_hook(ending, |(calls, clients)| end_all(&calls, &clients))?;
        Ok(self)
    }

    pub(crate) fn register(&self, client: redlock::Client) -> Arc<redlock::Client> {
        let client = Arc::new(client);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|known| known.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        client
    }
}

/// Ends the calls and closes the clients of an event loop, also when its worker thread was terminated.
fn end_all(calls: &Calls, clients: &Clients) {
    calls.end();
    let clients = std::mem::take(&mut *clients.lock().unwrap_or_else(PoisonError::into_inner));
    block(join_all(clients.iter().filter_map(Weak::upgrade).map(|client| client.close())));
}

#[napi]
impl Loop {
    /// The calls of the event loop of this thread, which calls `take` with the results. `take` gets three arguments for
    /// each result: the number of the call, its value and its failure. `is_node`: the host is Node, not Bun or Deno.
    #[napi(constructor)]
    pub fn new(env: &Env, take: Taker, is_node: bool) -> Result<Self> {
        let (calls, wakes) = if is_node { Self::of_node(env, &take)? } else { Self::watched(env, &take)? };
        Self { _wakes: wakes, calls, clients: Clients::default() }.closed_with(env)
    }

    /// Makes the process close all of its clients when it exits. For the main thread.
    #[napi]
    pub fn close_at_exit(env: &Env) -> Result<()> {
        static ONCE: Once = Once::new();
        if ONCE.is_completed() {
            return Ok(());
        }
        let close: Listener = env.create_function_from_closure("redlockExit", |_| {
            at_exit::close_clients();
            Ok(())
        })?;
        // The real `process`: that of a test runner's sandbox emits no `exit`.
        let process: Object = env.get_global()?.get_named_property("process")?;
        let on: Function<FnArgs<(&str, Listener)>, Unknown> = process.get_named_property("on")?;
        on.apply(process, ("exit", close).into())?;
        ONCE.call_once(|| {});
        Ok(())
    }

    /// Sends the calls that were started while others were pending.
    #[napi]
    pub fn flush(&self) {
        #[cfg(not(target_os = "linux"))]
        let _ = self;
        #[cfg(target_os = "linux")]
        self.calls.flush();
    }

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
            let held: Held<'_, T> = given.get(0)?;
            let setting = if given.length() > 1 { given.get(1)? } else { None };
            start(&calls, &held, setting).or_throw(given.env).map(StartedCall)
        })?;
        all.set_named_property(name, function)
    }

    /// Cancels a call. True if its result was not drained yet, and never will be.
    #[napi]
    pub fn abandon(&self, id: f64) -> bool {
        self.calls.abandon(id as u64)
    }
}

/// Makes methods that start a call, each with its arguments and its operation. They return the call's result or number.
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
    release_newest(lock: Held<'_, Lock>) => ReleaseNewest(&lock.core, Owner::Fresh);
    locked(lock: Held<'_, Lock>) => Locked(&lock.core);
    inspect(lock: Held<'_, Lock>) => Inspect(&lock.core);
    available(lock: Held<'_, Lock>) => Available(&lock.core);
    extend(lease: Held<'_, Lease>, ttl: Given) => Extend(&lease, duration("ttl", ttl)?);
    downgrade(lease: Held<'_, Lease>) => Downgrade(&lease);
    try_upgrade(lease: Held<'_, Lease>) => TryUpgrade(&lease);
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

/// Drains the results: for each call its number, its value and its failure.
pub(crate) fn ended<'e>(env: &'e Env, calls: &Calls) -> Result<Vec<[Unknown<'e>; 3]>> {
    let ended = calls.drain().or_throw(env)?.into_iter().map(|(id, outcome)| {
        // If a result cannot be converted, only its own call fails.
        let [value, failure] = end(env, outcome).or_else(|error| refused(env, error))?;
        Ok([number(id).into_unknown(env)?, value, failure])
    });
    ended.collect()
}

/// The value and the failure of a call; one of them is undefined.
fn end(env: &Env, outcome: Outcome) -> Result<[Unknown<'_>; 2]> {
    Ok(match outcome {
        Ok(value) => [result(env, value)?, ().into_unknown(env)?],
        Err(error) => [().into_unknown(env)?, Failure::from(&error).into_unknown(env)?],
    })
}

/// No value, and an error of the engine as the failure.
fn refused(env: &Env, error: Error) -> Result<[Unknown<'_>; 2]> {
    Ok([().into_unknown(env)?, JsError::from(error).into_unknown(*env)])
}

/// A started call, which JavaScript gets as its number or its result.
pub struct StartedCall(Call);

impl ToNapiValue for StartedCall {
    unsafe fn to_napi_value(env: sys::napi_env, Self(call): Self) -> Result<sys::napi_value> {
        // SAFETY: the caller's promise.
        unsafe {
            match call {
                Started::Pending(id) => f64::to_napi_value(env, number(id)),
                Started::Done(outcome) => Vec::to_napi_value(env, end(&Env::from_raw(env), outcome)?.to_vec()),
            }
        }
    }
}

/// The number of a call for JavaScript. It is exact up to 2^53, which no process reaches.
fn number(id: u64) -> f64 {
    id as f64
}
