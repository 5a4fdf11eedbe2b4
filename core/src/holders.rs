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
    quorum::{MINORITY_GRACE, Quorum},
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

/// Ends the tenures of an explicit owner, or all tenures if `owner` is `None`. True if there was one.
pub(crate) async fn end(session: &Session, names: &Names, owner: Option<&str>) -> Result<bool, LockError> {
    let protocol = &session.quorum.protocol;
    // A read/write lock has no explicit owners.
    let inside = owner.is_none().then(|| protocol.end_read_write(names));
    end_with(session, names, &protocol.end(names, owner), inside.as_ref()).await
}

/// Ends tenures with `call`. `read_write`: the call if the lock is a read/write lock.
async fn end_with(
    session: &Session,
    names: &Names,
    call: &ScriptCall,
    read_write: Option<&ScriptCall>,
) -> Result<bool, LockError> {
    let quorum = &session.quorum;
    let ended = quorum.gather(call, reply::end, None).await;
    let mut replies = match ended {
        // On the wire where locks are strings, a read/write lock has another type.
        Err(LockError::Conflict { .. }) if quorum.protocol.wire() == Wire::Token => vec![(0, End::ReadWrite)],
        ended => ended?,
    };
    if let Some(call) = read_write
        && replies.iter().any(|(_, end)| *end == End::ReadWrite)
    {
        replies.extend(quorum.gather(call, reply::end, None).await?);
    }
    if replies.iter().filter(|(_, end)| *end == End::Conflict).count() > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    Ok(replies.iter().any(|(_, end)| matches!(end, End::Tenures(1..))))
}

/// Ends all tenures, if `token` is that of the last one. True if there was one.
///
/// The nodes compare the fields of that tenure, and not the token: on a quorum the counters of
/// some nodes may differ from it.
pub(crate) async fn end_token(session: &Session, names: &Names, token: u64) -> Result<bool, LockError> {
    let quorum = &session.quorum;
    // A reader's token is the last writer's plus one.
    let has_token = |holders: &Holders| holders.counter + u64::from(holders.kind == Kind::Read) == token;
    let with_token = holders(quorum, names).await?.into_iter().filter(has_token);
    let mut fields: Vec<String> = with_token.flat_map(|holders| holders.fields).collect();
    fields.sort();
    fields.dedup();
    if fields.is_empty() {
        return Ok(false);
    }
    let [lock, inside] =
        [quorum.protocol.end_fields(names, &fields), quorum.protocol.end_read_write_fields(names, &fields)];
    end_with(session, names, &lock, Some(&inside)).await
}

/// Ends all tenures of the lock or semaphore of this name. True if there was one.
pub(crate) async fn end_by_force(session: &Session, names: &Names) -> Result<bool, LockError> {
    // Those of this client need not find out, and its waiters need not wait for that.
    let mut known = session.registry.all();
    known.retain(|tenure| tenure.terms.subject.names.lock == names.lock);
    let ended = match end(session, names, None).await {
        // A semaphore has another type than every lock.
        Err(LockError::Conflict { .. }) => end_permits(session, names).await,
        ended => ended,
    };
    if let Ok(true) = ended {
        for tenure in known {
            tenure.lose(LostReason::Released);
        }
    }
    ended
}

/// Ends all permits of a semaphore. True if there was one.
async fn end_permits(session: &Session, names: &Names) -> Result<bool, LockError> {
    let quorum = &session.quorum;
    let replies = quorum.gather(&quorum.protocol.end_permits(names), reply::end, None).await?;
    if replies.iter().filter(|(_, end)| *end == End::Conflict).count() > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    Ok(replies.iter().any(|(_, end)| matches!(end, End::Tenures(ended) if *ended > 0)))
}

/// Reads the permits of a semaphore that a quorum of its nodes may have, ordered by the time of their expiry.
pub(crate) async fn permits(session: &Session, names: &Names) -> Result<Vec<Permitted>, LockError> {
    let (quorum, call) = (&session.quorum, Protocol::inspect_permits(names));
    let replies = quorum.gather(&call, reply::permits, Some(MINORITY_GRACE)).await?;
    let conflicts = replies.iter().filter(|(_, permits)| *permits == Permits::Conflict).count();
    if conflicts > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    // Each node that did not answer may hold the missing vote.
    let unasked = quorum.nodes.len() - replies.len() + conflicts;
    let mut seen: Vec<(Permitted, Vec<Duration>)> = Vec::new();
    for (_, permits) in replies {
        let Permits::Held(permits) = permits else { continue };
        for permit in permits {
            // With other slots it is another permit: an attempt that has not agreed on its slots.
            let same = |(known, _): &&mut (Permitted, _)| known.field == permit.field && known.slots == permit.slots;
            if let Some((_, left)) = seen.iter_mut().find(same) {
                left.push(permit.left);
            } else {
                let left = vec![permit.left];
                seen.push((permit, left));
            }
        }
    }
    let confirmed = seen.into_iter().filter(|(_, left)| left.len() + unasked >= quorum.needed());
    let until = |(permit, mut left): (Permitted, Vec<Duration>)| {
        // After the end of the q-th lease too few nodes have it.
        left.sort_unstable_by(|one, other| other.cmp(one));
        let left = left.get(quorum.needed() - 1).or(left.last()).copied().unwrap_or_default();
        Permitted { left, ..permit }
    };
    let mut permits: Vec<Permitted> = confirmed.map(until).collect();
    permits.sort_by_key(|permit| permit.left);
    Ok(permits)
}

/// Counts the free slots of a semaphore with `of` slots.
pub(crate) async fn available(session: &Session, names: &Names, of: u32) -> Result<u32, LockError> {
    let permits = permits(session, names).await?;
    // Two permits may seem to have one slot, if nodes did not answer.
    let taken: BTreeSet<u32> = permits.into_iter().flat_map(|permit| permit.slots).filter(|slot| *slot < of).collect();
    Ok(of.saturating_sub(u32::try_from(taken.len()).unwrap_or(u32::MAX)))
}

/// Inspects a semaphore, for a caller that asked for a lock of this name.
async fn find_permits(session: &Session, names: &Names) -> Result<Option<Found>, LockError> {
    let permits = permits(session, names).await?;
    let fields: Vec<&str> = permits.iter().map(|permit| permit.field.as_str()).collect();
    let ttl = permits.iter().map(|permit| permit.left).max();
    // Each slot has a token of its own.
    Ok(Found::new(Kind::Semaphore, &fields, ttl, 0, 0))
}

/// Reads the holders from the nodes. Tries the script for exclusive locks first: that for read/write locks needs
/// further rights on the server.
async fn holders(quorum: &Arc<Quorum>, names: &Names) -> Result<Vec<Holders>, LockError> {
    let wire = quorum.protocol.wire();
    match quorum.gather(&quorum.protocol.inspect(names), reply::seen, None).await {
        Ok(replies) => {
            let exclusive = replies.into_iter().map(|(_, seen)| match seen {
                Seen::Exclusive(holders) => Some(holders),
                Seen::ReadWrite => None,
            });
            if let Some(held) = exclusive.collect() {
                return refuse_data(quorum, names, held, |holders| holders.is_data(wire));
            }
        }
        // On the wire where locks are strings, a read/write lock has another type.
        Err(LockError::Conflict { .. }) if wire == Wire::Token => {}
        Err(error) => return Err(error),
    }
    let replies = quorum.gather(&Protocol::inspect_read_write(names), reply::read_write_holders, None).await?;
    let held: Vec<Holders> = replies.into_iter().map(|(_, holders)| holders).collect();
    refuse_data(quorum, names, held, |holders| {
        let is_other_hash = wire == Wire::Token && holders.kind == Kind::Lock && !holders.fields.is_empty();
        is_other_hash || holders.is_data(wire)
    })
}

/// Fails if somebody's data is at the key on more nodes than the quorum can spare.
fn refuse_data(
    quorum: &Quorum,
    names: &Names,
    held: Vec<Holders>,
    is_data: impl Fn(&Holders) -> bool,
) -> Result<Vec<Holders>, LockError> {
    if held.iter().filter(|holders| is_data(holders)).count() > quorum.spare() {
        return Err(LockError::Conflict { key: names.lock.clone() });
    }
    Ok(held)
}

/// Finds the holders of a lock, each confirmed by a quorum, and the process of the first one; `None` if there are none.
pub(crate) async fn inspect(session: &Arc<Session>, names: &Names) -> Result<Option<LockInfo>, LockError> {
    match find(session, names).await? {
        Some(found) => Ok(Some(found.identified(session).await)),
        None => Ok(None),
    }
}

/// Whether anybody holds a lock.
pub(crate) async fn is_held(session: &Session, names: &Names) -> Result<bool, LockError> {
    Ok(find(session, names).await?.is_some())
}

/// Finds the process that holds a lock, for the error of an acquire whose wait is over. `None` if the nodes do not tell
/// it within [`SOON`], or if many acquires of this client ask at once: an overloaded server must not get more load.
pub(crate) async fn seen_soon(session: Arc<Session>, names: Arc<Names>) -> Option<Holder> {
    if !connected::may_look(&session) {
        return None;
    }
    let permit = session.searches.clone().try_acquire_owned().ok()?;
    // A task of its own: requests that are given up would be probed.
    let search = runtime::spawn_in_background(async move {
        let _permit = permit;
        inspect(&session, &names).await.ok().flatten()
    });
    let info = timeout(SOON, search).await.ok()???;
    let micros = info.since_micros().map(|since| clock::now().wall_micros().saturating_sub(since).max(0) as u64);
    let held_for = micros.map(Duration::from_micros);
    Some(Holder { host: info.host?, pid: info.pid?, app: info.app?, held_for, others: info.owners.len() - 1 })
}

/// Finds the holders of a lock, each confirmed by a quorum; `None` if there are none.
async fn find(session: &Session, names: &Names) -> Result<Option<Found>, LockError> {
    let quorum = &session.quorum;
    let replies = match holders(quorum, names).await {
        // A semaphore has another type than every lock.
        Err(LockError::Conflict { .. }) => return find_permits(session, names).await,
        replies => replies?,
    };
    // Each node that did not answer may hold the missing vote.
    let unasked = quorum.nodes.len() - replies.len();
    let mut seen: Vec<(&str, usize, Option<Duration>)> = Vec::new();
    let (mut token, mut kind, mut read) = (0, None, false);
    for holders in &replies {
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
    seen.retain(|(_, count, _)| count + unasked >= quorum.needed());
    if !read {
        // An exclusive lock has one holder.
        let holder = seen.into_iter().max_by_key(|(_, count, _)| *count);
        seen = holder.into_iter().collect();
    }
    let Some(ttl) = seen.iter().map(|(.., ttl)| *ttl).max() else { return Ok(None) };
    let fields: Vec<&str> = seen.iter().map(|(field, ..)| *field).collect();
    // Where others drew tokens in vain, the counter is larger.
    let of_holder = replies.iter().filter(|holders| holders.fields.iter().any(|field| field == fields[0]));
    let drawn = of_holder.map(|holders| holders.counter).min().filter(|_| !read).unwrap_or_default();
    let kind = match kind {
        _ if fields.iter().all(|field| owner::is_rest(field)) => Kind::Rest,
        _ if read => Kind::Read,
        kind => kind.unwrap_or(Kind::Lock),
    };
    // A reader's token is the last writer's plus one.
    let token = if kind == Kind::Read { token + 1 } else { token };
    Ok(Found::new(kind, &fields, ttl, token, drawn))
}
