//! Tests of the Rust code in the documentation. `build.rs` makes a documentation test of each block. The test's name has
//! the page and the line of the block's fence.

#[cfg(doctest)]
include!(concat!(env!("OUT_DIR"), "/modules.rs"));
