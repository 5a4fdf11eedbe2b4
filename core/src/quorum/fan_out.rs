//! One request on several nodes: answers are counted as they come, until they decide.

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

/// How long the last nodes may keep a split vote, or the outcome of a release, open; at least, since three times the
/// others' answers is allowed too.
pub(crate) const MINORITY_GRACE: Duration = Duration::from_millis(5);

/// What a node, by its number, answered.
pub(crate) type Answer = (usize, Result<Reply, NodeError>);

/// What the answers so far decide.
pub(crate) enum Count<T> {
    /// The answers to come cannot change it.
    Decided(T),
    /// Nothing yet.
    More,
    /// Nothing yet, but a hung minority is not waited for: the others have so much time.
    Soon(Duration),
}

/// What a node, by its number, was asked and has not answered.
pub(crate) struct NodeRequest {
    node: usize,
    answer: BoxFuture<Result<Reply, NodeError>>,
}

impl NodeRequest {
    pub(crate) fn new(node: usize, answer: BoxFuture<Result<Reply, NodeError>>) -> Self {
        Self { node, answer }
    }
}

impl Future for NodeRequest {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let node = self.node;
        self.answer.as_mut().poll(context).map(|answer| (node, answer))
    }
}

/// Who has not answered yet. Most quorums are of one node.
enum Open {
    One(Option<NodeRequest>),
    Many(FuturesUnordered<NodeRequest>),
}

impl Open {
    fn new(mut requests: impl Iterator<Item = NodeRequest>) -> Self {
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

    /// The next answer, whose node it is.
    async fn next(&mut self) -> Option<Answer> {
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

/// A request under way on several nodes.
pub(crate) struct FanOut {
    open: Open,
    began: Instant,
    /// How long the next answer is waited for at least, if not for as long as it takes.
    grace: Option<Duration>,
}

impl FanOut {
    pub(crate) fn new(requests: impl IntoIterator<Item = NodeRequest>) -> Self {
        Self { open: Open::new(requests.into_iter()), began: Instant::now(), grace: None }
    }

    /// Asks others, too.
    pub(crate) fn extend(&mut self, requests: impl IntoIterator<Item = NodeRequest>) {
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

    /// Waits so long for the first answer, too.
    pub(crate) fn within(self, grace: Option<Duration>) -> Self {
        Self { grace, ..self }
    }

    /// Whether every answer has been counted.
    pub(crate) fn is_over(&self) -> bool {
        self.open.is_empty()
    }

    /// Counts the answers, each as `read` understands it, until they decide; `None` if they never do. One that `read`
    /// does not understand is an error of its node.
    pub(crate) async fn count<M, T>(
        &mut self,
        read: impl Fn(&Reply) -> Option<M>,
        mut count: impl FnMut(usize, Result<M, NodeError>) -> Count<T>,
    ) -> Option<T> {
        while let Some((node, answer)) = self.next().await {
            match count(node, answer.and_then(|reply| read(&reply).ok_or_else(NodeError::no_answer))) {
                Count::Decided(result) => return Some(result),
                Count::More => self.grace = None,
                Count::Soon(grace) => self.grace = Some(grace),
            }
        }
        None
    }

    async fn next(&mut self) -> Option<Answer> {
        let Some(grace) = self.grace else { return self.open.next().await };
        timeout(grace.max(self.began.elapsed() * 3), self.open.next()).await.unwrap_or_default()
    }

    /// Waits for the other answers, whatever they are: the nodes are to run it as well.
    pub(crate) async fn see_through(mut self) {
        while self.late().await.is_some() {}
    }

    /// The other answers, one after another, as they come.
    pub(crate) async fn late(&mut self) -> Option<Answer> {
        self.open.next().await
    }

    /// Forgets the other answers.
    pub(crate) fn clear(&mut self) {
        self.open = Open::One(None);
    }

    /// Forgets the answers of all nodes but these: what has not been sent to the others never will be.
    pub(crate) fn retain(&mut self, of: impl Fn(usize) -> bool) {
        self.open = match std::mem::replace(&mut self.open, Open::One(None)) {
            Open::One(one) => Open::One(one.filter(|request| of(request.node))),
            Open::Many(many) => Open::Many(many.into_iter().filter(|request| of(request.node)).collect()),
        };
    }
}

impl Default for FanOut {
    fn default() -> Self {
        Self::new([])
    }
}
