//! One event loop's side of the core. Calls start here and return their end or a number; what the others end with comes
//! out of `drain`, which is called when a descriptor that the event loop watches is readable.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, Once, PoisonError, Weak},
};

use futures_util::future::join_all;
use napi::{
    Env, Result, Unknown,
    bindgen_prelude::{FnArgs, Function, JsObjectValue, Object, ToNapiValue},
};
use napi_derive::napi;
use redlock::{
    LockError, Owner, Request,
    ffi::{Call, Calls, Outcome, completions::Begun},
    process::{driver::Driver, runtime},
};

use crate::{
    client::{Client, Events},
    lease::Lease,
    lock::Lock,
    value::HeldValue,
    values::{Failure, Given, NODE, OrThrow, result, setting},
    waker::Waker,
};
#[cfg(target_os = "linux")]
use {crate::poll::Poll, std::os::fd::AsRawFd};

/// A function without arguments.
type Listener<'env> = Function<'env, (), ()>;
/// The clients of an event loop.
type Clients = Arc<Mutex<Vec<Weak<redlock::Client>>>>;

/// The calls of one event loop.
#[napi]
pub struct Loop {
    /// Closed before the descriptor it watches.
    #[cfg(target_os = "linux")]
    _poll: Option<Poll>,
    calls: Arc<Calls>,
    clients: Clients,
}

impl Loop {
    fn closed_with(self, env: &Env) -> Result<Self> {
        let ending = (self.calls.clone(), self.clients.clone());
        env.add_env_cleanup_hook(ending, |(calls, clients)| close(&calls, &clients))?;
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

/// What a worker thread's event loop leaves behind ends with it, also when the thread was terminated.
fn close(calls: &Calls, clients: &Clients) {
    calls.end();
    let clients = std::mem::take(&mut *clients.lock().unwrap_or_else(PoisonError::into_inner));
    block(join_all(clients.iter().filter_map(Weak::upgrade).map(|client| client.close())));
}

fn block<T>(future: impl Future<Output = T>) {
    let Ok(_) = runtime::block(Driver::Background, future, &mut || Ok::<_, Infallible>(())) else { return };
}

#[napi]
impl Loop {
    /// The calls of the event loop that makes it; `wake` is called there when there is something to drain.
    #[napi(constructor)]
    pub fn new(env: &Env, wake: Listener) -> Result<Self> {
        let clients = Clients::default();
        #[cfg(target_os = "linux")]
        if let Ok(calls) = Calls::hosted()
            && let Some(fd) = calls.fd()
            && let Some(poll) = Poll::new(env, fd.as_raw_fd(), wake)?
        {
            return Self { _poll: Some(poll), calls: Arc::new(calls), clients }.closed_with(env);
        }
        let waker = Waker::new(env, wake)?;
        let calls = Arc::new(Calls::new(move || waker.wake()));
        Self {
            #[cfg(target_os = "linux")]
            _poll: None,
            calls,
            clients,
        }
        .closed_with(env)
    }

    /// Closes every client of the process when it exits. For the main thread.
    #[napi]
    pub fn close_at_exit(env: &Env) -> Result<()> {
        static ONCE: Once = Once::new();
        if ONCE.is_completed() {
            return Ok(());
        }
        let close: Listener = env.create_function_from_closure("redlockExit", |_| {
            block(redlock::close_all());
            Ok(())
        })?;
        // Not the `process` of a test runner's sandbox, which hears of no exit.
        let process: Object = env.get_global()?.get_named_property("process")?;
        let on: Function<FnArgs<(&str, Listener)>, Unknown> = process.get_named_property("on")?;
        on.apply(process, ("exit", close).into())?;
        ONCE.call_once(|| {});
        Ok(())
    }

    /// What ended since the last time: the number of each call, its value, and the failure it ended with instead.
    #[napi]
    pub fn drain<'e>(&self, env: &'e Env) -> Result<Vec<Unknown<'e>>> {
        let ended = self.calls.drain().or_throw(env)?;
        let mut flat = Vec::with_capacity(ended.len() * 3);
        for (id, outcome) in ended {
            let [value, failure] = end(env, outcome)?;
            flat.extend([number(id).into_unknown(env)?, value, failure]);
        }
        Ok(flat)
    }

    /// Sends what was begun while other calls were under way.
    #[napi]
    pub fn flush(&self) {
        #[cfg(not(target_os = "linux"))]
        let _ = self;
        #[cfg(target_os = "linux")]
        self.calls.flush();
    }

    /// Gives up a call; says whether it was not drained, so that nothing more comes of it.
    #[napi]
    pub fn abandon(&self, id: f64) -> bool {
        self.calls.abandon(id as u64)
    }

    /// Starts an acquire; without `wait` it waits as long as the lock says.
    #[napi]
    pub fn acquire<'e>(&self, env: &'e Env, lock: &Lock, wait: Option<Given>) -> Result<Unknown<'e>> {
        let mut request = lock.core.request(Owner::Fresh);
        if let Some(wait) = wait {
            request = Request { wait: Some(NODE.duration("wait", &setting(wait)).or_throw(env)?), ..request };
        }
        begun(env, self.calls.acquire(&lock.core, request))
    }

    /// Starts `lock.release()`.
    #[napi]
    pub fn release_newest<'e>(&self, env: &'e Env, lock: &Lock) -> Result<Unknown<'e>> {
        begun(env, self.calls.release_newest(&lock.core, &Owner::Fresh))
    }

    /// Starts `lock.locked()`.
    #[napi]
    pub fn locked(&self, env: &Env, lock: &Lock) -> Result<f64> {
        self.calls.locked(&lock.core).map(number).or_throw(env)
    }

    /// Starts `lock.inspect()`.
    #[napi]
    pub fn inspect(&self, env: &Env, lock: &Lock) -> Result<f64> {
        self.calls.inspect(&lock.core).map(number).or_throw(env)
    }

    /// Starts `lease.release()`.
    #[napi]
    pub fn release<'e>(&self, env: &'e Env, lease: &Lease) -> Result<Unknown<'e>> {
        begun(env, self.calls.release(&lease.core))
    }

    /// Starts to end the block of a lease.
    #[napi]
    pub fn leave<'e>(&self, env: &'e Env, lease: &Lease) -> Result<Unknown<'e>> {
        begun(env, self.calls.leave(&lease.core))
    }

    /// Starts `lease.extend()`.
    #[napi]
    pub fn extend<'e>(&self, env: &'e Env, lease: &Lease, ttl: Given) -> Result<Unknown<'e>> {
        begun(env, NODE.duration("ttl", &setting(ttl)).and_then(|ttl| self.calls.extend(&lease.core, ttl)))
    }

    /// Waits for the end of a lease: why it was lost, if it was.
    #[napi]
    pub fn lost(&self, env: &Env, lease: &Lease) -> Result<f64> {
        self.calls.lost(&lease.core).map(number).or_throw(env)
    }

    /// Starts `value.release()`: whether it was there.
    #[napi]
    pub fn release_value(&self, env: &Env, value: &HeldValue) -> Result<f64> {
        self.calls.release_value(&value.core).map(number).or_throw(env)
    }

    /// Starts `value.retime()`: whether it was there. `how`: "add", "replace" or "set".
    #[napi]
    pub fn retime_value(&self, env: &Env, value: &HeldValue, how: String, millis: f64) -> Result<f64> {
        how.parse().and_then(|how| self.calls.retime_value(&value.core, how, millis as i64)).map(number).or_throw(env)
    }

    /// Starts `value.isThere()`.
    #[napi]
    pub fn is_value_there(&self, env: &Env, value: &HeldValue) -> Result<f64> {
        self.calls.is_value_there(&value.core).map(number).or_throw(env)
    }

    /// Starts `client.ping()`.
    #[napi]
    pub fn ping(&self, env: &Env, client: &Client) -> Result<f64> {
        self.calls.ping(&client.core).map(number).or_throw(env)
    }

    /// Starts `client.forceRelease()`.
    #[napi]
    pub fn force_release(&self, env: &Env, client: &Client, name: Given) -> Result<f64> {
        redlock::ffi::text("name", setting(name))
            .and_then(|name| self.calls.force_release(&client.core, &name))
            .map(number)
            .or_throw(env)
    }

    /// Starts `client.initNodes()`.
    #[napi]
    pub fn init_nodes(&self, env: &Env, client: &Client) -> Result<f64> {
        self.calls.init_nodes(&client.core).map(number).or_throw(env)
    }

    /// Starts `client.attach()`.
    #[napi]
    pub fn attach(&self, env: &Env, client: &Client, text: Given) -> Result<f64> {
        redlock::ffi::text("text", setting(text))
            .and_then(|text| self.calls.attach(&client.core, &text, Owner::Fresh))
            .map(number)
            .or_throw(env)
    }

    /// Starts `client.close()`.
    #[napi]
    pub fn close(&self, env: &Env, client: &Client) -> Result<f64> {
        self.calls.close(&client.core).map(number).or_throw(env)
    }

    /// Waits until something happened in a client; nothing once that client is gone.
    #[napi]
    pub fn events(&self, env: &Env, events: &Events) -> Result<f64> {
        self.calls.events(&events.core).map(number).or_throw(env)
    }
}

/// The value of a call, and the failure it ended with instead.
fn end(env: &Env, outcome: Outcome) -> Result<[Unknown<'_>; 2]> {
    Ok(match outcome {
        Ok(value) => [result(env, value)?, ().into_unknown(env)?],
        Err(error) => [().into_unknown(env)?, Failure::from(&error).into_unknown(env)?],
    })
}

/// The number of a call, or its end.
fn begun(env: &Env, call: std::result::Result<Call, LockError>) -> Result<Unknown<'_>> {
    match call.or_throw(env)? {
        Begun::Pending(id) => number(id).into_unknown(env),
        Begun::Done(outcome) => end(env, outcome)?.to_vec().into_unknown(env),
    }
}

/// Numbers of calls are exact as JavaScript's up to 2^53: for longer than any process lives.
fn number(id: u64) -> f64 {
    id as f64
}
