//! The commands of Redis that the scripts use, as functions over a store. Methods have the names of the commands.

use std::time::Duration;

use super::store::{Entry, SWEEP_AT_LEAST, Sorted, State, Value};
use crate::{
    clock::{Deadline, Stamp},
    config::millis_up,
};

/// The error that ends a script early. As on Redis, its writes until then stay.
pub(super) enum Fault {
    WrongType,
    Script(String),
}

/// The commands on a store at one moment: time stands still during a script.
pub(super) struct Commands<'a> {
    pub(super) state: &'a mut State,
    pub(super) now: Stamp,
}

impl Commands<'_> {
    /// The store's clock, in µs.
    pub(super) fn time(&self) -> i64 {
        self.now.wall_micros()
    }

    /// The entry of a key, unless it expired.
    fn entry(&mut self, key: &str) -> Option<&mut Entry> {
        let now = self.now;
        if self.state.keys.get(key).is_some_and(|entry| entry.expired(now)) {
            self.state.keys.remove(key);
        }
        self.state.keys.get_mut(key)
    }

    /// Writes a key; overwrites any value.
    pub(super) fn insert(&mut self, key: &str, value: Value, expires: Option<Deadline>) {
        let (now, state) = (self.now, &mut *self.state);
        state.keys.insert(key.to_owned(), Entry { value, expires });
        if state.keys.len() > state.sweep_at {
            // Removes expired keys, which would pile up if nothing reads them again. Rarely, so that each write costs
            // little.
            state.keys.retain(|_, entry| !entry.expired(now));
            state.sweep_at = SWEEP_AT_LEAST.max(2 * state.keys.len());
        }
    }

    pub(super) fn exists(&mut self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    pub(super) fn del(&mut self, key: &str) -> bool {
        self.exists(key) && self.state.keys.remove(key).is_some()
    }

    /// Milliseconds left, -1 without a ttl, -2 without the key.
    pub(super) fn pttl(&mut self, key: &str) -> i64 {
        let now = self.now;
        match self.entry(key) {
            None => -2,
            Some(entry) => entry.expires.map_or(-1, |expires| millis(expires.left_at(now))),
        }
    }

    /// Returns whether the key existed. A ttl that is not positive deletes it.
    pub(super) fn pexpire(&mut self, key: &str, ttl: i64) -> bool {
        if ttl <= 0 {
            return self.del(key);
        }
        let expires = Some(self.after(ttl));
        self.entry(key).map(|entry| entry.expires = expires).is_some()
    }

    pub(super) fn get(&mut self, key: &str) -> Result<Option<&str>, Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Hash(_) | Value::Sorted(_)) => Err(Fault::WrongType),
        }
    }

    /// `tonumber(redis.call('GET', key) or 0)`; the inner `None` is Lua's nil, for a text that is no number.
    pub(super) fn get_number(&mut self, key: &str) -> Result<Option<f64>, Fault> {
        Ok(self.get(key)?.map_or(Some(0.0), |text| text.trim().parse().ok()))
    }

    pub(super) fn set(&mut self, key: &str, value: String) {
        self.insert(key, Value::Text(value), None);
    }

    pub(super) fn set_px(&mut self, key: &str, value: String, ttl: i64) -> Result<(), Fault> {
        if ttl <= 0 {
            return Err(Fault::Script("ERR invalid expire time in 'set' command".to_owned()));
        }
        let expires = Some(self.after(ttl));
        self.insert(key, Value::Text(value), expires);
        Ok(())
    }

    /// The fields of a hash and their values; none if the key does not exist.
    pub(super) fn hgetall(&mut self, key: &str) -> Result<&[(String, String)], Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(Value::Text(_) | Value::Sorted(_)) => Err(Fault::WrongType),
        }
    }

    /// The fields of a hash.
    pub(super) fn hkeys(&mut self, key: &str) -> Result<impl Iterator<Item = &String>, Fault> {
        Ok(self.hgetall(key)?.iter().map(|(field, _)| field))
    }

    pub(super) fn hget(&mut self, key: &str, field: &str) -> Result<Option<String>, Fault> {
        Ok(self.hgetall(key)?.iter().find(|(known, _)| known == field).map(|(_, value)| value.clone()))
    }

    pub(super) fn hexists(&mut self, key: &str, field: &str) -> Result<bool, Fault> {
        Ok(self.hkeys(key)?.any(|known| known == field))
    }

    pub(super) fn hset(&mut self, key: &str, field: &str, value: &str) -> Result<(), Fault> {
        let pair = || (field.to_owned(), value.to_owned());
        match self.entry(key).map(|entry| &mut entry.value) {
            None => self.insert(key, Value::Hash(vec![pair()]), None),
            Some(Value::Text(_) | Value::Sorted(_)) => return Err(Fault::WrongType),
            Some(Value::Hash(fields)) => match fields.iter_mut().find(|(known, _)| known == field) {
                Some((_, held)) => value.clone_into(held),
                None => fields.push(pair()),
            },
        }
        Ok(())
    }

    pub(super) fn hdel(&mut self, key: &str, field: &str) -> Result<bool, Fault> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(false),
            Some(Value::Text(_) | Value::Sorted(_)) => Err(Fault::WrongType),
            Some(Value::Hash(fields)) => {
                let before = fields.len();
                fields.retain(|(other, _)| other != field);
                let removed = fields.len() < before;
                if fields.is_empty() {
                    self.state.keys.remove(key);
                }
                Ok(removed)
            }
        }
    }

    fn sorted(&mut self, key: &str) -> Result<Option<&mut Sorted>, Fault> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => Ok(None),
            Some(Value::Sorted(sorted)) => Ok(Some(sorted)),
            Some(Value::Text(_) | Value::Hash(_)) => Err(Fault::WrongType),
        }
    }

    /// The member with the least score, or with the largest, and that score.
    pub(super) fn zend(&mut self, key: &str, largest: bool) -> Result<Option<(String, i64)>, Fault> {
        let end = self.sorted(key)?.and_then(|sorted| if largest { sorted.order.last() } else { sorted.order.first() });
        Ok(end.map(|(score, member)| (member.clone(), *score)))
    }

    pub(super) fn zscore(&mut self, key: &str, member: &str) -> Result<Option<i64>, Fault> {
        Ok(self.sorted(key)?.and_then(|sorted| sorted.scores.get(member).copied()))
    }

    /// The number of members.
    pub(super) fn zcard(&mut self, key: &str) -> Result<usize, Fault> {
        Ok(self.sorted(key)?.map_or(0, |sorted| sorted.order.len()))
    }

    /// The first members, `most` at most, in order.
    pub(super) fn zfirst(&mut self, key: &str, most: usize) -> Result<Vec<String>, Fault> {
        let sorted = self.sorted(key)?;
        Ok(sorted
            .map_or_else(Vec::new, |sorted| sorted.order.iter().take(most).map(|(_, member)| member.clone()).collect()))
    }

    /// The member with this rank.
    pub(super) fn znth(&mut self, key: &str, rank: usize) -> Result<Option<String>, Fault> {
        Ok(self.sorted(key)?.and_then(|sorted| sorted.order.iter().nth(rank)).map(|(_, member)| member.clone()))
    }

    /// The members with this score or less, in order.
    pub(super) fn zuntil(&mut self, key: &str, score: i64) -> Result<Vec<String>, Fault> {
        let sorted = self.sorted(key)?;
        let until = |(least, _): &&(i64, String)| *least <= score;
        Ok(sorted.map_or_else(Vec::new, |sorted| {
            sorted.order.iter().take_while(until).map(|(_, member)| member.clone()).collect()
        }))
    }

    /// The number of members before this one; `None` if it is no member.
    pub(super) fn zrank(&mut self, key: &str, member: &str) -> Result<Option<usize>, Fault> {
        let Some(sorted) = self.sorted(key)? else { return Ok(None) };
        let Some(score) = sorted.scores.get(member) else { return Ok(None) };
        Ok(Some(sorted.order.range(..(*score, member.to_owned())).count()))
    }

    pub(super) fn zadd(&mut self, key: &str, score: i64, member: &str) -> Result<(), Fault> {
        if self.sorted(key)?.is_none() {
            self.insert(key, Value::Sorted(Sorted::default()), None);
        }
        if let Some(sorted) = self.sorted(key)? {
            sorted.put(member, score);
        }
        Ok(())
    }

    /// `ZADD key GT score member`.
    pub(super) fn zadd_later(&mut self, key: &str, score: i64, member: &str) -> Result<(), Fault> {
        let known = self.zscore(key, member)?;
        self.zadd(key, known.map_or(score, |known| known.max(score)), member)
    }

    pub(super) fn zrem(&mut self, key: &str, member: &str) -> Result<bool, Fault> {
        let Some(sorted) = self.sorted(key)? else { return Ok(false) };
        let (removed, empty) = (sorted.remove(member), sorted.order.is_empty());
        if empty {
            self.state.keys.remove(key);
        }
        Ok(removed)
    }

    /// Removes the first member.
    pub(super) fn zpopmin(&mut self, key: &str) -> Result<Option<String>, Fault> {
        let Some((member, _)) = self.zend(key, false)? else { return Ok(None) };
        self.zrem(key, &member)?;
        Ok(Some(member))
    }

    /// Removes the members with this score or less.
    pub(super) fn zrem_until(&mut self, key: &str, score: i64) -> Result<(), Fault> {
        while let Some((member, _)) = self.zend(key, false)?.filter(|(_, least)| *least <= score) {
            self.zrem(key, &member)?;
        }
        Ok(())
    }

    /// Publishes a message without content: subscribers only count messages.
    pub(super) fn publish(&mut self, channel: &str) {
        for subscriber in self.state.subscribers.get(channel).into_iter().flatten() {
            subscriber.sender.send_modify(|count| *count += 1);
        }
    }

    fn after(&self, ttl: i64) -> Deadline {
        Deadline::new(self.now, Duration::from_millis(ttl.max(0) as u64))
    }
}

/// Converts to milliseconds, rounded up: a key that exists never has 0 ms left, and a new one has its full ttl.
pub(super) fn millis(time: Duration) -> i64 {
    millis_up(time).try_into().unwrap_or(i64::MAX)
}
