//! Nothing: this crate is there for its dependencies.
//!
//! Cargo compiles a dependency once for each set of features that is asked of it. Python's, Node's and the JVM's layer
//! are built one by one and ask for different ones: without this crate tokio, redis and dozens of others would be compiled
//! again for each. `release/tests/test_features.py` tells what is missing here.
