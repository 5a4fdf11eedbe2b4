//! The functions of the JVM that the binding calls, through JNI: byte arrays, the status of a call, interrupts.

#![allow(unsafe_code, reason = "JNI is a C interface; each block says why it is sound")]

use std::{
    ffi::{CStr, CString, c_void},
    mem, ptr,
    sync::OnceLock,
};

use jni_sys::{JNI_OK, JNI_VERSION_1_8, JNIEnv, JNINativeMethod, JavaVM, jboolean, jclass, jmethodID, jobject};
use uniffi::{Handle, RustBuffer, RustCallStatus, RustCallStatusCode};

/// The version of JNI that every supported JVM has.
pub(crate) const VERSION: i32 = JNI_VERSION_1_8;

/// Calls a function of JNI by its name: `env` is a valid `*mut JNIEnv` of the calling thread.
macro_rules! jni {
    ($env:expr, $version:ident.$function:ident($($argument:expr),*)) => {
        // SAFETY: `$env` is the environment of this thread. A JVM fills its tables for the version above.
        unsafe { ((**$env).$version.$function)($env $(, $argument)*) }
    };
}

/// `Thread.interrupted()`.
struct Interrupted {
    vm: *mut JavaVM,
    class: jclass,
    method: jmethodID,
}

// SAFETY: the pointer to the JVM, a global reference and a method's number are valid in all threads.
unsafe impl Send for Interrupted {}
// SAFETY: the same.
unsafe impl Sync for Interrupted {}

static INTERRUPTED: OnceLock<Interrupted> = OnceLock::new();

/// Returns the interrupt flag of the calling thread, which runs a native method, and clears it.
pub(crate) fn interrupted() -> bool {
    let Some(Interrupted { vm, class, method }) = INTERRUPTED.get() else { return false };
    let mut env = ptr::null_mut();
    if jni!(*vm, v1_2.GetEnv(&raw mut env, VERSION)) != JNI_OK {
        return false;
    }
    let env: *mut JNIEnv = env.cast();
    jni!(env, v1_2.CallStaticBooleanMethodA(*class, *method, ptr::null())) as jboolean
}

/// A method of a class of the JVM, with the function that it calls.
pub(crate) struct Native {
    pub(crate) name: CString,
    pub(crate) signature: CString,
    pub(crate) function: *mut c_void,
}

/// Connects the native methods of the class `name` with their functions. `None` leaves an exception of the JVM pending:
/// the class has no such method.
///
/// # Safety
///
/// The JVM is the caller, in this thread, and each function has the types of its signature.
pub(crate) unsafe fn register(vm: *mut JavaVM, name: &CStr, natives: &[Native]) -> Option<()> {
    let mut env = ptr::null_mut();
    if jni!(vm, v1_2.GetEnv(&raw mut env, VERSION)) != JNI_OK {
        return None;
    }
    let env: *mut JNIEnv = env.cast();
    let methods: Vec<_> = natives
        .iter()
        .map(|native| JNINativeMethod {
            name: native.name.as_ptr().cast_mut(),
            signature: native.signature.as_ptr().cast_mut(),
            fnPtr: native.function,
        })
        .collect();
    let class = existing(jni!(env, v1_1.FindClass(name.as_ptr())))?;
    let count = i32::try_from(methods.len()).ok()?;
    if jni!(env, v1_1.RegisterNatives(class, methods.as_ptr(), count)) != JNI_OK {
        return None;
    }
    let thread = existing(jni!(env, v1_1.FindClass(c"java/lang/Thread".as_ptr())))?;
    let class = existing(jni!(env, v1_1.NewGlobalRef(thread)))?;
    let method = jni!(env, v1_1.GetStaticMethodID(class, c"interrupted".as_ptr(), c"()Z".as_ptr()));
    if method.is_null() {
        return None;
    }
    let _ = INTERRUPTED.set(Interrupted { vm, class, method });
    Some(())
}

fn existing(object: jobject) -> Option<jobject> {
    (!object.is_null()).then_some(object)
}

/// A type that native methods pass: as it is, or as an array of bytes.
pub(crate) trait Passed: Sized {
    /// Its type in JNI. Its zero is a value: a number or null.
    type Jni: Copy;

    /// Its type in the signature of a method.
    const SIGNATURE: &str;

    /// Converts an argument of a native method.
    fn from_jvm(env: *mut JNIEnv, value: Self::Jni) -> Self;

    /// Converts the result of a native method. If that fails, an exception is pending, and the result is null.
    fn into_jvm(self, env: *mut JNIEnv) -> Self::Jni;
}

macro_rules! passed_as_it_is {
    ($($name:ty, $signature:literal;)*) => {
        $(impl Passed for $name {
            type Jni = $name;
            const SIGNATURE: &str = $signature;

            fn from_jvm(_env: *mut JNIEnv, value: Self) -> Self {
                value
            }

            fn into_jvm(self, _env: *mut JNIEnv) -> Self {
                self
            }
        })*
    };
}

passed_as_it_is! {
    (), "V";
    i8, "B";
    i32, "I";
    i64, "J";
    f64, "D";
}

impl Passed for Handle {
    type Jni = i64;
    const SIGNATURE: &str = "J";

    fn from_jvm(_env: *mut JNIEnv, value: i64) -> Self {
        Self::from_raw_unchecked(value.cast_unsigned())
    }

    fn into_jvm(self, _env: *mut JNIEnv) -> i64 {
        self.as_raw().cast_signed()
    }
}

impl Passed for RustBuffer {
    type Jni = jobject;
    const SIGNATURE: &str = "[B";

    fn from_jvm(env: *mut JNIEnv, array: jobject) -> Self {
        let length = jni!(env, v1_1.GetArrayLength(array));
        let mut bytes = vec![0_u8; usize::try_from(length).unwrap_or_default()];
        jni!(env, v1_1.GetByteArrayRegion(array, 0, length, bytes.as_mut_ptr().cast()));
        Self::from_vec(bytes)
    }

    fn into_jvm(self, env: *mut JNIEnv) -> jobject {
        let bytes = self.destroy_into_vec();
        // The JVM throws an OutOfMemoryError if it has no room.
        let Ok(length) = i32::try_from(bytes.len()) else { return ptr::null_mut() };
        let array = jni!(env, v1_1.NewByteArray(length));
        if !array.is_null() {
            jni!(env, v1_1.SetByteArrayRegion(array, 0, length, bytes.as_ptr().cast()));
        }
        array
    }
}

/// Runs `call` with a new status and converts its result. If `call` fails, its status goes to the fields of `status`,
/// an object of the class `UniffiRustCallStatus`, and the result is zero or null.
pub(crate) fn run<R: Passed>(env: *mut JNIEnv, status: jobject, call: impl FnOnce(&mut RustCallStatus) -> R) -> R::Jni {
    let mut ended = RustCallStatus::default();
    let result = call(&mut ended);
    if ended.code == RustCallStatusCode::Success {
        return result.into_jvm(env);
    }
    report(env, status, ended);
    // SAFETY: `Jni` is a number, a pointer or nothing.
    unsafe { mem::zeroed() }
}

fn report(env: *mut JNIEnv, status: jobject, ended: RustCallStatus) {
    let error = mem::ManuallyDrop::into_inner(ended.error_buf).into_jvm(env);
    if error.is_null() {
        return; // An exception is pending.
    }
    let class = jni!(env, v1_1.GetObjectClass(status));
    let code = jni!(env, v1_1.GetFieldID(class, c"code".as_ptr(), c"B".as_ptr()));
    let buffer = jni!(env, v1_1.GetFieldID(class, c"error_buf".as_ptr(), c"[B".as_ptr()));
    jni!(env, v1_1.SetByteField(status, code, ended.code as i8));
    jni!(env, v1_1.SetObjectField(status, buffer, error));
}
