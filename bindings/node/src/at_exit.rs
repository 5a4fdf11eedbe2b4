//! Closes all clients at the end of the process: at JavaScript's event `exit` and, in hosts other than Node, in exit
//! handlers of the C library. Bun ends a process by `quick_exit` and Deno by `exit`, and neither runs Node-API's
//! cleanup hooks of its worker threads (ADR 41).

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use redlock::{LockError, ffi};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// Closes all clients, within a second.
pub(crate) fn close_clients() {
    CLOSED.store(true, SeqCst);
    let _ = ffi::close_all(&mut || Ok::<_, LockError>(()));
}

#[cfg(unix)]
pub(crate) mod hooks {
    use std::{
        ffi::c_int,
        sync::{Once, atomic::Ordering::SeqCst},
    };

    use super::{CLOSED, close_clients};

    unsafe extern "C" {
        fn atexit(handler: extern "C" fn()) -> c_int;
        #[cfg(target_os = "linux")]
        fn at_quick_exit(handler: extern "C" fn()) -> c_int;
    }

    extern "C" fn close() {
        if !CLOSED.load(SeqCst) {
            close_clients();
        }
    }

    /// Registers the exit handlers. If the C library has no room for them, locks end with their leases.
    pub(crate) fn register() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler lives as long as the process, which never unloads this module.
            unsafe {
                atexit(close);
                #[cfg(target_os = "linux")]
                at_quick_exit(close);
            }
        });
    }
}
