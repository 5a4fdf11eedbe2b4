//! Parses the replies of the scripts; no other file does. A reply counts only in the exact shape that its script sends.
//! Anything else, however close, is an error: so neither a proxy that mangles replies nor a server that is not Redis
//! can make a lock look held, extended, released or free.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use crate::{
    config::{LARGEST_EXACT, MAX_TTL, Wire},
    protocol::{primitive::Primitive, script::Reply},
};

/// The range of fencing tokens. Lua counts in doubles, which above it cannot tell a token from the next one.
pub(crate) const TOKENS: RangeInclusive<i64> = 1..=LARGEST_EXACT;

/// The fencing tokens of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The token; of a permit that of its first slot.
    pub(crate) token: i64,
    /// The slots of a permit; empty for a lock.
    pub(crate) slots: Vec<Slot>,
}

impl Granted {
    /// The grant of a lock.
    pub(crate) fn of_lock(token: i64) -> Self {
        Self { token, slots: Vec::new() }
    }

    fn of_slots(slots: Vec<Slot>) -> Option<Self> {
        Some(Self { token: slots.first()?.token.cast_signed(), slots })
    }

    /// Whether both are of the same slots, or both of a lock.
    pub(crate) fn same_slots(&self, other: &Self) -> bool {
        self.is_of(&other.slots) || mutant!(SlotsCounted)
    }

    /// Whether it is of these slots; of a lock there are none.
    pub(crate) fn is_of(&self, slots: &[Slot]) -> bool {
        self.slots.iter().map(|slot| slot.number).eq(slots.iter().map(|slot| slot.number))
    }

    /// The larger of the tokens of both, for each slot. Both are of the same slots.
    pub(crate) fn max(&self, other: &Self) -> Self {
        let each = self.slots.iter().zip(&other.slots);
        let larger = |(one, other): (&Slot, &Slot)| Slot { token: one.token.max(other.token), ..*one };
        let slots: Vec<Slot> = each.map(larger).collect();
        let token = slots.first().map_or(self.token.max(other.token), |first| first.token.cast_signed());
        Self { token, slots }
    }
}

/// A node's reply to an acquire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Granted(Granted),
    /// Another owner holds the lock, for this time; `None`: without end.
    Denied(Option<Duration>),
    /// The key is not a lock of this kind.
    Conflict,
    /// The node lost its keys and votes again after this time.
    Quarantine(Duration),
    /// The node has no marker.
    Unmarked,
}

/// The reply to `acquire`: the vote, and the node's time in µs.
pub(crate) fn vote(reply: &Reply) -> Option<(Vote, i64)> {
    let Reply::Text(text) = reply else { return None };
    let mut numbers = text.split(' ').map(number);
    let (code, value, time) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if numbers.next().is_some() {
        return None;
    }
    // The time must be a possible token: it is sent to the nodes in a proposal.
    if !(0..=*TOKENS.end()).contains(&time) {
        return None;
    }
    let vote = match (code, value) {
        (1, token) if TOKENS.contains(&token) => Vote::Granted(Granted::of_lock(token)),
        (0, -1) => Vote::Denied(None),
        (0, left) => Vote::Denied(Some(millis(left)?)),
        (2, 0) => Vote::Conflict,
        (3, left) => Vote::Quarantine(Duration::from_micros(u64::try_from(left).ok()?)),
        (4, 0) => Vote::Unmarked,
        _ => return None,
    };
    Some((vote, time))
}

/// The reply to an acquire of this primitive on one of several nodes: the vote, and the node's time in µs.
pub(crate) fn vote_for(primitive: Primitive, reply: &Reply) -> Option<(Vote, i64)> {
    let Primitive::Permits { count, of } = primitive else { return vote(reply) };
    let Reply::Text(text) = reply else { return None };
    match text.strip_prefix("1 ").and_then(|rest| rest.split_once(' ')) {
        Some((slots, time)) => {
            let time = number(time).filter(|time| (0..=*TOKENS.end()).contains(time))?;
            Some((Vote::Granted(Granted::of_slots(slots_of(slots, count, of)?)?), time))
        }
        None => vote(reply).filter(|(vote, _)| !matches!(vote, Vote::Granted(_))),
    }
}

/// Whether a reply to an acquire, of any kind, is a grant.
pub(crate) fn is_grant(reply: &Reply) -> bool {
    matches!(reply, Reply::Text(text) if text.starts_with("1 "))
}

/// The slots of a permit and their tokens, "slot:token,...", of `count` slots of a semaphore that has `of`.
fn slots_of(text: &str, count: u32, of: u32) -> Option<Vec<Slot>> {
    let slot = |text: &str| {
        let (slot, token) = text.split_once(':')?;
        let (slot, token) = (number(slot)?, number(token)?);
        let known = (0..i64::from(of)).contains(&slot) && TOKENS.contains(&token);
        known.then_some(Slot { number: slot as u32, token: token.unsigned_abs() })
    };
    let slots: Vec<Slot> = text.split(',').map(slot).collect::<Option<_>>()?;
    let twice = |(at, slot): (usize, &Slot)| slots[..at].iter().any(|other| other.number == slot.number);
    (slots.len() == count as usize && !slots.iter().enumerate().any(twice)).then_some(slots)
}

/// One slot of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Slot {
    /// Its number, from 0. No other permit has this slot at the same time.
    pub number: u32,
    /// Its fencing token, in µs. It is larger than that of every earlier permit with this slot.
    pub token: u64,
}

/// A node's reply to an acquire of a lock with a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueueReply {
    Granted(Granted),
    /// Another owner holds the lock, for this time, or other waiters come first; `None`: without end. The acquire has
    /// no place.
    Busy(Option<Duration>),
    /// The acquire has a place. Tickets rise in the order of the places.
    Waits {
        ticket: i64,
        /// How many places are before it.
        ahead: u64,
        /// After which time to send the request again: something may have changed by then without a message. `None`:
        /// only after a message.
        retry_after: Option<Duration>,
    },
    Conflict,
}

/// The reply to `enter`.
fn entered(reply: &Reply) -> Option<QueueReply> {
    let Reply::Text(text) = reply else { return None };
    let numbers: Vec<i64> = text.split(' ').map(number).collect::<Option<_>>()?;
    let time = |left: i64| if left == -1 { Some(None) } else { millis(left).map(Some) };
    match numbers[..] {
        [1, token, _] if TOKENS.contains(&token) => Some(QueueReply::Granted(Granted::of_lock(token))),
        [0, left, _] => Some(QueueReply::Busy(time(left)?)),
        [0, retry_after, _, ticket, ahead] if TOKENS.contains(&ticket) => {
            Some(QueueReply::Waits { ticket, ahead: u64::try_from(ahead).ok()?, retry_after: time(retry_after)? })
        }
        [2, 0, _] => Some(QueueReply::Conflict),
        _ => None,
    }
}

/// The reply to `semaphore/acquire` for `count` slots of a semaphore that has `of`.
fn taken(reply: &Reply, count: u32, of: u32) -> Option<QueueReply> {
    let Reply::Text(text) = reply else { return None };
    let Some((slots, time)) = text.strip_prefix("1 ").and_then(|rest| rest.split_once(' ')) else {
        return entered(reply);
    };
    number(time)?;
    Some(QueueReply::Granted(Granted::of_slots(slots_of(slots, count, of)?)?))
}

/// The reply to the request for this primitive that takes a place in its queue.
pub(crate) fn entered_for(primitive: Primitive, reply: &Reply) -> Option<QueueReply> {
    match primitive {
        Primitive::Permits { count, of } => taken(reply, count, of),
        Primitive::Lock | Primitive::Fair | Primitive::Read | Primitive::Write => entered(reply),
    }
}

/// A number as a script writes it: without a plus sign or leading zeros.
fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = text == "0" || digits.starts_with(|first| matches!(first, '1'..='9'));
    if plain { text.parse().ok() } else { None }
}

/// A node's reply to the renewal of one tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Extended,
    /// The tenure was extended, as a reader's.
    Reads,
    /// The key is gone.
    Gone,
    /// Another owner holds the key.
    Taken,
    /// The tenure was ended on purpose.
    Ended,
}

/// The reply to `renew` for this number of tenures: one result for each, or `None`. `read_write`: of read/write locks.
pub(crate) fn renewals(reply: &Reply, tenures: usize, read_write: bool) -> Option<Vec<Renewed>> {
    let codes = reply.list().filter(|codes| codes.len() == tenures)?;
    let each = codes.iter().map(|code| match code {
        Reply::Int(1) => Some(Renewed::Extended),
        Reply::Int(2) if read_write => Some(Renewed::Reads),
        Reply::Int(0) => Some(Renewed::Gone),
        Reply::Int(-1) => Some(Renewed::Taken),
        Reply::Int(-2) => Some(Renewed::Ended),
        _ => None,
    });
    each.collect()
}

/// Whether this is a valid reply to `prolong` for this number of tenures.
pub(crate) fn prolonged(reply: &Reply, tenures: usize) -> bool {
    reply.int().and_then(|held| usize::try_from(held).ok()).is_some_and(|held| held <= tenures)
}

/// The reply to a release: whether it was done, and the grants of waiters of the sender that it let in: for each the field
/// and the slots, which [`permit`] reads.
pub(crate) fn released(reply: &Reply) -> Option<(bool, Vec<(&str, &str)>)> {
    let Reply::List(list) = reply else { return done(reply).map(|done| (done, Vec::new())) };
    let (was_done, grants) = list.split_first().filter(|(_, grants)| !grants.is_empty())?;
    let grants = grants.chunks(2).map(|grant| match grant {
        [Reply::Text(field), Reply::Text(slots)] => Some((&**field, &**slots)),
        _ => None,
    });
    Some((done(was_done)?, grants.collect::<Option<_>>()?))
}

/// A grant of a permit as the reply to another one's release has it: "slot:token,...".
pub(crate) fn permit(primitive: Primitive, slots: &str) -> Option<Granted> {
    let Primitive::Permits { count, of } = primitive else { return None };
    Granted::of_slots(slots_of(slots, count, of)?)
}

/// The reply to `release`, `bump` and `provision`: whether it was done.
pub(crate) fn done(reply: &Reply) -> Option<bool> {
    match reply {
        Reply::Int(1) => Some(true),
        Reply::Int(0) => Some(false),
        _ => None,
    }
}

/// A node's reply to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The number of tenures that ended.
    Tenures(u64),
    /// The key is not a lock.
    Conflict,
    /// The key is a read/write lock, which has a script of its own.
    ReadWrite,
}

/// The reply to `end`.
pub(crate) fn end(reply: &Reply) -> Option<End> {
    match reply.int()? {
        -1 => Some(End::Conflict),
        -2 => Some(End::ReadWrite),
        count => Some(End::Tenures(u64::try_from(count).ok()?)),
    }
}

/// The kind of a lock's holders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The owner of an exclusive lock.
    #[default]
    Lock,
    /// The readers of a read/write lock.
    Read,
    /// The writer of a read/write lock.
    Write,
    /// The holders of a semaphore's permits.
    Semaphore,
    /// Nobody: the lock was released before its `min_hold` was over, and is free when its ttl is.
    Rest,
}

impl Kind {
    /// The kinds that a reply names.
    const IN_REPLIES: [Self; 3] = [Self::Lock, Self::Read, Self::Write];

    /// The kind, spelled the same in every language.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Read => "read",
            Self::Write => "write",
            Self::Semaphore => "semaphore",
            Self::Rest => "rest",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::IN_REPLIES.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// The holders of a lock on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holders {
    /// The time left; `None`: without end.
    pub(crate) ttl: Option<Duration>,
    pub(crate) counter: u64,
    pub(crate) kind: Kind,
    /// Empty if nobody holds it.
    pub(crate) fields: Vec<String>,
}

impl Holders {
    /// Whether both have the same fields, in whatever order.
    pub(crate) fn has_fields_of<'a>(&'a self, other: &'a Self) -> bool {
        let fields = |holders: &'a Self| -> BTreeSet<&'a String> { holders.fields.iter().collect() };
        self.fields == other.fields || fields(self) == fields(other)
    }

    fn read([pttl, counter]: [i64; 2], kind: Kind, fields: &[Reply]) -> Option<Self> {
        let text = |one: &Reply| match one {
            Reply::Text(text) => Some(text.clone()),
            Reply::Int(_) | Reply::List(_) => None,
        };
        let fields: Vec<String> = fields.iter().map(text).collect::<Option<_>>()?;
        let ttl = if pttl < 0 { None } else { Some(millis(pttl)?) };
        // The counter's key may hold data that no client wrote.
        let holders = Self { ttl, counter: u64::try_from(counter).unwrap_or_default(), kind, fields };
        (pttl != -2 || holders.fields.is_empty()).then_some(holders)
    }

    /// Whether the key is somebody's data, and no lock: a hash without a TTL. A string without one is the lock of another
    /// library.
    pub(crate) fn is_data(&self, wire: Wire) -> bool {
        wire == Wire::Redisson && self.ttl.is_none() && !self.fields.is_empty()
    }
}

/// A node's reply to `inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Exclusive(Holders),
    /// The key is a read/write lock, which has a script of its own.
    ReadWrite,
}

/// The reply to `inspect`.
pub(crate) fn seen(reply: &Reply) -> Option<Seen> {
    if reply.int() == Some(-2) {
        return Some(Seen::ReadWrite);
    }
    let [Reply::Int(pttl), Reply::Int(counter), fields @ ..] = reply.list()? else { return None };
    // A key that does not exist has no holder, and one that exists has a holder.
    (fields.is_empty() == (*pttl == -2)).then_some(())?;
    Holders::read([*pttl, *counter], Kind::Lock, fields).map(Seen::Exclusive)
}

/// The reply to `read_write/inspect`. A key that exists may have no holders: the leases of all its readers may be over.
pub(crate) fn read_write_holders(reply: &Reply) -> Option<Holders> {
    let [Reply::Int(pttl), Reply::Int(counter), Reply::Text(kind), fields @ ..] = reply.list()? else { return None };
    Holders::read([*pttl, *counter], Kind::named(kind)?, fields)
}

/// A permit of a semaphore, as an inspection reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Permitted {
    pub(crate) field: String,
    pub(crate) slots: Vec<u32>,
    pub(crate) left: Duration,
}

/// A node's reply to `semaphore/inspect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Permits {
    Held(Vec<Permitted>),
    /// The key is not a semaphore.
    Conflict,
}

/// The reply to `semaphore/inspect`.
pub(crate) fn permits(reply: &Reply) -> Option<Permits> {
    if reply.int() == Some(-1) {
        return Some(Permits::Conflict);
    }
    let each = reply.list()?.chunks(3).map(|one| {
        let [Reply::Text(field), Reply::Text(slots), Reply::Int(left)] = one else { return None };
        let slots = slots.split(',').map(|slot| u32::try_from(number(slot)?).ok()).collect::<Option<_>>()?;
        Some(Permitted { field: field.clone(), slots, left: millis(*left)? })
    });
    each.collect::<Option<_>>().map(Permits::Held)
}

/// A node's reply to an attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// The tenure is there, with this time left.
    There(Duration),
    /// Neither the old field nor the new one holds the lock.
    No,
}

/// The reply to `attach`.
pub(crate) fn attached(reply: &Reply) -> Option<Attached> {
    match reply.int()? {
        -2 => Some(Attached::No),
        // No tenure has more than `MAX_TTL`. A deadline depends on this number, so a larger one is an error.
        left => millis(left).filter(|left| *left <= MAX_TTL).map(Attached::There),
    }
}

/// The reply to `learn`: the average; zero for none yet.
pub(crate) fn average(reply: &Reply) -> Option<Duration> {
    Some(Duration::from_micros(u64::try_from(reply.int()?).ok()?))
}

fn millis(left: i64) -> Option<Duration> {
    Some(Duration::from_millis(u64::try_from(left).ok()?))
}
