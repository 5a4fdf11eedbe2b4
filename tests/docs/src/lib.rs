//! Tests of the Rust code in the documentation. `build.rs` makes a documentation test of each block. Its name has the
//! page and the line: `docs_quickstart_116`.

#[cfg(doctest)]
include!(concat!(env!("OUT_DIR"), "/blocks.rs"));
