//! Distributed locks on Redis: re-entrant, kept alive by a watchdog, on one node or on a quorum of N, with fencing
//! tokens that strictly increase on either. Also fair locks, read/write locks and semaphores.
//!
//! # Async
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> Result<(), redlock::LockError> {
//! use redlock::{Client, Config, LockOptions};
//!
//! let client = Client::new(Config::new(["memory://async"]))?; // or redis://127.0.0.1:6379
//! let lease = client.lock("report", LockOptions::default())?.acquire().await?;
//! println!("writing with fencing token {}", lease.token());
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! Any executor may poll the futures. With a single node, the first attempt of an acquire, and a release, run on the
//! tokio runtime that polls them. It needs I/O, which `#[tokio::main]` and `enable_io` give it. A thread of the library
//! does everything else, such as renewals.
//!
//! # Without async code
//!
//! [`Lock::acquire_blocking`] returns a [`LeaseGuard`], which is released at the end of its scope:
//!
//! ```
//! # fn main() -> Result<(), redlock::LockError> {
//! use redlock::{Client, Config, LockOptions};
//!
//! let client = Client::new(Config::new(["memory://threads"]))?; // or redis://127.0.0.1:6379
//! let lock = client.lock("report", LockOptions::default())?;
//! let lease = lock.acquire_blocking()?;
//! println!("writing with fencing token {}", lease.token());
//! println!("the release was {}", lease.release()?.as_str());
//! # Ok(()) }
//! ```
//!
//! # What to read next
//!
//! - [`LockOptions`] lists the options of a lock: a fixed `ttl` or a renewed one, `wait`, `fair`, an explicit `owner`.
//! - [`Config`] lists the options of a client: several nodes and their quorum, time-outs, TLS, the wire format.
//! - [`Lease`]: while [`Lease::held`] is true, no other owner holds the lock, under the conditions in `docs/guarantees.md`.
//!   [`Lease::lost`] resolves when the lock is lost, [`Lease::token`] is the fencing token for the resource it protects.
//! - [`LockError`] tells an outage from contention: `unavailable` is never reported as `timeout`.
//! - [`Client::read_write_lock`] and [`Client::semaphore`] make the other primitives.
//! - `memory://` in place of a URL makes a store in this process, for tests.

#[macro_use]
mod mutant;

/// A call allocates some thirty times, most of them for futures that live as long as it.
#[cfg(feature = "allocator")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod acquire;
mod blocking;
mod client;
#[doc(hidden)]
pub mod clock;
#[doc(hidden)]
pub mod compat;
mod config;
mod connected;
mod detached;
mod error;
mod event;
#[doc(hidden)]
pub mod examination;
#[cfg(all(test, feature = "shuttle"))]
mod faults;
#[doc(hidden)]
pub mod ffi;
mod holders;
pub mod identity;
mod lease;
mod lock;
mod owner;
#[doc(hidden)]
pub mod process;
#[doc(hidden)]
pub mod protocol;
mod queued;
mod quorum;
mod read_write;
mod release;
mod semaphore;
#[doc(hidden)]
pub mod server;
mod session;
mod survey;
mod sync;
mod tenure;
#[cfg(test)]
mod testing;
mod url;
mod wait;

#[doc(hidden)]
pub use acquire::claimant::Request;
pub use blocking::LeaseGuard;
pub use client::{Client, NodeStatus};
#[doc(hidden)]
pub use compat::{HeldValue, Retime};
pub use config::{Config, LockOptions, Tls, TokenKey, Ttl, Wire};
#[doc(hidden)]
pub use error::rounded;
pub use error::{Holder, LockError, LostReason, NodeCause};
pub use event::{Event, EventSink, trace};
pub use holders::LockInfo;
pub use lease::Lease;
pub use lock::Lock;
#[cfg(feature = "simulation")]
pub use mutant::{Mutant, mutate};
pub use owner::{Identity, Owner};
pub use process::exit::close_all;
pub use protocol::reply::{Kind, Slot};
pub use queued::Queued;
pub use read_write::ReadWriteLock;
pub use semaphore::{PermitInfo, Semaphore};
pub use server::{NodeInfo, memory::Memory};
pub use survey::{Contended, NodeState, NodeView, Page, Scan};
pub use tenure::ReleaseOutcome;
