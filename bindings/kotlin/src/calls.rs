//! What belongs to the process and not to a client: the calls under way, the events, the end. `outcomes.rs` fetches the
//! results of the calls.

use std::sync::{LazyLock, OnceLock};

use redlock::{
    EventSink, LockError,
    ffi::{self, Calls, Events, Operation},
};

use crate::values::{Fallible, Refusal};

struct Process {
    calls: Calls,
    sink: EventSink,
    events: Events,
}

static PROCESS: LazyLock<Process> = LazyLock::new(|| {
    let (sink, events) = Events::queue();
    Process { calls: Calls::fetched(), sink, events }
});

/// The calls of this process.
pub(crate) fn calls() -> &'static Calls {
    &PROCESS.calls
}

/// Starts a call; says its number.
pub(crate) fn start(operation: Operation<'_>) -> Fallible<i64> {
    Ok(calls().start_numbered(operation)?)
}

/// Where the events of all clients go.
pub(crate) fn sink() -> EventSink {
    PROCESS.sink.clone()
}

/// Takes a lease that was fetched. False: it came too late for that, and the call goes on.
#[uniffi::export]
pub(crate) fn take(call: i64) -> bool {
    calls().take(call.cast_unsigned())
}

/// Gives a call up. True: it was not fetched, and will not be.
#[uniffi::export]
pub(crate) fn abandon(call: i64) -> bool {
    calls().abandon(call.cast_unsigned())
}

/// Waits until something happened in a client.
#[uniffi::export]
pub(crate) fn watch_events() -> Fallible<i64> {
    start(Operation::Events(&PROCESS.events))
}

/// Whether events that are no warnings are wanted.
#[uniffi::export]
pub(crate) fn want_all_events(wanted: bool) {
    PROCESS.events.set_verbose(wanted);
}

/// Releases what all clients hold, within a second.
#[uniffi::export]
pub(crate) fn close_all() {
    let _ = ffi::close_all(&mut || Ok::<_, LockError>(()));
}

/// Knows whether the thread that calls it was interrupted.
#[uniffi::export(callback_interface)]
pub(crate) trait Interrupts: Send + Sync {
    /// Whether it was; clears the mark.
    fn interrupted(&self) -> bool;
}

static INTERRUPTS: OnceLock<Box<dyn Interrupts>> = OnceLock::new();

/// Says once how to learn of interrupts.
#[uniffi::export]
pub(crate) fn heed(interrupts: Box<dyn Interrupts>) {
    // The first one stays.
    let _ = INTERRUPTS.set(interrupts);
}

/// What a blocking call runs every 50 ms, on the caller's own thread.
pub(crate) fn check(interruptible: bool) -> impl FnMut() -> Fallible<()> {
    move || match INTERRUPTS.get() {
        Some(interrupts) if interruptible && interrupts.interrupted() => Err(Refusal::Interrupted),
        _ => Ok(()),
    }
}
