//! A simulated machine with one client process: a runtime with paused time, three clocks that run at a rate of their
//! own, and the ways a process stops: frozen, suspended with its machine, killed.
//!
//! The core runs unchanged. Its tasks live in a runtime of one thread whose time stands still; a host is run up to a
//! moment by letting that runtime jump from timer to timer, and it stops early when it sent something, so that nobody
//! is told of an event before it happened.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    pin::pin,
    rc::Rc,
    task::{Poll, Waker},
    time::Duration,
};

use redlock::{clock, process::runtime};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, sleep_until},
};

use super::Time;

/// The clocks of a host, as functions of the true time.
pub struct Clocks {
    start: Instant,
    /// Nanoseconds of its clocks in one true nanosecond.
    rate: f64,
    /// True time spent in suspend, in which only the wall clock and `CLOCK_BOOTTIME` go on.
    suspended: Cell<Time>,
    /// What the wall clock was set forward by, ns.
    wall: Cell<i64>,
    /// It is at least so late: the runtime knows whole milliseconds only.
    floor: Cell<Time>,
    /// Read the clocks as of another moment: for an observer.
    observed: Cell<Option<Time>>,
}

impl Clocks {
    fn local(&self, time: Time) -> u64 {
        (time.saturating_sub(self.suspended.get()) as f64 * self.rate) as u64
    }

    /// The true time.
    pub fn now(&self) -> Time {
        if let Some(time) = self.observed.get() {
            return time;
        }
        let local = self.start.elapsed().as_nanos() as f64;
        self.floor.get().max((local / self.rate) as Time + self.suspended.get())
    }

    fn read(&self) -> [i64; 3] {
        let time = self.now();
        let boot = (time as f64 * self.rate) as i64;
        [boot, self.local(time).cast_signed(), boot + self.wall.get() + 1_700_000_000_000_000_000]
    }
}

thread_local! {
    static HERE: RefCell<Option<Rc<Clocks>>> = const { RefCell::new(None) };
    /// Of the running host: whether it sent something, whether it is to stop once idle, whether it is idle.
    static SENT: Cell<bool> = const { Cell::new(false) };
    static SETTLING: Cell<bool> = const { Cell::new(false) };
    static IDLE: Cell<bool> = const { Cell::new(false) };
    static MAIN: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// The true time at the host that is running.
pub fn here() -> Time {
    HERE.with_borrow(|clocks| clocks.as_ref().map_or(0, |clocks| clocks.now()))
}

/// Notes that the running host sent something.
pub fn sent() {
    SENT.set(true);
}

/// A machine with one client.
pub struct Host {
    pub(super) clocks: Rc<Clocks>,
    runtime: Option<Runtime>,
    handle: Handle,
    /// How far it has been run.
    pub now: Time,
    /// Stopped by a signal, or asleep with its machine.
    pub frozen: bool,
    /// Since when it is suspended.
    asleep: Option<Time>,
}

impl Host {
    /// A host that starts at `now`.
    pub fn new(now: Time, rate: f64) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(|| {
                if SETTLING.get() || SENT.get() {
                    IDLE.set(true);
                    // Woken before it parks, the runtime does not jump to its next timer.
                    MAIN.with_borrow(|main| main.iter().for_each(Waker::wake_by_ref));
                }
            })
            .build()
            .expect("a runtime without threads starts");
        let handle = runtime.handle().clone();
        let start = {
            let _inside = handle.enter();
            Instant::now()
        };
        let clocks = Clocks {
            start,
            rate,
            suspended: Cell::new(now),
            wall: Cell::new(0),
            floor: Cell::new(now),
            observed: Cell::new(None),
        };
        Self { clocks: Rc::new(clocks), runtime: Some(runtime), handle, now, frozen: false, asleep: None }
    }

    /// Whether its process was killed.
    pub fn is_dead(&self) -> bool {
        self.runtime.is_none()
    }

    /// Whether it can be run.
    pub fn runs(&self) -> bool {
        self.runtime.is_some() && !self.frozen
    }

    /// How many tasks of the core and of its users there are.
    pub fn tasks(&self) -> usize {
        self.handle.metrics().num_alive_tasks()
    }

    /// Does something as code of this host's process, at its present time.
    pub fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        let clocks = self.clocks.clone();
        let before = HERE.replace(Some(clocks.clone()));
        let source = clock::test::source(Some(Rc::new(move || clocks.read())));
        let handle = runtime::test::enter(Some(self.handle.clone()));
        let result = {
            let _inside = self.handle.enter();
            act()
        };
        runtime::test::enter(handle);
        clock::test::source(source);
        HERE.set(before);
        result
    }

    /// Looks at something of this host's as of a true moment.
    pub fn observe<T>(&self, time: Time, act: impl FnOnce() -> T) -> T {
        self.clocks.observed.set(Some(time));
        let result = self.inside(act);
        self.clocks.observed.set(None);
        result
    }

    /// Runs it up to a true moment, or until it has sent something.
    pub fn run(&mut self, until: Time) {
        let Some(runtime) = &self.runtime else { return };
        let target = self.clocks.start + Duration::from_millis(self.clocks.local(until) / 1_000_000);
        SENT.set(false);
        SETTLING.set(false);
        IDLE.set(false);
        let clocks = &self.clocks;
        let stopped_early = self.inside(|| {
            runtime.block_on(async {
                let mut sleep = pin!(sleep_until(target));
                poll_fn(|context| {
                    MAIN.with_borrow_mut(|main| {
                        if !main.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                            *main = Some(context.waker().clone());
                        }
                    });
                    if !SETTLING.get() {
                        if SENT.get() && IDLE.get() {
                            return Poll::Ready(true);
                        }
                        if sleep.as_mut().poll(context).is_pending() {
                            return Poll::Pending;
                        }
                        clocks.floor.set(clocks.floor.get().max(until));
                        IDLE.set(false);
                        SETTLING.set(true);
                    }
                    if IDLE.get() { Poll::Ready(false) } else { Poll::Pending }
                })
                .await
            })
        });
        SETTLING.set(false);
        MAIN.set(None);
        self.now = if stopped_early { self.inside(here).clamp(self.now, until) } else { until };
    }

    /// Stops it: nothing of it runs until `resume`.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Suspends the whole machine: some of its clocks stop, too.
    pub fn suspend(&mut self, now: Time) {
        self.frozen = true;
        self.asleep = Some(now);
    }

    /// Lets it go on at `now`: everything that became due meanwhile is due at once.
    pub fn resume(&mut self, now: Time) {
        self.frozen = false;
        if let Some(since) = self.asleep.take() {
            self.clocks.suspended.set(self.clocks.suspended.get() + (now - since));
        }
        let Some(runtime) = &self.runtime else { return };
        self.clocks.floor.set(now);
        self.now = now;
        let target = self.clocks.start + Duration::from_millis(self.clocks.local(now) / 1_000_000);
        self.inside(|| {
            runtime.block_on(async {
                let behind = target.saturating_duration_since(Instant::now());
                tokio::time::advance(behind).await;
            });
        });
    }

    /// Sets its wall clock.
    pub fn set_wall(&mut self, by: i64) {
        self.clocks.wall.set(self.clocks.wall.get() + by);
    }

    /// Kills the process: no code of it runs any more, not even what values do when they are dropped.
    pub fn kill(&mut self) -> Option<Runtime> {
        self.runtime.take()
    }

    /// Starts a task of this host's process. Call it inside.
    pub fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        // It ends with the host.
        drop(self.handle.spawn(task));
    }
}
