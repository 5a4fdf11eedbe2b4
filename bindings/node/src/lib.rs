//! The Node layer: the native module of the package `redlock-core`. It turns JavaScript's values into the core's and
//! back; what a lock does is decided in the core, how JavaScript spells it in `node/src`.
//!
//! The library's own threads never run JavaScript: calls end in the queue of [`event_loop::Loop`], events in a queue of
//! their client, and the event loop is woken once for however many wait there.
#![allow(
    unsafe_code,
    reason = "the code that #[napi] generates; by hand only in `at_exit`, `delivery`, `handle`, `poll` and `waker`"
)]
#![allow(clippy::needless_pass_by_value, reason = "#[napi] hands over owned values")]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "#[napi] hands over its `Env` by reference")]
#![allow(unreachable_pub, reason = "#[napi] exports what is pub")]
#![allow(missing_docs, reason = "the interface is described in node/src/native.ts; nothing links against this crate")]

mod at_exit;
mod client;
mod delivery;
mod event_loop;
mod handle;
mod lease;
mod lock;
#[cfg(target_os = "linux")]
mod poll;
mod value;
mod values;
mod waker;
mod watch;
