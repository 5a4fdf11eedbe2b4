//! The native half of the Kotlin binding: the functions that `uniffi` makes callable from Kotlin. Each one delegates to
//! the core. The public API for Kotlin and Java is in `kotlin/`.
//!
//! None is an `async` function of uniffi: that would leak a lease if its coroutine is cancelled at the wrong moment.
//! Instead, a call returns a number when it starts, and one thread of the JVM fetches the results of all calls.

mod calls;
mod client;
mod jvm;
mod lease;
mod lock;
mod natives;
mod outcomes;
mod values;

uniffi::setup_scaffolding!();
