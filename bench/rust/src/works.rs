//! The works that a contender can do, for any library.

use std::{
    cell::{Cell, RefCell},
    fs,
    time::Duration,
};

use futures_util::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::libraries::{Library, Unsupported};

/// Reads a clock, in ns.
fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[allow(unsafe_code, reason = "reads a clock into a local")]
    // SAFETY: `time` is valid for the call.
    unsafe {
        libc::clock_gettime(which, &raw mut time);
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A time that can be compared between processes.
fn monotonic() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// How much memory this process uses, in bytes.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn summary(mut times: Vec<u64>, took: u64) -> Value {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] as f64 / 1e9;
    json!({ "count": times.len(), "seconds": took as f64 / 1e9, "p50": at(0.5), "p99": at(0.99) })
}

fn end_of(request: &Value) -> u64 {
    monotonic() + (request["seconds"].as_f64().unwrap() * 1e9) as u64
}

/// How a lock is acquired and released once.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// With the lock object kept from one use to the next.
    Kept,
    /// As users write it, with a lock object made for this use.
    Block,
}

async fn once<L: Library>(library: &L, name: &str, form: Form) {
    match form {
        Form::Kept => library.release(library.acquire(name).await).await,
        Form::Block => library.block(name).await,
    }
}

pub(crate) async fn pair<L: Library>(library: &L, request: &Value, form: Form) -> Value {
    let name = request["prefix"].as_str().unwrap();
    let (began, end, mut times) = (monotonic(), end_of(request), Vec::new());
    let mut now = began;
    while now < end {
        once(library, name, form).await;
        let before = std::mem::replace(&mut now, monotonic());
        times.push(now - before);
    }
    summary(times, now - began)
}

pub(crate) async fn nested<L: Library>(library: &L, request: &Value) -> Result<Value, Unsupported> {
    let name = request["prefix"].as_str().unwrap();
    let outer = library.acquire_again(name).await?;
    let (began, end, mut times) = (monotonic(), end_of(request), Vec::new());
    let mut now = began;
    while now < end {
        library.release(library.acquire_again(name).await?).await;
        let before = std::mem::replace(&mut now, monotonic());
        times.push(now - before);
    }
    library.release(outer).await;
    Ok(summary(times, now - began))
}

pub(crate) async fn parallel<L: Library>(library: &L, request: &Value) -> Result<Value, Unsupported> {
    if L::BLOCKING {
        return Err(Unsupported("blocks its thread"));
    }
    let (prefix, at_once) = (request["prefix"].as_str().unwrap(), request["at_once"].as_u64().unwrap());
    let names: Vec<String> = (0..at_once).map(|number| format!("{prefix}-{number}")).collect();
    let (began, end, times) = (monotonic(), end_of(request), RefCell::new(Vec::new()));
    while monotonic() < end {
        join_all(names.iter().map(|name| async {
            let start = monotonic();
            library.release(library.acquire(name).await).await;
            times.borrow_mut().push(monotonic() - start);
        }))
        .await;
    }
    Ok(summary(times.into_inner(), monotonic() - began))
}

/// Runs `at_once` callers, each on a name of its own and independent of the others.
pub(crate) async fn independent<L: Library>(library: &L, request: &Value, form: Form) -> Result<Value, Unsupported> {
    if L::BLOCKING {
        return Err(Unsupported("blocks its thread"));
    }
    let (prefix, at_once) = (request["prefix"].as_str().unwrap(), request["at_once"].as_u64().unwrap());
    let (began, end, times) = (monotonic(), end_of(request), RefCell::new(Vec::new()));
    join_all((0..at_once).map(|number| {
        let (name, times) = (format!("{prefix}-{number}"), &times);
        async move {
            let mut now = monotonic();
            while now < end {
                once(library, &name, form).await;
                let before = std::mem::replace(&mut now, monotonic());
                times.borrow_mut().push(now - before);
            }
        }
    }))
    .await;
    Ok(summary(times.into_inner(), monotonic() - began))
}

/// Runs `at_once` callers on one read/write lock or semaphore, each independent of the others.
pub(crate) async fn shared<L: Library>(library: &L, request: &Value) -> Result<Value, Unsupported> {
    if L::BLOCKING {
        return Err(Unsupported("blocks its thread"));
    }
    let (name, kind) = (request["prefix"].as_str().unwrap(), request["kind"].as_str().unwrap());
    let hold = Duration::from_secs_f64(request["hold"].as_f64().unwrap());
    let (began, end, times) = (monotonic(), end_of(request), RefCell::new(Vec::new()));
    let callers = (0..request["at_once"].as_u64().unwrap()).map(|_| async {
        let mut now = monotonic();
        while now < end {
            let lease = library.acquire_kind(kind, name).await?;
            if !hold.is_zero() {
                sleep(hold).await;
            }
            library.release(lease).await;
            let before = std::mem::replace(&mut now, monotonic());
            times.borrow_mut().push(now - before);
        }
        Ok(())
    });
    try_join_all(callers).await?;
    Ok(summary(times.into_inner(), monotonic() - began))
}

/// Acquires and releases many locks once each.
pub(crate) async fn names<L: Library>(library: &L, request: &Value) -> Value {
    let (prefix, count) = (request["prefix"].as_str().unwrap(), request["count"].as_u64().unwrap());
    let (began, next) = (monotonic(), Cell::new(0));
    join_all((0..request["at_once"].as_u64().unwrap()).map(|_| async {
        while next.get() < count {
            let number = next.replace(next.get() + 1);
            once(library, &format!("{prefix}-{number}"), Form::Block).await;
        }
    }))
    .await;
    json!({ "seconds": (monotonic() - began) as f64 / 1e9, "rss": resident() })
}

pub(crate) async fn contend<L: Library>(library: &L, request: &Value) -> Value {
    let name = request["name"].as_str().unwrap();
    let time = |what: &str| Duration::from_secs_f64(request[what].as_f64().unwrap());
    let (hold, rest, until) = (time("hold"), time("rest"), request["until"].as_u64().unwrap());
    let mut turns = Vec::new();
    loop {
        let asked = monotonic();
        if asked >= until {
            return json!({ "turns": turns });
        }
        let lease = library.acquire(name).await;
        let granted = monotonic();
        sleep(hold).await;
        let releasing = monotonic();
        library.release(lease).await;
        turns.push([asked, granted, releasing, monotonic()]);
        sleep(rest).await;
    }
}

pub(crate) async fn herd<L: Library>(library: &L, request: &Value) -> Result<Value, Unsupported> {
    if L::BLOCKING {
        return Err(Unsupported("a thread for each waiter"));
    }
    let (name, waiters) = (request["name"].as_str().unwrap(), request["waiters"].as_u64().unwrap());
    let order = RefCell::new(Vec::new());
    let lease = library.acquire(name).await;
    let before = resident();
    let all = join_all((0..waiters).map(|number| {
        let order = &order;
        async move {
            let lease = library.acquire(name).await;
            order.borrow_mut().push(number);
            library.release(lease).await;
        }
    }));
    let holder = async {
        sleep(Duration::from_secs_f64(1.0 + waiters as f64 / 20_000.0)).await;
        let after = resident();
        let began = monotonic();
        library.release(lease).await;
        (after, began)
    };
    let (_, (after, began)) = futures_util::future::join(all, holder).await;
    let took = (monotonic() - began) as f64 / 1e9;
    let in_order = order.borrow().is_sorted();
    Ok(json!({ "seconds": took, "in_order": in_order, "rss_before": before, "rss_after": after }))
}

/// The CPU time that this process used, in seconds.
fn cpu() -> f64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID) as f64 / 1e9
}

/// Acquires many locks, keeps them for a while and releases them.
pub(crate) async fn hold<L: Library>(library: &L, request: &Value) -> Result<Value, Unsupported> {
    let count = request["count"].as_u64().unwrap();
    let began = monotonic();
    let mut leases = Vec::with_capacity(count as usize);
    // A thousand at a time, as when a service starts.
    for first in (0..count).step_by(1_000) {
        let names: Vec<String> = (first..count.min(first + 1_000)).map(|number| format!("held-{number}")).collect();
        leases.extend(join_all(names.iter().map(|name| library.acquire(name))).await);
    }
    let (taken, used) = (monotonic(), cpu());
    L::lost(&leases)?;
    sleep(Duration::from_secs_f64(request["seconds"].as_f64().unwrap())).await;
    let (kept, used) = (monotonic(), cpu() - used);
    let lost = L::lost(&leases)?;
    let mut leases = leases.into_iter();
    loop {
        let batch: Vec<_> = leases.by_ref().take(1_000).collect();
        if batch.is_empty() {
            break;
        }
        join_all(batch.into_iter().map(|lease| library.release(lease))).await;
    }
    Ok(json!({
        "taken": (taken - began) as f64 / 1e9, "kept": (kept - taken) as f64 / 1e9, "cpu": used, "lost": lost,
        "released": (monotonic() - kept) as f64 / 1e9,
    }))
}
