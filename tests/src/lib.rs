//! Helpers shared by the tests of all layers: real servers that can be broken, a view of servers and in-memory nodes
//! that makes the same faults on both, the words of the
//! shared scenarios, and a checker of histories.

pub mod history;
pub mod nodes;
pub mod scenario;
pub mod server;
