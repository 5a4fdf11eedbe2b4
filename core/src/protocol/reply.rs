//! What the scripts' replies mean: the only place that reads them. A reply counts only in the exact shape that its
//! script sends; anything else, however close, is no answer, so that neither a proxy that mangles replies nor a server
//! that is none can make a lock look held, extended, released or free.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    config::{LARGEST_EXACT, MAX_TTL},
    protocol::script::Reply,
};

/// Fencing tokens. Lua counts in doubles, which above cannot tell a token from the next one.
pub(crate) const TOKENS: RangeInclusive<i64> = 1..=LARGEST_EXACT;

/// What a node answered to an acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Granted {
        token: i64,
    },
    /// Somebody else holds it, for so long; `None`: without end.
    Denied(Option<Duration>),
    Conflict,
    /// The node lost its keys and votes again after so long.
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
    // It goes back to the nodes, as a proposal for a token.
    if !(0..=*TOKENS.end()).contains(&time) {
        return None;
    }
    let vote = match (code, value) {
        (1, token) if TOKENS.contains(&token) => Vote::Granted { token },
        (0, -1) => Vote::Denied(None),
        (0, left) => Vote::Denied(Some(millis(left)?)),
        (2, 0) => Vote::Conflict,
        (3, left) => Vote::Quarantine(Duration::from_micros(u64::try_from(left).ok()?)),
        (4, 0) => Vote::Unmarked,
        _ => return None,
    };
    Some((vote, time))
}

/// A number as a script writes it: without a plus sign, or zeros in front.
fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain = text == "0" || digits.starts_with(|first| matches!(first, '1'..='9'));
    if plain { text.parse().ok() } else { None }
}

/// What a node answered to the renewal of one tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Extended,
    /// The key is gone.
    Gone,
    /// The key is somebody else's.
    Taken,
    /// Ended on purpose.
    Ended,
}

/// The reply to `renew` for so many tenures: one answer for each, or none at all.
pub(crate) fn renewals(reply: &Reply, tenures: usize) -> Option<Vec<Renewed>> {
    let codes = reply.list().filter(|codes| codes.len() == tenures)?;
    let each = codes.iter().map(|code| match code {
        Reply::Int(1) => Some(Renewed::Extended),
        Reply::Int(0) => Some(Renewed::Gone),
        Reply::Int(-1) => Some(Renewed::Taken),
        Reply::Int(-2) => Some(Renewed::Ended),
        _ => None,
    });
    each.collect()
}

/// The reply to `prolong` for so many tenures: whether it is one.
pub(crate) fn prolonged(reply: &Reply, tenures: usize) -> bool {
    reply.int().and_then(|held| usize::try_from(held).ok()).is_some_and(|held| held <= tenures)
}

/// The reply to `release`, `bump` and `provision`: whether it was done.
pub(crate) fn done(reply: &Reply) -> Option<bool> {
    match reply {
        Reply::Int(1) => Some(true),
        Reply::Int(0) => Some(false),
        _ => None,
    }
}

/// What a node answered to an end on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// So many tenures ended.
    Tenures(u64),
    /// The key is no lock.
    Conflict,
}

/// The reply to `end`.
pub(crate) fn end(reply: &Reply) -> Option<End> {
    match reply.int()? {
        -1 => Some(End::Conflict),
        count => Some(End::Tenures(u64::try_from(count).ok()?)),
    }
}

/// Who holds a lock on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holders {
    /// `None`: without end.
    pub(crate) ttl: Option<Duration>,
    pub(crate) counter: u64,
    /// Empty when nobody does.
    pub(crate) fields: Vec<String>,
}

/// The reply to `inspect`.
pub(crate) fn holders(reply: &Reply) -> Option<Holders> {
    let [Reply::Int(ttl), Reply::Int(counter), fields @ ..] = reply.list()? else { return None };
    let fields: Option<Vec<String>> = fields
        .iter()
        .map(|field| match field {
            Reply::Text(field) => Some(field.clone()),
            Reply::Int(_) | Reply::List(_) => None,
        })
        .collect();
    let fields = fields.filter(|fields| fields.is_empty() == (*ttl == -2))?;
    let ttl = if *ttl < 0 { None } else { Some(millis(*ttl)?) };
    // The counter's key may hold what no client wrote there.
    Some(Holders { ttl, counter: u64::try_from(*counter).unwrap_or_default(), fields })
}

/// What a node answered to an attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attached {
    /// The tenure is there, for so long.
    There(Duration),
    /// Neither the old tenure nor the new one.
    No,
}

/// The reply to `attach`.
pub(crate) fn attached(reply: &Reply) -> Option<Attached> {
    match reply.int()? {
        -2 => Some(Attached::No),
        // A tenure's own: nobody gives it more, and a deadline depends on it.
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
