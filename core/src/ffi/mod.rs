//! The code that all language bindings share: parsing of options, results and errors as flat values, and calls that a
//! host starts and whose results its event loop collects.
//!
//! A binding converts its language's values into [`Setting`]s, names its spelling ([`Idiom`]), and starts an
//! [`Operation`] or blocks on it. For the rest it calls the core itself.

mod calls;
pub mod completions;
mod events;
#[cfg(target_os = "linux")]
pub(crate) mod host_socket;
mod lease_end;
mod operations;
mod options;
mod outcome;
#[cfg(target_os = "linux")]
pub mod reactor;
mod unbound;

pub use calls::{Call, Calls};
pub use events::Events;
pub use lease_end::LeaseEnd;
pub use operations::{Operation, block, close_all, forked, until};
pub use options::{Idiom, Setting, shim_options, text};
pub use outcome::{Failure, NodeStatus, Outcome, Value};
pub use unbound::{Part, Unbound};

#[cfg(test)]
#[path = "../testing/ffi.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
