//! The JVM's way to the core: what `uniffi` makes callable from Kotlin. Each method delegates; what a lock is, is
//! decided in the core, and how it looks in Kotlin and Java in `kotlin/`.
//!
//! Nothing here is an async function of uniffi's: it would leak a lease whose coroutine is cancelled at the wrong
//! moment. Calls start and return a number; one thread of the JVM fetches what came of them.

mod calls;
mod client;
mod lease;
mod lock;
mod outcomes;
mod values;

uniffi::setup_scaffolding!();
