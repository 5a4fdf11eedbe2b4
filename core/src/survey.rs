//! What operators want to know of the nodes: which locks have waiters, which locks there are, who holds one on each
//! node. Also ends one tenure by force, by its token. Nothing here is on the path of an acquire.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;

use crate::{
    client::Client,
    error::{LockError, NodeCause},
    holders::{self, AtKey},
    owner,
    protocol::{
        calls::Protocol,
        names::Names,
        reply::{Holders, Kind},
        script::Reply,
    },
    quorum::Quorum,
    server::{NodeError, NodeErrorKind},
    session::{Session, run_to_completion},
};

/// About how many keys a server visits for one page of a [`Scan`]: a few milliseconds of its time.
const KEYS_A_PAGE: u32 = 1000;

/// A lock for which somebody waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contended {
    /// Its name, without the client's prefix.
    pub name: String,
    /// How many clients wait, each of which is a process as a rule.
    pub waiting: usize,
}

/// A lock as one node reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeView {
    /// The node's address, without credentials.
    pub node: String,
    /// What is at the lock's key, or why the node does not tell.
    pub state: Result<NodeState, NodeCause>,
    /// How many clients wait, by this node; `None` if it does not tell.
    pub waiting: Option<usize>,
}

/// What a node has at the key of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeState {
    /// How the lock is held; `None` if it is free on this node.
    pub kind: Option<Kind>,
    /// The holders: an explicit owner, or `uuid:tenure`. Empty for [`Kind::Rest`].
    pub owners: Vec<String>,
    /// The time until the key expires; `None` if it does not, or if the lock is free.
    pub ttl: Option<Duration>,
    /// The token counter, which is the last token of a writer or an exclusive holder. 0 if there is none, and for
    /// semaphores.
    pub token: u64,
}

/// One page of a [`Scan`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The names of the locks, without the client's prefix. A name may be on several pages.
    pub names: Vec<String>,
    /// About how many keys the servers have, of those that are visited, and how many were visited so far.
    pub keys: u64,
    /// How many keys were visited so far; an estimate.
    pub visited: u64,
}

/// A walk through the keys of the nodes in pages, with `SCAN`. It finds what is there from its beginning to its end,
/// and perhaps what comes or goes meanwhile. Made by [`Client::scan`].
pub struct Scan {
    client: Client,
    /// The nodes that are visited, in order. Any quorum has one of them, so each held lock is found.
    spots: Vec<Spot>,
    at: usize,
    /// The first node that was not chosen yet.
    next_node: usize,
    visited: u64,
    /// Nodes that failed.
    causes: Vec<NodeCause>,
    begun: bool,
}

/// The place of a scan on one server.
#[derive(Clone)]
struct Spot {
    node: usize,
    /// On a cluster, the address of the server.
    server: Option<Arc<str>>,
    cursor: String,
    keys: u64,
}

impl Client {
    /// The locks for which somebody waits, by the channels on which clients listen for a release (`PUBSUB`). Waiters of
    /// other libraries count if they listen on the same channels. A lock without waiters is not among them. Fails with
    /// `unavailable` if fewer nodes answer than a quorum.
    pub fn contended(&self) -> impl Future<Output = Result<Vec<Contended>, LockError>> + Send + use<> {
        let session = self.inner().session();
        async move {
            let session = session?;
            run_to_completion(async move { contended(&session).await }).await
        }
    }

    /// Walks through the keys of the servers and names those that look like locks. Never sends `KEYS`. The walk costs
    /// the servers about a microsecond a key, and more for each lock.
    pub fn scan(&self) -> Scan {
        Scan {
            client: self.clone(),
            spots: Vec::new(),
            at: 0,
            next_node: 0,
            visited: 0,
            causes: Vec::new(),
            begun: false,
        }
    }

    /// The holders of a lock as each node reports them, in the order of the nodes. Waits for `reply_timeout` (default:
    /// 2 s) at most. Fails with `invalid` if the name is wrong; a node that does not answer is part of the result.
    pub fn inspect_nodes(&self, name: &str) -> impl Future<Output = Result<Vec<NodeView>, LockError>> + Send + use<> {
        let begun = self.names(name).and_then(|names| Ok((self.inner().session()?, names)));
        async move {
            let (session, names) = begun?;
            run_to_completion(async move { Ok(views(&session, &names).await) }).await
        }
    }

    /// Frees a lock as [`force_release`](Client::force_release) does, but only if `token` is its last token: another
    /// tenure that began meanwhile stays, since each node ends only the tenure that was found with this token. Readers
    /// are ended together. Peers that draw no token, such as Redisson's `RLock`, pass for the tenure before theirs.
    /// Fails with `conflict` for a semaphore, whose slots have tokens of their own.
    pub fn force_release_token(
        &self,
        name: &str,
        token: u64,
    ) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let begun = self.names(name).and_then(|names| Ok((self.inner().session()?, names)));
        async move {
            let (session, names) = begun?;
            run_to_completion(async move { holders::end_token(&session, &names, token).await }).await
        }
    }
}

impl Client {
    /// Deletes the token counters of locks that this client made up, such as those of a measurement, and that nobody
    /// holds. A later holder's token is larger only if no clock is set back. Waits for `reply_timeout` (default: 2 s) at
    /// most; a node that does not answer keeps the counters until they expire.
    #[doc(hidden)]
    pub fn forget(&self, names: &[String]) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let names: Result<Vec<_>, _> = names.iter().map(|name| self.names(name)).collect();
        let begun = names.and_then(|names| Ok((self.inner().session()?, names)));
        async move {
            let (session, names) = begun?;
            run_to_completion(async move {
                let quorum = &session.quorum;
                let all = names.iter().flat_map(|names| (0..quorum.nodes.len()).map(move |node| (names, node)));
                let sent = all.map(|(names, node)| quorum.run(node, Protocol::forget(names), Reply::int));
                join_all(sent).await;
                Ok(())
            })
            .await
        }
    }
}

impl Scan {
    /// The next page; `None` at the end. Dropping the future leaves the scan where it is. Fails with `unavailable` if
    /// too few nodes answer.
    pub async fn next_page(&mut self) -> Result<Option<Page>, LockError> {
        let session = self.client.inner().session()?;
        if !self.begun {
            self.choose(&session).await?;
            self.begun = true;
        }
        loop {
            let Some(spot) = self.spots.get(self.at).cloned() else { return Ok(None) };
            let call = session.quorum.protocol.scan(spot.server.clone(), &spot.cursor, KEYS_A_PAGE);
            match session.quorum.run(spot.node, call, read_page).await {
                Ok(mut page) => {
                    page.locks.extend(visited(&session, spot.node, std::mem::take(&mut page.moving)).await);
                    return Ok(Some(self.turn(&session, page)));
                }
                Err(error) => self.skip(&session, spot.node, error).await?,
            }
        }
    }

    /// Chooses the servers: those of as many nodes as any quorum must include one of.
    async fn choose(&mut self, session: &Arc<Session>) -> Result<(), LockError> {
        let wanted = session.quorum.spare() + 1;
        let chosen = |spots: &[Spot]| spots.iter().map(|spot| spot.node).collect::<BTreeSet<_>>().len();
        while chosen(&self.spots) < wanted && self.next_node < session.quorum.nodes.len() {
            let node = self.next_node;
            self.next_node += 1;
            match servers(session, node).await {
                Ok(servers) => self.spots.extend(servers.into_iter().map(|server| Spot {
                    node,
                    server,
                    cursor: "0".to_owned(),
                    keys: 0,
                })),
                Err(error) => self.fail(session, node, error)?,
            }
        }
        Ok(())
    }

    /// Notes a node that failed. Too many are an outage.
    fn fail(&mut self, session: &Session, node: usize, error: NodeError) -> Result<(), LockError> {
        self.causes.push(session.quorum.cause(node, error));
        if self.causes.len() > session.quorum.spare() || session.quorum.nodes.len() == 1 {
            return Err(session.quorum.unavailable(self.causes.clone()));
        }
        Ok(())
    }

    /// Leaves a node that failed, with all its servers, for one that is not visited yet.
    async fn skip(&mut self, session: &Arc<Session>, failed: usize, error: NodeError) -> Result<(), LockError> {
        self.fail(session, failed, error)?;
        self.at = self.spots.iter().position(|spot| spot.node == failed).unwrap_or(self.at);
        self.spots.retain(|spot| spot.node != failed);
        self.choose(session).await
    }

    /// Takes a page, and goes on to the next server at the end of one.
    fn turn(&mut self, session: &Session, page: ServerPage) -> Page {
        let ServerPage { cursor, keys, locks, .. } = page;
        let prefix = &session.settings.config.prefix;
        let spot = &mut self.spots[self.at];
        spot.keys = keys;
        self.visited += u64::from(KEYS_A_PAGE).min(keys);
        if cursor == "0" {
            self.at += 1;
        } else {
            spot.cursor = cursor;
        }
        let keys = self.spots.iter().map(|spot| spot.keys).sum();
        let names = locks.into_iter().filter_map(|key| key.strip_prefix(prefix.as_str()).map(str::to_owned));
        Page { names: names.collect(), keys, visited: self.visited.min(keys) }
    }
}

/// The locks among keys whose slot is moving, each read from the server that has it. A key that cannot be read is left
/// out: a scan does not promise to find what comes or goes meanwhile.
async fn visited(session: &Session, node: usize, keys: Vec<String>) -> Vec<String> {
    let protocol = &session.quorum.protocol;
    let visits = keys.into_iter().map(|key| session.quorum.run(node, protocol.visit(key), read_page));
    join_all(visits).await.into_iter().flatten().flat_map(|page| page.locks).collect()
}

/// The servers of a node: of a cluster the addresses of its masters, else one without an address.
async fn servers(session: &Session, node: usize) -> Result<Vec<Option<Arc<str>>>, NodeError> {
    let info = session.quorum.nodes[node].ping(session.settings.config.reply_timeout).await?;
    if info.servers.is_empty() {
        return Ok(vec![None]);
    }
    Ok(info.servers.into_iter().map(|server| Some(server.into())).collect())
}

/// Counts the listeners of channels on all servers of a node.
async fn listeners(session: &Session, node: usize) -> Result<Vec<(String, usize)>, NodeError> {
    let servers = servers(session, node).await?;
    let counted = servers.into_iter().map(|server| {
        let call = Protocol::listeners(server, None, Names::release_channels());
        session.quorum.run(node, call, read_listeners)
    });
    let counted: Result<Vec<_>, _> = join_all(counted).await.into_iter().collect();
    Ok(counted?.into_iter().flatten().collect())
}

async fn contended(session: &Arc<Session>) -> Result<Vec<Contended>, LockError> {
    let quorum = &session.quorum;
    let listed = join_all((0..quorum.nodes.len()).map(|node| listeners(session, node))).await;
    let (mut locks, mut causes) = (BTreeMap::<String, usize>::new(), Vec::new());
    for (node, listed) in listed.into_iter().enumerate() {
        match listed {
            Err(error) => causes.push(quorum.cause(node, error)),
            Ok(channels) => {
                for (name, waiting) in by_lock(&channels, &session.settings.config.prefix) {
                    let known = locks.entry(name).or_default();
                    // Waiters of a quorum listen on each node.
                    *known = waiting.max(*known);
                }
            }
        }
    }
    if causes.len() > quorum.spare() {
        return Err(quorum.unavailable(causes));
    }
    Ok(locks.into_iter().map(|(name, waiting)| Contended { name, waiting }).collect())
}

/// The waiters of each lock, by its channels. A waiter in a queue listens on a channel of its own, and perhaps also on
/// the common one.
fn by_lock(channels: &[(String, usize)], prefix: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::<String, (usize, usize)>::new();
    for (channel, listening) in channels.iter().filter(|(_, listening)| *listening > 0) {
        let Some((lock, is_own)) = Names::lock_of_channel(channel) else { continue };
        let Some(name) = lock.strip_prefix(prefix) else { continue };
        let (common, own) = counts.entry(name.to_owned()).or_default();
        *(if is_own { own } else { common }) += listening;
    }
    counts.into_iter().map(|(name, (common, own))| (name, common.max(own))).collect()
}

async fn views(session: &Arc<Session>, names: &Arc<Names>) -> Vec<NodeView> {
    let quorum = &session.quorum;
    let looks = (0..quorum.nodes.len()).map(|node| async move {
        let call = Protocol::listeners(None, Some(&names.lock), names.channels_of_waiters());
        let (state, waiting) = futures_util::join!(state(quorum, node, names), quorum.run(node, call, read_listeners));
        let state = state.map_err(|error| quorum.cause(node, error));
        let prefix = &session.settings.config.prefix;
        let waiting = waiting.ok().map(|channels| by_lock(&channels, prefix).remove(names.name()).unwrap_or_default());
        NodeView { node: quorum.nodes[node].name().to_owned(), state, waiting }
    });
    join_all(looks).await
}

/// What a node has at the key of a lock. Fails with `conflict` if that is no lock.
pub(crate) async fn state_of(session: &Session, node: usize, names: &Names) -> Result<NodeState, LockError> {
    let quorum = &session.quorum;
    state(quorum, node, names).await.map_err(|error| match error.kind {
        NodeErrorKind::WrongType => LockError::Conflict { key: names.lock.clone() },
        _ => quorum.unavailable(vec![quorum.cause(node, error)]),
    })
}

/// What a node has at the key of a lock.
async fn state(quorum: &Quorum, node: usize, names: &Names) -> Result<NodeState, NodeError> {
    match holders::at_key(quorum, node, names).await? {
        AtKey::Lock(holders) => Ok(held(holders)),
        AtKey::Semaphore(permits) => Ok(NodeState {
            kind: (!permits.is_empty()).then_some(Kind::Semaphore),
            ttl: permits.iter().map(|permit| permit.left).max(),
            owners: owner::all_shown(permits.iter().map(|permit| permit.field.as_str())),
            token: 0,
        }),
        AtKey::Foreign => Err(foreign(quorum)),
    }
}

fn held(holders: Holders) -> NodeState {
    let Holders { ttl, counter, kind, fields } = holders;
    let owners = owner::all_shown(fields.iter().map(String::as_str));
    let kind = match (fields.is_empty(), owners.is_empty()) {
        (true, _) => None,
        (_, true) => Some(Kind::Rest),
        _ => Some(kind),
    };
    NodeState { kind, owners, ttl: ttl.filter(|_| kind.is_some()), token: counter }
}

/// The error for a key that holds data of somebody else.
fn foreign(quorum: &Quorum) -> NodeError {
    let wire = quorum.protocol.wire().as_str();
    let detail = format!("WRONGTYPE: the key holds something that is no lock of wire {wire}");
    NodeError::new(NodeErrorKind::WrongType, detail)
}

/// The reply to `survey/listeners`. On a cluster a waiter listens to the ordinary channel and to that of the shard,
/// which have the same name: it counts once.
fn read_listeners(reply: &Reply) -> Option<Vec<(String, usize)>> {
    let mut channels = BTreeMap::<String, usize>::new();
    for one in reply.list()?.chunks(2) {
        let [Reply::Text(channel), Reply::Int(count)] = one else { return None };
        let known = channels.entry(channel.clone()).or_default();
        *known = usize::try_from(*count).ok()?.max(*known);
    }
    Some(channels.into_iter().collect())
}

/// The reply to `survey/scan`.
struct ServerPage {
    /// The next cursor.
    cursor: String,
    /// How many keys the server has.
    keys: u64,
    /// The keys of locks.
    locks: Vec<String>,
    /// Keys of slots that are moving to this server, which it does not read for a scan.
    moving: Vec<String>,
}

/// The reply to `survey/scan`.
fn read_page(reply: &Reply) -> Option<ServerPage> {
    let [Reply::Text(cursor), Reply::Int(keys), found @ ..] = reply.list()? else { return None };
    let (locks, moving) = match found {
        [locks @ .., Reply::List(moving)] => (locks, moving.as_slice()),
        locks => (locks, &[][..]),
    };
    let text = |one: &Reply| if let Reply::Text(text) = one { Some(text.clone()) } else { None };
    let texts = |all: &[Reply]| all.iter().map(text).collect::<Option<Vec<_>>>();
    let (locks, moving) = (texts(locks)?, texts(moving)?);
    Some(ServerPage { cursor: cursor.clone(), keys: u64::try_from(*keys).ok()?, locks, moving })
}
