//! Makes the calls, one kind after the other. Ends early if a signal asks for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use redlock::{Client, Config, Lock, LockError, LockOptions, Ttl, process::runtime};
use tokio::time::sleep;

use super::{
    names::Names,
    times::{Row, What},
};

/// How long a lock lives if this program is killed, at most.
const TTL: Duration = Duration::from_secs(5);
/// How long an acquire waits: for a lock that nobody else uses, and for one that is handed off.
const WAIT: Duration = Duration::from_secs(5);
/// How long round trips are measured at most: more of them tell nothing new.
const MOST_TRIPS: Duration = Duration::from_secs(2);
/// The least time for which a lock is held before it is handed off, so that the waiter listens by then.
const LEAST_HOLD: Duration = Duration::from_millis(2);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) callers: usize,
    /// The time for all.
    pub(crate) time: Duration,
    /// The signal that asks for the end; 0 while there is none.
    pub(crate) signal: Arc<AtomicUsize>,
}

/// What was measured, or why it ended early.
pub(crate) type Measured = Result<Vec<Row>, LockError>;

/// Measures all kinds, on these two clients. `done` gets each kind's rows.
pub(crate) async fn measure(plan: &Plan, names: &Names, one: &Client, other: &Client, done: impl Fn(&str)) -> Measured {
    let trips = (plan.time / 4).min(MOST_TRIPS);
    let share = plan.time.saturating_sub(trips) / 3;
    let mut rows = Vec::new();
    done("round trips");
    for url in &plan.config.urls {
        rows.push(round_trips(plan, names, url, trips / u32::try_from(plan.config.urls.len()).unwrap_or(1)).await?);
    }
    let slowest = rows.iter().map(|row| row.percentile(50.0)).max().unwrap_or_default();
    done("one caller");
    rows.push(pairs(plan, &names.own()[..1], one, share).await?);
    if plan.callers > 1 {
        done("many callers");
        rows.push(pairs(plan, names.own(), one, share).await?);
    }
    done("hand-offs");
    rows.push(hand_offs(plan, names, one, other, (share, LEAST_HOLD.max(slowest * 4))).await?);
    Ok(rows)
}

impl Plan {
    /// Whether a signal asks for the end.
    fn is_over(&self) -> bool {
        self.signal.load(SeqCst) != 0
    }

    fn options(&self) -> LockOptions {
        let mut options = LockOptions::default();
        (options.ttl, options.wait) = (Ttl::Fixed(TTL.min(self.config.max_ttl)), Some(WAIT));
        options
    }
}

/// Runs a script on one node again and again: one that reads a lock that nobody holds.
async fn round_trips(plan: &Plan, names: &Names, url: &str, share: Duration) -> Result<Row, LockError> {
    let mut config = plan.config.clone();
    (config.urls, config.quorum, config.identify) = (vec![url.to_owned()], None, false);
    let client = Client::with_events(config, Arc::new(|_: &redlock::Event| {}))?;
    let node = client.nodes().into_iter().next().unwrap_or_default();
    let lock = client.lock(names.contended(), plan.options())?;
    let mut row = Row::new(What::RoundTrip(node));
    // The first one connects and loads the script.
    let mut last = lock.inspect().await;
    let start = Instant::now();
    while last.is_ok() {
        let sent = Instant::now();
        last = lock.inspect().await;
        row.record(sent.elapsed());
        if start.elapsed() >= share || plan.is_over() {
            break;
        }
    }
    row.all = start.elapsed();
    // A quorum can do without it.
    row.error = last.err().map(|error| error.to_string());
    client.close().await;
    Ok(row)
}

/// Acquires and releases a lock again and again, for each name at once.
async fn pairs(plan: &Plan, names: &[String], client: &Client, share: Duration) -> Result<Row, LockError> {
    let start = Instant::now();
    let callers = names.iter().map(|name| {
        let (plan, lock) = (plan.clone(), client.lock(name, plan.options()));
        let what = What::Pairs(names.len());
        async move {
            let caller = runtime::background().spawn(pairs_of(plan, lock?, what, start + share));
            // Fails only if the task panicked.
            caller.await.unwrap_or(Err(LockError::Closed))
        }
    });
    let each = try_join_all(callers).await?;
    let mut row = Row::new(What::Pairs(names.len()));
    for one in &each {
        row.add(one);
    }
    row.all = start.elapsed();
    Ok(row)
}

async fn pairs_of(plan: Plan, lock: Lock, what: What, end: Instant) -> Result<Row, LockError> {
    let mut row = Row::new(what);
    // The first one loads the scripts.
    lock.acquire().await?.release().await?;
    loop {
        let sent = Instant::now();
        lock.acquire().await?.release().await?;
        row.record(sent.elapsed());
        if Instant::now() >= end || plan.is_over() {
            return Ok(row);
        }
    }
}

/// Hands a lock from one client to the other and back. Each holds it until the other one surely waits.
async fn hand_offs(
    plan: &Plan,
    names: &Names,
    one: &Client,
    other: &Client,
    (share, hold): (Duration, Duration),
) -> Result<Row, LockError> {
    let mut row = Row::new(What::HandOff);
    let (mut holder, mut waiter) =
        (one.lock(names.contended(), plan.options())?, other.lock(names.contended(), plan.options())?);
    let mut lease = holder.acquire().await?;
    let start = Instant::now();
    while start.elapsed() < share && !plan.is_over() {
        let acquire = waiter.acquire();
        let waiting = runtime::background().spawn(async move { (acquire.await, Instant::now()) });
        sleep(hold).await;
        let sent = Instant::now();
        lease.release().await?;
        // Fails only if the task panicked.
        let Ok((granted, when)) = waiting.await else { return Err(LockError::Closed) };
        lease = granted?;
        row.record(when.saturating_duration_since(sent));
        std::mem::swap(&mut holder, &mut waiter);
    }
    row.all = start.elapsed();
    lease.release().await?;
    Ok(row)
}
