//! One event loop's side of the core. Calls start here and return a number; what they end with comes out of `drain`,
//! for which the event loop is woken once, by a thread-safe function that does not keep the process alive.

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
use redlock::{Owner, Request, host::Calls, node::Lane, runtime};

use crate::{
    client::{Client, Events},
    lease::Lease,
    lock::Lock,
    values::{Failure, Given, NODE, OrThrow, result, setting},
    waker::Waker,
};

/// A function without arguments.
type Listener<'env> = Function<'env, (), ()>;
/// The clients of an event loop.
type Clients = Arc<Mutex<Vec<Weak<redlock::Client>>>>;

/// The calls of one event loop.
#[napi]
pub struct Loop {
    calls: Calls,
    clients: Clients,
}

impl Loop {
    pub(crate) fn register(&self, client: redlock::Client) -> Arc<redlock::Client> {
        let client = Arc::new(client);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|known| known.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        client
    }
}

/// What a worker thread's event loop leaves behind ends with it, also when the thread was terminated.
fn close(clients: &Clients) {
    let clients = std::mem::take(&mut *clients.lock().unwrap_or_else(PoisonError::into_inner));
    block(join_all(clients.iter().filter_map(Weak::upgrade).map(|client| client.close())));
}

fn block<T>(future: impl Future<Output = T>) {
    let Ok(_) = runtime::block(Lane::Background, future, &mut || Ok::<_, Infallible>(())) else { return };
}

#[napi]
impl Loop {
    /// The calls of the event loop that makes it; `wake` is called there when there is something to drain.
    #[napi(constructor)]
    pub fn new(env: &Env, wake: Listener) -> Result<Self> {
        let waker = Waker::new(env, wake)?;
        let clients = Clients::default();
        env.add_env_cleanup_hook(clients.clone(), |clients| close(&clients))?;
        Ok(Self { calls: Calls::new(move || waker.wake()), clients })
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
            let (value, failure) = match outcome {
                Ok(value) => (result(env, value)?, ().into_unknown(env)?),
                Err(error) => (().into_unknown(env)?, Failure::from(&error).into_unknown(env)?),
            };
            flat.extend([number(id).into_unknown(env)?, value, failure]);
        }
        Ok(flat)
    }

    /// Gives up a call; says whether it was not drained, so that nothing more comes of it.
    #[napi]
    pub fn abandon(&self, id: f64) -> bool {
        self.calls.abandon(id as u64)
    }

    /// Starts an acquire; without `wait` it waits as long as the lock says.
    #[napi]
    pub fn acquire(&self, env: &Env, lock: &Lock, wait: Option<Given>) -> Result<f64> {
        let mut request = lock.core.request(Owner::Fresh);
        if let Some(wait) = wait {
            request = Request { wait: Some(NODE.duration("wait", &setting(wait)).or_throw(env)?), ..request };
        }
        self.calls.acquire(&lock.core, request).map(number).or_throw(env)
    }

    /// Starts `lock.release()`.
    #[napi]
    pub fn release_newest(&self, env: &Env, lock: &Lock) -> Result<f64> {
        self.calls.release_newest(&lock.core, &Owner::Fresh).map(number).or_throw(env)
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
    pub fn release(&self, env: &Env, lease: &Lease) -> Result<f64> {
        self.calls.release(&lease.core).map(number).or_throw(env)
    }

    /// Starts to end the block of a lease.
    #[napi]
    pub fn leave(&self, env: &Env, lease: &Lease) -> Result<f64> {
        self.calls.leave(&lease.core).map(number).or_throw(env)
    }

    /// Starts `lease.extend()`.
    #[napi]
    pub fn extend(&self, env: &Env, lease: &Lease, ttl: Given) -> Result<f64> {
        NODE.duration("ttl", &setting(ttl))
            .and_then(|ttl| self.calls.extend(&lease.core, ttl))
            .map(number)
            .or_throw(env)
    }

    /// Waits for the end of a lease: why it was lost, if it was.
    #[napi]
    pub fn lost(&self, env: &Env, lease: &Lease) -> Result<f64> {
        self.calls.lost(&lease.core).map(number).or_throw(env)
    }

    /// Starts `client.ping()`.
    #[napi]
    pub fn ping(&self, env: &Env, client: &Client) -> Result<f64> {
        self.calls.ping(&client.core).map(number).or_throw(env)
    }

    /// Starts `client.forceRelease()`.
    #[napi]
    pub fn force_release(&self, env: &Env, client: &Client, name: Given) -> Result<f64> {
        redlock::host::text("name", setting(name))
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
        redlock::host::text("text", setting(text))
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

/// Numbers of calls are exact as JavaScript's up to 2^53: for longer than any process lives.
fn number(id: u64) -> f64 {
    id as f64
}
