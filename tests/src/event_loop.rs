//! An event loop like that of asyncio or libuv: it watches a descriptor, and drains its calls when that is readable.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use redlock::{
    Lease, LockError, ReleaseOutcome,
    ffi::{Call, Calls, Operation, Outcome, Value, completions::Started},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longer than any call takes.
const LONG: Duration = Duration::from_secs(30);

/// An event loop.
pub struct Loop {
    /// Its calls.
    pub calls: Calls,
    ended: HashMap<u64, Outcome>,
}

impl Default for Loop {
    fn default() -> Self {
        Self::new()
    }
}

impl Loop {
    /// A loop without calls.
    pub fn new() -> Self {
        Self { calls: Calls::hosted().unwrap(), ended: HashMap::new() }
    }

    /// True if the descriptor is readable within `limit`.
    pub fn is_readable(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap();
        let mut watched = [PollFd::from_borrowed_fd(self.calls.fd().unwrap(), PollFlags::IN)];
        poll(&mut watched, Some(&limit)).unwrap() > 0
    }

    /// Waits until the descriptor is readable, for no longer than `limit`, and drains.
    pub fn turn(&mut self, limit: Duration) {
        if self.is_readable(limit) {
            self.ended.extend(self.calls.drain().unwrap());
        }
    }

    /// Waits for the end of a call.
    pub fn end(&mut self, call: Result<Call, LockError>) -> Outcome {
        let id = match call.unwrap() {
            Started::Done(outcome) => return outcome,
            Started::Pending(id) => id,
        };
        let start = Instant::now();
        loop {
            if let Some(outcome) = self.ended.remove(&id) {
                return outcome;
            }
            assert!(start.elapsed() < LONG, "a call did not end");
            self.turn(LONG);
        }
    }

    /// Waits for a lease.
    pub fn lease(&mut self, call: Result<Call, LockError>) -> Lease {
        match self.end(call) {
            Ok(Value::Lease(lease)) => lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    /// Releases a lease.
    pub fn release(&mut self, lease: &Lease) -> ReleaseOutcome {
        let call = self.calls.start(Operation::Release(lease));
        match self.end(call) {
            Ok(Value::Released("released")) => ReleaseOutcome::Released,
            Ok(Value::Released("lost")) => ReleaseOutcome::Lost,
            Ok(Value::Released(_)) => ReleaseOutcome::Unconfirmed,
            other => panic!("no outcome: {other:?}"),
        }
    }
}
