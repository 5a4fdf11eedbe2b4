//! A process that acquires locks, acts and releases them, over and over, and logs what it does: the body of the binary
//! `worker`, and the handle to such a process.
//!
//! In each tenure it acts as a careful program does: it reads the register with its token, checks that it still holds
//! the lock, works, and writes. Between the check and the write the lock may be lost, which is why the register checks
//! tokens as well. A reader writes nothing; a permit does all this for each of its slots. Some tenures are kept until
//! their leases end; some writers become readers, and some readers writers. A worker that still believes in a lease after
//! its deadline panics.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use fastrand::Rng;
use redlock::{Client, Config, Lease, LockError, LockOptions, ReleaseOutcome, Ttl};
use serde::{Deserialize, Serialize};
use tokio::{task::LocalSet, time::sleep};

use crate::{
    history::{self, Hold, Kind, Share},
    locked,
    process::{monotonic, signal},
    register::{Access, Check},
    target::{self, Target},
};

/// The number of grants that one byte of the process's output stands for.
const STEP: u64 = 10;
/// The shortest ttl that a watchdog may renew, in ms.
const SHORTEST_WATCHDOG: u64 = 300;
/// The share of tenures of read/write locks that try to change from one way to hold to the other.
const CHANGES: f64 = 0.1;

/// The orders of a worker, which it gets as its one argument in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The nodes.
    pub urls: Vec<String>,
    /// The quorum, by default a majority.
    pub quorum: Option<usize>,
    /// Whether restarted nodes do not vote for a while.
    pub quarantine: bool,
    /// The kind of the locks.
    pub kind: Kind,
    /// The number of locks.
    pub names: usize,
    /// The largest number of concurrent tenures.
    pub tasks: usize,
    /// The ttl of a lease, and the longest ttl on these nodes.
    pub ttl_ms: u64,
    /// How long an acquire waits.
    pub wait_ms: u64,
    /// The longest work between check and write.
    pub work_us: u64,
    /// The share of tenures with work.
    pub works: f64,
    /// The share of tenures that are kept until the lease ends.
    pub stays: f64,
    /// By which share a server's clock may run faster than the worker's.
    pub drift: f64,
    /// The URL of the register.
    pub register: String,
    /// How strictly the register checks tokens.
    pub check: Check,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The directory of its logs, one for each lock.
    pub logs: PathBuf,
}

/// The name of a lock.
pub fn name(number: usize) -> String {
    format!("lock-{number}")
}

/// The names of what one lock protects in the register: one for each slot of a semaphore.
pub fn protected(kind: Kind, name: &str) -> Vec<String> {
    match kind {
        Kind::Semaphore { permits } => (0..permits).map(|slot| format!("{name}/{slot}")).collect(),
        _ => vec![name.to_owned()],
    }
}

/// A worker's process, which is killed when dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    grants: Arc<AtomicU64>,
    logs: PathBuf,
}

impl Worker {
    /// Starts the binary at `program`.
    pub fn start(program: &Path, orders: &Orders) -> io::Result<Self> {
        fs::create_dir_all(&orders.logs)?;
        let orders_text = serde_json::to_string(orders)?;
        let mut command = Command::new(program);
        let mut child = command.arg(orders_text).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let grants = Arc::new(AtomicU64::new(0));
        if let Some(mut output) = child.stdout.take() {
            let grants = grants.clone();
            thread::spawn(move || {
                let mut bytes = [0; 256];
                while let Ok(count @ 1..) = output.read(&mut bytes) {
                    grants.fetch_add(count as u64 * STEP, SeqCst);
                }
            });
        }
        Ok(Self { child, grants, logs: orders.logs.clone() })
    }

    /// The number of its grants so far, approximately.
    pub fn grants(&self) -> u64 {
        self.grants.load(SeqCst)
    }

    /// Suspends it.
    pub fn freeze(&self) {
        signal(&self.child, libc::SIGSTOP);
    }

    /// Resumes it.
    pub fn thaw(&self) {
        signal(&self.child, libc::SIGCONT);
    }

    /// Makes it end: it exits once all of its calls have returned.
    pub fn finish(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The directory of its logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The history of one lock, from the logs of workers.
pub fn history<'a>(logs: impl IntoIterator<Item = &'a Path>, name: &str) -> io::Result<Vec<Hold>> {
    let logs = logs.into_iter().map(|logs| logs.join(name));
    history::read(logs.filter(|log| log.exists()))
}

/// The number of failed acquires, by error code.
pub fn failures<'a>(logs: impl IntoIterator<Item = &'a Path>) -> io::Result<BTreeMap<String, u64>> {
    let mut sum = BTreeMap::new();
    for log in logs.into_iter().map(|logs| logs.join("failures")).filter(|log| log.exists()) {
        let failures: BTreeMap<String, u64> = serde_json::from_str(&fs::read_to_string(log)?)?;
        for (code, count) in failures {
            *sum.entry(code).or_default() += count;
        }
    }
    Ok(sum)
}

/// The state that the tasks of a worker share.
struct Work {
    orders: Orders,
    /// For each name, a lock with a fixed ttl and one with a renewed ttl.
    locks: Vec<[Target; 2]>,
    logs: Mutex<HashMap<usize, File>>,
    failures: Mutex<BTreeMap<&'static str, u64>>,
    grants: AtomicU64,
    over: AtomicBool,
}

/// Carries out the orders until its standard input ends.
pub fn run(orders: Orders) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watchdog = Duration::from_millis(orders.ttl_ms.max(SHORTEST_WATCHDOG));
    let mut config = Config::new(orders.urls.clone());
    config.quorum = orders.quorum;
    config.quarantine = orders.quarantine;
    config.drift = orders.drift;
    config.watchdog = watchdog;
    config.max_ttl = watchdog;
    config.patience = Duration::from_millis(orders.wait_ms).max(Duration::from_millis(1));
    let client = Client::new(config)?;
    let lock = |number, ttl| {
        let mut options = LockOptions::default();
        options.ttl = ttl;
        options.wait = Some(Duration::from_millis(orders.wait_ms));
        Target::new(&client, orders.kind, &name(number), options)
    };
    let fixed = Ttl::Fixed(Duration::from_millis(orders.ttl_ms));
    let locks = (0..orders.names).map(|number| Ok([lock(number, fixed)?, lock(number, Ttl::Watchdog)?]));
    let work = Rc::new(Work {
        locks: locks.collect::<Result<_, LockError>>()?,
        logs: Mutex::default(),
        failures: Mutex::default(),
        grants: AtomicU64::new(0),
        over: AtomicBool::new(false),
        orders,
    });
    let (ended, mut input) = tokio::sync::watch::channel(false);
    thread::spawn(move || {
        // The parent sends nothing: the end of the input is the message, even if the parent died.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = ended.send(true);
    });
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let access = Access::connect(&work.orders.register, work.orders.check).await?;
        let mut dice = Rng::with_seed(work.orders.seed);
        let mut running = Vec::new();
        for _ in 0..work.orders.tasks {
            running.push(tokio::task::spawn_local(work.clone().go_on(access.clone(), dice.fork())));
        }
        let told = work.clone();
        tokio::task::spawn_local(async move {
            // An error ends it as well.
            let _ = input.wait_for(|ended| *ended).await;
            told.over.store(true, SeqCst);
        });
        for task in running {
            task.await??;
        }
        client.close().await;
        fs::write(work.orders.logs.join("failures"), serde_json::to_string(&*locked(&work.failures))?)?;
        Ok(())
    })
}

/// Why a worker gave up.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Work {
    async fn go_on(self: Rc<Self>, mut access: Access, mut dice: Rng) -> Result<(), Failure> {
        while !self.over.load(SeqCst) {
            let number = dice.usize(0..self.locks.len());
            let renewed = dice.bool();
            let (lock, share) = self.locks[number][usize::from(renewed)].draw(&mut dice)?;
            let called = monotonic();
            let lease = match lock.acquire().await {
                Ok(lease) => lease,
                Err(error) => {
                    let code = error.code();
                    *locked(&self.failures).entry(code).or_default() += 1;
                    if !matches!(code, "timeout" | "unavailable") {
                        return Err(error.into());
                    }
                    // An outage is reported at once, so pause before the next attempt.
                    sleep(Duration::from_millis(1)).await;
                    continue;
                }
            };
            let mut tenure = Tenure::begin(&lease, share, called, self.valid(renewed));
            loop {
                self.write(number, &history::grant(&tenure.hold, lease.owner()))?;
                if self.grants.fetch_add(1, SeqCst) % STEP == STEP - 1 {
                    let mut output = io::stdout();
                    output.write_all(b".")?;
                    output.flush()?;
                }
                self.act(&mut tenure, &name(number), renewed, &mut access, &mut dice).await?;
                let changed = if dice.f64() < CHANGES { tenure.change(self.valid(renewed)).await? } else { None };
                self.write(number, &tenure.end(None))?;
                let Some(changed) = changed else { break };
                tenure = changed;
            }
            if lease.release().await? == ReleaseOutcome::Released {
                self.write(number, &tenure.end(Some(monotonic())))?;
            }
        }
        Ok(())
    }

    /// The time in ns between the request for a lease and its deadline. `None` if it is renewed.
    fn valid(&self, renewed: bool) -> Option<u64> {
        (!renewed).then_some((self.orders.ttl_ms as f64 * 1e6 * (1.0 - self.orders.drift)) as u64)
    }

    /// Acts during one tenure.
    async fn act(
        &self,
        tenure: &mut Tenure<'_>,
        name: &str,
        renewed: bool,
        access: &mut Access,
        dice: &mut Rng,
    ) -> Result<(), Failure> {
        let ttl = self.orders.ttl_ms * 1_000_000;
        let works = dice.f64() < self.orders.works;
        let work = Duration::from_micros(if works { dice.u64(0..=self.orders.work_us) } else { 0 });
        let stays = dice.f64() < self.orders.stays;
        tenure.look();
        let mut read = Vec::new();
        for (name, token) in tenure.protected(name) {
            if let Some(value) = access.read(&name, token).await? {
                read.push((name, token, value));
            }
        }
        let held = tenure.look();
        if !work.is_zero() {
            sleep(work).await;
        }
        if held && tenure.hold.share != Share::Read {
            for (name, token, value) in read {
                access.write(&name, token, value + 1).await?;
            }
        }
        // A renewed tenure does not end by itself.
        let enough = if renewed { tenure.hold.from + ttl * 2 } else { u64::MAX };
        while tenure.look() && stays && monotonic() < enough {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    fn write(&self, number: usize, lines: &str) -> io::Result<()> {
        let mut logs = locked(&self.logs);
        let log = match logs.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let path = self.orders.logs.join(name(number));
                new.insert(OpenOptions::new().create(true).append(true).open(path)?)
            }
        };
        log.write_all(lines.as_bytes())
    }
}

struct Tenure<'a> {
    lease: &'a Lease,
    /// Its deadline is not later than this, since the request was sent before its acquire returned.
    bound: u64,
    /// What is known of it. `until` is the last moment at which it was certainly held.
    hold: Hold,
}

impl<'a> Tenure<'a> {
    fn begin(lease: &'a Lease, share: Share, called: u64, valid: Option<u64>) -> Self {
        let from = monotonic();
        let share = target::share_of(lease, share);
        let hold = Hold { token: Some(lease.token()), share, called, from, ..Hold::default() };
        Self { lease, bound: valid.map_or(u64::MAX, |valid| from + valid), hold }
    }

    /// Returns true if it is held. If so, it was also held just before the check, at the time that this records.
    fn look(&mut self) -> bool {
        let now = monotonic();
        let held = self.lease.held();
        if held {
            // This must hold even right after the process was suspended.
            assert!(now <= self.bound, "the lease is held {} ns after its deadline", now - self.bound);
            self.hold.until = Some(now);
        }
        held
    }

    /// What it protects in the register, with the tokens for that.
    fn protected(&self, name: &str) -> Vec<(String, u64)> {
        match &self.hold.share {
            Share::Slots(slots) => slots.iter().map(|slot| (format!("{name}/{}", slot.number), slot.token)).collect(),
            _ => self.hold.token.map(|token| (name.to_owned(), token)).into_iter().collect(),
        }
    }

    /// Makes a reader of a writer, or a writer of a reader that is alone. `None` if it is neither, or stays what it is, or
    /// is lost.
    async fn change(&self, valid: Option<u64>) -> Result<Option<Self>, Failure> {
        let called = monotonic();
        let changed = match self.hold.share {
            Share::Write => self.lease.downgrade().await.map(|()| Some(Share::Read)),
            Share::Read => self.lease.try_upgrade().await.map(|writes| writes.then_some(Share::Write)),
            _ => return Ok(None),
        };
        match changed {
            Ok(share) => Ok(share.map(|share| {
                let mut changed = Self::begin(self.lease, share, called, valid);
                changed.hold.ahead = true;
                changed
            })),
            Err(error) if matches!(error.code(), "lost" | "unavailable") => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The lines of its end.
    fn end(&self, released: Option<u64>) -> String {
        let until = if released.is_none() { self.hold.until } else { None };
        history::release(self.hold.token.unwrap_or_default(), self.lease.owner(), until, released)
    }
}
