//! Distributed locks on Redis that people can trust.

pub mod clock;
pub mod config;
pub mod error;
pub mod event;
#[doc(hidden)]
pub mod memory_node;
#[doc(hidden)]
pub mod node;
pub mod owner;
mod redis_node;
#[doc(hidden)]
pub mod runtime;
#[doc(hidden)]
pub mod script;
