//! Wakes an event loop from any thread, by a thread-safe function of Node-API that delivers results there.
//!
//! It is made by hand (ADR 14), because that of napi-rs has two faults. It keeps the JavaScript function alive for
//! ever, and with it everything that a test runner's sandbox has loaded. And async hooks see it as a handle that keeps
//! the process alive, which test runners report.

use std::{
    ffi::c_void,
    ptr,
    sync::{Arc, Weak},
};

use napi::{
    Env, JsValue, Result,
    bindgen_prelude::{Function, JsObjectValue, Object},
    check_status, sys,
    threadsafe_function::ThreadsafeFunctionHandle,
};

use crate::delivery::Delivery;

/// Wakes an event loop, until the loop ends.
pub(crate) struct Waker(Arc<ThreadsafeFunctionHandle>);

impl Waker {
    /// A waker of the loop of `env`, which then delivers.
    pub(crate) fn new(env: &Env, delivery: Delivery) -> Result<Self> {
        let name = env.create_string("redlock")?;
        let mut resource = Object::new(env)?;
        let has_ref: Function<(), bool> = env.create_function_from_closure("hasRef", |_| Ok(false))?;
        resource.set_named_property("hasRef", has_ref)?;
        let handle = ThreadsafeFunctionHandle::null();
        let mut raw = ptr::null_mut();
        // SAFETY: all values are of this environment, on its thread. The delivery and the weak pointer to the handle
        // become the thread-safe function's, which hands both to `finalize` once.
        unsafe {
            check_status!(sys::napi_create_threadsafe_function(
                env.raw(),
                ptr::null_mut(),
                resource.raw(),
                name.raw(),
                0,
                1,
                Arc::downgrade(&handle).into_raw().cast_mut().cast(),
                Some(finalize),
                Box::into_raw(Box::new(delivery)).cast(),
                Some(call),
                &raw mut raw,
            ))?;
            handle.set_raw(raw);
            check_status!(sys::napi_unref_threadsafe_function(env.raw(), raw))?;
        }
        Ok(Self(handle))
    }

    /// Makes the event loop deliver soon. Any thread may call it.
    pub(crate) fn wake(&self) {
        self.0.with_read_aborted(|ended| {
            if !ended {
                let nonblocking = sys::ThreadsafeFunctionCallMode::nonblocking;
                // SAFETY: `finalize` has not run, and waits for this. The call fails only when the event loop ends, and
                // then there is no loop to wake.
                unsafe { sys::napi_call_threadsafe_function(self.0.get_raw(), ptr::null_mut(), nonblocking) };
            }
        });
    }
}

/// Delivers, on the event loop's thread. `env` is null when the loop ends.
unsafe extern "C" fn call(env: sys::napi_env, _: sys::napi_value, context: *mut c_void, _: *mut c_void) {
    if env.is_null() {
        return;
    }
    let mut this = ptr::null_mut();
    // SAFETY: `context` is the pointer that `new` passed on. Node has opened a scope, and reports exceptions.
    unsafe {
        if sys::napi_get_undefined(env, &raw mut this) == sys::Status::napi_ok {
            (*context.cast::<Delivery>()).deliver(env, |function, ended| {
                sys::napi_call_function(env, this, function, ended.len(), ended.as_ptr(), ptr::null_mut());
            });
        }
    }
}

/// Frees the waker. Runs once, on the event loop's thread, when no thread can wake the loop any more or the loop ends.
unsafe extern "C" fn finalize(env: sys::napi_env, handle: *mut c_void, context: *mut c_void) {
    // SAFETY: both pointers are those that `new` passed on.
    unsafe {
        if let Some(handle) = Weak::from_raw(handle.cast::<ThreadsafeFunctionHandle>()).upgrade() {
            handle.with_write_aborted(|mut ended| *ended = true);
        }
        Box::from_raw(context.cast::<Delivery>()).end(env);
    }
}
