//! The Node layer: the native module of the package `redlock-core`. It converts JavaScript's values to the core's and
//! back. The core has all logic, and `node/src` the interface for JavaScript.
//!
//! The library's own threads never run JavaScript. They put results into the queue of [`event_loop::Loop`] and events
//! into a queue of their client, and wake the event loop once for all that wait there.
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
mod deliveries;
mod delivery;
mod ends;
mod event_loop;
mod handle;
mod lease;
mod lock;
#[cfg(target_os = "linux")]
mod poll;
mod starters;
mod value;
mod values;
mod waker;
mod watch;
