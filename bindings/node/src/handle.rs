//! Opaque handles for JavaScript on values of the core. The garbage collector drops the value with its handle.
//!
//! Made with Node-API's own calls. napi-rs keeps tables of all wrapped values and of their borrowers behind mutexes,
//! which cost as much as the core's own work for a lock (ADR 32).

use std::{any::TypeId, ffi::c_void, ops::Deref, ptr};

use napi::{
    Error, Result, Status, ValueType,
    bindgen_prelude::{FromNapiValue, ToNapiValue, TypeName, ValidateNapiValue},
    check_status, sys,
};

/// A value on its way to JavaScript.
pub struct Handle<T>(pub(crate) T);

/// A value that JavaScript passed back, for the duration of that call.
pub struct Borrowed<'e, T>(&'e T);

/// The target of an external. `kind` comes first, so that it can be read before the type of `value` is known.
#[repr(C)]
struct Tagged<T> {
    kind: TypeId,
    value: T,
}

impl<T: 'static> ToNapiValue for Handle<T> {
    unsafe fn to_napi_value(env: sys::napi_env, Self(value): Self) -> Result<sys::napi_value> {
        let data = Box::into_raw(Box::new(Tagged { kind: TypeId::of::<T>(), value }));
        let mut external = ptr::null_mut();
        // SAFETY: `finalize` takes the box back, once. If there is no external, the line below takes it back.
        unsafe {
            let (finalize, hint) = (Some(finalize::<T> as _), ptr::null_mut());
            let status = sys::napi_create_external(env, data.cast(), finalize, hint, &raw mut external);
            if status != sys::Status::napi_ok {
                drop(Box::from_raw(data));
            }
            check_status!(status)?;
        }
        Ok(external)
    }
}

unsafe extern "C" fn finalize<T>(_: sys::napi_env, data: *mut c_void, _: *mut c_void) {
    // SAFETY: made in `to_napi_value`, of the same type.
    drop(unsafe { Box::from_raw(data.cast::<Tagged<T>>()) });
}

impl<T: 'static> FromNapiValue for Borrowed<'_, T> {
    unsafe fn from_napi_value(env: sys::napi_env, external: sys::napi_value) -> Result<Self> {
        let mut data = ptr::null_mut();
        // SAFETY: only the package has these externals, and it passes back only those that it got from here. So `data`
        // points to a kind and, if the kind is right, to a value that lives as long as JavaScript can refer to it.
        unsafe {
            check_status!(sys::napi_get_value_external(env, external, &raw mut data))?;
            if data.is_null() || *data.cast::<TypeId>() != TypeId::of::<T>() {
                return Err(Error::from_status(Status::ObjectExpected));
            }
            Ok(Self(&(*data.cast::<Tagged<T>>()).value))
        }
    }
}

impl<T> TypeName for Borrowed<'_, T> {
    fn type_name() -> &'static str {
        "External"
    }

    fn value_type() -> ValueType {
        ValueType::External
    }
}

impl<T> ValidateNapiValue for Borrowed<'_, T> {}

impl<T> Deref for Borrowed<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}
