//! Helpers shared by the tests of all layers: real servers that can be broken, and a checker of histories.

pub mod history;
pub mod server;
