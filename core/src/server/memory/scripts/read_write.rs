//! The scripts of a read/write lock, `protocol/lua/read_write`, as functions over a store.

use super::{
    CONFLICT, DENIED, ENDED, EXTENDED, GONE, GRANTED, READER_EXTENDED, TAKEN, Wired, missing, number, parse_entry, vote,
};
use crate::{
    config::LARGEST_EXACT,
    protocol::{
        calls::{
            Arguments, AttachReadWrite, BumpReadWrite, EndReadWrite, EnterReadWrite, InspectReadWrite, LeaveEntry,
            ReadWriteTenure, RenewReadWrite, RepairReadWrite, RestReadWrite, Upgrade, Waiting,
        },
        script::Reply,
    },
    server::memory::commands::Fault,
};

/// The first waiting writer and the first waiting reader: each entry, and until when its client counts as alive.
struct FirstWaiters {
    writer: Option<(String, i64)>,
    reader: Option<(String, i64)>,
}

/// The functions of `lua/read_write.lua`.
impl Wired<'_> {
    fn keep(&mut self, key: &str, ttl: i64) {
        if self.redis.pttl(key) < ttl {
            self.redis.pexpire(key, ttl);
        }
    }

    fn mode_of(&mut self, of: &ReadWriteTenure<&str>) -> Result<Option<String>, Fault> {
        if self.redis.pttl(of.lock) == -2 {
            return Ok(None);
        }
        Ok(Some(self.redis.hget(of.lock, "mode")?.unwrap_or_else(|| "lock".to_owned())))
    }

    fn reads(&mut self, of: &ReadWriteTenure<&str>, reader: &str) -> Result<bool, Fault> {
        if !self.redis.hexists(of.lock, reader)? {
            return Ok(false);
        }
        Ok(self.redis.zscore(of.readers, reader)?.unwrap_or_default() > self.redis.time())
    }

    fn writes(&mut self, of: &ReadWriteTenure<&str>, writer: &str) -> Result<bool, Fault> {
        self.redis.hexists(of.lock, &format!("{writer}:write"))
    }

    /// `pttl`: the TTL of the lock.
    fn put_reader(&mut self, of: &ReadWriteTenure<&str>, reader: &str, ttl: i64, pttl: i64) -> Result<(), Fault> {
        let key = reader_key(of, reader);
        if self.redis.exists(&key) {
            self.keep(&key, ttl);
        } else {
            self.redis.set_px(&key, "1".to_owned(), ttl)?;
        }
        self.redis.hset(of.lock, "mode", "read")?;
        self.redis.hset(of.lock, reader, "1")?;
        if pttl < ttl {
            self.redis.pexpire(of.lock, ttl);
        }
        self.redis.zadd_later(of.readers, self.redis.time() + ttl * 1000, reader)?;
        if pttl < ttl {
            self.redis.pexpire(of.readers, ttl);
        } else {
            self.keep(of.readers, ttl);
        }
        Ok(())
    }

    fn put_writer(&mut self, of: &ReadWriteTenure<&str>, writer: &str, ttl: i64) -> Result<(), Fault> {
        self.redis.hset(of.lock, "mode", "write")?;
        self.redis.hset(of.lock, &format!("{writer}:write"), "1")?;
        self.redis.pexpire(of.lock, ttl);
        Ok(())
    }

    fn clear(&mut self, of: &ReadWriteTenure<&str>) {
        self.redis.del(of.lock);
        self.redis.del(of.readers);
    }

    fn purge(&mut self, of: &ReadWriteTenure<&str>) -> Result<bool, Fault> {
        let now = self.redis.time();
        for reader in self.redis.zuntil(of.readers, now)? {
            self.redis.hdel(of.lock, &reader)?;
        }
        self.redis.zrem_until(of.readers, now)?;
        let all = self.redis.hgetall(of.lock)?.to_vec();
        // `+ 1` for the field "mode". Not `len() - 1`, since the hash may be gone.
        if all.len() > self.redis.zcard(of.readers)? + 1 {
            for (reader, holds) in all {
                if reader == "mode" || self.redis.zscore(of.readers, &reader)?.is_some() {
                    continue;
                }
                let holds = 1..=holds.parse().unwrap_or(0);
                let keys: Vec<String> =
                    holds.map(|hold: i64| format!("{}:{reader}:rwlock_timeout:{hold}", of.reader_key_prefix)).collect();
                if !keys.iter().any(|key| self.redis.exists(key)) {
                    self.redis.hdel(of.lock, &reader)?;
                }
            }
        }
        if self.redis.hgetall(of.lock)?.len() > 1 {
            return Ok(false);
        }
        self.clear(of);
        Ok(true)
    }

    fn token_to_read(&mut self, of: &ReadWriteTenure<&str>) -> Result<i64, Fault> {
        let known = self.redis.get(of.counter)?.and_then(|text| text.trim().parse::<f64>().ok());
        if let Some(last) = known.filter(|last| *last < (LARGEST_EXACT - 2) as f64) {
            if of.counter_ttl != "0" {
                self.redis.pexpire(of.counter, number(of.counter_ttl)?);
            }
            return Ok(last as i64 + 1);
        }
        let now = self.redis.time();
        self.set_counter(of.counter, now.to_string(), of.counter_ttl)?;
        Ok(now + 1)
    }

    fn let_readers_in(&mut self, of: &ReadWriteTenure<&str>, waiting: &Waiting<&str>) -> Result<(), Fault> {
        let (now, mut notified) = (self.redis.time(), Vec::new());
        let mut pttl = self.redis.pttl(of.lock);
        if waiting.handover == "1" {
            self.token_to_read(of)?;
        }
        for entry in self.redis.zfirst(waiting.readers_queue, usize::MAX)? {
            let parsed = parse_entry(&entry);
            let alive_until = match parsed {
                Some((_, client, _)) => self.redis.zscore(waiting.alive, client)?.unwrap_or_default(),
                None => 0,
            };
            match parsed {
                Some((ttl, client, reader)) if alive_until > now => {
                    if waiting.handover == "1" {
                        self.redis.zrem(waiting.readers_queue, &entry)?;
                        let lease = number(ttl)?.min((alive_until - now + 999) / 1000);
                        self.put_reader(of, reader, lease, pttl)?;
                        pttl = pttl.max(lease);
                    }
                    if !notified.iter().any(|known| known == client) {
                        notified.push(client.to_owned());
                        self.redis.publish(&format!("{}:{client}", waiting.wake));
                    }
                }
                _ => drop(self.redis.zrem(waiting.readers_queue, &entry)?),
            }
        }
        self.redis.publish(waiting.channel);
        Ok(())
    }

    fn let_writer_in(
        &mut self,
        of: &ReadWriteTenure<&str>,
        waiting: &Waiting<&str>,
        (entry, alive_until): (String, i64),
    ) -> Result<(), Fault> {
        let Some((ttl, client, writer)) = parse_entry(&entry) else { return Ok(()) };
        if waiting.handover == "1" {
            self.redis.zrem(waiting.writers_queue, &entry)?;
            self.draw(of.counter, of.counter_ttl, 0)?;
            self.put_writer(of, writer, number(ttl)?.min((alive_until - self.redis.time() + 999) / 1000))?;
        }
        self.redis.publish(&format!("{}:{client}", waiting.wake));
        Ok(())
    }

    fn first_waiters(&mut self, waiting: &Waiting<&str>) -> Result<FirstWaiters, Fault> {
        let writer = self.first(waiting.writers_queue, waiting.alive)?;
        Ok(FirstWaiters { writer, reader: self.first(waiting.readers_queue, waiting.alive)? })
    }

    /// `came_before`, also for a queue that is empty.
    fn readers_come_first(&mut self, first: &FirstWaiters, waiting: &Waiting<&str>) -> Result<bool, Fault> {
        Ok(match first {
            FirstWaiters { reader: None, .. } => false,
            FirstWaiters { writer: None, .. } => true,
            FirstWaiters { writer: Some((writer, _)), reader: Some((reader, _)) } => {
                self.redis.zscore(waiting.readers_queue, reader)? < self.redis.zscore(waiting.writers_queue, writer)?
            }
        })
    }

    fn pass_on(
        &mut self,
        of: &ReadWriteTenure<&str>,
        waiting: &Waiting<&str>,
        was: Option<&str>,
    ) -> Result<bool, Fault> {
        let first = self.first_waiters(waiting)?;
        let to_readers = match was {
            Some("write") => first.reader.is_some(),
            Some(_) => first.writer.is_none() && first.reader.is_some(),
            None => self.readers_come_first(&first, waiting)?,
        };
        match first.writer {
            _ if to_readers => self.let_readers_in(of, waiting)?,
            Some(writer) => self.let_writer_in(of, waiting, writer)?,
            None => return Ok(false),
        }
        Ok(true)
    }
}

fn reader_key(of: &ReadWriteTenure<&str>, reader: &str) -> String {
    format!("{}:{reader}:rwlock_timeout:1", of.reader_key_prefix)
}

/// The scripts.
impl Wired<'_> {
    /// `lua/read_write/read_batch.lua`
    pub(super) fn read_each(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let read = |given: &mut Arguments<'_>| {
            ReadWriteTenure::read(given)?;
            Waiting::read(given)?;
            EnterReadWrite::read(given).map(drop)
        };
        self.each(keys, args, read, Self::read)
    }

    /// `lua/read_write/leave_batch.lua`
    pub(super) fn leave_each(&mut self, keys: &[String], args: &[String]) -> Result<Reply, Fault> {
        let read = |given: &mut Arguments<'_>| {
            ReadWriteTenure::read(given)?;
            Waiting::read(given)?;
            LeaveEntry::read(given).map(drop)
        };
        self.each(keys, args, read, Self::leave_read_write)
    }

    /// `lua/read_write/read.lua`
    pub(super) fn read(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let EnterReadWrite { ttl, client, place_ttl, .. } = EnterReadWrite::read(&mut given).ok_or_else(missing)?;
        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, self.redis.time()));
        }
        let (now, mut pttl, mode) = (self.redis.time(), self.redis.pttl(of.lock), self.mode_of(&of)?);
        let (entry, ttl, place_ttl) = (format!("{ttl}/{client}/{}", of.field), number(ttl)?, number(place_ttl)?);
        if mode.as_deref() == Some("read") && self.reads(&of, of.field)? {
            self.put_reader(&of, of.field, ttl, pttl)?;
            return Ok(vote(GRANTED, self.token_to_read(&of)?, now));
        }
        if pttl == -1 {
            return Ok(vote(CONFLICT, 0, now));
        }
        let mut until = None;
        if mode.as_deref().is_none_or(|mode| mode == "read") {
            let first = self.first_waiters(&waiting)?;
            let mine = first.writer.is_none()
                || mode.is_none() && waiting.handover != "i" && self.readers_come_first(&first, &waiting)?;
            if mine {
                let token = self.token_to_read(&of)?;
                self.put_reader(&of, of.field, ttl, pttl)?;
                if first.reader.is_some() {
                    self.redis.zrem(waiting.readers_queue, &entry)?;
                    if self.redis.exists(waiting.readers_queue) {
                        self.let_readers_in(&of, &waiting)?;
                    }
                }
                return Ok(vote(GRANTED, token, now));
            }
            if let Some(writer) = first.writer {
                if mode.is_none() && waiting.handover != "i" {
                    self.let_writer_in(&of, &waiting, writer)?;
                    pttl = self.redis.pttl(of.lock);
                } else {
                    until = Some((writer.1 - now + 999) / 1000);
                }
            }
        }
        let retry_after = until.unwrap_or(pttl.max(-1));
        if place_ttl == 0 {
            return Ok(vote(DENIED, retry_after, now));
        }
        let ticket = self.give_place((waiting.readers_queue, waiting.alive), &entry, client, place_ttl)?;
        let ahead = self.ahead(waiting.readers_queue, &entry)?;
        Ok(Reply::Text(format!("{DENIED} {retry_after} {now} {ticket} {ahead}")))
    }

    /// `lua/read_write/write.lua`
    pub(super) fn write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let EnterReadWrite { ttl, client, place_ttl, proposal } =
            EnterReadWrite::read(&mut given).ok_or_else(missing)?;
        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, self.redis.time()));
        }
        let (now, mut pttl, mut mode) = (self.redis.time(), self.redis.pttl(of.lock), self.mode_of(&of)?);
        let alone = waiting.handover == "i";
        let entry = format!("{ttl}/{client}/{}", if alone { "" } else { of.field });
        let (ttl, place_ttl) = (number(ttl)?, number(place_ttl)?);
        if mode.as_deref() == Some("write") && self.writes(&of, of.field)? {
            self.keep(of.lock, ttl);
            return Ok(vote(GRANTED, self.redis.get(of.counter)?.unwrap_or("0"), now));
        }
        if pttl == -1 {
            return Ok(vote(CONFLICT, 0, now));
        }
        if mode.as_deref() == Some("read") && self.purge(&of)? {
            (mode, pttl) = (None, -2);
        }
        if mode.is_none() {
            let first = if alone { FirstWaiters { writer: None, reader: None } } else { self.first_waiters(&waiting)? };
            let to_readers = self.readers_come_first(&first, &waiting)?;
            if !to_readers && first.writer.as_ref().is_none_or(|(writer, _)| *writer == entry) {
                let token = self.draw(of.counter, of.counter_ttl, number(proposal)?)?;
                self.put_writer(&of, of.field, ttl)?;
                if first.writer.is_some() || alone {
                    self.redis.zrem(waiting.writers_queue, &entry)?;
                }
                return Ok(vote(GRANTED, token, now));
            }
            match first.writer {
                Some(writer) if !to_readers => self.let_writer_in(&of, &waiting, writer)?,
                _ => self.let_readers_in(&of, &waiting)?,
            }
            pttl = self.redis.pttl(of.lock);
        }
        if place_ttl == 0 {
            return Ok(vote(DENIED, pttl.max(-1), now));
        }
        let ticket = self.give_place((waiting.writers_queue, waiting.alive), &entry, client, place_ttl)?;
        if alone {
            return Ok(vote(DENIED, pttl.max(-1), now));
        }
        let retry_after = match self.first(waiting.writers_queue, waiting.alive)? {
            Some((head, alive_until)) if head != entry && pttl >= 0 => pttl.max((alive_until - now + 999) / 1000),
            _ => pttl,
        };
        let ahead = self.ahead(waiting.writers_queue, &entry)?;
        Ok(Reply::Text(format!("{DENIED} {} {now} {ticket} {ahead}", retry_after.max(-1))))
    }

    /// `lua/read_write/leave.lua`
    pub(super) fn leave_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let LeaveEntry { entry } = LeaveEntry::read(&mut given).ok_or_else(missing)?;
        let mut left = false;
        if !entry.is_empty() {
            left = self.redis.zrem(waiting.writers_queue, entry)?;
            left |= self.redis.zrem(waiting.readers_queue, entry)?;
        }
        // A key of another type is somebody else's data.
        let [writer, reader] = [&format!("{}:write", of.field), of.field].map(|field| self.redis.hdel(of.lock, field));
        let removed = writer.unwrap_or(false) | reader.unwrap_or(false);
        if !removed && !left {
            return Ok(Reply::Int(0));
        }
        let done = Ok(Reply::Int(removed.into()));
        let Ok(mode) = self.redis.hget(of.lock, "mode") else { return done };
        let mut was = None;
        if removed && self.redis.hgetall(of.lock)?.len() == 1 {
            was = mode.as_deref();
            self.clear(&of);
            self.redis.del(&reader_key(&of, of.field));
        } else {
            if removed {
                self.redis.zrem(of.readers, of.field)?;
                self.redis.del(&reader_key(&of, of.field));
            }
            if removed || mode.as_deref() == Some("read") {
                let now = self.redis.time();
                if !left && self.redis.zend(of.readers, true)?.is_some_and(|(_, ends)| ends > now) {
                    return done;
                }
                if !self.purge(&of)? {
                    if left {
                        self.let_in_after_writer(&of, &waiting)?;
                    }
                    return done;
                }
                was = Some("read");
            } else if self.redis.exists(of.lock) {
                return done;
            }
        }
        if waiting.handover == "i" || !self.pass_on(&of, &waiting, was)? {
            self.redis.publish(waiting.channel);
        }
        done
    }

    /// Lets in the readers that waited behind a writer, which has given up its place.
    fn let_in_after_writer(&mut self, of: &ReadWriteTenure<&str>, waiting: &Waiting<&str>) -> Result<(), Fault> {
        let first = self.first_waiters(waiting)?;
        if first.writer.is_some() {
            return Ok(());
        }
        if waiting.handover == "i" {
            self.redis.publish(waiting.channel);
        } else if first.reader.is_some() {
            self.let_readers_in(of, waiting)?;
        }
        Ok(())
    }

    /// `lua/read_write/rest.lua`
    pub(super) fn rest_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let RestReadWrite { replacement: rest, ttl } = RestReadWrite::read(&mut given).ok_or_else(missing)?;
        // A key of another type is somebody else's data.
        if self.writes(&of, of.field).unwrap_or(false) {
            self.redis.pexpire(of.lock, number(ttl)?);
            self.redis.hset(of.lock, &format!("{rest}:write"), "1")?;
            self.redis.hdel(of.lock, &format!("{}:write", of.field))?;
            self.redis.publish(waiting.channel);
            return Ok(Reply::Int(1));
        }
        if self.writes(&of, rest).unwrap_or(false) {
            return Ok(Reply::Int(1));
        }
        if !self.redis.hdel(of.lock, of.field).unwrap_or(false) {
            return Ok(Reply::Int(0));
        }
        self.redis.zrem(of.readers, of.field)?;
        self.redis.del(&reader_key(&of, of.field));
        if self.purge(&of)? {
            self.redis.publish(waiting.channel);
        }
        Ok(Reply::Int(1))
    }

    /// `lua/read_write/downgrade.lua`
    pub(super) fn downgrade(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let pttl = self.redis.pttl(of.lock);
        if pttl <= 0 {
            return Ok(Reply::Int(0));
        }
        if !self.writes(&of, of.field)? {
            return Ok(Reply::Int(self.reads(&of, of.field)?.into()));
        }
        self.redis.hdel(of.lock, &format!("{}:write", of.field))?;
        self.redis.del(of.readers);
        self.put_reader(&of, of.field, pttl, pttl)?;
        if waiting.handover == "i" {
            self.redis.publish(waiting.channel);
        } else {
            self.let_readers_in(&of, &waiting)?;
        }
        Ok(Reply::Int(1))
    }

    /// `lua/read_write/upgrade.lua`
    pub(super) fn upgrade(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let Upgrade { ttl, proposal } = Upgrade::read(&mut given).ok_or_else(missing)?;
        let now = self.redis.time();
        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, now));
        }
        let ttl = number(ttl)?;
        if self.writes(&of, of.field)? {
            self.keep(of.lock, ttl);
            return Ok(vote(GRANTED, self.redis.get(of.counter)?.unwrap_or("0"), now));
        }
        if !self.reads(&of, of.field)? {
            return Ok(vote(CONFLICT, 0, now));
        }
        self.purge(&of)?;
        if self.redis.hgetall(of.lock)?.len() > 2 {
            return Ok(vote(DENIED, self.redis.pttl(of.lock), now));
        }
        let token = self.draw(of.counter, of.counter_ttl, number(proposal)?)?;
        self.redis.hdel(of.lock, of.field)?;
        self.redis.hset(of.lock, "mode", "write")?;
        self.redis.hset(of.lock, &format!("{}:write", of.field), "1")?;
        self.keep(of.lock, ttl);
        self.redis.del(of.readers);
        self.redis.del(&reader_key(&of, of.field));
        Ok(vote(GRANTED, token, now))
    }

    /// `lua/read_write/bump.lua`
    pub(super) fn bump_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let BumpReadWrite { granted, agreed } = BumpReadWrite::read(&mut given).ok_or_else(missing)?;
        if self.writes(&of, of.field)? {
            if self.redis.get(of.counter)? != Some(granted) {
                return Ok(Reply::Int(0));
            }
            self.set_counter(of.counter, agreed.to_owned(), of.counter_ttl)?;
            return Ok(Reply::Int(1));
        }
        if !self.redis.hexists(of.lock, of.field)? {
            return Ok(Reply::Int(0));
        }
        let below = number(agreed)? - 1;
        if self.redis.get_number(of.counter)?.unwrap_or_default() < below as f64 {
            self.set_counter(of.counter, below.to_string(), of.counter_ttl)?;
        }
        Ok(Reply::Int(1))
    }

    /// `lua/read_write/renew.lua`
    pub(super) fn renew_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let (now, mut replies) = (self.redis.time(), Vec::new());
        while let Some(RenewReadWrite { lock, ended, readers, field, ttl, reader_key_prefix }) =
            RenewReadWrite::read(&mut given)
        {
            let of = ReadWriteTenure { lock, counter: "", readers, field, counter_ttl: "0", reader_key_prefix };
            let ttl = number(ttl)?;
            let reply = if self.writes(&of, field).unwrap_or(false) {
                if ttl > 0 {
                    self.keep(lock, ttl);
                }
                EXTENDED
            } else if self.redis.hexists(lock, field).unwrap_or(false) && self.reads(&of, field)? {
                if ttl > 0 {
                    self.keep(lock, ttl);
                    self.keep(&reader_key(&of, field), ttl);
                    self.keep(readers, ttl);
                    self.redis.zadd_later(readers, now + ttl * 1000, field)?;
                }
                READER_EXTENDED
            } else if self.redis.get(ended).unwrap_or(None).is_some_and(|ended| ended.contains(&format!(" {field} "))) {
                ENDED
            } else if self.redis.exists(lock) {
                TAKEN
            } else {
                GONE
            };
            replies.push(Reply::Int(reply));
        }
        Ok(Reply::List(replies))
    }

    /// `lua/read_write/repair.lua`
    pub(super) fn repair_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let RepairReadWrite { ended, mode: wanted, ttl, token } =
            RepairReadWrite::read(&mut given).ok_or_else(missing)?;
        let code = |code| Ok(Reply::List(vec![Reply::Int(code)]));
        if self.refuses(given)?.is_some() {
            return code(GONE);
        }
        if self.redis.get(ended)?.is_some_and(|ended| ended.contains(&format!(" {} ", of.field))) {
            return code(ENDED);
        }
        let (ttl, pttl, mut mode, to_write) =
            (number(ttl)?, self.redis.pttl(of.lock), self.mode_of(&of)?, wanted == "w");
        if mode.as_deref() == Some("write") && self.writes(&of, of.field)? {
            self.keep(of.lock, ttl);
            return code(EXTENDED);
        }
        if mode.as_deref() == Some("read") && to_write && self.purge(&of)? {
            mode = None;
        }
        if pttl == -1 || mode.as_deref().is_some_and(|mode| mode != "read" || to_write) {
            return code(TAKEN);
        }
        let token = number(token)? - i64::from(!to_write);
        if self.redis.get_number(of.counter)?.unwrap_or_default() < token as f64 {
            self.set_counter(of.counter, token.to_string(), of.counter_ttl)?;
        }
        if to_write {
            self.put_writer(&of, of.field, ttl)?;
            return code(EXTENDED);
        }
        if mode.is_none() {
            self.redis.del(of.readers);
        }
        self.put_reader(&of, of.field, ttl, pttl)?;
        code(READER_EXTENDED)
    }

    /// `lua/read_write/attach.lua`
    pub(super) fn attach_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = ReadWriteTenure::read(&mut given).ok_or_else(missing)?;
        let AttachReadWrite { old, ttl } = AttachReadWrite::read(&mut given).ok_or_else(missing)?;
        let (pttl, ttl) = (self.redis.pttl(of.lock), number(ttl)?);
        if self.writes(&of, of.field)? {
            return Ok(Reply::Int(pttl));
        }
        if self.reads(&of, of.field)? {
            return Ok(Reply::Int(self.left_to_read(&of, of.field)?));
        }
        if self.writes(&of, old)? {
            let ttl = pttl.max(ttl);
            if ttl <= 0 {
                return Ok(Reply::Int(-2));
            }
            self.redis.hdel(of.lock, &format!("{old}:write"))?;
            self.redis.hset(of.lock, &format!("{}:write", of.field), "1")?;
            self.keep(of.lock, ttl);
            return Ok(Reply::Int(ttl));
        }
        if !self.reads(&of, old)? {
            return Ok(Reply::Int(-2));
        }
        let ttl = self.left_to_read(&of, old)?.max(ttl);
        if ttl <= 0 {
            return Ok(Reply::Int(-2));
        }
        self.redis.hdel(of.lock, old)?;
        self.redis.zrem(of.readers, old)?;
        self.redis.del(&reader_key(&of, old));
        self.put_reader(&of, of.field, ttl, pttl)?;
        Ok(Reply::Int(ttl))
    }

    fn left_to_read(&mut self, of: &ReadWriteTenure<&str>, reader: &str) -> Result<i64, Fault> {
        Ok((self.redis.zscore(of.readers, reader)?.unwrap_or_default() - self.redis.time()).div_euclid(1000))
    }

    /// `lua/read_write/end.lua`
    pub(super) fn end_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let EndReadWrite { lock, counter: _, readers, ended: note, reader_key_prefix, channel, read_write_channel } =
            EndReadWrite::read(&mut given).ok_or_else(missing)?;
        let pttl = self.redis.pttl(lock);
        if pttl == -2 {
            return Ok(Reply::Int(0));
        }
        let mode = self.redis.hget(lock, "mode")?;
        if pttl == -1 || !matches!(mode.as_deref(), Some("read" | "write")) {
            return Ok(Reply::Int(-1));
        }
        let only = given.behind_flag();
        let fields = self.redis.hkeys(lock)?.filter(|field| *field != "mode");
        let ended: Vec<String> = fields.map(|field| tenure_of(field).to_owned()).collect();
        if !only.is_empty() && !ended.iter().any(|one| only.contains(&one.as_str())) {
            return Ok(Reply::Int(0));
        }
        let mut count = 0;
        for one in &ended {
            self.redis.del(&format!("{reader_key_prefix}:{one}:rwlock_timeout:1"));
            count += 1;
        }
        self.redis.del(lock);
        self.redis.del(readers);
        self.redis.set_px(note, format!(" {} ", ended.join(" ")), pttl.max(1000))?;
        self.redis.publish(channel);
        self.redis.publish(read_write_channel);
        Ok(Reply::Int(count))
    }

    /// `lua/read_write/inspect.lua`
    pub(super) fn inspect_read_write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let InspectReadWrite { lock, counter, readers } = InspectReadWrite::read(&mut given).ok_or_else(missing)?;
        let mode = self.redis.hget(lock, "mode")?.filter(|mode| mode == "read" || mode == "write");
        let pttl = self.redis.pttl(lock);
        let token = self.redis.get_number(counter)?.unwrap_or_default();
        let mut reply = vec![Reply::Int(pttl), Reply::Int(token as i64)];
        reply.push(Reply::Text(mode.clone().unwrap_or_else(|| "lock".to_owned())));
        let (now, fields): (_, Vec<String>) = (self.redis.time(), self.redis.hkeys(lock)?.cloned().collect());
        for field in fields {
            if mode.is_none() {
                reply.push(Reply::Text(field));
            } else if self.redis.zscore(readers, &field)?.is_none_or(|alive_until| alive_until > now) && field != "mode"
            {
                reply.push(Reply::Text(tenure_of(&field).to_owned()));
            }
        }
        Ok(Reply::List(reply))
    }
}

/// The tenure of a field: a writer's without `:write`.
fn tenure_of(field: &str) -> &str {
    field.strip_suffix(":write").unwrap_or(field)
}
