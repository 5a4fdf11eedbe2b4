//! Generates the Kotlin code that calls the library `redlock_kotlin`. It is a separate crate to keep its dependencies
//! out of that library.

fn main() {
    uniffi::uniffi_bindgen_main();
}
