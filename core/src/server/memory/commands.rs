//! Redis' commands on a store, as far as the scripts use them, at one moment.

use std::time::Duration;

use super::store::{Entry, SWEEP_AT_LEAST, State, Value};
use crate::clock::{Deadline, Stamp};

/// Why a script ends early. As on Redis, what it wrote until then stays.
pub(super) enum Fault {
    WrongType,
    Script(String),
}

/// Redis' commands, as far as the scripts use them, at one moment: time stands still during a script.
pub(super) struct Commands<'a> {
    pub(super) state: &'a mut State,
    pub(super) now: Stamp,
}

impl Commands<'_> {
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

    /// Writes a key over whatever it held.
    pub(super) fn insert(&mut self, key: &str, value: Value, expires: Option<Deadline>) {
        let (now, state) = (self.now, &mut *self.state);
        state.keys.insert(key.to_owned(), Entry { value, expires });
        if state.keys.len() > state.sweep_at {
            // Rarely, so that it costs each write little; else keys that nobody asks for again would pile up.
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

    /// Tells whether the key existed. A ttl that is not positive deletes it.
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
            Some(Value::Hash(_)) => Err(Fault::WrongType),
        }
    }

    /// `tonumber(redis.call('GET', key) or 0)`; the inner `None` is Lua's nil, for what is no number.
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

    /// The fields of a hash; none if the key does not exist.
    pub(super) fn hkeys(&mut self, key: &str) -> Result<&[String], Fault> {
        match self.entry(key).map(|entry| &entry.value) {
            None => Ok(&[]),
            Some(Value::Hash(fields)) => Ok(fields),
            Some(Value::Text(_)) => Err(Fault::WrongType),
        }
    }

    pub(super) fn hset(&mut self, key: &str, field: &str) -> Result<(), Fault> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => self.insert(key, Value::Hash(vec![field.to_owned()]), None),
            Some(Value::Text(_)) => return Err(Fault::WrongType),
            Some(Value::Hash(fields)) if fields.iter().any(|other| other == field) => {}
            Some(Value::Hash(fields)) => fields.push(field.to_owned()),
        }
        Ok(())
    }

    pub(super) fn hdel(&mut self, key: &str, field: &str) -> Result<(), Fault> {
        match self.entry(key).map(|entry| &mut entry.value) {
            None => {}
            Some(Value::Text(_)) => return Err(Fault::WrongType),
            Some(Value::Hash(fields)) => {
                fields.retain(|other| other != field);
                if fields.is_empty() {
                    self.state.keys.remove(key);
                }
            }
        }
        Ok(())
    }

    pub(super) fn publish(&mut self, channel: &str) {
        for subscriber in self.state.subscribers.get(channel).into_iter().flatten() {
            subscriber.sender.send_modify(|count| *count += 1);
        }
    }

    fn after(&self, ttl: i64) -> Deadline {
        Deadline::new(self.now, Duration::from_millis(ttl.max(0) as u64))
    }
}

/// Rounded up, so that a key that exists never seems to have no time left, and a new one has all of it.
pub(super) fn millis(time: Duration) -> i64 {
    time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i64::MAX)
}
