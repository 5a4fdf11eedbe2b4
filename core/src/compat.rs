//! Locks by the value in their key, whoever wrote it: releases and extends them for drop-in shims of libraries that
//! know a hold by its value alone. Each call sends a request to the servers; nothing is kept between two calls.

use std::{future::Future, str::FromStr, sync::Arc, time::Duration};

use futures_util::future::join_all;

use crate::{
    config::{LARGEST_EXACT, LockOptions, Wire, check_value},
    error::LockError,
    process::{
        driver::{Caller, Driver, Polled},
        runtime::{self, Interrupted},
    },
    protocol::{
        calls::Label,
        names::Names,
        reply,
        script::{Reply, ScriptCall},
    },
    quorum::{CLEANUP_LIMIT, FanOut, Quorum, insist},
    session::{ClientInner, Session, run_to_completion},
};

/// A value that may be in a lock's key. A lease of this process with the same value does not notice these calls.
#[derive(Clone)]
pub struct HeldValue {
    client: Arc<ClientInner>,
    names: Arc<Names>,
    value: String,
}

/// How [`HeldValue::retime`] changes the remaining ttl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retime {
    /// Adds to the ttl of a key that has one. Not on a quorum, whose `max_ttl` the sum could exceed.
    Add,
    /// Replaces the ttl of a key that has one.
    Replace,
    /// Sets the ttl, also of a key that has none.
    Set,
}

impl Retime {
    fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Set => "set",
        }
    }
}

impl FromStr for Retime {
    type Err = LockError;

    fn from_str(word: &str) -> Result<Self, LockError> {
        [Self::Add, Self::Replace, Self::Set]
            .into_iter()
            .find(|known| known.as_str() == word)
            .ok_or_else(|| LockError::invalid("how", format!("must be \"add\", \"replace\" or \"set\", not {word:?}")))
    }
}

impl HeldValue {
    pub(crate) fn new(client: Arc<ClientInner>, name: &str, value: &str) -> Result<Self, LockError> {
        let settings = &client.settings;
        let key = settings.check_lock(name, &LockOptions::default())?;
        if settings.config.wire != Wire::Token {
            return Err(LockError::invalid("value", "needs wire=\"token\""));
        }
        check_value(value)?;
        let names = Arc::new(Names::new(key, settings));
        Ok(Self { client, names, value: value.to_owned() })
    }

    /// The lock's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.names.name()
    }

    /// Releases the lock if its key has the value. True if a quorum of the nodes released it. Fails with `unavailable`
    /// if too few nodes answer; the release is then resent to the others in the background.
    pub fn release(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        self.start(Ok(ValueRequest::Release))
    }

    /// [`release`](Self::release), blocking. `check` runs every 50 ms; its error ends the call, not the release. Not
    /// for async code: it panics there.
    pub fn release_interruptible<E: From<LockError>>(
        &self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        let released = self.run_blocking(ValueRequest::Release, check);
        if let Err(Interrupted::Check(_)) = released {
            // The first release may have been cut short. A second one does no harm.
            drop(self.release());
        }
        self.flatten(released)
    }

    /// Changes the remaining ttl of a key that has the value, to or by `millis` ms as `how` says. The ttl may become
    /// shorter; if it becomes zero or less, the key is deleted. True if a quorum of the nodes had the value, and the
    /// ttl that `how` requires.
    ///
    /// Fails with `invalid` for a ttl above 2^53 ms or the quorum's `max_ttl`, and for [`Retime::Add`] on a quorum.
    /// Fails with `unavailable` if too few nodes answer; some may have done it.
    pub fn retime(&self, how: Retime, millis: i64) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        self.start(self.check(how, millis))
    }

    /// [`retime`](Self::retime), blocking. Not for async code: it panics there.
    pub fn retime_interruptible<E: From<LockError>>(
        &self,
        how: Retime,
        millis: i64,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        self.flatten(self.run_blocking(self.check(how, millis)?, check))
    }

    /// True if the key has the value on a quorum of the nodes.
    pub fn is_there(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        self.start(Ok(ValueRequest::Check))
    }

    /// [`is_there`](Self::is_there), blocking. Not for async code: it panics there.
    pub fn is_there_interruptible<E: From<LockError>>(
        &self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        self.flatten(self.run_blocking(ValueRequest::Check, check))
    }

    fn check(&self, how: Retime, millis: i64) -> Result<ValueRequest, LockError> {
        if !(-LARGEST_EXACT..=LARGEST_EXACT).contains(&millis) {
            return Err(LockError::invalid("ttl", format!("must be at most 2^53 ms, not {millis} ms")));
        }
        let settings = &self.client.settings;
        if how == Retime::Add && settings.endpoints.len() > 1 {
            return Err(LockError::invalid("how", "nothing can be added on a quorum, where max_ttl bounds every ttl"));
        }
        settings.check_quorum_ttl("ttl", Duration::from_millis(millis.max(0).unsigned_abs()))?;
        Ok(ValueRequest::Retime(how, millis))
    }

    /// Runs a request in the background to its end, even if the caller gives up.
    fn start(
        &self,
        request: Result<ValueRequest, LockError>,
    ) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let result = request.and_then(|request| {
            let session = self.client.session()?;
            Ok(run_to_completion(request.run(session, Driver::Background, self.names.clone(), self.value.clone())))
        });
        async move { result?.await }
    }

    /// Runs a request and blocks until it has its result. `check` runs every 50 ms; its error gives the request up.
    fn run_blocking<E>(
        &self,
        request: ValueRequest,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Result<bool, LockError>, Interrupted<E>> {
        let session = match self.client.session() {
            Ok(session) => session,
            Err(error) => return Ok(Err(error)),
        };
        match session.quorum.polled(Caller::Thread) {
            Polled::InBackground => runtime::block(Driver::Background, self.start(Ok(request)), check),
            Polled::Here(driver) => {
                runtime::block(driver, request.run(session, driver, self.names.clone(), self.value.clone()), check)
            }
        }
    }

    /// Returns the result of a blocking request, or the error that ended it.
    fn flatten<E: From<LockError>>(&self, result: Result<Result<bool, LockError>, Interrupted<E>>) -> Result<bool, E> {
        Ok(result.map_err(|interrupted| interrupted.error(self.name()))??)
    }
}

#[derive(Clone, Copy)]
enum ValueRequest {
    Release,
    Retime(Retime, i64),
    Check,
}

impl ValueRequest {
    /// Runs the request on a quorum. The other nodes run it in the background.
    async fn run(
        self,
        session: Arc<Session>,
        driver: Driver,
        names: Arc<Names>,
        value: String,
    ) -> Result<bool, LockError> {
        let quorum = &session.quorum;
        let call = match self {
            Self::Release => quorum.protocol.release(Label::of_lock(&names, &value), true),
            Self::Retime(how, millis) => quorum.protocol.retime(&names, &value, how.as_str(), millis),
            Self::Check => quorum.protocol.renew_one(Label::of_lock(&names, &value), Duration::ZERO),
        };
        // `close()` and the exit of the process wait for it, within their time limit.
        let _pending = quorum.pending_work();
        match quorum.decide(driver, &call, |reply| self.read(reply)).await {
            Ok((decided, unanswered, others)) => {
                // The other nodes run it, too, whether or not the caller still waits.
                quorum.spawn_pending(self.finish(quorum.clone(), call, unanswered, others));
                Ok(decided)
            }
            Err((unanswered, causes)) => {
                quorum.spawn_pending(self.finish(quorum.clone(), call, unanswered, FanOut::default()));
                Err(quorum.unavailable(causes))
            }
        }
    }

    /// Waits for the other replies. Resends a release to the nodes that did not answer.
    async fn finish(self, quorum: Arc<Quorum>, call: ScriptCall, mut unanswered: Vec<usize>, mut others: FanOut) {
        while let Some((node, answer)) = others.late().await {
            if answer.is_err() {
                unanswered.push(node);
            }
        }
        if matches!(self, Self::Release) {
            let (quorum, call) = (&quorum, &call);
            let again = |node: usize| insist(quorum.nodes[node].clone(), move || call.clone(), CLEANUP_LIMIT);
            join_all(unanswered.into_iter().map(again)).await;
        }
    }

    fn read(self, reply: &Reply) -> Option<bool> {
        match self {
            Self::Release | Self::Retime(..) => reply::done(reply),
            Self::Check => reply::renewals(reply, 1, false).map(|found| found[0] == reply::Renewed::Extended),
        }
    }
}
