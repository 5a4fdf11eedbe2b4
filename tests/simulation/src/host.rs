//! A simulated machine with one client process: a runtime with paused time, three clocks with a rate of their own, and
//! the ways in which a process stops: stopped by a signal, suspended with its machine, killed.
//!
//! The core runs unchanged, in a runtime of one thread whose time stands still. To run a host up to a moment, the
//! runtime jumps from timer to timer. The host stops early when it has sent something, so that it cannot get ahead of
//! an event that its message causes.

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
    /// The nanoseconds that its clocks advance in one true nanosecond.
    rate: f64,
    /// True time spent suspended, in which only the wall clock and `CLOCK_BOOTTIME` advance.
    suspended: Cell<Time>,
    /// By how many ns the wall clock was set forward.
    wall: Cell<i64>,
    /// The time is at least this: the runtime counts whole milliseconds only.
    floor: Cell<Time>,
    /// Makes the clocks read as of another moment, for an observer.
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
    /// State of the running host: it has sent something; it is to stop once idle; it is idle.
    static SENT: Cell<bool> = const { Cell::new(false) };
    static SETTLING: Cell<bool> = const { Cell::new(false) };
    static IDLE: Cell<bool> = const { Cell::new(false) };
    static MAIN: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// The true time on the running host.
pub fn here() -> Time {
    HERE.with_borrow(|clocks| clocks.as_ref().map_or(0, |clocks| clocks.now()))
}

/// Records that the running host sent something.
pub fn sent() {
    SENT.set(true);
}

/// A machine with one client.
pub struct Host {
    pub(super) clocks: Rc<Clocks>,
    runtime: Option<Runtime>,
    handle: Handle,
    /// The moment up to which it has run.
    pub now: Time,
    /// Stopped by a signal, or suspended with its machine.
    pub frozen: bool,
    /// When it was suspended.
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
                    // A runtime that is woken before it parks does not jump to its next timer.
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

    /// True if its process was killed.
    pub fn is_dead(&self) -> bool {
        self.runtime.is_none()
    }

    /// True if it can run.
    pub fn runs(&self) -> bool {
        self.runtime.is_some() && !self.frozen
    }

    /// The number of tasks of the core and of its users.
    pub fn tasks(&self) -> usize {
        self.handle.metrics().num_alive_tasks()
    }

    /// Runs `act` as code of this host's process, at its current time.
    pub fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        let clocks = self.clocks.clone();
        let before = HERE.replace(Some(clocks.clone()));
        let source = clock::test::source(Some(Rc::new(move || clocks.read())));
        let handle = runtime::test::replace_background(Some(self.handle.clone()));
        let result = {
            let _inside = self.handle.enter();
            act()
        };
        runtime::test::replace_background(handle);
        clock::test::source(source);
        HERE.set(before);
        result
    }

    /// Runs `act` on this host with its clocks at a given true moment.
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

    /// Stops it: none of its code runs until `resume`.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// Suspends the whole machine: some of its clocks stop as well.
    pub fn suspend(&mut self, now: Time) {
        self.frozen = true;
        self.asleep = Some(now);
    }

    /// Continues it at `now`. Every timer that became due meanwhile fires at once.
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

    /// Sets its wall clock forward by this many ns, or back.
    pub fn set_wall(&mut self, by: i64) {
        self.clocks.wall.set(self.clocks.wall.get() + by);
    }

    /// Kills the process: none of its code runs any more, not even destructors.
    pub fn kill(&mut self) -> Option<Runtime> {
        self.runtime.take()
    }

    /// Starts a task of this host's process. Call it inside.
    pub fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        // It ends with the host.
        drop(self.handle.spawn(task));
    }
}
