//! Forks of the process. Each raises the generation; a child never touches a runtime, a connection or a lock of its
//! parent's, and what is tied to a generation is neither used nor dropped in another.
#![allow(unsafe_code, reason = "pthread_atfork, and a value that is not dropped everywhere")]

use std::{
    mem::ManuallyDrop,
    sync::atomic::{AtomicU64, Ordering},
};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between the first process and this one.
pub fn generation() -> u64 {
    // Done before anything is tied to a generation, so a fork cannot go unnoticed.
    #[cfg(unix)]
    watch_forks();
    GENERATION.load(Ordering::Acquire)
}

#[cfg(unix)]
fn watch_forks() {
    use std::sync::atomic::AtomicBool;
    // Not a `Once`, which a fork may copy half-way: installed twice by a race of threads, the handler only counts twice.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.load(Ordering::Acquire) {
        // SAFETY: the handler only increments an atomic, which is safe between fork and anything.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        INSTALLED.store(true, Ordering::Release);
    }
}

#[cfg(unix)]
extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// Something that belongs to one fork generation. In a child of that process it is neither used nor dropped: its
/// threads do not exist there, its locks may be held by nobody, its connections are the parent's.
#[derive(Debug)]
pub struct Tied<T> {
    generation: u64,
    value: ManuallyDrop<T>,
}

impl<T> Tied<T> {
    /// Ties a value to this process.
    pub fn new(value: T) -> Self {
        Self { generation: generation(), value: ManuallyDrop::new(value) }
    }

    /// The value, unless the process forked since.
    pub fn get(&self) -> Option<&T> {
        (self.generation == generation()).then_some(&*self.value)
    }
}

impl<T: Clone> Clone for Tied<T> {
    fn clone(&self) -> Self {
        // An `Arc` may be cloned in a child: that only counts.
        Self { generation: self.generation, value: self.value.clone() }
    }
}

impl<T> Drop for Tied<T> {
    fn drop(&mut self) {
        if self.generation == generation() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
