//! What wakes an event loop brings along: what ended since the last time, handed to JavaScript in the call that wakes it.

use std::{
    ptr,
    sync::{Arc, Weak},
};

use napi::{Env, JsError, JsValue, Result, Unknown, bindgen_prelude::Function, check_status, sys};
use redlock::ffi::Calls;

use crate::{event_loop::ended, watch::Deliveries};

/// How many ends are handed over in one call, as its arguments: those are on the stack.
const MOST_AT_ONCE: usize = 512;

/// A function of JavaScript that takes what ended.
pub(crate) type Taker<'env> = Function<'env, Unknown<'env>, ()>;

/// A function of JavaScript, which is told what ended; and the calls of which it is told. Refers weakly to both.
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

    /// Those that its event loop began.
    pub(crate) fn deliveries(&self) -> Arc<Deliveries> {
        self.deliveries.clone()
    }

    /// Calls the function, as `call` does it, with what ended. Not once nobody refers to it: then nothing is drained.
    ///
    /// # Safety
    /// `env` is that of the function, and this its thread, with an open scope for handles.
    pub(crate) unsafe fn deliver(&self, env: sys::napi_env, call: impl Fn(sys::napi_value, &[sys::napi_value])) {
        self.deliveries.begin();
        let Some(calls) = self.calls.upgrade() else { return };
        let mut function = ptr::null_mut();
        // SAFETY: as above. The function is null once it was collected.
        unsafe {
            if sys::napi_get_reference_value(env, self.function, &raw mut function) != sys::Status::napi_ok
                || function.is_null()
            {
                return;
            }
            let known = Env::from_raw(env);
            match ended(&known, &calls) {
                Ok(ended) => {
                    for some in ended.chunks(MOST_AT_ONCE) {
                        let flat: Vec<_> = some.iter().flatten().map(JsValue::raw).collect();
                        call(function, &flat);
                    }
                }
                Err(error) => JsError::from(error).throw_into(env),
            }
        }
    }

    /// # Safety
    /// As `deliver`, but that no scope is needed; nothing is delivered any more.
    pub(crate) unsafe fn end(&self, env: sys::napi_env) {
        // SAFETY: as above.
        unsafe { sys::napi_delete_reference(env, self.function) };
    }
}
