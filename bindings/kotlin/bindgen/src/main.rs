//! Writes the Kotlin code that calls the library `redlock_kotlin`. A crate of its own, so that what it needs does not
//! end up in that library.

fn main() {
    uniffi::uniffi_bindgen_main();
}
