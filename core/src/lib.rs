//! Distributed locks on Redis that people can trust: re-entrant, kept alive by a watchdog, on one node or on a quorum
//! of N, with fencing tokens that strictly increase on either.
//!
//! ```no_run
//! # async fn example() -> Result<(), redlock::LockError> {
//! use redlock::{Client, Config, LockOptions};
//!
//! let client = Client::new(Config::new(["redis://127.0.0.1:6379"]))?;
//! let lease = client.lock("report", LockOptions::default())?.acquire().await?;
//! println!("writing with fencing token {}", lease.token());
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! While [`Lease::held`] is true no other owner holds the lock, under the conditions in `docs/guarantees.md`.

#[macro_use]
mod mutant;

/// A call allocates some thirty times, most of them for futures that live as long as it.
#[cfg(feature = "allocator")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod acquire;
mod answer;
#[doc(hidden)]
pub mod bridge;
mod client;
pub mod clock;
mod config;
mod detached;
mod error;
mod event;
#[cfg(test)]
mod fuzz;
mod hold;
mod home;
#[doc(hidden)]
pub mod host;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod lease;
mod lock;
#[doc(hidden)]
pub mod memory_node;
#[doc(hidden)]
pub mod node;
mod owner;
mod quorum;
mod redis_node;
#[doc(hidden)]
pub mod runtime;
#[doc(hidden)]
pub mod script;
#[cfg(test)]
mod scripted;
mod sync;
mod table;
#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod turns;
mod value;
mod waiter;
mod watchdog;

pub use acquire::Request;
pub use client::{Client, NodeStatus};
pub use config::{Config, LockOptions, Tls, TokenKey, Ttl, Wire};
pub use error::{LockError, LostReason, NodeCause};
pub use event::{Event, EventSink, trace};
pub use hold::ReleaseOutcome;
pub use home::close_all;
pub use lease::Lease;
pub use lock::{Lock, LockInfo};
pub use memory_node::Memory;
#[cfg(feature = "simulation")]
pub use mutant::{Mutant, mutate};
pub use owner::{Identity, Owner};
#[doc(hidden)]
pub use value::{HeldValue, Retime};
