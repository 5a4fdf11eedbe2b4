//! Detects forks of the process. Each fork raises the generation. A child never touches a runtime, a connection or a
//! lock of its parent's: a value that is tied to a generation is neither used nor dropped in another.
#![allow(
    unsafe_code,
    reason = "pthread_atfork, a value that is not dropped everywhere, and a leaked one behind an atomic pointer"
)]

use std::{
    mem::ManuallyDrop,
    ptr,
    sync::atomic::{AtomicPtr, AtomicU64, Ordering},
};

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of forks between the first process and this one.
pub fn generation() -> u64 {
    // Whatever is tied to a generation calls this first, so no fork goes unnoticed.
    #[cfg(unix)]
    watch_forks();
    GENERATION.load(Ordering::Acquire)
}

#[cfg(unix)]
fn watch_forks() {
    use std::sync::atomic::AtomicBool;
    // Not a `Once`, which a fork may copy half-way. If two threads race and install the handler twice, it only counts
    // twice.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.load(Ordering::Acquire) {
        // SAFETY: the handler only increments an atomic, which a child may do right after the fork.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        INSTALLED.store(true, Ordering::Release);
    }
}

#[cfg(unix)]
extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Release);
}

/// A value that belongs to one fork generation. In a child of that process it is neither used nor dropped: its threads
/// do not exist there, its locks may be locked for ever, and its connections are the parent's.
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
        // In a child, cloning an `Arc` is safe: it only counts.
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

/// A value that each process makes for itself. It is made without a lock, which a fork might copy in a locked state. It
/// is never freed: a child leaks its parent's.
pub(crate) struct PerProcess<T>(AtomicPtr<Made<T>>);

struct Made<T> {
    generation: u64,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// This process's value. Makes it at the first use.
    pub(crate) fn get(&'static self) -> &'static T {
        let generation = generation();
        let mut current = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or from `Box::into_raw` below, and never freed.
            match unsafe { current.as_ref() } {
                Some(made) if made.generation == generation => return &made.value,
                _ => {}
            }
            let fresh = Box::into_raw(Box::new(Made { generation, value: T::default() }));
            match self.0.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => current = fresh,
                Err(other) => {
                    // SAFETY: `fresh` came from `Box::into_raw` above and was not published.
                    drop(unsafe { Box::from_raw(fresh) });
                    current = other;
                }
            }
        }
    }
}
