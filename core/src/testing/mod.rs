//! Tests of the crate's inside that are longer than a few lines, and what they need. Those of one module alone are named
//! by it.

pub(crate) mod fuzz;
#[cfg(not(feature = "shuttle"))]
mod gated;
#[cfg(feature = "shuttle")]
pub(crate) mod interleavings;
mod late;
pub(crate) mod plain;
#[cfg(not(feature = "shuttle"))]
mod quorum;
pub(crate) mod scripted;
