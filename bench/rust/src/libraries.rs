//! One adapter for each library.

use std::{
    cell::RefCell,
    collections::HashMap,
    env, process,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{Cmd, aio::MultiplexedConnection};
use redlock::{
    Client, Config, Lease, Lock, LockError, LockOptions, Owner, ReadWriteLock, Request, Semaphore, Wire,
    protocol::script::{Script, scripts},
};
use tokio::task::block_in_place;

const TTL: Duration = Duration::from_secs(10);

/// How many slots a semaphore has.
const PERMITS: u32 = 10;

/// The library cannot do this.
pub(crate) struct Unsupported(pub(crate) &'static str);

/// The adapter of a library: how it acquires and releases a lock.
pub(crate) trait Library: Sized + 'static {
    type Lease: 'static;
    /// Whether calls block their thread.
    const BLOCKING: bool = false;

    async fn connect(urls: &[String]) -> Result<Self, Unsupported>;
    async fn acquire(&self, name: &str) -> Self::Lease;
    async fn release(&self, lease: Self::Lease);
    async fn close(self) {}

    /// Acquires and releases a lock as users write it, with a lock object made for this use.
    async fn block(&self, name: &str) {
        self.release(self.acquire(name).await).await;
    }

    /// Acquires a lock that the same owner may hold already.
    async fn acquire_again(&self, _name: &str) -> Result<Self::Lease, Unsupported> {
        Err(Unsupported("not re-entrant"))
    }

    /// Acquires a lock of another kind: `read` or `write` of a read/write lock, or a permit of a `semaphore`.
    async fn acquire_kind(&self, _kind: &str, _name: &str) -> Result<Self::Lease, Unsupported> {
        Err(Unsupported("has plain locks only"))
    }

    /// How many of the leases are lost, if the library renews them.
    fn lost(_leases: &[Self::Lease]) -> Result<usize, Unsupported> {
        Err(Unsupported("keeps no lease alive"))
    }
}

fn only(urls: &[String]) -> Result<&str, Unsupported> {
    if urls.len() > 1 { Err(Unsupported("one server only")) } else { Ok(&urls[0]) }
}

/// Ours with its defaults.
pub(crate) const PLAIN: u8 = 0;
/// Ours with the format of `SET name value NX PX`, which rslock writes.
pub(crate) const TOKEN_WIRE: u8 = 1;
/// Ours with fair locks.
pub(crate) const FAIR: u8 = 2;

/// Ours, for futures.
pub(crate) struct Redlock<const KIND: u8> {
    client: Client,
    locks: RefCell<HashMap<String, Lock>>,
    read_write_locks: RefCell<HashMap<String, ReadWriteLock>>,
    semaphores: RefCell<HashMap<String, Semaphore>>,
}

impl<const KIND: u8> Redlock<KIND> {
    fn connected(urls: &[String]) -> Self {
        let mut config = Config::new(urls);
        if KIND == TOKEN_WIRE {
            config.wire = Wire::Token;
        }
        config.token_ttl = env::var("BENCH_TOKEN_TTL").ok().map(|ttl| Duration::from_secs(ttl.parse().unwrap()));
        Self {
            client: Client::new(config).unwrap(),
            locks: RefCell::default(),
            read_write_locks: RefCell::default(),
            semaphores: RefCell::default(),
        }
    }

    fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        let make = || self.client.read_write_lock(name, LockOptions::default()).unwrap();
        self.read_write_locks.borrow_mut().entry(name.to_owned()).or_insert_with(make).clone()
    }

    fn semaphore(&self, name: &str) -> Semaphore {
        let make = || self.client.semaphore(name, PERMITS, LockOptions::default()).unwrap();
        self.semaphores.borrow_mut().entry(name.to_owned()).or_insert_with(make).clone()
    }

    fn new_lock(&self, name: &str) -> Lock {
        let mut options = LockOptions::default();
        options.fair = KIND == FAIR;
        self.client.lock(name, options).unwrap()
    }

    fn lock(&self, name: &str) -> Lock {
        let mut locks = self.locks.borrow_mut();
        if let Some(lock) = locks.get(name) {
            return lock.clone();
        }
        let lock = self.new_lock(name);
        locks.insert(name.to_owned(), lock.clone());
        lock
    }

    fn again(&self, name: &str) -> (Lock, Request) {
        let lock = self.lock(name);
        let request = lock.request(Owner::Explicit("bench".into()));
        (lock, request)
    }
}

impl<const KIND: u8> Library for Redlock<KIND> {
    type Lease = Lease;

    async fn connect(urls: &[String]) -> Result<Self, Unsupported> {
        if KIND == FAIR && urls.len() > 1 {
            return Err(Unsupported("needs one server"));
        }
        Ok(Self::connected(urls))
    }

    async fn acquire(&self, name: &str) -> Self::Lease {
        self.lock(name).acquire().await.unwrap()
    }

    async fn release(&self, lease: Self::Lease) {
        lease.release().await.unwrap();
    }

    async fn block(&self, name: &str) {
        self.release(self.new_lock(name).acquire().await.unwrap()).await;
    }

    async fn close(self) {
        self.client.close().await;
    }

    async fn acquire_again(&self, name: &str) -> Result<Self::Lease, Unsupported> {
        let (lock, request) = self.again(name);
        Ok(lock.acquire_as(request).await.unwrap())
    }

    async fn acquire_kind(&self, kind: &str, name: &str) -> Result<Self::Lease, Unsupported> {
        let lease = match kind {
            "read" => self.read_write_lock(name).read().acquire().await,
            "write" => self.read_write_lock(name).write().acquire().await,
            "semaphore" => self.semaphore(name).acquire().await,
            _ => panic!("unknown kind {kind}"),
        };
        Ok(lease.unwrap())
    }

    fn lost(leases: &[Self::Lease]) -> Result<usize, Unsupported> {
        Ok(leases.iter().filter(|lease| !lease.held()).count())
    }
}

/// Ours, for threads that block.
pub(crate) struct RedlockBlocking(Redlock<PLAIN>);

impl RedlockBlocking {
    fn acquire(lock: &Lock, request: Request) -> Lease {
        block_in_place(|| lock.acquire_interruptible(request, &mut || Ok::<(), LockError>(()))).unwrap()
    }
}

impl Library for RedlockBlocking {
    type Lease = Lease;
    const BLOCKING: bool = true;

    async fn connect(urls: &[String]) -> Result<Self, Unsupported> {
        Ok(Self(Redlock::connected(urls)))
    }

    async fn acquire(&self, name: &str) -> Self::Lease {
        let lock = self.0.lock(name);
        Self::acquire(&lock, lock.request(Owner::Fresh))
    }

    async fn block(&self, name: &str) {
        let lock = self.0.new_lock(name);
        self.release(Self::acquire(&lock, lock.request(Owner::Fresh))).await;
    }

    async fn release(&self, lease: Self::Lease) {
        block_in_place(|| lease.release_interruptible(&mut || Ok::<(), LockError>(()))).unwrap();
    }

    async fn close(self) {
        self.0.client.close().await;
    }

    async fn acquire_again(&self, name: &str) -> Result<Self::Lease, Unsupported> {
        let (lock, request) = self.0.again(name);
        Ok(Self::acquire(&lock, request))
    }
}

/// The scripts of an uncontended lock, for the bare clients of all languages.
pub(crate) fn sources() -> serde_json::Value {
    let scripts = scripts(Wire::Redisson);
    serde_json::json!({ "acquire": scripts.acquire.source, "release": scripts.release.source })
}

/// The scripts of an uncontended lock with their arguments, as ours sends them.
struct Words {
    id: String,
    numbers: AtomicU64,
    take: &'static Script,
    free: &'static Script,
}

impl Words {
    fn new() -> Self {
        let scripts = scripts(Wire::Redisson);
        Self {
            id: format!("00000000-0000-4000-8000-{:012}", process::id()),
            numbers: AtomicU64::new(0),
            take: &scripts.acquire,
            free: &scripts.release,
        }
    }

    fn load(&self) -> [Cmd; 2] {
        [self.take, self.free].map(|script| {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(&script.source);
            load
        })
    }

    fn acquire(&self, name: &str) -> (String, Cmd) {
        let field = format!("{}:{}", self.id, self.numbers.fetch_add(1, Ordering::Relaxed));
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.take.sha).arg(2).arg(name).arg(format!("redlock_token:{{{name}}}"));
        call.arg(&field).arg("").arg(TTL.as_millis() as u64).arg(3_600_000).arg(0);
        (field, call)
    }

    fn release(&self, name: &str, field: &str) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.free.sha).arg(1).arg(name).arg(field).arg(format!("redisson_lock__channel:{{{name}}}"));
        call
    }
}

/// No library: the `redis` crate's multiplexed connection sends the two scripts. The floor.
pub(crate) struct Bare {
    connection: MultiplexedConnection,
    words: Words,
}

impl Library for Bare {
    type Lease = (String, String);

    async fn connect(urls: &[String]) -> Result<Self, Unsupported> {
        let client = redis::Client::open(only(urls)?).unwrap();
        let (mut connection, words) = (client.get_multiplexed_async_connection().await.unwrap(), Words::new());
        for load in words.load() {
            load.exec_async(&mut connection).await.unwrap();
        }
        Ok(Self { connection, words })
    }

    async fn acquire(&self, name: &str) -> Self::Lease {
        let (field, call) = self.words.acquire(name);
        let vote: String = call.query_async(&mut self.connection.clone()).await.unwrap();
        assert!(vote.starts_with("1 "), "{vote}");
        (name.to_owned(), field)
    }

    async fn release(&self, (name, field): Self::Lease) {
        let released: u64 = self.words.release(&name, &field).query_async(&mut self.connection.clone()).await.unwrap();
        assert_eq!(released, 1);
    }
}

/// The same floor over a blocking connection.
pub(crate) struct BareBlocking {
    connection: RefCell<redis::Connection>,
    words: Words,
}

impl Library for BareBlocking {
    type Lease = (String, String);
    const BLOCKING: bool = true;

    async fn connect(urls: &[String]) -> Result<Self, Unsupported> {
        let client = redis::Client::open(only(urls)?).unwrap();
        let (mut connection, words) = (client.get_connection().unwrap(), Words::new());
        for load in words.load() {
            load.exec(&mut connection).unwrap();
        }
        Ok(Self { connection: RefCell::new(connection), words })
    }

    async fn acquire(&self, name: &str) -> Self::Lease {
        let (field, call) = self.words.acquire(name);
        let vote: String = call.query(&mut *self.connection.borrow_mut()).unwrap();
        assert!(vote.starts_with("1 "), "{vote}");
        (name.to_owned(), field)
    }

    async fn release(&self, (name, field): Self::Lease) {
        let released: u64 = self.words.release(&name, &field).query(&mut *self.connection.borrow_mut()).unwrap();
        assert_eq!(released, 1);
    }
}

/// rslock. Its waiters retry after up to 200 ms, three times by default; here until they get the lock.
pub(crate) struct Rslock(rslock::LockManager);

impl Library for Rslock {
    type Lease = rslock::Lock;

    async fn connect(urls: &[String]) -> Result<Self, Unsupported> {
        let mut manager = rslock::LockManager::new(urls.iter().map(String::as_str).collect());
        manager.set_retry(10_000, Duration::from_millis(200));
        Ok(Self(manager))
    }

    async fn acquire(&self, name: &str) -> Self::Lease {
        self.0.lock(name.as_bytes(), TTL).await.unwrap()
    }

    async fn release(&self, lease: Self::Lease) {
        self.0.unlock(&lease).await;
    }

    async fn block(&self, name: &str) {
        self.0.acquire(name.as_bytes(), TTL).await.unwrap().release().await;
    }
}
