//! A client, and the queue of its events.

use std::sync::Arc;

use napi::{Env, Result, bindgen_prelude::Function};
use napi_derive::napi;
use redlock::{Config, LockError, ffi};

use crate::{
    event_loop::Loop,
    handle::Handle,
    lock::{Lock, Unbound, unbound},
    value::HeldValue,
    values::{Given, NODE, Options, OrThrow, permits, settings},
};

/// A JavaScript function that makes a lock of a name and options.
type LockMaker<'env> = Function<'env, (), Handle<Lock>>;

/// A client of the core.
#[napi]
pub struct Client {
    pub(crate) core: Arc<redlock::Client>,
    events: ffi::Events,
}

/// The events of a client that are not fetched yet. Does not keep the client alive.
#[napi]
pub struct Events {
    pub(crate) core: ffi::Events,
}

impl Client {
    fn of(env: &Env, owner: &Loop, config: std::result::Result<Config, LockError>) -> Result<Self> {
        let (sink, events) = ffi::Events::queue();
        let core = config.and_then(|config| redlock::Client::with_events(config, sink)).or_throw(env)?;
        Ok(Self { core: owner.register(core), events })
    }

    fn made(&self, env: &Env, lock: std::result::Result<redlock::Lock, LockError>) -> Result<Handle<Lock>> {
        Ok(Handle(Lock { core: lock.or_throw(env)?, _client: self.core.clone() }))
    }
}

#[napi]
impl Client {
    /// A client of these nodes. Sends nothing.
    #[napi(constructor)]
    pub fn new(env: &Env, owner: &Loop, urls: Vec<String>, options: Options) -> Result<Self> {
        Self::of(env, owner, NODE.config(urls, settings(options)))
    }

    /// A client of the nodes in `REDLOCK_URL`. `variable` is its value, if the event loop has an environment of its
    /// own.
    #[napi(factory)]
    pub fn from_environment(env: &Env, owner: &Loop, variable: Option<String>, options: Options) -> Result<Self> {
        let config = match variable {
            Some(urls) => NODE.config(Config::from_list(&urls).urls, settings(options)),
            None => NODE.config_from_env(settings(options)),
        };
        Self::of(env, owner, config)
    }

    /// The nodes' addresses, without credentials.
    #[napi(getter)]
    pub fn nodes(&self) -> Vec<String> {
        self.core.nodes()
    }

    /// Returns the function that makes locks by name. Sends nothing.
    #[napi]
    pub fn locks<'e>(&self, env: &'e Env) -> Result<LockMaker<'e>> {
        let client = self.core.clone();
        env.create_function_from_closure("lock", move |given| {
            let (name, options) = (given.get(0)?, given.get(1)?);
            let lock = unbound(name, options, ffi::Part::Whole).and_then(|lock| lock.of(&client));
            Ok(Handle(Lock { core: lock.or_throw(given.env)?, _client: client.clone() }))
        })
    }

    /// One side of a read/write lock: "read" or "write". Sends nothing.
    #[napi]
    pub fn part(&self, env: &Env, name: Given, options: Option<Options>, part: String) -> Result<Handle<Lock>> {
        self.made(env, unbound(name, options, ffi::Part::named(Some(&part))).and_then(|lock| lock.of(&self.core)))
    }

    /// A lock object that acquires `n` slots of a semaphore with `of` slots. Sends nothing.
    #[napi]
    pub fn permits(
        &self,
        env: &Env,
        name: Given,
        options: Option<Options>,
        n: Given,
        of: Given,
    ) -> Result<Handle<Lock>> {
        let lock = permits(&n, &of).and_then(|part| unbound(name, options, part));
        self.made(env, lock.and_then(|lock| lock.of(&self.core)))
    }

    /// Makes a lock of this client from one without a client. Sends nothing.
    #[napi]
    pub fn bind_lock(&self, env: &Env, lock: &Unbound) -> Result<Handle<Lock>> {
        self.made(env, lock.core.of(&self.core))
    }

    /// For drop-in shims: a lock with a value that their library chose, held for `ttl` ms or, without it, for ever.
    #[napi]
    pub fn shim_lock(&self, env: &Env, name: String, value: String, ttl: Option<f64>) -> Result<Handle<Lock>> {
        self.made(env, self.core.lock(&name, ffi::shim_options(value, ttl.map(|millis| millis as u64))))
    }

    /// For drop-in shims: a value that may be in the key of a lock.
    #[napi]
    pub fn value(&self, env: &Env, name: String, value: String) -> Result<HeldValue> {
        Ok(HeldValue { core: self.core.value(&name, &value).or_throw(env)?, _client: self.core.clone() })
    }

    /// The queue of its events.
    #[napi(getter)]
    pub fn events(&self) -> Events {
        Events { core: self.events.clone() }
    }
}

#[napi]
impl Events {
    /// Sets whether events that are not warnings are queued, too.
    #[napi]
    pub fn set_verbose(&self, verbose: bool) {
        self.core.set_verbose(verbose);
    }
}
