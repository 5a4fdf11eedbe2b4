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

    /// Makes later calls fail with `closed`. Returns the session, for the caller to close, also if another call closes
    /// it already. `None` if there is none to close: a child that was forked after the close makes no session of its
    /// own.
    pub(crate) fn close(&self) -> Option<Arc<Session>> {
        if self.closed.load(Ordering::Acquire) {
            return self.existing_session();
        }
        // Made if there is none yet: a call that has just found the client open then uses this one, which is closed.
        let session = self.open_session().ok();
        self.closed.store(true, Ordering::Release);
        session
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, LockError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(LockError::Closed);
        }
        self.open_session()
    }

    /// This process's session, if it has one.
    fn existing_session(&self) -> Option<Arc<Session>> {
        Self::session_at(self.session.load(Ordering::Acquire))
    }

    /// The session behind a pointer that was loaded from `self.session`, if it is this process's.
    fn session_at(pointer: *const Tied<Arc<Session>>) -> Option<Arc<Session>> {
        // SAFETY: the pointer is null or from `Box::into_raw` in `open_session` or `install`. A session that is
        // replaced is leaked, and the last one is freed only in `drop`, when nobody refers to the client any more.
        #[allow(unsafe_code)]
        let session = unsafe { pointer.as_ref() };
        session.and_then(Tied::get).cloned()
    }

    /// This process's session. Makes it at the first use.
    fn open_session(&self) -> Result<Arc<Session>, LockError> {
        let mut current = self.session.load(Ordering::Acquire);
        loop {
            if let Some(session) = Self::session_at(current) {
                return Ok(session);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Config, event};

    /// A child that was forked after the close finds the client like this: closed, and without a session of its own.
    #[test]
    fn a_close_of_a_closed_client_makes_no_session() {
        let settings = Config::new(["memory://closed"]).validate().expect("a valid configuration");
        let client = ClientInner::new(settings, event::trace());
        client.closed.store(true, Ordering::Release);
        assert!(client.close().is_none());
        assert!(client.session.load(Ordering::Acquire).is_null());
    }
}
