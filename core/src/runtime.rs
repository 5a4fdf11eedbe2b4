//! The threads that keep locks alive. One background runtime a process holds the connections, the watchdog and the
//! waiters; a second one, driven by whoever blocks in it, saves blocking callers the hop between threads.
//!
//! Both are leaked, never dropped: dropping a runtime joins its threads, which deadlocks under an interpreter's lock
//! and after a fork, where those threads do not exist. A fork raises the generation; a child never touches a runtime,
//! a connection or a lock of its parent's, it starts its own.
#![allow(
    unsafe_code,
    reason = "pthread_atfork, and a leaked value behind an atomic pointer: no lock may be taken here"
)]

use std::{
    ptr,
    sync::{
        Once, OnceLock,
        atomic::{AtomicPtr, AtomicU64, Ordering},
    },
};

use tokio::runtime::{Builder, Handle, Runtime};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static CURRENT: AtomicPtr<Runtimes> = AtomicPtr::new(ptr::null_mut());

struct Runtimes {
    generation: u64,
    background: OnceLock<Runtime>,
    caller: OnceLock<Runtime>,
}

/// How many forks lie between the first process and this one.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Release);
}

fn runtimes() -> &'static Runtimes {
    static INSTALL: Once = Once::new();
    // Done before any runtime exists, so a fork cannot go unnoticed.
    // SAFETY: the handler only increments an atomic, which is safe between fork and anything.
    INSTALL.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(forked));
    });
    let generation = generation();
    let mut current = CURRENT.load(Ordering::Acquire);
    loop {
        // SAFETY: the pointer is null or from `Box::into_raw` below, and never freed.
        match unsafe { current.as_ref() } {
            Some(runtimes) if runtimes.generation == generation => return runtimes,
            _ => {}
        }
        let fresh = Runtimes { generation, background: OnceLock::new(), caller: OnceLock::new() };
        let fresh = Box::into_raw(Box::new(fresh));
        match CURRENT.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // The old one, if any, is the parent's: leaked on purpose.
            Ok(_) => current = fresh,
            Err(other) => {
                // SAFETY: `fresh` came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(fresh) });
                current = other;
            }
        }
    }
}

fn build(mut builder: Builder, name: &str) -> Runtime {
    builder.thread_name(name).enable_all().build().unwrap_or_else(|error| {
        // No thread or descriptor left: nothing of this crate can work, and no caller could do anything about it.
        panic!("cannot start the {name} runtime: {error}")
    })
}

/// The runtime that runs by itself.
pub fn background() -> &'static Handle {
    let runtime = runtimes().background.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1);
        build(builder, "redlock")
    });
    runtime.handle()
}

/// The runtime that is driven only by threads inside its `block_on`.
pub fn caller() -> &'static Runtime {
    runtimes().caller.get_or_init(|| build(Builder::new_current_thread(), "redlock-caller"))
}
