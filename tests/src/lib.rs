//! Helpers shared by the tests of all layers.
