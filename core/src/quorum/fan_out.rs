//! One request to several nodes: the replies are counted as they arrive, until they decide.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout};

use crate::{
    protocol::script::Reply,
    server::{BoxFuture, NodeError},
};

/// The shortest time limit for the last nodes to decide a split vote or the outcome of a release. The limit is three
/// times the time so far, if that is longer.
pub(crate) const MINORITY_GRACE: Duration = Duration::from_millis(5);

/// The number of a node, and its reply.
pub(crate) type Answer<T = Reply> = (usize, Result<T, NodeError>);

/// What the replies so far decide.
pub(crate) enum Count<T> {
    /// This result, which the other replies cannot change.
    Decided(T),
    /// Nothing yet.
    More,
    /// Nothing yet. The other nodes have this time limit, so that a hung minority does not delay the result.
    Soon(Duration),
}

/// A request to a node that has not answered, with the node's number.
pub(crate) struct NodeRequest<T = Reply> {
    node: usize,
    answer: BoxFuture<Result<T, NodeError>>,
}

impl<T> NodeRequest<T> {
    pub(crate) fn new(node: usize, answer: BoxFuture<Result<T, NodeError>>) -> Self {
        Self { node, answer }
    }
}

impl<T> Future for NodeRequest<T> {
    type Output = Answer<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer<T>> {
        let node = self.node;
        self.answer.as_mut().poll(context).map(|answer| (node, answer))
    }
}

/// The requests without a reply. Most quorums have one node, which needs no set.
enum Open<T> {
    One(Option<NodeRequest<T>>),
    Many(FuturesUnordered<NodeRequest<T>>),
}

impl<T> Open<T> {
    fn new(mut requests: impl Iterator<Item = NodeRequest<T>>) -> Self {
        match (requests.next(), requests.next()) {
            (Some(first), Some(second)) => Self::Many([first, second].into_iter().chain(requests).collect()),
            (one, _) => Self::One(one),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::One(one) => one.is_none(),
            Self::Many(many) => many.is_empty(),
        }
    }

    /// The next reply.
    async fn next(&mut self) -> Option<Answer<T>> {
        match self {
            Self::One(one) => {
                let answer = one.as_mut()?.await;
                *one = None;
                Some(answer)
            }
            Self::Many(many) => many.next().await,
        }
    }
}

/// A request that was sent to several nodes.
pub(crate) struct FanOut<T = Reply> {
    open: Open<T>,
    began: Instant,
    /// The shortest time limit for the next reply; `None` for no limit.
    grace: Option<Duration>,
}

impl<T> FanOut<T> {
    pub(crate) fn new(requests: impl IntoIterator<Item = NodeRequest<T>>) -> Self {
        Self { open: Open::new(requests.into_iter()), began: Instant::now(), grace: None }
    }

    /// Adds requests to further nodes, and lifts the time limit.
    pub(crate) fn extend(&mut self, requests: impl IntoIterator<Item = NodeRequest<T>>) {
        let open = std::mem::replace(&mut self.open, Open::One(None));
        self.open = match open {
            Open::One(one) => Open::new(one.into_iter().chain(requests)),
            Open::Many(mut many) => {
                many.extend(requests);
                Open::Many(many)
            }
        };
        self.grace = None;
    }

    /// Sets the time limit for the first reply.
    pub(crate) fn within(self, grace: Option<Duration>) -> Self {
        Self { grace, ..self }
    }

    /// Whether every node has answered.
    pub(crate) fn is_over(&self) -> bool {
        self.open.is_empty()
    }

    /// Counts the answers until they decide; `None` if they never do.
    pub(crate) async fn tally<R>(
        &mut self,
        mut count: impl FnMut(usize, Result<T, NodeError>) -> Count<R>,
    ) -> Option<R> {
        while let Some((node, answer)) = self.next().await {
            match count(node, answer) {
                Count::Decided(result) => return Some(result),
                Count::More => self.grace = None,
                Count::Soon(grace) => self.grace = Some(grace),
            }
        }
        None
    }

    async fn next(&mut self) -> Option<Answer<T>> {
        let Some(grace) = self.grace else { return self.open.next().await };
        timeout(grace.max(self.began.elapsed() * 3), self.open.next()).await.unwrap_or_default()
    }

    /// Waits for all other replies, whatever they are: those nodes must run the script as well.
    pub(crate) async fn see_through(mut self) {
        while self.late().await.is_some() {}
    }

    /// The next reply after the decision, without a time limit.
    pub(crate) async fn late(&mut self) -> Option<Answer<T>> {
        self.open.next().await
    }

    /// Drops the requests without a reply.
    pub(crate) fn clear(&mut self) {
        self.open = Open::One(None);
    }

    /// Drops the requests without a reply, except to these nodes. A dropped request that has not been sent is never
    /// sent.
    pub(crate) fn retain(&mut self, of: impl Fn(usize) -> bool) {
        self.open = match std::mem::replace(&mut self.open, Open::One(None)) {
            Open::One(one) => Open::One(one.filter(|request| of(request.node))),
            Open::Many(many) => Open::Many(many.into_iter().filter(|request| of(request.node)).collect()),
        };
    }
}

impl FanOut {
    /// Counts the replies, each as `read` parses it, until they decide; `None` if they never do. A reply that `read`
    /// cannot parse is an error of its node.
    pub(crate) fn count<M, R>(
        &mut self,
        read: impl Fn(&Reply) -> Option<M>,
        mut count: impl FnMut(usize, Result<M, NodeError>) -> Count<R>,
    ) -> impl Future<Output = Option<R>> {
        self.tally(move |node, answer| {
            count(node, answer.and_then(|reply| read(&reply).ok_or_else(NodeError::no_answer)))
        })
    }
}

impl<T> Default for FanOut<T> {
    fn default() -> Self {
        Self::new([])
    }
}
