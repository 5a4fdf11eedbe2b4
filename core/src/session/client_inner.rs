//! A client across forks: its configuration, and the session of this process.

use std::{
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
};

use super::Session;
use crate::{
    config::Settings,
    error::LockError,
    event::{EventSink, contained},
    process::fork::Tied,
    server::Node,
};

/// A client: its configuration, and its session in this process.
pub(crate) struct ClientInner {
    pub(crate) settings: Arc<Settings>,
    events: EventSink,
    /// This process's session, made at the first use. A child of a fork replaces its parent's and leaks it.
    session: AtomicPtr<Tied<Arc<Session>>>,
    closed: AtomicBool,
}

impl ClientInner {
    pub(crate) fn new(settings: Settings, events: EventSink) -> Self {
        Self {
            settings: Arc::new(settings),
            events: contained(events),
            session: AtomicPtr::new(ptr::null_mut()),
            closed: AtomicBool::new(false),
        }
    }

    /// Uses these nodes instead of those in the configuration. Only before the first use.
    pub(crate) fn install(&self, nodes: Vec<Arc<dyn Node>>) {
        let session = Session::with_nodes(&self.settings, &self.events, nodes);
        self.session.store(Box::into_raw(Box::new(Tied::new(session))), Ordering::Release);
    }

    /// Makes later calls fail with `closed`. Returns the session, for the caller to close.
    pub(crate) fn close(&self) -> Result<Arc<Session>, LockError> {
        let session = self.open_session();
        self.closed.store(true, Ordering::Release);
        session
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, LockError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(LockError::Closed);
        }
        self.open_session()
    }

    fn open_session(&self) -> Result<Arc<Session>, LockError> {
        let mut current = self.session.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or from `Box::into_raw` below; what is replaced is leaked, and the last is
            // freed only in `drop`, when nobody refers to `self` any more.
            #[allow(unsafe_code)]
            if let Some(session) = unsafe { current.as_ref() }.and_then(Tied::get) {
                return Ok(session.clone());
            }
            let fresh = Session::new(&self.settings, &self.events)?;
            let fresh = Box::into_raw(Box::new(Tied::new(fresh)));
            match self.session.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => current = fresh,
                Err(other) => {
                    // SAFETY: `fresh` was not published.
                    #[allow(unsafe_code)]
                    drop(unsafe { Box::from_raw(fresh) });
                    current = other;
                }
            }
        }
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        let session = *self.session.get_mut();
        if !session.is_null() {
            // SAFETY: from `Box::into_raw`, and nobody else refers to it. `Tied` does not drop a parent's session.
            #[allow(unsafe_code)]
            drop(unsafe { Box::from_raw(session) });
        }
    }
}
