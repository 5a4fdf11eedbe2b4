//! What every language layer needs and none should write twice: options as a host gives them, errors as they cross the
//! boundary, and calls that run in the background and end in a host's event loop.
//!
//! A binding turns its language's values into [`Setting`]s, says how that language spells ([`Idiom`]), and names one of
//! the [`Operation`]s, or delegates to the core itself.

mod calls;
pub mod completions;
mod events;
#[cfg(target_os = "linux")]
pub(crate) mod host_socket;
mod operations;
mod options;
mod outcome;
mod over;
#[cfg(target_os = "linux")]
pub mod reactor;
mod unbound;

pub use calls::{Call, Calls};
pub use events::Events;
pub use operations::{Operation, block, close_all, forked, until};
pub use options::{Idiom, Setting, shim_options, text};
pub use outcome::{Failure, NodeStatus, Outcome, Value};
pub use over::Over;
pub use unbound::{Part, Unbound};

#[cfg(test)]
#[path = "../testing/ffi.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
