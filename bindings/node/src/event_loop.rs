//! The calls of one event loop, which `starters.rs` starts. The event loop is woken when pending calls end, and takes
//! their results.

use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError, Weak};

use futures_util::future::join_all;
use napi::{
    Env, Result, Unknown,
    bindgen_prelude::{FnArgs, Function, JsObjectValue, Object},
};
use napi_derive::napi;
use redlock::ffi::{Calls, block};

use crate::{
    at_exit,
    delivery::{Delivery, Taker},
    waker::Waker,
    watch::Watch,
};
#[cfg(target_os = "linux")]
use {crate::poll::Poll, std::os::fd::AsRawFd};

/// A function without arguments.
type Listener<'env> = Function<'env, (), ()>;
/// The clients of an event loop.
type Clients = Arc<Mutex<Vec<Weak<redlock::Client>>>>;

/// How an event loop learns of results. `Loop` drops it before the calls, whose descriptor it may watch.
enum WokenBy {
    /// The event loop itself watches a descriptor.
    #[cfg(target_os = "linux")]
    Descriptor(#[allow(dead_code, reason = "dropped")] Poll),
    /// A thread waits for results and wakes the event loop.
    Thread(#[allow(dead_code, reason = "dropped")] Watch),
    /// The thread that completes a call wakes the event loop.
    Completer,
}

/// The calls of one event loop.
#[napi]
pub struct Loop {
    _woken_by: WokenBy,
    pub(crate) calls: Arc<Calls>,
    clients: Clients,
}

impl Loop {
    /// The calls of an event loop of Node.
    fn of_node(env: &Env, take: &Taker<'_>) -> Result<(Arc<Calls>, WokenBy)> {
        #[cfg(target_os = "linux")]
        if let Ok(calls) = Calls::hosted().map(Arc::new)
            && let Some(fd) = calls.fd()
            && let Some(poll) = Poll::new(env, fd.as_raw_fd(), Delivery::new(env, take, &calls)?)?
        {
            return Ok((calls, WokenBy::Descriptor(poll)));
        }
        let waker = Arc::new(OnceLock::<Waker>::new());
        let known = waker.clone();
        let calls = Arc::new(Calls::new(move || {
            if let Some(waker) = known.get() {
                waker.wake();
            }
        }));
        // No call was started yet, so no wake-up was missed before the waker is set.
        let _ = waker.set(Waker::new(env, Delivery::new(env, take, &calls)?)?);
        Ok((calls, WokenBy::Completer))
    }

    /// The calls of an event loop of Bun or Deno, whose libuv functions do not work as Node's (ADR 41).
    fn watched(env: &Env, take: &Taker<'_>) -> Result<(Arc<Calls>, WokenBy)> {
        #[cfg(unix)]
        at_exit::hooks::register();
        let calls = Arc::new(Calls::watched());
        let watch = Watch::new(env, &calls, Delivery::new(env, take, &calls)?)?;
        Ok((calls, WokenBy::Thread(watch)))
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
    calls.abandon_all();
    let clients = std::mem::take(&mut *clients.lock().unwrap_or_else(PoisonError::into_inner));
    block(join_all(clients.iter().filter_map(Weak::upgrade).map(|client| client.close())));
}

#[napi]
impl Loop {
    /// The calls of the event loop of this thread, which calls `take` with the results. `take` gets three arguments for
    /// each result: the number of the call, its value and its failure. `is_node`: the host is Node, not Bun or Deno.
    #[napi(constructor)]
    pub fn new(env: &Env, take: Taker, is_node: bool) -> Result<Self> {
        let (calls, woken_by) = if is_node { Self::of_node(env, &take)? } else { Self::watched(env, &take)? };
        Self { _woken_by: woken_by, calls, clients: Clients::default() }.closed_with(env)
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

    /// Cancels a call. True if the host has not received its result and never will.
    #[napi]
    pub fn abandon(&self, id: f64) -> bool {
        self.calls.abandon(id as u64)
    }
}
