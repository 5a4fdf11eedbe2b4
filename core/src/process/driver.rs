//! Decides who polls a call until it is done, and which runtime drives its requests. Only this file decides that.
//!
//! First attempts and releases on a single node are polled by their caller, so that no other thread must be woken.
//! Everything else, and every call that must wait, runs in the background, which continues whatever its caller does.

use tokio::runtime::Id;

use super::program;

/// The kind of caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A thread that blocks until the call is done.
    Thread,
    /// A task of any executor, which polls the call like its other futures.
    Task,
    /// A host's reactor, by its id. It polls its calls.
    Host(u64),
}

/// The runtime that drives a connection and the requests on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// The background runtime, which always runs.
    Background,
    /// The caller runtime, which runs only while a blocking caller is inside it.
    Caller,
    /// A host's reactor, by its id. It runs when its host runs it, and drives only calls that it polls itself.
    Host(u64),
    /// A tokio runtime of the program, while that runs. It drives only calls that its own tasks poll.
    Program(Id),
}

impl Driver {
    /// The driver that a request made now can use: this one, or the background's if this is a runtime of the program
    /// and the caller does not run in it.
    pub(crate) fn usable_now(self) -> Self {
        match self {
            Self::Program(id) if program::current(id).is_none() => Self::Background,
            other => other,
        }
    }
}

/// Where a call is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Polled {
    /// By its caller. This driver drives its requests.
    Here(Driver),
    /// By a task of the background.
    InBackground,
}

impl Polled {
    /// The driver of its requests.
    pub(crate) fn driver(self) -> Driver {
        match self {
            Self::Here(driver) => driver,
            Self::InBackground => Driver::Background,
        }
    }
}

/// Decides where a call on this many nodes is polled. `hostable`: whether an event loop may own a connection to the
/// node.
pub(crate) fn polled(caller: Caller, nodes: usize, hostable: bool) -> Polled {
    // With several nodes some replies arrive after the call has its result, and only the background still polls then.
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
