//! The scripts of a read/write lock, `protocol/lua/read_write`, as functions over a store.

use super::{Wired, missing, number, parse_entry, vote};
use crate::{
    config::LARGEST_EXACT,
    protocol::{
        calls::{
            Admission, Arguments, AttachInside, Departure, EndInside, Inside, InspectInside, Raise, RenewInside,
            RepairInside, Upgrade, Waiting,
        },
        script::Reply,
    },
    server::memory::commands::Fault,
};

/// The first waiting writer and the first waiting reader: each entry, and until when its client counts as alive.
struct Turns {
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

    fn mode_of(&mut self, of: &Inside<&str>) -> Result<Option<String>, Fault> {
        if self.redis.pttl(of.lock) == -2 {
            return Ok(None);
        }
        Ok(Some(self.redis.hget(of.lock, "mode")?.unwrap_or_else(|| "lock".to_owned())))
    }

    fn reads(&mut self, of: &Inside<&str>, reader: &str) -> Result<bool, Fault> {
        if !self.redis.hexists(of.lock, reader)? {
            return Ok(false);
        }
        Ok(self.redis.zscore(of.readers, reader)?.unwrap_or_default() > self.redis.time())
    }

    fn writes(&mut self, of: &Inside<&str>, writer: &str) -> Result<bool, Fault> {
        self.redis.hexists(of.lock, &format!("{writer}:write"))
    }

    fn put_reader(&mut self, of: &Inside<&str>, reader: &str, ttl: i64) -> Result<(), Fault> {
        let note = note_of(of, reader);
        if self.redis.pttl(&note) < ttl {
            self.redis.set_px(&note, "1".to_owned(), ttl)?;
        }
        self.redis.hset(of.lock, "mode", "read")?;
        self.redis.hset(of.lock, reader, "1")?;
        self.keep(of.lock, ttl);
        self.redis.zadd_later(of.readers, self.redis.time() + ttl * 1000, reader)?;
        self.keep(of.readers, ttl);
        Ok(())
    }

    fn put_writer(&mut self, of: &Inside<&str>, writer: &str, ttl: i64) -> Result<(), Fault> {
        self.redis.hset(of.lock, "mode", "write")?;
        self.redis.hset(of.lock, &format!("{writer}:write"), "1")?;
        self.redis.pexpire(of.lock, ttl);
        Ok(())
    }

    fn clear(&mut self, of: &Inside<&str>) {
        self.redis.del(of.lock);
        self.redis.del(of.readers);
    }

    fn purge(&mut self, of: &Inside<&str>) -> Result<bool, Fault> {
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
                let notes: Vec<String> =
                    holds.map(|hold: i64| format!("{}:{reader}:rwlock_timeout:{hold}", of.notes)).collect();
                if !notes.iter().any(|note| self.redis.exists(note)) {
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

    fn token_to_read(&mut self, of: &Inside<&str>) -> Result<i64, Fault> {
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

    fn let_readers_in(&mut self, of: &Inside<&str>, waiting: &Waiting<&str>) -> Result<(), Fault> {
        let (now, mut told) = (self.redis.time(), Vec::new());
        if waiting.how == "1" {
            self.token_to_read(of)?;
        }
        for entry in self.redis.zfirst(waiting.reading, 1000)? {
            let parsed = parse_entry(&entry);
            let lives = match parsed {
                Some((_, client, _)) => self.redis.zscore(waiting.alive, client)?.unwrap_or_default(),
                None => 0,
            };
            match parsed {
                Some((ttl, client, reader)) if lives > now => {
                    if waiting.how == "1" {
                        self.redis.zrem(waiting.reading, &entry)?;
                        self.put_reader(of, reader, number(ttl)?.min((lives - now + 999) / 1000))?;
                    }
                    if !told.iter().any(|known| known == client) {
                        told.push(client.to_owned());
                        self.redis.publish(&format!("{}:{client}", waiting.wake));
                    }
                }
                _ => drop(self.redis.zrem(waiting.reading, &entry)?),
            }
        }
        self.redis.publish(waiting.channel);
        Ok(())
    }

    fn let_writer_in(
        &mut self,
        of: &Inside<&str>,
        waiting: &Waiting<&str>,
        (entry, lives): (String, i64),
    ) -> Result<(), Fault> {
        let Some((ttl, client, writer)) = parse_entry(&entry) else { return Ok(()) };
        if waiting.how == "1" {
            self.redis.zrem(waiting.writing, &entry)?;
            self.draw(of.counter, of.counter_ttl, 0)?;
            self.put_writer(of, writer, number(ttl)?.min((lives - self.redis.time() + 999) / 1000))?;
        }
        self.redis.publish(&format!("{}:{client}", waiting.wake));
        Ok(())
    }

    fn turns(&mut self, waiting: &Waiting<&str>) -> Result<Turns, Fault> {
        let writer = self.first(waiting.writing, waiting.alive)?;
        Ok(Turns { writer, reader: self.first(waiting.reading, waiting.alive)? })
    }

    /// `came_before`, also for a queue that is empty.
    fn readers_come_first(&mut self, turns: &Turns, waiting: &Waiting<&str>) -> Result<bool, Fault> {
        Ok(match turns {
            Turns { reader: None, .. } => false,
            Turns { writer: None, .. } => true,
            Turns { writer: Some((writer, _)), reader: Some((reader, _)) } => {
                self.redis.zscore(waiting.reading, reader)? < self.redis.zscore(waiting.writing, writer)?
            }
        })
    }

    fn pass_on(&mut self, of: &Inside<&str>, waiting: &Waiting<&str>, was: Option<&str>) -> Result<bool, Fault> {
        let turns = self.turns(waiting)?;
        let to_readers = match was {
            Some("write") => turns.reader.is_some(),
            Some(_) => turns.writer.is_none() && turns.reader.is_some(),
            None => self.readers_come_first(&turns, waiting)?,
        };
        match turns.writer {
            _ if to_readers => self.let_readers_in(of, waiting)?,
            Some(writer) => self.let_writer_in(of, waiting, writer)?,
            None => return Ok(false),
        }
        Ok(true)
    }
}

fn note_of(of: &Inside<&str>, reader: &str) -> String {
    format!("{}:{reader}:rwlock_timeout:1", of.notes)
}

/// The scripts.
impl Wired<'_> {
    /// `lua/read_write/read.lua`
    pub(super) fn read(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let Admission { ttl, client, lease, .. } = Admission::read(&mut given).ok_or_else(missing)?;
        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, self.redis.time()));
        }
        let (now, mut pttl, mode) = (self.redis.time(), self.redis.pttl(of.lock), self.mode_of(&of)?);
        let (entry, ttl, lease) = (format!("{ttl}/{client}/{}", of.field), number(ttl)?, number(lease)?);
        if mode.as_deref() == Some("read") && self.reads(&of, of.field)? {
            self.put_reader(&of, of.field, ttl)?;
            return Ok(vote(1, self.token_to_read(&of)?, now));
        }
        if pttl == -1 {
            return Ok(vote(2, 0, now));
        }
        let mut until = None;
        if mode.as_deref().is_none_or(|mode| mode == "read") {
            let turns = self.turns(&waiting)?;
            let mine = turns.writer.is_none()
                || mode.is_none() && waiting.how != "i" && self.readers_come_first(&turns, &waiting)?;
            if mine {
                if mode.is_none() {
                    self.redis.del(of.readers);
                }
                let token = self.token_to_read(&of)?;
                self.put_reader(&of, of.field, ttl)?;
                if turns.reader.is_some() {
                    self.redis.zrem(waiting.reading, &entry)?;
                    if self.redis.exists(waiting.reading) {
                        self.let_readers_in(&of, &waiting)?;
                    }
                }
                return Ok(vote(1, token, now));
            }
            if let Some(writer) = turns.writer {
                if mode.is_none() && waiting.how != "i" {
                    self.let_writer_in(&of, &waiting, writer)?;
                    pttl = self.redis.pttl(of.lock);
                } else {
                    until = Some((writer.1 - now + 999) / 1000);
                }
            }
        }
        let look = until.unwrap_or(pttl.max(-1));
        if lease == 0 {
            return Ok(vote(0, look, now));
        }
        let ticket = self.line_up((waiting.reading, waiting.alive), &entry, client, lease)?;
        let ahead = self.ahead(waiting.reading, &entry)?;
        Ok(Reply::Text(format!("0 {look} {now} {ticket} {ahead}")))
    }

    /// `lua/read_write/write.lua`
    pub(super) fn write(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let Admission { ttl, client, lease, proposal } = Admission::read(&mut given).ok_or_else(missing)?;
        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, self.redis.time()));
        }
        let (now, mut pttl, mut mode) = (self.redis.time(), self.redis.pttl(of.lock), self.mode_of(&of)?);
        let alone = waiting.how == "i";
        let entry = format!("{ttl}/{client}/{}", if alone { "" } else { of.field });
        let (ttl, lease) = (number(ttl)?, number(lease)?);
        if mode.as_deref() == Some("write") && self.writes(&of, of.field)? {
            self.keep(of.lock, ttl);
            return Ok(vote(1, self.redis.get(of.counter)?.unwrap_or("0"), now));
        }
        if pttl == -1 {
            return Ok(vote(2, 0, now));
        }
        if mode.as_deref() == Some("read") && self.purge(&of)? {
            (mode, pttl) = (None, -2);
        }
        if mode.is_none() {
            let turns = if alone { Turns { writer: None, reader: None } } else { self.turns(&waiting)? };
            let to_readers = self.readers_come_first(&turns, &waiting)?;
            if !to_readers && turns.writer.as_ref().is_none_or(|(writer, _)| *writer == entry) {
                let token = self.draw(of.counter, of.counter_ttl, number(proposal)?)?;
                self.put_writer(&of, of.field, ttl)?;
                if turns.writer.is_some() || alone {
                    self.redis.zrem(waiting.writing, &entry)?;
                }
                return Ok(vote(1, token, now));
            }
            match turns.writer {
                Some(writer) if !to_readers => self.let_writer_in(&of, &waiting, writer)?,
                _ => self.let_readers_in(&of, &waiting)?,
            }
            pttl = self.redis.pttl(of.lock);
        }
        if lease == 0 {
            return Ok(vote(0, pttl.max(-1), now));
        }
        let ticket = self.line_up((waiting.writing, waiting.alive), &entry, client, lease)?;
        if alone {
            return Ok(vote(0, pttl.max(-1), now));
        }
        let look = match self.first(waiting.writing, waiting.alive)? {
            Some((head, lives)) if head != entry && pttl >= 0 => pttl.max((lives - now + 999) / 1000),
            _ => pttl,
        };
        let ahead = self.ahead(waiting.writing, &entry)?;
        Ok(Reply::Text(format!("0 {} {now} {ticket} {ahead}", look.max(-1))))
    }

    /// `lua/read_write/leave.lua`
    pub(super) fn leave_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let waiting = Waiting::read(&mut given).ok_or_else(missing)?;
        let Departure { entry } = Departure::read(&mut given).ok_or_else(missing)?;
        let mut left = false;
        if !entry.is_empty() {
            left = self.redis.zrem(waiting.writing, entry)?;
            left |= self.redis.zrem(waiting.reading, entry)?;
        }
        // A key of another type is somebody else's data.
        let mut was = match self.redis.hdel(of.lock, &format!("{}:write", of.field)) {
            Ok(true) => Some("write"),
            _ if self.redis.hdel(of.lock, of.field).unwrap_or(false) => Some("read"),
            _ => None,
        };
        let held = was.is_some();
        if !held && !left {
            return Ok(Reply::Int(0));
        }
        if was == Some("read") {
            self.redis.zrem(of.readers, of.field)?;
            self.redis.del(&note_of(&of, of.field));
        }
        let done = Ok(Reply::Int(held.into()));
        let Ok(mode) = self.redis.hget(of.lock, "mode") else { return done };
        if held && self.redis.hgetall(of.lock)?.len() == 1 {
            self.clear(&of);
        } else if was == Some("write") {
            return done;
        } else if mode.as_deref() == Some("read") {
            if !self.purge(&of)? {
                let turns = if left && waiting.how != "i" { Some(self.turns(&waiting)?) } else { None };
                if turns.is_some_and(|turns| turns.writer.is_none() && turns.reader.is_some()) {
                    self.let_readers_in(&of, &waiting)?;
                }
                return done;
            }
            was = Some("read");
        } else if self.redis.exists(of.lock) {
            return done;
        }
        if waiting.how == "i" || !self.pass_on(&of, &waiting, was)? {
            self.redis.publish(waiting.channel);
        }
        done
    }

    /// `lua/read_write/downgrade.lua`
    pub(super) fn downgrade(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
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
        self.put_reader(&of, of.field, pttl)?;
        if waiting.how == "i" {
            self.redis.publish(waiting.channel);
        } else {
            self.let_readers_in(&of, &waiting)?;
        }
        Ok(Reply::Int(1))
    }

    /// `lua/read_write/upgrade.lua`
    pub(super) fn upgrade(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let Upgrade { ttl, proposal } = Upgrade::read(&mut given).ok_or_else(missing)?;
        let now = self.redis.time();
        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, now));
        }
        let ttl = number(ttl)?;
        if self.writes(&of, of.field)? {
            self.keep(of.lock, ttl);
            return Ok(vote(1, self.redis.get(of.counter)?.unwrap_or("0"), now));
        }
        if !self.reads(&of, of.field)? {
            return Ok(vote(2, 0, now));
        }
        self.purge(&of)?;
        if self.redis.hgetall(of.lock)?.len() > 2 {
            return Ok(vote(0, self.redis.pttl(of.lock), now));
        }
        let token = self.draw(of.counter, of.counter_ttl, number(proposal)?)?;
        self.redis.hdel(of.lock, of.field)?;
        self.redis.hset(of.lock, "mode", "write")?;
        self.redis.hset(of.lock, &format!("{}:write", of.field), "1")?;
        self.keep(of.lock, ttl);
        self.redis.del(of.readers);
        self.redis.del(&note_of(&of, of.field));
        Ok(vote(1, token, now))
    }

    /// `lua/read_write/bump.lua`
    pub(super) fn bump_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let Raise { granted, agreed } = Raise::read(&mut given).ok_or_else(missing)?;
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
    pub(super) fn renew_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let (now, mut replies) = (self.redis.time(), Vec::new());
        while let Some(RenewInside { lock, ended, readers, field, ttl, notes }) = RenewInside::read(&mut given) {
            let of = Inside { lock, counter: "", readers, field, counter_ttl: "0", notes };
            let ttl = number(ttl)?;
            let reply = if self.writes(&of, field).unwrap_or(false) {
                if ttl > 0 {
                    self.keep(lock, ttl);
                }
                1
            } else if self.redis.hexists(lock, field).unwrap_or(false) && self.reads(&of, field)? {
                if ttl > 0 {
                    self.keep(lock, ttl);
                    self.keep(&note_of(&of, field), ttl);
                    self.keep(readers, ttl);
                    self.redis.zadd_later(readers, now + ttl * 1000, field)?;
                }
                2
            } else if self.redis.get(ended).unwrap_or(None).is_some_and(|ended| ended.contains(&format!(" {field} "))) {
                -2
            } else if self.redis.exists(lock) {
                -1
            } else {
                0
            };
            replies.push(Reply::Int(reply));
        }
        Ok(Reply::List(replies))
    }

    /// `lua/read_write/repair.lua`
    pub(super) fn repair_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let RepairInside { ended, mode: wanted, ttl, token } = RepairInside::read(&mut given).ok_or_else(missing)?;
        let code = |code| Ok(Reply::List(vec![Reply::Int(code)]));
        if self.refuses(given)?.is_some() {
            return code(0);
        }
        if self.redis.get(ended)?.is_some_and(|ended| ended.contains(&format!(" {} ", of.field))) {
            return code(-2);
        }
        let (ttl, pttl, mut mode, to_write) =
            (number(ttl)?, self.redis.pttl(of.lock), self.mode_of(&of)?, wanted == "w");
        if mode.as_deref() == Some("write") && self.writes(&of, of.field)? {
            self.keep(of.lock, ttl);
            return code(1);
        }
        if mode.as_deref() == Some("read") && to_write && self.purge(&of)? {
            mode = None;
        }
        if pttl == -1 || mode.as_deref().is_some_and(|mode| mode != "read" || to_write) {
            return code(-1);
        }
        let token = number(token)? - i64::from(!to_write);
        if self.redis.get_number(of.counter)?.unwrap_or_default() < token as f64 {
            self.set_counter(of.counter, token.to_string(), of.counter_ttl)?;
        }
        if to_write {
            self.put_writer(&of, of.field, ttl)?;
            return code(1);
        }
        if mode.is_none() {
            self.redis.del(of.readers);
        }
        self.put_reader(&of, of.field, ttl)?;
        code(2)
    }

    /// `lua/read_write/attach.lua`
    pub(super) fn attach_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let of = Inside::read(&mut given).ok_or_else(missing)?;
        let AttachInside { old, ttl } = AttachInside::read(&mut given).ok_or_else(missing)?;
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
        self.redis.del(&note_of(&of, old));
        self.put_reader(&of, of.field, ttl)?;
        Ok(Reply::Int(ttl))
    }

    fn left_to_read(&mut self, of: &Inside<&str>, reader: &str) -> Result<i64, Fault> {
        Ok((self.redis.zscore(of.readers, reader)?.unwrap_or_default() - self.redis.time()).div_euclid(1000))
    }

    /// `lua/read_write/end.lua`
    pub(super) fn end_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let EndInside { lock, counter: _, readers, ended: note, notes, channel, read_write_channel } =
            EndInside::read(&mut given).ok_or_else(missing)?;
        let pttl = self.redis.pttl(lock);
        if pttl == -2 {
            return Ok(Reply::Int(0));
        }
        let mode = self.redis.hget(lock, "mode")?;
        if pttl == -1 || !matches!(mode.as_deref(), Some("read" | "write")) {
            return Ok(Reply::Int(-1));
        }
        let fields = self.redis.hkeys(lock)?.filter(|field| *field != "mode");
        let ended: Vec<String> = fields.map(|field| tenure_of(field).to_owned()).collect();
        let mut count = 0;
        for one in &ended {
            self.redis.del(&format!("{notes}:{one}:rwlock_timeout:1"));
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
    pub(super) fn inspect_inside(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let InspectInside { lock, counter, readers } = InspectInside::read(&mut given).ok_or_else(missing)?;
        let mode = self.redis.hget(lock, "mode")?.filter(|mode| mode == "read" || mode == "write");
        let pttl = self.redis.pttl(lock);
        let token = self.redis.get_number(counter)?.unwrap_or_default();
        let mut reply = vec![Reply::Int(pttl), Reply::Int(token as i64)];
        reply.push(Reply::Text(mode.clone().unwrap_or_else(|| "lock".to_owned())));
        let (now, fields): (_, Vec<String>) = (self.redis.time(), self.redis.hkeys(lock)?.cloned().collect());
        for field in fields {
            if mode.is_none() {
                reply.push(Reply::Text(field));
            } else if self.redis.zscore(readers, &field)?.is_none_or(|lives| lives > now) && field != "mode" {
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
