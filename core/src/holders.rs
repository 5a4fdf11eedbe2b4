//! Finds the holders of a lock on its nodes, and ends their tenures by force.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::timeout;

use crate::{
    clock,
    config::{MAX_TTL, Wire},
    connected,
    error::{Holder, LockError, LostReason},
    identity::Identity,
    owner,
    process::runtime,
    protocol::{
        calls::Protocol,
        names::Names,
        reply::{self, End, Holders, Kind, Permits, Permitted, Seen},
        script::ScriptCall,
    },
    quorum::Quorum,
    server::{BoxFuture, NodeError, NodeErrorKind},
    session::Session,
};

/// How much the error of a time-out may be delayed to find out who holds the lock.
const SOON: Duration = Duration::from_millis(50);
/// How far the clock of a node may be before this process's: a token that is newer shows no time.
const MOST_SKEW: Duration = Duration::from_secs(60);

/// The holders of a lock, as a quorum of its nodes reports them. [`Lock::inspect`](crate::Lock::inspect) has an
/// example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// How the lock is held.
    pub kind: Kind,
    /// The holder: an explicit owner, or `uuid:tenure`; from Redisson `uuid:thread`. With several readers, the first.
    /// Empty for [`Kind::Rest`].
    pub owner: String,
    /// All holders. There are several only of a read lock or of a semaphore, and none for [`Kind::Rest`].
    pub owners: Vec<String>,
    /// The time until the key expires, unless it is renewed; `None` if a peer set no ttl.
    pub ttl: Option<Duration>,
    /// The last fencing token. 0 if the holder draws none, if it acquired the lock longer ago than the counter is kept
    /// ([`token_ttl`](crate::Config::token_ttl)), and for a semaphore, whose slots have tokens of their own.
    pub token: u64,
    /// The name of the machine on which `owner` holds the lock. `None` for Redisson and other peers, for explicit owners,
    /// and if the holder's connections have no name or this client may not read it. Of a detached lease, the client
    /// that detached it.
    pub host: Option<String>,
    /// The number of its process on that machine.
    pub pid: Option<u32>,
    /// The name of its program: [`app`](crate::Config::app).
    pub app: Option<String>,
    /// Since when `owner` holds the lock, by the clock of a node: the time at which its fencing token was drawn. `None`
    /// for readers, permits and peers, which draw none, and if `token` is not known.
    pub since: Option<SystemTime>,
}

impl LockInfo {
    /// [`since`](Self::since) in microseconds since the epoch, for a host.
    #[doc(hidden)]
    pub fn since_micros(&self) -> Option<i64> {
        let since = self.since?.duration_since(UNIX_EPOCH).ok()?;
        i64::try_from(since.as_micros()).ok()
    }
}

/// The holders of a lock, before it is known which processes they are.
struct Found {
    info: LockInfo,
    /// The field of the first one.
    field: String,
    /// The token that it drew; 0 if it draws none or that is not known.
    drawn: u64,
}

impl Found {
    /// `None` without fields.
    fn new(kind: Kind, fields: &[&str], ttl: Option<Duration>, token: u64, drawn: u64) -> Option<Self> {
        let field = (*fields.first()?).to_owned();
        let owners = owner::all_shown(fields.iter().copied());
        let (owner, host, pid, app, since) = (owners.first().cloned().unwrap_or_default(), None, None, None, None);
        let info = LockInfo { kind, owner, owners, ttl, token, host, pid, app, since };
        Some(Self { info, field, drawn })
    }

    /// Adds the process of the first holder, and since when it holds the lock.
    async fn identified(self, session: &Arc<Session>) -> LockInfo {
        let Self { mut info, field, drawn } = self;
        let identity = connected::client_of(session, &field).await;
        // A peer leaves the counter as it is: its value is that of an earlier holder.
        if identity.is_some() || owner::is_explicit(&field) {
            info.since = drawn_at(drawn);
        }
        (info.host, info.pid, info.app) = Identity::process(identity.as_deref());
        info
    }
}

/// The time at which a token was drawn; `None` if it was not drawn from a clock.
fn drawn_at(token: u64) -> Option<SystemTime> {
    let age = clock::now().wall_micros().saturating_sub_unsigned(token);
    let (newest, oldest) = (MOST_SKEW.as_micros() as i64, MAX_TTL.as_micros() as i64);
    (-newest..=oldest).contains(&age).then(|| UNIX_EPOCH + Duration::from_micros(token))
}

/// The calls that end tenures, each for one kind of lock.
struct Ends {
    lock: ScriptCall,
    /// `None` if no read/write lock can have these tenures.
    read_write: Option<ScriptCall>,
    /// `None` if a semaphore is a conflict.
    semaphore: Option<ScriptCall>,
}

/// Ends the tenures of an explicit owner. True if there was one.
pub(crate) async fn end(session: &Session, names: &Names, owner: &str) -> Result<bool, LockError> {
    // A read/write lock and a semaphore have no explicit owners.
    let lock = session.quorum.protocol.end(names, Some(owner));
    end_with(session, names, Ends { lock, read_write: None, semaphore: None }).await
}

/// Ends tenures on all nodes. True if there was one.
async fn end_with(session: &Session, names: &Names, ends: Ends) -> Result<bool, LockError> {
    let (quorum, ends) = (&session.quorum, Arc::new(ends));
    let ask = |node| -> BoxFuture<_> {
        let (quorum, ends) = (quorum.clone(), ends.clone());
        Box::pin(async move { end_on(&quorum, node, &ends).await })
    };
    // The others, too, have a short time: a node that still has the tenure would make the lock look held.
    let replies = quorum.gather_with(ask, |_| false).await?;
    if replies.iter().filter(|(_, end)| *end == End::Conflict).count() > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    Ok(replies.iter().any(|(_, end)| matches!(end, End::Tenures(1..))))
}

/// Ends tenures on one node, with the call for the kind of lock that the node has.
async fn end_on(quorum: &Quorum, node: usize, ends: &Ends) -> Result<End, NodeError> {
    let run = |call: &ScriptCall| quorum.run(node, call.clone(), reply::end);
    let mut ended = run(&ends.lock).await;
    let is_read_write = match &ended {
        Ok(ended) => *ended == End::ReadWrite,
        // On the wire where locks are strings, a read/write lock has another type.
        Err(error) => is_wrong_type(error) && quorum.protocol.wire() == Wire::Token,
    };
    if is_read_write {
        let Some(call) = &ends.read_write else { return Ok(End::ReadWrite) };
        ended = run(call).await;
    }
    // A semaphore has another type than every lock.
    if ended.as_ref().is_err_and(is_wrong_type)
        && let Some(call) = &ends.semaphore
    {
        ended = run(call).await;
    }
    match ended {
        Err(error) if is_wrong_type(&error) => Ok(End::Conflict),
        ended => ended,
    }
}

fn is_wrong_type(error: &NodeError) -> bool {
    error.kind == NodeErrorKind::WrongType
}

/// Ends all tenures, if `token` is that of the last one. True if there was one.
///
/// The nodes compare the fields of that tenure, and not the token: on a quorum the counters of
/// some nodes may differ from it.
pub(crate) async fn end_token(session: &Session, names: &Arc<Names>, token: u64) -> Result<bool, LockError> {
    let quorum = &session.quorum;
    // A reader's token is the last writer's plus one.
    let has_token = |holders: &Holders| holders.counter + u64::from(holders.kind == Kind::Read) == token;
    let at_keys = at_keys(quorum, names).await?;
    let is_lock = |at_key: &&AtKey| matches!(at_key, AtKey::Lock(_));
    if at_keys.iter().filter(|at_key| !is_lock(at_key)).count() > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    let locks =
        at_keys.into_iter().filter_map(|at_key| if let AtKey::Lock(holders) = at_key { Some(holders) } else { None });
    let mut fields: Vec<String> = locks.filter(has_token).flat_map(|holders| holders.fields).collect();
    fields.sort();
    fields.dedup();
    if fields.is_empty() {
        return Ok(false);
    }
    let protocol = &quorum.protocol;
    let (lock, inside) = (protocol.end_fields(names, &fields), protocol.end_read_write_fields(names, &fields));
    end_with(session, names, Ends { lock, read_write: Some(inside), semaphore: None }).await
}

/// Ends all tenures of the lock or semaphore of this name. True if there was one.
pub(crate) async fn end_by_force(session: &Session, names: &Names) -> Result<bool, LockError> {
    // Those of this client need not find out, and its waiters need not wait for that.
    let mut known = session.registry.all();
    known.retain(|tenure| tenure.terms.subject.names.lock == names.lock);
    let protocol = &session.quorum.protocol;
    let ends = Ends {
        lock: protocol.end(names, None),
        read_write: Some(protocol.end_read_write(names)),
        semaphore: Some(protocol.end_permits(names)),
    };
    let ended = end_with(session, names, ends).await;
    if let Ok(true) = ended {
        for tenure in known {
            tenure.lose(LostReason::Released);
        }
    }
    ended
}

/// Reads the permits of a semaphore that a quorum of its nodes may have, ordered by the time of their expiry.
pub(crate) async fn permits(session: &Session, names: &Names) -> Result<Vec<Permitted>, LockError> {
    let (quorum, call) = (&session.quorum, Protocol::inspect_permits(names));
    let ask = |node| -> BoxFuture<_> {
        let (quorum, call) = (quorum.clone(), call.clone());
        Box::pin(async move {
            match quorum.run(node, call, reply::permits).await {
                Err(error) if is_wrong_type(&error) => Ok(Permits::Conflict),
                permits => permits,
            }
        })
    };
    // Each node may have permits that the others lack.
    let replies = quorum.gather_with(ask, |_| false).await?;
    let (mut held, mut conflicts) = (Vec::new(), 0);
    for (_, permits) in replies {
        match permits {
            Permits::Held(permits) => held.push(permits),
            Permits::Conflict => conflicts += 1,
        }
    }
    if conflicts > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    Ok(confirmed(quorum, held))
}

/// The permits that a quorum may have, ordered by the time of their expiry. `held`: those of each node that has a
/// semaphore or nothing at the key.
fn confirmed(quorum: &Quorum, held: Vec<Vec<Permitted>>) -> Vec<Permitted> {
    // Each other node may hold the missing vote.
    let unknown = quorum.nodes.len() - held.len();
    let mut seen: Vec<(Permitted, Vec<Duration>)> = Vec::new();
    for permit in held.into_iter().flatten() {
        // With other slots it is another permit: an attempt that has not agreed on its slots.
        let same = |(known, _): &&mut (Permitted, _)| known.field == permit.field && known.slots == permit.slots;
        if let Some((_, left)) = seen.iter_mut().find(same) {
            left.push(permit.left);
        } else {
            let left = vec![permit.left];
            seen.push((permit, left));
        }
    }
    let confirmed = seen.into_iter().filter(|(_, left)| left.len() + unknown >= quorum.needed());
    let until = |(permit, mut left): (Permitted, Vec<Duration>)| {
        // After the end of the q-th lease too few nodes have it.
        left.sort_unstable_by(|one, other| other.cmp(one));
        let left = left.get(quorum.needed() - 1).or(left.last()).copied().unwrap_or_default();
        Permitted { left, ..permit }
    };
    let mut permits: Vec<Permitted> = confirmed.map(until).collect();
    permits.sort_by_key(|permit| permit.left);
    permits
}

/// Counts the free slots of a semaphore with `of` slots.
pub(crate) async fn available(session: &Session, names: &Names, of: u32) -> Result<u32, LockError> {
    let permits = permits(session, names).await?;
    // Two permits may seem to have one slot, if nodes did not answer.
    let taken: BTreeSet<u32> = permits.into_iter().flat_map(|permit| permit.slots).filter(|slot| *slot < of).collect();
    Ok(of.saturating_sub(u32::try_from(taken.len()).unwrap_or(u32::MAX)))
}

/// What one node has at the key of a lock.
pub(crate) enum AtKey {
    /// A lock or a read/write lock; without holders if the key does not exist.
    Lock(Holders),
    /// The permits of a semaphore.
    Semaphore(Vec<Permitted>),
    /// No lock of this wire.
    Foreign,
}

/// Reads the key of a lock on one node. Tries the scripts of exclusive locks, of read/write locks and of semaphores,
/// until one knows the key: the later ones need further rights on the server.
pub(crate) async fn at_key(quorum: &Quorum, node: usize, names: &Names) -> Result<AtKey, NodeError> {
    let wire = quorum.protocol.wire();
    let lock = |holders: Holders| if holders.is_data(wire) { AtKey::Foreign } else { AtKey::Lock(holders) };
    let seen = quorum.run(node, quorum.protocol.inspect(names), reply::seen).await;
    let may_be_read_write = match seen {
        Ok(Seen::Exclusive(holders)) => return Ok(lock(holders)),
        Ok(Seen::ReadWrite) => true,
        // On the wire where locks are strings, a read/write lock has another type.
        Err(error) if is_wrong_type(&error) => wire == Wire::Token,
        Err(error) => return Err(error),
    };
    if may_be_read_write {
        match quorum.run(node, Protocol::inspect_read_write(names), reply::read_write_holders).await {
            // On the wire where locks are strings, a hash that is no read/write lock is somebody's data.
            Ok(holders) if wire == Wire::Token && holders.kind == Kind::Lock && !holders.fields.is_empty() => {
                return Ok(AtKey::Foreign);
            }
            Ok(holders) => return Ok(lock(holders)),
            Err(error) if is_wrong_type(&error) => {}
            Err(error) => return Err(error),
        }
    }
    match quorum.run(node, Protocol::inspect_permits(names), reply::permits).await {
        Ok(Permits::Held(permits)) => Ok(AtKey::Semaphore(permits)),
        Ok(Permits::Conflict) => Ok(AtKey::Foreign),
        Err(error) if is_wrong_type(&error) => Ok(AtKey::Foreign),
        Err(error) => Err(error),
    }
}

/// Reads the key of a lock on a quorum of the nodes. Each node answers for itself: one may have a semaphore, and another
/// one nothing.
async fn at_keys(quorum: &Arc<Quorum>, names: &Arc<Names>) -> Result<Vec<AtKey>, LockError> {
    let ask = |node| -> BoxFuture<_> {
        let (quorum, names) = (quorum.clone(), names.clone());
        Box::pin(async move { at_key(&quorum, node, &names).await })
    };
    // If they differ, or have permits, another node may have what some of them lack.
    let same = |one: &AtKey, other: &AtKey| match (one, other) {
        (AtKey::Lock(one), AtKey::Lock(other)) => one.has_fields_of(other),
        _ => false,
    };
    let answers = quorum.gather_with(ask, |answers| quorum.agrees(answers, same)).await?;
    Ok(answers.into_iter().map(|(_, at_key)| at_key).collect())
}

/// Finds the holders of a lock, each confirmed by a quorum, and the process of the first one; `None` if there are none.
pub(crate) async fn inspect(session: &Arc<Session>, names: &Arc<Names>) -> Result<Option<LockInfo>, LockError> {
    match find(session, names).await? {
        Some(found) => Ok(Some(found.identified(session).await)),
        None => Ok(None),
    }
}

/// Whether anybody holds a lock.
pub(crate) async fn is_held(session: &Session, names: &Arc<Names>) -> Result<bool, LockError> {
    Ok(find(session, names).await?.is_some())
}

/// Adds to the error of an acquire whose wait is over who holds the lock. Adds nothing if the nodes do not tell it within
/// [`SOON`], or if many acquires of this client ask at once: an overloaded server must not get more load.
pub(crate) async fn name_holder(session: Arc<Session>, names: Arc<Names>, error: &mut LockError) {
    let LockError::Timeout { holder, rests_for, .. } = error else { return };
    let Some(info) = seen_soon(session, names).await else { return };
    *rests_for = info.ttl.filter(|_| info.kind == Kind::Rest);
    *holder = process_of(info).map(Box::new);
}

async fn seen_soon(session: Arc<Session>, names: Arc<Names>) -> Option<LockInfo> {
    if !connected::may_look(&session) {
        return None;
    }
    let permit = session.searches.clone().try_acquire_owned().ok()?;
    // A task of its own: requests that are given up would be probed.
    let search = runtime::spawn_in_background(async move {
        let _permit = permit;
        inspect(&session, &names).await.ok().flatten()
    });
    timeout(SOON, search).await.ok()??
}

/// The process that holds a lock, if it is known.
fn process_of(info: LockInfo) -> Option<Holder> {
    let micros = info.since_micros().map(|since| clock::now().wall_micros().saturating_sub(since).max(0) as u64);
    let held_for = micros.map(Duration::from_micros);
    Some(Holder { host: info.host?, pid: info.pid?, app: info.app?, held_for, others: info.owners.len() - 1 })
}

/// Finds the holders of a lock, each confirmed by a quorum; `None` if there are none.
async fn find(session: &Session, names: &Arc<Names>) -> Result<Option<Found>, LockError> {
    let quorum = &session.quorum;
    let (mut locks, mut permits, mut foreign) = (Vec::new(), Vec::new(), 0);
    for at_key in at_keys(quorum, names).await? {
        match at_key {
            AtKey::Lock(holders) => locks.push(holders),
            AtKey::Semaphore(held) => permits.push(held),
            AtKey::Foreign => foreign += 1,
        }
    }
    if foreign > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    let free = locks.iter().filter(|holders| holders.fields.is_empty()).count();
    // Nodes may differ: the kind that most of them have.
    if permits.iter().filter(|held| !held.is_empty()).count() <= locks.len() - free {
        return Ok(find_holders(quorum, &locks));
    }
    permits.extend((0..free).map(|_| Vec::new()));
    Ok(find_permits(&confirmed(quorum, permits)))
}

/// The holders of a semaphore, for a caller that asked for a lock of this name.
fn find_permits(permits: &[Permitted]) -> Option<Found> {
    let fields: Vec<&str> = permits.iter().map(|permit| permit.field.as_str()).collect();
    let ttl = permits.iter().map(|permit| permit.left).max();
    // Each slot has a token of its own.
    Found::new(Kind::Semaphore, &fields, ttl, 0, 0)
}

/// The holders of a lock that a quorum may have. `locks`: those of each node that has a lock or nothing at the key.
fn find_holders(quorum: &Quorum, locks: &[Holders]) -> Option<Found> {
    // Each other node may hold the missing vote.
    let unknown = quorum.nodes.len() - locks.len();
    let mut seen: Vec<(&str, usize, Option<Duration>)> = Vec::new();
    let (mut token, mut kind, mut read) = (0, None, false);
    for holders in locks {
        token = token.max(holders.counter);
        if !holders.fields.is_empty() {
            kind = kind.or(Some(holders.kind));
            read |= holders.kind == Kind::Read;
        }
        for field in &holders.fields {
            match seen.iter_mut().find(|(known, ..)| known == field) {
                Some((_, count, longest)) => {
                    *count += 1;
                    *longest = holders.ttl.max(*longest);
                }
                None => seen.push((field, 1, holders.ttl)),
            }
        }
    }
    seen.retain(|(_, count, _)| count + unknown >= quorum.needed());
    if !read {
        // An exclusive lock has one holder.
        let holder = seen.into_iter().max_by_key(|(_, count, _)| *count);
        seen = holder.into_iter().collect();
    }
    let ttl = seen.iter().map(|(.., ttl)| *ttl).max()?;
    let fields: Vec<&str> = seen.iter().map(|(field, ..)| *field).collect();
    // Where others drew tokens in vain, the counter is larger.
    let of_holder = locks.iter().filter(|holders| holders.fields.iter().any(|field| field == fields[0]));
    let drawn = of_holder.map(|holders| holders.counter).min().filter(|_| !read).unwrap_or_default();
    let kind = match kind {
        _ if fields.iter().all(|field| owner::is_rest(field)) => Kind::Rest,
        _ if read => Kind::Read,
        kind => kind.unwrap_or(Kind::Lock),
    };
    // A reader's token is the last writer's plus one.
    let token = if kind == Kind::Read { token + 1 } else { token };
    Found::new(kind, &fields, ttl, token, drawn)
}
