//! Unit tests that are longer than a few lines, and their helpers. The tests of a single module are declared by that
//! module (`#[path]`).

#[cfg(not(feature = "shuttle"))]
mod deliveries;
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
