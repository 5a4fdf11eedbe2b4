//! The scripts of `protocol/lua` as functions over a store, one for each. A randomised test compares each function with
//! the script on a real server.

mod read_write;
mod semaphore;
mod survey;

use std::{fmt::Display, sync::Arc};

use super::{
    commands::{Commands, Fault},
    store::State,
};
use crate::{
    clock,
    config::{LARGEST_EXACT, Wire},
    owner::is_explicit,
    protocol::{
        calls::{
            Acquire, Arguments, Attach, Bump, End, Enter, Identity, Inspect, Learn, Leave, MarkerCheck,
            OWNER_OF_CHOSEN_VALUE, Prolong, Provision, Release, Renew, Repair, Rest, Retime,
        },
        script::{Reply, ScriptCall},
    },
    server::{NodeError, NodeErrorKind},
};

/// The largest distance between a node's time and a proposed token, in µs; a larger one is reduced to this.
const PROPOSAL_SLACK: i64 = 20_000;

// The codes at the start of a reply to `acquire`, `enter` and their like.
const DENIED: i64 = 0;
const GRANTED: i64 = 1;
const CONFLICT: i64 = 2;
const QUARANTINE: i64 = 3;
const UNMARKED: i64 = 4;

// The codes of one tenure in a reply to `renew` and `repair`.
const EXTENDED: i64 = 1;
const READER_EXTENDED: i64 = 2;
const GONE: i64 = 0;
const TAKEN: i64 = -1;
const ENDED: i64 = -2;

impl State {
    /// Runs the function of a call's script, and returns its reply.
    pub(super) fn run_script(&mut self, call: ScriptCall) -> Result<Reply, NodeError> {
        let ScriptCall { script, keys, mut args, identify, .. } = call;
        if identify {
            let [run, lost_at, durable] = [self.run.clone(), self.started.to_string(), "0".to_owned()];
            let [_, identity] = Identity { run, lost_at, durable }.lists();
            Arc::make_mut(&mut args).extend(identity);
        }
        self.commands += 1;
        let given = Arguments::new(&keys, &args);
        let mut lock = Wired { wire: script.wire, redis: Commands { state: self, now: clock::now() } };
        let result = match script.name {
            "acquire" => lock.acquire(given),
            "enter" => lock.enter(given),
            "leave" => lock.leave(given),
            "bump" => lock.bump(given),
            "renew" => lock.renew(given),
            "prolong" => lock.prolong(given),
            "repair" => lock.repair(given),
            "release" => lock.release(given),
            "rest" => lock.rest(given),
            "end" => lock.end(given),
            "inspect" => lock.inspect(given),
            "attach" => lock.attach(given),
            "retime" => lock.retime(given),
            "learn" => lock.redis.learn(given),
            "provision" => lock.redis.provision(given),
            "read_write/read" => lock.read(given),
            "read_write/read_batch" => lock.read_each(&keys, &args),
            "read_write/write" => lock.write(given),
            "read_write/leave" => lock.leave_read_write(given),
            "read_write/leave_batch" => lock.leave_each(&keys, &args),
            "read_write/rest" => lock.rest_read_write(given),
            "read_write/downgrade" => lock.downgrade(given),
            "read_write/upgrade" => lock.upgrade(given),
            "read_write/bump" => lock.bump_read_write(given),
            "read_write/renew" => lock.renew_read_write(given),
            "read_write/repair" => lock.repair_read_write(given),
            "read_write/end" => lock.end_read_write(given),
            "read_write/inspect" => lock.inspect_read_write(given),
            "read_write/attach" => lock.attach_read_write(given),
            "semaphore/acquire" => lock.acquire_permit(given),
            "semaphore/take" => lock.take_slots(given),
            "semaphore/relocate" => lock.relocate_permit(given),
            "semaphore/bump" => lock.bump_permit(given),
            "semaphore/repair" => lock.repair_permit(given),
            "semaphore/leave" => lock.leave_permit(given),
            "semaphore/renew" => lock.renew_permits(given),
            "semaphore/end" => lock.end_permits(given),
            "semaphore/inspect" => lock.inspect_permits(given),
            "semaphore/attach" => lock.attach_permit(given),
            "survey/listeners" => Ok(lock.redis.listeners(&args)),
            "survey/queue" => lock.redis.queue(given),
            "survey/scan" => lock.redis.scan(given),
            "survey/forget" => lock.redis.forget(given),
            other => Err(Fault::Script(format!("unknown script {other:?}"))),
        };
        result.map_err(|fault| match fault {
            Fault::WrongType => NodeError::new(
                NodeErrorKind::WrongType,
                "WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            Fault::Script(detail) => NodeError::new(NodeErrorKind::Refused, detail),
        })
    }
}

/// The scripts that are the same for both wires.
impl Commands<'_> {
    /// `lua/learn.lua`
    fn learn(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Learn { average: key, sample, ttl } = Learn::read(&mut given).ok_or_else(missing)?;
        let (sample, ttl) = (number(sample)? as f64, number(ttl)?);
        let average = self.get_number(key)?.ok_or_else(|| unusable(key))?;
        if sample < 0.0 {
            return Ok(Reply::Int(average as i64));
        }
        // `get_number` returns exactly 0 for a missing key.
        let average = if average == 0.0 { sample } else { 0.8 * average + 0.2 * sample };
        self.set_px(key, format!("{average:.0}"), ttl)?;
        Ok(Reply::Int(average as i64))
    }

    /// `lua/provision.lua`
    fn provision(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Provision { marker, origin, seen } = Provision::read(&mut given).ok_or_else(missing)?;
        let Identity { run, .. } = Identity::read(&mut given).ok_or_else(missing)?;
        let now = self.time();
        if origin != "init" && (self.exists(marker) || now - number(seen)? > 1_000_000) {
            return Ok(Reply::Int(0));
        }
        let since = if origin == "lost" { now } else { 0 };
        self.set(marker, format!("{run} {since}"));
        Ok(Reply::Int(1))
    }
}

/// The commands and the wire, for scripts that differ between wires.
struct Wired<'a> {
    wire: Wire,
    redis: Commands<'a>,
}

impl Wired<'_> {
    /// Makes several calls of a script that differ only in their first argument. Behind the arguments of the first call,
    /// which `read` reads, are the first arguments of the others.
    fn each(
        &mut self,
        keys: &[String],
        args: &[String],
        read: impl FnOnce(&mut Arguments<'_>) -> Option<()>,
        one: impl Fn(&mut Self, Arguments<'_>) -> Result<Reply, Fault>,
    ) -> Result<Reply, Fault> {
        let mut others = Arguments::new(keys, args);
        read(&mut others).ok_or_else(missing)?;
        let others = others.other_args();
        let shared = &args[..args.len() - others.len()];
        let mut replies = vec![one(self, Arguments::new(keys, shared))?];
        for first in others {
            let mut its = shared.to_vec();
            (*first).clone_into(&mut its[0]);
            replies.push(one(self, Arguments::new(keys, &its))?);
        }
        Ok(Reply::List(replies))
    }
}

/// The functions of the preludes, `lua/wire_*.lua`.
impl Wired<'_> {
    fn holds(&mut self, key: &str, field: &str) -> Result<bool, Fault> {
        Ok(match self.wire {
            Wire::Redisson => self.redis.hexists(key, field)?,
            Wire::Token => self.redis.get(key)? == Some(field),
        })
    }

    fn fields(&mut self, key: &str) -> Result<Vec<String>, Fault> {
        Ok(match self.wire {
            Wire::Redisson => self.redis.hkeys(key)?.cloned().collect(),
            Wire::Token => self.redis.get(key)?.into_iter().map(str::to_owned).collect(),
        })
    }

    fn put(&mut self, key: &str, field: &str, ttl: i64) -> Result<(), Fault> {
        match self.wire {
            Wire::Redisson => {
                self.redis.hset(key, field, "1")?;
                self.redis.pexpire(key, ttl);
                Ok(())
            }
            Wire::Token if ttl == -1 => {
                self.redis.set(key, field.to_owned());
                Ok(())
            }
            Wire::Token => self.redis.set_px(key, field.to_owned(), ttl),
        }
    }

    fn remove(&mut self, key: &str, field: &str) -> Result<bool, Fault> {
        let there = self.holds(key, field)?;
        match self.wire {
            Wire::Redisson => drop(self.redis.hdel(key, field)?),
            Wire::Token => drop(there && self.redis.del(key)),
        }
        Ok(there)
    }

    fn rename(&mut self, key: &str, old: &str, new: &str, ttl: i64) -> Result<(), Fault> {
        self.put(key, new, ttl)?;
        match self.wire {
            Wire::Redisson => self.redis.hdel(key, old).map(drop),
            Wire::Token => Ok(()),
        }
    }

    fn joins(&mut self, key: &str, owner: &str) -> Result<bool, Fault> {
        Ok(match self.wire {
            Wire::Redisson => self.redis.hkeys(key)?.all(|field| owner_of(field) == Some(owner)),
            Wire::Token => false,
        })
    }

    fn is_lock_without_ttl(&self) -> bool {
        self.wire == Wire::Token
    }
}

/// The scripts. Each runs the commands of its file in the same order; the comment at the file's top is its contract.
impl Wired<'_> {
    /// `lua/acquire.lua`
    fn acquire(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Acquire { lock: key, counter, field, owner, ttl, counter_ttl, proposal } =
            Acquire::read(&mut given).ok_or_else(missing)?;
        let (mut ttl, now) = (number(ttl)?, self.redis.time());

        if let Some((code, left)) = self.refuses(given)? {
            return Ok(vote(code, left, now));
        }

        let pttl = self.redis.pttl(key);
        if pttl != -2 {
            if owner != OWNER_OF_CHOSEN_VALUE && self.holds(key, field)? {
                if pttl < ttl {
                    self.redis.pexpire(key, ttl);
                }
                return self.confirm(counter, counter_ttl, owner, number(proposal)?);
            }
            if pttl == -1 && !self.is_lock_without_ttl() {
                return Ok(vote(CONFLICT, 0, now));
            }
            if owner.is_empty() || !self.joins(key, owner)? {
                return Ok(vote(DENIED, pttl, now));
            }
            ttl = ttl.max(pttl);
        }

        let token = self.draw(counter, counter_ttl, number(proposal)?)?;
        self.put(key, field, ttl)?;
        Ok(vote(GRANTED, token, now))
    }

    /// The reply to a tenure that holds the lock: as `lua/acquire.lua` and `lua/enter.lua`
    fn confirm(&mut self, counter: &str, counter_ttl: &str, owner: &str, proposal: i64) -> Result<Reply, Fault> {
        let now = self.redis.time();
        if owner.is_empty() {
            return Ok(vote(GRANTED, self.redis.get(counter)?.unwrap_or("0"), now));
        }
        Ok(vote(GRANTED, self.draw(counter, counter_ttl, proposal)?, now))
    }

    /// `draw` of `lua/wire.lua`
    fn draw(&mut self, counter: &str, counter_ttl: &str, proposal: i64) -> Result<i64, Fault> {
        let now = self.redis.time();
        let known = self.redis.get_number(counter)?.filter(|last| *last < (LARGEST_EXACT - 1) as f64);
        let next = known.map_or(0, |last| last as i64 + 2);
        let proposal = match proposal {
            0 => now,
            proposal => proposal.min(now + PROPOSAL_SLACK).max(now - PROPOSAL_SLACK),
        };
        let token = next.max(proposal);
        self.set_counter(counter, token.to_string(), counter_ttl)?;
        Ok(token)
    }

    /// `first` of `lua/queue.lua`
    fn first(&mut self, queue: &str, alive: &str) -> Result<Option<(String, i64)>, Fault> {
        let now = self.redis.time();
        while let Some((entry, _)) = self.redis.zend(queue, false)? {
            let alive_until = match parse_entry(&entry) {
                Some((_, client, _)) => self.redis.zscore(alive, client)?.unwrap_or_default(),
                None => 0,
            };
            if alive_until > now {
                return Ok(Some((entry, alive_until)));
            }
            self.redis.zrem(queue, &entry)?;
        }
        Ok(None)
    }

    /// `give_place` of `lua/queue.lua`
    fn give_place(
        &mut self,
        (queue, alive): (&str, &str),
        entry: &str,
        client: &str,
        place_ttl: i64,
    ) -> Result<i64, Fault> {
        let now = self.redis.time();
        let ticket = if let Some(ticket) = self.redis.zscore(queue, entry)? {
            ticket
        } else {
            let ticket = now.max(self.redis.zend(queue, true)?.map_or(0, |(_, last)| last + 1));
            self.redis.zadd(queue, ticket, entry)?;
            ticket
        };
        self.redis.pexpire(queue, place_ttl);
        let is_new = self.redis.zscore(alive, client)?.is_none();
        self.redis.zadd_later(alive, now + place_ttl * 1000, client)?;
        self.redis.pexpire(alive, place_ttl);
        if is_new {
            self.redis.zrem_until(alive, now)?;
        }
        Ok(ticket)
    }

    /// The number of entries before this one. Like Lua's `%d`, it fails for an entry that is not in the queue.
    fn ahead(&mut self, queue: &str, entry: &str) -> Result<usize, Fault> {
        self.redis.zrank(queue, entry)?.ok_or_else(|| unusable(queue))
    }

    /// `hand_over` of `lua/queue.lua`
    fn hand_over(&mut self, to: &HandOver<'_>) -> Result<bool, Fault> {
        if to.handover == "0" {
            let Some((entry, _)) = self.first(to.queue, to.alive)? else { return Ok(false) };
            let (_, client, _) = parse_entry(&entry).ok_or_else(|| unusable(to.queue))?;
            self.redis.publish(&format!("{}:{client}", to.wake));
            return Ok(true);
        }
        let now = self.redis.time();
        while let Some(entry) = self.redis.zpopmin(to.queue)? {
            let Some((ttl, client, field)) = parse_entry(&entry) else { continue };
            let alive_until = self.redis.zscore(to.alive, client)?.unwrap_or_default();
            if alive_until > now {
                self.draw(to.counter, to.counter_ttl, 0)?;
                self.put(to.key, field, number(ttl)?.min((alive_until - now + 999) / 1000))?;
                self.redis.publish(&format!("{}:{client}", to.wake));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// `lua/enter.lua`
    fn enter(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Enter {
            lock: key,
            counter,
            queue,
            alive,
            field,
            owner,
            ttl,
            counter_ttl,
            client,
            place_ttl,
            wake,
            handover,
        } = Enter::read(&mut given).ok_or_else(missing)?;
        let (now, entry, place_ttl) = (self.redis.time(), format!("{ttl}/{client}/{field}"), number(place_ttl)?);
        let hand_over = HandOver { key, counter, counter_ttl, queue, alive, wake, handover };
        let mut ttl = number(ttl)?;
        let mut pttl = self.redis.pttl(key);
        if pttl == -2 {
            let head = self.first(queue, alive)?;
            let queued = head.is_some();
            if head.is_none_or(|(head, _)| head == entry) {
                return self.enter_granted(&hand_over, field, queued.then_some(&entry), ttl);
            }
            self.hand_over(&hand_over)?;
            pttl = self.redis.pttl(key);
        } else {
            if self.holds(key, field)? {
                if pttl < ttl {
                    self.redis.pexpire(key, ttl);
                }
                return self.confirm(counter, counter_ttl, owner, 0);
            }
            if pttl == -1 && !self.is_lock_without_ttl() {
                return Ok(vote(CONFLICT, 0, now));
            }
            if !owner.is_empty() && self.joins(key, owner)? {
                ttl = ttl.max(pttl);
                return self.enter_granted(&hand_over, field, Some(&entry), ttl);
            }
        }
        if place_ttl == 0 {
            return Ok(vote(DENIED, pttl.max(-1), now));
        }

        let ticket = self.give_place((queue, alive), &entry, client, place_ttl)?;
        let retry_after = match self.first(queue, alive)? {
            Some((head, alive_until)) if head != entry && pttl >= 0 => pttl.max((alive_until - now + 999) / 1000),
            _ => pttl,
        };
        let ahead = self.ahead(queue, &entry)?;
        Ok(Reply::Text(format!("{DENIED} {} {now} {ticket} {ahead}", retry_after.max(-1))))
    }

    /// `grant` of `lua/enter.lua`
    fn enter_granted(
        &mut self,
        of: &HandOver<'_>,
        field: &str,
        queued: Option<&String>,
        ttl: i64,
    ) -> Result<Reply, Fault> {
        let token = self.draw(of.counter, of.counter_ttl, 0)?;
        self.put(of.key, field, ttl)?;
        if let Some(entry) = queued {
            self.redis.zrem(of.queue, entry)?;
        }
        Ok(vote(GRANTED, token, self.redis.time()))
    }

    /// `lua/leave.lua`
    fn leave(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Leave { lock: key, counter, queue, alive, field, entry, counter_ttl, channel, wake, handover } =
            Leave::read(&mut given).ok_or_else(missing)?;
        let left = !entry.is_empty() && self.redis.zrem(queue, entry)?;
        // A key of another type is somebody else's data.
        let removed = self.remove(key, field).unwrap_or(false);
        let alone = removed && !is_explicit(field);
        if alone || (removed || left) && !self.redis.exists(key) {
            let hand_over = HandOver { key, counter, counter_ttl, queue, alive, wake, handover };
            if !self.hand_over(&hand_over)? {
                self.redis.publish(channel);
            }
        }
        Ok(Reply::Int(removed.into()))
    }

    /// `lua/bump.lua`
    fn bump(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Bump { lock: key, counter, field, granted, agreed, counter_ttl } =
            Bump::read(&mut given).ok_or_else(missing)?;
        if !self.holds(key, field)? || self.redis.get(counter)? != Some(granted) {
            return Ok(Reply::Int(0));
        }
        self.set_counter(counter, agreed.to_owned(), counter_ttl)?;
        Ok(Reply::Int(1))
    }

    /// `refuses` of `lua/wire.lua`
    fn refuses(&mut self, mut given: Arguments<'_>) -> Result<Option<(i64, i64)>, Fault> {
        let Some(MarkerCheck { marker, quarantine }) = MarkerCheck::read(&mut given) else { return Ok(None) };
        let Identity { run, lost_at, durable } = Identity::read(&mut given).ok_or_else(missing)?;
        let now = self.redis.time();
        let Some(mark) = self.redis.get(marker)? else { return Ok(Some((UNMARKED, 0))) };
        let parsed = parse_mark(mark);
        let mut since = parsed.map(|(_, since)| since.to_owned());
        if parsed.map(|(run, _)| run) != Some(run) {
            if durable != "1" {
                since = Some(if lost_at == "0" { now.to_string() } else { lost_at.to_owned() });
            }
            let since = since.as_ref().ok_or_else(|| unusable(marker))?;
            self.redis.set(marker, format!("{run} {since}"));
        }
        let since = number(&since.ok_or_else(|| unusable(marker))?)?;
        let quarantine = number(quarantine)?;
        let mut left = since + quarantine - now;
        if left > quarantine {
            left = quarantine;
            self.redis.set(marker, format!("{run} {now}"));
        }
        Ok((left > 0).then_some((QUARANTINE, left)))
    }

    /// `lua/repair.lua`
    fn repair(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Repair { lock: key, counter, ended: note, field, owner, ttl, token, counter_ttl } =
            Repair::read(&mut given).ok_or_else(missing)?;
        let code = |code| Ok(Reply::List(vec![Reply::Int(code)]));
        if self.refuses(given)?.is_some() {
            return code(GONE);
        }
        if self.redis.get(note)?.is_some_and(|ended| ended.contains(&format!(" {field} "))) {
            return code(ENDED);
        }
        let (ttl, pttl) = (number(ttl)?, self.redis.pttl(key));
        if self.holds(key, field)? {
            if pttl < ttl {
                self.redis.pexpire(key, ttl);
            }
            return code(EXTENDED);
        }
        if pttl != -2 && (pttl == -1 || owner.is_empty() || !self.joins(key, owner)?) {
            return code(TAKEN);
        }
        let known = self.redis.get_number(counter)?.unwrap_or_default();
        if known < token.parse().map_err(|_| missing())? {
            self.set_counter(counter, token.to_owned(), counter_ttl)?;
        }
        self.put(key, field, ttl.max(pttl))?;
        code(EXTENDED)
    }

    /// `lua/renew.lua`
    fn renew(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let mut replies = Vec::new();
        while let Some(Renew { lock: key, ended: note, field, ttl }) = Renew::read(&mut given) {
            let ttl = number(ttl)?;
            // A key of another type is somebody else's data.
            let reply = if self.holds(key, field).unwrap_or(false) {
                if ttl > 0 && self.redis.pttl(key) < ttl {
                    self.redis.pexpire(key, ttl);
                }
                EXTENDED
            } else if note != key
                && self.redis.get(note).unwrap_or(None).is_some_and(|ended| ended.contains(&format!(" {field} ")))
            {
                ENDED
            } else if self.redis.exists(key) {
                TAKEN
            } else {
                GONE
            };
            replies.push(Reply::Int(reply));
        }
        Ok(Reply::List(replies))
    }

    /// `lua/prolong.lua`
    fn prolong(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let mut held = 0;
        while let Some(Prolong { lock: key, counter, field, token, counter_ttl }) = Prolong::read(&mut given) {
            // A key of another type is somebody else's data.
            if !self.holds(key, field).unwrap_or(false) {
                continue;
            }
            let ttl = number(counter_ttl)?;
            match self.redis.pttl(counter) {
                -2 => drop(self.redis.set_px(counter, token.to_owned(), ttl)),
                left if left != -1 && left < ttl => drop(self.redis.pexpire(counter, ttl)),
                _ => {}
            }
            held += 1;
        }
        Ok(Reply::Int(held))
    }

    /// `lua/release.lua`
    fn release(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Release { lock: key, field, channel } = Release::read(&mut given).ok_or_else(missing)?;
        // A key of another type is somebody else's data.
        if !self.remove(key, field).unwrap_or(false) {
            return Ok(Reply::Int(0));
        }
        if !is_explicit(field) || !self.redis.exists(key) {
            self.redis.publish(channel);
        }
        Ok(Reply::Int(1))
    }

    /// `lua/rest.lua`
    fn rest(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Rest { lock: key, field, replacement: rest, ttl, channel } = Rest::read(&mut given).ok_or_else(missing)?;
        // A key of another type is somebody else's data.
        if !self.holds(key, field).unwrap_or(false) {
            return Ok(Reply::Int(self.holds(key, rest).unwrap_or(false).into()));
        }
        self.rename(key, field, rest, number(ttl)?)?;
        self.redis.publish(channel);
        Ok(Reply::Int(1))
    }

    /// `is_read_write` of `lua/wire_redisson.lua`
    fn is_read_write(&self, fields: &[String]) -> bool {
        self.wire == Wire::Redisson && fields.iter().any(|field| field == "mode")
    }

    /// `lua/end.lua`
    fn end(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let End { lock: key, ended: note, owner, channel } = End::read(&mut given).ok_or_else(missing)?;
        let pttl = self.redis.pttl(key);
        let mut ended = self.fields(key)?;
        if ended.is_empty() {
            return Ok(Reply::Int(0));
        }
        if self.is_read_write(&ended) {
            return Ok(Reply::Int(-2));
        }
        if pttl == -1 && !self.is_lock_without_ttl() {
            return Ok(Reply::Int(-1));
        }
        let only = given.behind_flag();
        ended.retain(|field| owner.is_empty() || owner_of(field) == Some(owner));
        ended.retain(|field| only.is_empty() || only.contains(&field.as_str()));
        let mut count = 0;
        for field in &ended {
            self.remove(key, field)?;
            count += 1;
        }
        if count > 0 {
            self.redis.set_px(note, format!(" {} ", ended.join(" ")), pttl.max(1000))?;
            if !self.redis.exists(key) {
                self.redis.publish(channel);
            }
        }
        Ok(Reply::Int(count))
    }

    /// `lua/inspect.lua`
    fn inspect(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Inspect { lock: key, counter } = Inspect::read(&mut given).ok_or_else(missing)?;
        let fields = self.fields(key)?;
        if self.is_read_write(&fields) {
            return Ok(Reply::Int(-2));
        }
        let token = self.redis.get_number(counter)?.unwrap_or_default();
        let mut reply = vec![Reply::Int(self.redis.pttl(key)), Reply::Int(token as i64)];
        reply.extend(fields.into_iter().map(Reply::Text));
        Ok(Reply::List(reply))
    }

    /// `lua/attach.lua`
    fn attach(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Attach { lock: key, old, new, ttl } = Attach::read(&mut given).ok_or_else(missing)?;
        let pttl = self.redis.pttl(key);
        if self.holds(key, new)? {
            return Ok(Reply::Int(pttl));
        }
        let ttl = pttl.max(number(ttl)?);
        if !self.holds(key, old)? || ttl <= 0 {
            return Ok(Reply::Int(-2));
        }
        self.rename(key, old, new, ttl)?;
        Ok(Reply::Int(ttl))
    }

    /// `lua/retime.lua`
    fn retime(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Retime { lock: key, field, time, change } = Retime::read(&mut given).ok_or_else(missing)?;
        let time = number(time)?;
        if !self.holds(key, field).unwrap_or(false) {
            return Ok(Reply::Int(0));
        }
        let pttl = self.redis.pttl(key);
        if pttl == -1 && change != "set" {
            return Ok(Reply::Int(0));
        }
        self.redis.pexpire(key, if change == "add" { time + pttl } else { time });
        Ok(Reply::Int(1))
    }

    fn set_counter(&mut self, counter: &str, token: String, ttl: &str) -> Result<(), Fault> {
        if ttl == "0" {
            self.redis.set(counter, token);
            return Ok(());
        }
        let ttl = number(ttl)?;
        self.redis.set_px(counter, token, ttl)
    }
}

/// The arguments of `hand_over`.
struct HandOver<'a> {
    key: &'a str,
    counter: &'a str,
    counter_ttl: &'a str,
    queue: &'a str,
    alive: &'a str,
    wake: &'a str,
    handover: &'a str,
}

/// `entry:match('^(%d+)/([^/]*)/(.*)$')`: the ttl, the client and the field of an entry.
fn parse_entry(entry: &str) -> Option<(&str, &str, &str)> {
    let (ttl, rest) = entry.split_once('/')?;
    let (client, field) = rest.split_once('/')?;
    (!ttl.is_empty() && ttl.bytes().all(|b| b.is_ascii_digit())).then_some((ttl, client, field))
}

/// `field:match('^(.*):%d+$')`: the owner in a field.
fn owner_of(field: &str) -> Option<&str> {
    let (owner, tenure) = field.rsplit_once(':')?;
    (!tenure.is_empty() && tenure.bytes().all(|b| b.is_ascii_digit())).then_some(owner)
}

/// `mark:match('^(%S+) (%d+)$')`: the run and the moment in a marker.
fn parse_mark(mark: &str) -> Option<(&str, &str)> {
    let (run, since) = mark.split_once(' ')?;
    let whole = !run.is_empty() && !run.contains(|c: char| c.is_ascii_whitespace());
    let number = !since.is_empty() && since.bytes().all(|b| b.is_ascii_digit());
    (whole && number).then_some((run, since))
}

/// Builds a reply as of `acquire.lua`.
fn vote(code: i64, value: impl Display, now: i64) -> Reply {
    Reply::Text(format!("{code} {value} {now}"))
}

fn number(text: &str) -> Result<i64, Fault> {
    text.parse().map_err(|_| unusable(text))
}

fn unusable(what: &str) -> Fault {
    Fault::Script(format!("ERR {what:?} is not, or does not hold, what the script needs"))
}

fn missing() -> Fault {
    Fault::Script("ERR too few KEYS or ARGV for the script".to_owned())
}
