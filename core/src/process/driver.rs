//! Who calls, and who then polls the call until it is done: the one place that decides how a call is driven.
//!
//! First tries and releases on a single node are polled where they are called: no other thread has to be woken for them.
//! Everything else, and whatever has to wait, belongs to the background, which goes on whatever its caller does.

use tokio::runtime::Id;

use super::program;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A thread that blocks until the call is done.
    Thread,
    /// A task of any executor, which polls the call as it polls its other futures.
    Task,
    /// A host's reactor, by its number, which polls its calls.
    Host(u64),
}

/// Who drives a connection, and the requests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The background runtime: always.
    Background,
    /// Blocking callers: only while one of them is inside the caller runtime.
    Caller,
    /// A host's reactor, by its number: while its host runs it, and only calls that it polls.
    Host(u64),
    /// A tokio runtime of the program's: while that runs, and only calls that its tasks poll.
    Program(Id),
}

impl Driver {
    /// Who drives a request that is made here and now: a future may be polled by another runtime than the one in which it
    /// was made.
    pub(crate) fn here(self) -> Self {
        match self {
            Self::Program(id) if program::current(id).is_none() => Self::Background,
            other => other,
        }
    }
}

/// Where a call is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// By whoever called; its requests are this driver's.
    Here(Driver),
    /// By a task of the background.
    InBackground,
}

impl Polled {
    /// Who drives its requests.
    pub(crate) fn driver(self) -> Driver {
        match self {
            Self::Here(driver) => driver,
            Self::InBackground => Driver::Background,
        }
    }
}

/// Where a call on so many nodes is polled. `hostable`: whether an event loop may own a connection to the node.
pub(crate) fn polled(caller: Caller, nodes: usize, hostable: bool) -> Polled {
    // Of several nodes some answer when the call has its result: that needs somebody who goes on.
    if nodes > 1 {
        return Polled::InBackground;
    }
    match caller {
        Caller::Thread => Polled::Here(Driver::Caller),
        Caller::Task => Polled::Here(program::here().map_or(Driver::Background, Driver::Program)),
        Caller::Host(host) if hostable => Polled::Here(Driver::Host(host)),
        Caller::Host(_) => Polled::InBackground,
    }
}
