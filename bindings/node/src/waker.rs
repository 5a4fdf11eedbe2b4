//! How the library's threads wake an event loop: a thread-safe function of Node-API that delivers there.
//!
//! It is made by hand because napi's own holds the function of JavaScript, and with it everything a test runner's sandbox has loaded,
//! for ever; and because it looks to async hooks as if it kept the process alive, which test runners report.

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

/// Wakes an event loop, until that ends.
pub(crate) struct Waker(Arc<ThreadsafeFunctionHandle>);

impl Waker {
    /// One that has this delivered.
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

    /// Has the function called soon. Called on any thread.
    pub(crate) fn wake(&self) {
        self.0.with_read_aborted(|ended| {
            if !ended {
                let nonblocking = sys::ThreadsafeFunctionCallMode::nonblocking;
                // SAFETY: `finalize` has not run, and waits for this. Fails only when the event loop ends: then nobody
                // is left to be woken.
                unsafe { sys::napi_call_threadsafe_function(self.0.get_raw(), ptr::null_mut(), nonblocking) };
            }
        });
    }
}

/// On the event loop's thread; without `env` when that ends.
unsafe extern "C" fn call(env: sys::napi_env, _: sys::napi_value, context: *mut c_void, _: *mut c_void) {
    if env.is_null() {
        return;
    }
    let mut this = ptr::null_mut();
    // SAFETY: `context` is what `new` gave away; Node has opened a scope. What is thrown is Node's to report.
    unsafe {
        if sys::napi_get_undefined(env, &raw mut this) == sys::Status::napi_ok {
            (*context.cast::<Delivery>()).deliver(env, |function, ended| {
                sys::napi_call_function(env, this, function, ended.len(), ended.as_ptr(), ptr::null_mut());
            });
        }
    }
}

/// Once, on the event loop's thread, when nobody can wake it any more or it ends.
unsafe extern "C" fn finalize(env: sys::napi_env, handle: *mut c_void, context: *mut c_void) {
    // SAFETY: both pointers are those that `new` gave away.
    unsafe {
        if let Some(handle) = Weak::from_raw(handle.cast::<ThreadsafeFunctionHandle>()).upgrade() {
            handle.with_write_aborted(|mut ended| *ended = true);
        }
        Box::from_raw(context.cast::<Delivery>()).end(env);
    }
}
