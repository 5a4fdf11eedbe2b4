//! State of the process, shared by all clients: the pending calls, the events and the release at exit. `outcomes.rs`
//! fetches the results of the calls.

use std::sync::LazyLock;

use redlock::{
    EventSink, LockError,
    ffi::{self, Calls, Events, Operation},
};

use crate::{
    jvm,
    values::{Fallible, Refusal},
};

struct Process {
    calls: Calls,
    sink: EventSink,
    events: Events,
}

static PROCESS: LazyLock<Process> = LazyLock::new(|| {
    let (sink, events) = Events::queue();
    Process { calls: Calls::fetched(), sink, events }
});

/// The pending calls of this process.
pub(crate) fn calls() -> &'static Calls {
    &PROCESS.calls
}

/// Starts a call and returns its number, which is negative if the call ended already: see `end_of`.
pub(crate) fn start(operation: Operation<'_>) -> Fallible<i64> {
    Ok(calls().start_numbered(operation)?)
}

/// The sink for the events of all clients.
pub(crate) fn sink() -> EventSink {
    PROCESS.sink.clone()
}

/// Collects the lease of a call whose result was fetched. False if the grant was given back meanwhile: the call then
/// continues and will have another result.
#[uniffi::export]
pub(crate) fn take(call: i64) -> bool {
    calls().take(call.cast_unsigned())
}

/// Cancels a call. A release continues all the same. True if the result was not fetched: `fetch` will never return it.
#[uniffi::export]
pub(crate) fn abandon(call: i64) -> bool {
    calls().abandon(call.cast_unsigned())
}

/// Starts to wait for events of clients: `Events`.
#[uniffi::export]
pub(crate) fn watch_events() -> Fallible<i64> {
    start(Operation::Events(&PROCESS.events))
}

/// Sets whether events below the level of a warning are reported.
#[uniffi::export]
pub(crate) fn want_all_events(wanted: bool) {
    PROCESS.events.set_verbose(wanted);
}

/// Releases the locks of all clients, within a second. For the exit of the process. Then one `fetch` returns nothing.
#[uniffi::export]
pub(crate) fn close_all() {
    let _ = ffi::close_all(&mut || Ok::<_, LockError>(()));
    calls().interrupt();
}

/// Returns the check that a blocking call runs every 50 ms on the caller's own thread. It fails if the call is
/// `interruptible` and the thread was interrupted.
pub(crate) fn check(interruptible: bool) -> impl FnMut() -> Fallible<()> {
    move || if interruptible && jvm::interrupted() { Err(Refusal::Interrupted) } else { Ok(()) }
}
