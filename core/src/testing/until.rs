//! Tests of the loop on a wait for something that nobody holds: a gate, which opens for all that wait for it.

use std::{
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU32,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use super::{Pause, Tried, Try, until_done};
use crate::{
    config::Config,
    error::{LockError, NodeCause},
    owner::OwnerKey,
    protocol::{admission::Admission, names::Names, script::Reply},
    quorum::Quorum,
    server::Node,
    testing::scripted::Scripted,
    wait::{
        registry::{Holding, Local, Registry},
        waiter::{Waiter, Wanted},
    },
};

const OWNER: OwnerKey = OwnerKey::Ambient(1);

/// A gate has waiters, but no holder.
enum Nobody {}

impl Holding for Nobody {
    fn key(&self) -> &str {
        match *self {}
    }

    fn owner(&self) -> &OwnerKey {
        match *self {}
    }

    fn admission(&self) -> Admission {
        match *self {}
    }

    fn is_live(&self) -> bool {
        match *self {}
    }

    fn is_remembered(&self) -> bool {
        match *self {}
    }
}

/// What the tests see and change of a wait.
#[derive(Default)]
struct Gate {
    registry: Arc<Registry<Nobody>>,
    is_open: AtomicBool,
    is_down: AtomicBool,
    tries: AtomicU32,
    failures: AtomicU32,
}

impl Gate {
    fn is_waited_for(&self) -> bool {
        matches!(self.registry.lookup("gate", &OWNER), Local::Waited)
    }

    /// A wait for at most `limit`, and the channel on which it reports each try.
    fn wait(self: &Arc<Self>, limit: Option<Duration>) -> (Box<Passing>, mpsc::UnboundedReceiver<u32>) {
        let settings = Arc::new(Config::new(["memory://gate"]).validate().expect("valid"));
        let names = Arc::new(Names::new("gate".to_owned(), &settings));
        let node: Arc<dyn Node> = Scripted::new("gate", |_| Ok(Reply::Int(1)));
        let quorum = Arc::new(Quorum::new(vec![node], settings));
        let wanted = Wanted { names, admission: Admission::Shared, announces: true };
        let waiter = Waiter::new(self.registry.clone(), quorum, wanted, limit);
        let (report, reports) = mpsc::unbounded_channel();
        (Box::new(Passing { gate: self.clone(), waiter, report }), reports)
    }
}

/// One wait at the gate.
struct Passing {
    gate: Arc<Gate>,
    waiter: Waiter<Nobody>,
    report: mpsc::UnboundedSender<u32>,
}

impl Try for Passing {
    /// After how many tries it passed.
    type Outcome = u32;
    type Error = LockError;

    async fn pause(&mut self, pause: Pause) -> Result<(), LockError> {
        let over = self.waiter.pause(pause).await;
        over.map_err(|_| self.waiter.timed_out())
    }

    async fn try_once(&mut self) -> Result<Tried<u32>, LockError> {
        self.waiter.enqueue(&OWNER, None, false);
        self.waiter.begin_try();
        let tries = self.gate.tries.fetch_add(1, SeqCst) + 1;
        let _ = self.report.send(tries);
        if self.gate.is_down.load(SeqCst) {
            let cause = NodeCause { node: "gate".to_owned(), cause: "down".to_owned(), forbidden: false };
            return self.waiter.note_outage(vec![cause], false).map(Tried::Wait);
        }
        self.waiter.note_answer();
        let is_open = self.gate.is_open.load(SeqCst);
        Ok(if is_open { Tried::Done(tries) } else { Tried::Wait(Pause::Busy(None)) })
    }

    async fn fail(self: Box<Self>, error: LockError) -> LockError {
        self.gate.failures.fetch_add(1, Relaxed);
        error
    }
}

/// A wake-up ends a pause, and the next try passes.
#[tokio::test]
async fn a_wait_tries_again_when_it_is_woken() {
    let gate = Arc::new(Gate::default());
    let (wait, mut tries) = gate.wait(None);
    let passed = tokio::spawn(until_done(wait, Pause::No));
    assert_eq!(tries.recv().await, Some(1));
    assert!(gate.is_waited_for());
    gate.is_open.store(true, SeqCst);
    gate.registry.wake_all();
    let Ok(Ok((count, wait))) = passed.await else { panic!("the gate is open") };
    assert_eq!((count, gate.failures.load(Relaxed)), (2, 0));
    drop(wait);
    assert!(!gate.is_waited_for());
}

/// Nothing wakes it: it polls until its time is over, and then leaves the queue.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_limit() {
    let gate = Arc::new(Gate::default());
    let (wait, _tries) = gate.wait(Some(Duration::from_secs(10)));
    let started = Instant::now();
    let Err(LockError::Timeout { name, .. }) = until_done(wait, Pause::No).await else { panic!("the gate is closed") };
    assert_eq!((name.as_str(), started.elapsed().as_secs()), ("gate", 10));
    assert!(gate.tries.load(SeqCst) > 3, "it polled");
    assert_eq!(gate.failures.load(Relaxed), 1);
    assert!(!gate.is_waited_for());
}

/// While too few nodes answer it tries again, but not for longer than its patience.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_its_patience() {
    let gate = Arc::new(Gate::default());
    gate.is_down.store(true, SeqCst);
    let (wait, _tries) = gate.wait(None);
    let started = Instant::now();
    let Err(error) = until_done(wait, Pause::No).await else { panic!("the node is down") };
    assert!(matches!(error, LockError::Unavailable { .. }), "{error}");
    assert_eq!(started.elapsed().as_secs(), Config::new(["memory://gate"]).patience.as_secs());
}

/// Dropped during a pause, it leaves the queue.
#[tokio::test]
async fn a_wait_that_is_dropped_leaves_the_queue() {
    let gate = Arc::new(Gate::default());
    let (wait, mut tries) = gate.wait(None);
    let waiting = tokio::spawn(until_done(wait, Pause::No));
    assert_eq!(tries.recv().await, Some(1));
    waiting.abort();
    assert!(waiting.await.is_err_and(|error| error.is_cancelled()));
    assert!(!gate.is_waited_for());
    assert_eq!(gate.failures.load(Relaxed), 0);
}
