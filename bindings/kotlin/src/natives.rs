//! The native methods of the generated class `UniffiLib`: each calls one of the functions that `uniffi` exports. The
//! JVM finds them by a table when it loads the library, so the package needs no other library that calls functions.
//! See docs/adr/0048.

#![allow(unsafe_code, reason = "JNI is a C interface; each block says why it is sound")]

use std::{
    ffi::{CStr, CString, c_void},
    mem, ptr,
};

use jni_sys::{JNI_ERR, JNIEnv, JavaVM, jint, jobject};
use uniffi::RustCallStatus;

use crate::{
    calls, client,
    jvm::{self, Native, Passed},
    lease, lock, outcomes,
};

/// The class that declares the native methods.
const CLASS: &CStr = c"dev/redlock/internal/UniffiLib";

/// A function of `uniffi`. `Arguments` are the types of its arguments, before the status.
trait Function<Arguments>: Copy {
    /// The signature of its native method.
    fn signature() -> String;

    /// The function that the JVM calls in its place. It converts the arguments and the result.
    fn native() -> *mut c_void;
}

macro_rules! functions {
    ($($argument:ident $value:ident)*) => {
        impl<This, Result, $($argument),*> Function<(Result, $($argument,)*)> for This
        where
            This: Fn($($argument,)* &mut RustCallStatus) -> Result + Copy,
            Result: Passed,
            $($argument: Passed,)*
        {
            fn signature() -> String {
                let arguments: &[&str] = &[$($argument::SIGNATURE),*];
                format!("({}Ldev/redlock/internal/UniffiRustCallStatus;){}", arguments.concat(), Result::SIGNATURE)
            }

            fn native() -> *mut c_void {
                extern "system" fn native<This, Result, $($argument),*>(
                    env: *mut JNIEnv,
                    _object: jobject,
                    $($value: $argument::Jni,)*
                    status: jobject,
                ) -> Result::Jni
                where
                    This: Fn($($argument,)* &mut RustCallStatus) -> Result + Copy,
                    Result: Passed,
                    $($argument: Passed,)*
                {
                    let this = the::<This>();
                    jvm::run(env, status, |ended| this($($argument::from_jvm(env, $value),)* ended))
                }
                native::<This, Result, $($argument),*> as *mut c_void
            }
        }
    };
}

functions!();
functions!(A a);
functions!(A a B b);
functions!(A a B b C c);
functions!(A a B b C c D d);
functions!(A a B b C c D d E e);

/// The only value of the type of a function, or of a closure that captures nothing.
fn the<Function: Copy>() -> Function {
    const { assert!(mem::size_of::<Function>() == 0, "a function of its own type, not a pointer to one") };
    // SAFETY: a type without a size has one value, which takes no memory. `native` gets the type from a value.
    unsafe { ptr::NonNull::<Function>::dangling().read() }
}

fn native<Arguments, This: Function<Arguments>>(name: &str, _function: This) -> Option<Native> {
    Some(Native {
        name: CString::new(name).ok()?,
        signature: CString::new(This::signature()).ok()?,
        function: This::native(),
    })
}

/// The native methods of functions. uniffi declares those that clone and free an object as unsafe.
macro_rules! natives {
    ($($room:ident: $($function:ident($($argument:ident)*))* $(| $($handle:ident)*)?;)*) => {
        [$(
            $(native(stringify!($function), |$($argument,)* ended: &mut RustCallStatus| {
                $room::$function($($argument,)* ended)
            }),)*
            $($(native(stringify!($handle), |handle, ended: &mut RustCallStatus| {
                // SAFETY: the generated code has the handle of a living object.
                unsafe { $room::$handle(handle, ended) }
            }),)*)?
        )*]
    };
}

fn natives() -> Option<Vec<Native>> {
    natives! {
        calls:
            uniffi_redlock_kotlin_fn_func_abandon(call)
            uniffi_redlock_kotlin_fn_func_close_all()
            uniffi_redlock_kotlin_fn_func_take(call)
            uniffi_redlock_kotlin_fn_func_want_all_events(wanted)
            uniffi_redlock_kotlin_fn_func_watch_events();
        client:
            uniffi_redlock_kotlin_fn_constructor_client_from_env(settings)
            uniffi_redlock_kotlin_fn_constructor_client_new(urls settings)
            uniffi_redlock_kotlin_fn_method_client_attach(handle text)
            uniffi_redlock_kotlin_fn_method_client_force_release(handle name)
            uniffi_redlock_kotlin_fn_method_client_init_nodes(handle)
            uniffi_redlock_kotlin_fn_method_client_lock(handle name settings)
            uniffi_redlock_kotlin_fn_method_client_nodes(handle)
            uniffi_redlock_kotlin_fn_method_client_part(handle name settings part)
            uniffi_redlock_kotlin_fn_method_client_permits(handle name settings n of)
            uniffi_redlock_kotlin_fn_method_client_ping(handle)
            uniffi_redlock_kotlin_fn_method_client_shut_down(handle)
            | uniffi_redlock_kotlin_fn_clone_client uniffi_redlock_kotlin_fn_free_client;
        lease:
            uniffi_redlock_kotlin_fn_func_not_held(name detached ttl_ms)
            uniffi_redlock_kotlin_fn_method_lease_check(handle)
            uniffi_redlock_kotlin_fn_method_lease_detach(handle)
            uniffi_redlock_kotlin_fn_method_lease_downgrade(handle)
            uniffi_redlock_kotlin_fn_method_lease_extend(handle ttl_ms)
            uniffi_redlock_kotlin_fn_method_lease_held(handle)
            uniffi_redlock_kotlin_fn_method_lease_leave(handle)
            uniffi_redlock_kotlin_fn_method_lease_lost(handle)
            uniffi_redlock_kotlin_fn_method_lease_lost_reason(handle)
            uniffi_redlock_kotlin_fn_method_lease_over(handle)
            uniffi_redlock_kotlin_fn_method_lease_release(handle)
            uniffi_redlock_kotlin_fn_method_lease_remaining(handle)
            uniffi_redlock_kotlin_fn_method_lease_token(handle)
            uniffi_redlock_kotlin_fn_method_lease_try_upgrade(handle)
            | uniffi_redlock_kotlin_fn_clone_lease uniffi_redlock_kotlin_fn_free_lease;
        lock:
            uniffi_redlock_kotlin_fn_constructor_identity_new()
            uniffi_redlock_kotlin_fn_func_check_lock(name settings part)
            uniffi_redlock_kotlin_fn_func_check_permits(name settings n of)
            uniffi_redlock_kotlin_fn_method_lock_acquire(handle wait_ms)
            uniffi_redlock_kotlin_fn_method_lock_acquire_as(handle owner wait_ms thread)
            uniffi_redlock_kotlin_fn_method_lock_acquire_blocking(handle wait_ms thread)
            uniffi_redlock_kotlin_fn_method_lock_available(handle)
            uniffi_redlock_kotlin_fn_method_lock_inspect(handle)
            uniffi_redlock_kotlin_fn_method_lock_lock(handle owner wait_ms thread interruptible)
            uniffi_redlock_kotlin_fn_method_lock_locked(handle)
            uniffi_redlock_kotlin_fn_method_lock_owned(handle)
            uniffi_redlock_kotlin_fn_method_lock_owned_by(handle owner)
            uniffi_redlock_kotlin_fn_method_lock_release(handle)
            uniffi_redlock_kotlin_fn_method_lock_token_of(handle owner)
            uniffi_redlock_kotlin_fn_method_lock_unlock(handle owner)
            uniffi_redlock_kotlin_fn_method_lock_unlock_as(handle owner)
            | uniffi_redlock_kotlin_fn_clone_identity uniffi_redlock_kotlin_fn_free_identity
            uniffi_redlock_kotlin_fn_clone_lock uniffi_redlock_kotlin_fn_free_lock;
        outcomes:
            uniffi_redlock_kotlin_fn_func_end_of(call)
            uniffi_redlock_kotlin_fn_func_fetch();
    }
    .into_iter()
    .collect()
}

/// The JVM calls this when it loads the library. It does not load the library if a method is missing in the class, or has
/// other types.
#[unsafe(no_mangle)]
extern "system" fn JNI_OnLoad(vm: *mut JavaVM, _reserved: *mut c_void) -> jint {
    // SAFETY: the JVM calls this, and each function has the types in its signature by `Function`.
    match natives().and_then(|natives| unsafe { jvm::register(vm, CLASS, &natives) }) {
        Some(()) => jvm::VERSION,
        None => JNI_ERR,
    }
}
