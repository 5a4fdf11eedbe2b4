//! Delivers results to JavaScript: whatever wakes the event loop calls a JavaScript function with the new results.

use std::{
    ptr,
    sync::{Arc, Weak},
};

use napi::{Env, JsError, JsValue, Result, Unknown, bindgen_prelude::Function, check_status, sys};
use redlock::ffi::Calls;

use crate::{deliveries::Deliveries, ends::drained};

/// How many results one call takes. They are its arguments, and arguments are on the stack.
const MOST_AT_ONCE: usize = 512;

/// A JavaScript function that takes results of calls.
pub(crate) type Taker<'env> = Function<'env, Unknown<'env>, ()>;

/// A JavaScript function, and the calls whose results it takes. Refers weakly to both.
pub(crate) struct Delivery {
    function: sys::napi_ref,
    calls: Weak<Calls>,
    deliveries: Arc<Deliveries>,
}

impl Delivery {
    pub(crate) fn new(env: &Env, function: &Taker<'_>, calls: &Arc<Calls>) -> Result<Self> {
        let mut weak = ptr::null_mut();
        // SAFETY: the function is of this environment, on its thread.
        check_status!(unsafe { sys::napi_create_reference(env.raw(), function.raw(), 0, &raw mut weak) })?;
        Ok(Self { function: weak, calls: Arc::downgrade(calls), deliveries: Arc::default() })
    }

    /// The counter of the deliveries that the event loop has begun.
    pub(crate) fn deliveries(&self) -> Arc<Deliveries> {
        self.deliveries.clone()
    }

    /// Passes the function and the new results to `call`. Drains nothing if the function or the calls were dropped.
    ///
    /// # Safety
    /// `env` must be the environment of the function, on its thread, with an open handle scope.
    pub(crate) unsafe fn deliver(&self, env: sys::napi_env, call: impl Fn(sys::napi_value, &[sys::napi_value])) {
        self.deliveries.begin();
        let Some(calls) = self.calls.upgrade() else { return };
        let mut function = ptr::null_mut();
        // SAFETY: the caller's promise. The function is null once it was collected.
        unsafe {
            if sys::napi_get_reference_value(env, self.function, &raw mut function) != sys::Status::napi_ok
                || function.is_null()
            {
                return;
            }
            let known = Env::from_raw(env);
            match drained(&known, &calls) {
                Ok(results) => {
                    for some in results.chunks(MOST_AT_ONCE) {
                        let flat: Vec<_> = some.iter().flatten().map(JsValue::raw).collect();
                        call(function, &flat);
                    }
                }
                Err(error) => JsError::from(error).throw_into(env),
            }
        }
    }

    /// Deletes the reference to the function.
    ///
    /// # Safety
    /// As for `deliver`, but without a scope. `deliver` must not be called afterwards.
    pub(crate) unsafe fn end(&self, env: sys::napi_env) {
        // SAFETY: the caller's promise.
        unsafe { sys::napi_delete_reference(env, self.function) };
    }
}
