//! Watches the descriptor of an event loop's calls by a handle of libuv, which Node exports to its addons. So round
//! trips need no other thread. Without libuv a [`Waker`](crate::waker::Waker) does it.
//!
//! ```text
//! open ─dropped, or the event loop ends─▶ closing ─libuv's close callback─▶ freed
//! ```

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    cell::Cell,
    ffi::{c_int, c_void},
    ptr,
    rc::Rc,
};

use libloading::os::unix::Library;
use napi::{Env, Result, check_status, sys};

use crate::delivery::Delivery;

/// `uv_handle_type`'s `UV_POLL`, and `uv_poll_event`'s `UV_READABLE`.
const POLL: c_int = 8;
const READABLE: c_int = 1;

/// A `uv_poll_t`, whose size libuv returns. Its first member is the pointer `data`.
type Handle = *mut *mut c_void;
type OnReady = unsafe extern "C" fn(Handle, c_int, c_int);
type OnClosed = unsafe extern "C" fn(Handle);

/// The functions of libuv that are used.
#[derive(Clone, Copy)]
struct Libuv {
    size: unsafe extern "C" fn(c_int) -> usize,
    init: unsafe extern "C" fn(*mut sys::uv_loop_s, Handle, c_int) -> c_int,
    start: unsafe extern "C" fn(Handle, c_int, OnReady) -> c_int,
    stop: unsafe extern "C" fn(Handle) -> c_int,
    unref: unsafe extern "C" fn(Handle),
    close: unsafe extern "C" fn(Handle, OnClosed),
}

impl Libuv {
    /// Finds the functions in this process. A host that is not Node may not export them.
    fn find() -> Option<Self> {
        let this = Library::this();
        // SAFETY: the signatures are those of libuv 1, whose ABI is stable. The main program is never unloaded.
        unsafe {
            Some(Self {
                size: *this.get(b"uv_handle_size\0").ok()?,
                init: *this.get(b"uv_poll_init\0").ok()?,
                start: *this.get(b"uv_poll_start\0").ok()?,
                stop: *this.get(b"uv_poll_stop\0").ok()?,
                unref: *this.get(b"uv_unref\0").ok()?,
                close: *this.get(b"uv_close\0").ok()?,
            })
        }
    }
}

/// Watches a descriptor until this is dropped or the event loop ends. Does not keep the process alive.
pub(crate) struct Poll(Rc<Watched>);

struct Watched {
    uv: Libuv,
    env: sys::napi_env,
    handle: Handle,
    layout: Layout,
    delivery: Delivery,
    /// Closes the handle when the event loop ends.
    hook: Cell<sys::napi_async_cleanup_hook_handle>,
    closing: Cell<bool>,
}

impl Poll {
    /// Delivers results whenever the descriptor is readable. `None` without libuv.
    pub(crate) fn new(env: &Env, fd: c_int, delivery: Delivery) -> Result<Option<Self>> {
        let Some(uv) = Libuv::find() else { return Ok(None) };
        let (mut uv_loop, mut hook) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: all values are of this environment, on its thread. The handle has memory of the size that libuv asks
        // for, which is freed once the handle is closed. Until then `data` owns one reference of the `Rc`.
        unsafe {
            if sys::napi_get_uv_event_loop(env.raw(), &raw mut uv_loop) != sys::Status::napi_ok {
                return Ok(None);
            }
            let Ok(layout) = Layout::from_size_align((uv.size)(POLL), align_of::<u128>()) else { return Ok(None) };
            let handle: Handle = alloc_zeroed(layout).cast();
            if handle.is_null() {
                handle_alloc_error(layout);
            }
            if (uv.init)(uv_loop, handle, fd) != 0 {
                dealloc(handle.cast(), layout);
                return Ok(None);
            }
            (uv.unref)(handle);
            let (env, closing) = (env.raw(), Cell::new(false));
            let watched = Rc::new(Watched { uv, env, handle, layout, delivery, hook: Cell::default(), closing });
            *handle = Rc::into_raw(watched.clone()).cast_mut().cast();
            let poll = Self(watched);
            check_status!(sys::napi_add_async_cleanup_hook(env, Some(end), handle.cast(), &raw mut hook))?;
            poll.0.hook.set(hook);
            (uv.start)(handle, READABLE, ready);
            Ok(Some(poll))
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Watched {
    fn close(&self) {
        if !self.closing.replace(true) {
            // SAFETY: the handle is open. Finalizers and hooks run on its thread.
            unsafe {
                (self.uv.stop)(self.handle);
                (self.uv.close)(self.handle, closed);
            }
        }
    }

    fn call(&self) {
        let (mut scope, mut this) = (ptr::null_mut(), ptr::null_mut());
        let (mut failed, mut thrown) = (false, ptr::null_mut());
        let env = self.env;
        // SAFETY: libuv calls this on the thread of the environment, outside of any scope. Node reports exceptions.
        unsafe {
            if sys::napi_open_handle_scope(env, &raw mut scope) != sys::Status::napi_ok {
                return;
            }
            if sys::napi_get_global(env, &raw mut this) == sys::Status::napi_ok {
                // `napi_make_callback` runs microtasks afterwards, as every call from libuv must.
                let none = ptr::null_mut();
                self.delivery.deliver(env, |function, ended| {
                    let (count, ended) = (ended.len(), ended.as_ptr());
                    sys::napi_make_callback(env, none, this, function, count, ended, ptr::null_mut());
                });
            }
            if sys::napi_is_exception_pending(env, &raw mut failed) == sys::Status::napi_ok
                && failed
                && sys::napi_get_and_clear_last_exception(env, &raw mut thrown) == sys::Status::napi_ok
            {
                sys::napi_fatal_exception(env, thrown);
            }
            sys::napi_close_handle_scope(env, scope);
        }
    }
}

/// The owner of a handle.
///
/// # Safety
/// `handle` must be open.
unsafe fn watched(handle: Handle) -> Rc<Watched> {
    // SAFETY: `data` owns a reference until `closed` takes it.
    unsafe {
        let known: *const Watched = (*handle).cast_const().cast();
        Rc::increment_strong_count(known);
        Rc::from_raw(known)
    }
}

unsafe extern "C" fn ready(handle: Handle, _: c_int, _: c_int) {
    // SAFETY: libuv calls this for open handles only. The `Rc` lives through the call, in which the `Poll` may be
    // dropped.
    unsafe { watched(handle) }.call();
}

unsafe extern "C" fn end(_: sys::napi_async_cleanup_hook_handle, handle: *mut c_void) {
    // SAFETY: `closed` removes this hook, so it runs for open handles only.
    unsafe { watched(handle.cast()) }.close();
}

unsafe extern "C" fn closed(handle: Handle) {
    // SAFETY: libuv calls this once, and does not use the handle afterwards.
    unsafe {
        let watched: Rc<Watched> = Rc::from_raw((*handle).cast_const().cast());
        watched.delivery.end(watched.env);
        let hook = watched.hook.get();
        if !hook.is_null() {
            sys::napi_remove_async_cleanup_hook(hook);
        }
        dealloc(handle.cast(), watched.layout);
    }
}
