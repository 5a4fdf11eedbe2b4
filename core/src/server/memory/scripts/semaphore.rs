//! The scripts of a semaphore, `lua/semaphore/*.lua`, and their shared functions, `lua/semaphore.lua`, over a store.

use super::{
    CONFLICT, DENIED, ENDED, EXTENDED, Fault, GONE, PROPOSAL_SLACK, TAKEN, Wired, missing, number, parse_entry,
    unusable, vote,
};
use crate::{
    config::LARGEST_EXACT,
    protocol::{
        calls::{
            Arguments, AttachPermit, BumpPermit, EndPermits, EnterSemaphore, InspectPermits, LeavePermit, Permit,
            PermitWaiting, RelocatePermit, RenewPermit, RepairPermit, TakeSlots,
        },
        script::Reply,
    },
};

/// The three keys of a semaphore that are written together.
#[derive(Clone, Copy)]
struct PermitKeys<'a> {
    key: &'a str,
    slots: &'a str,
    taken: &'a str,
}

impl<'a> PermitKeys<'a> {
    fn all(self) -> [&'a str; 3] {
        [self.key, self.slots, self.taken]
    }
}

fn permit_keys<'a>(of: &Permit<&'a str>) -> PermitKeys<'a> {
    PermitKeys { key: of.lock, slots: of.slots, taken: of.taken }
}

/// An entry in the queue of a semaphore.
struct SemaphoreEntry<'a> {
    ttl: i64,
    client: &'a str,
    count: i64,
    of: i64,
    field: &'a str,
}

impl<'a> SemaphoreEntry<'a> {
    fn parse(entry: &'a str) -> Option<Self> {
        let mut parts = entry.splitn(4, '/');
        let (ttl, client, size, field) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (count, of) = size.split_once(':')?;
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let is_valid = digits(ttl) && digits(count) && digits(of);
        is_valid.then(|| {
            Some(Self { ttl: ttl.parse().ok()?, client, count: count.parse().ok()?, of: of.parse().ok()?, field })
        })?
    }
}

fn member(field: &str, its: &str) -> String {
    format!("{field}|{its}")
}

/// The field and the slots of a member.
fn parse_member(member: &str) -> Option<(&str, &str)> {
    let (field, its) = member.rsplit_once('|')?;
    let slots = !its.is_empty() && its.bytes().all(|letter| letter.is_ascii_digit() || letter == b',');
    slots.then_some((field, its))
}

fn each(its: &str) -> impl Iterator<Item = &str> {
    its.split(',').filter(|slot| !slot.is_empty())
}

/// The slots of a list "slot:token,...", each with its token.
fn with_tokens(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.split(',').filter_map(|one| one.split_once(':'))
}

/// The functions of `lua/semaphore.lua`.
impl Wired<'_> {
    fn keep_all(&mut self, of: PermitKeys<'_>, ttl: i64) {
        if self.redis.pttl(of.key) < ttl {
            self.extend_all(of, ttl);
        }
    }

    fn extend_all(&mut self, of: PermitKeys<'_>, ttl: i64) {
        for key in of.all() {
            self.redis.pexpire(key, ttl + ttl / 8);
        }
    }

    fn mend(&mut self, of: PermitKeys<'_>) -> Result<bool, Fault> {
        // A key of another type is somebody else's data.
        let Ok(permits) = self.redis.zcard(of.key) else { return Ok(false) };
        let fields = self.redis.hgetall(of.slots)?.len();
        let there = self.redis.zcard(of.taken)? > 0;
        if permits == fields && there == (permits > 0) {
            return Ok(true);
        }
        let mut known: Vec<(String, String)> = Vec::new();
        for member in self.redis.zfirst(of.key, usize::MAX)? {
            let Some((field, its)) = parse_member(&member) else { return Ok(false) };
            known.push((field.to_owned(), its.to_owned()));
        }
        let left = self.redis.pttl(of.key).max(self.redis.pttl(of.slots));
        if left < 1 {
            if permits > 0 && self.redis.pttl(of.key) == -1 {
                return Ok(false);
            }
            for key in of.all() {
                self.redis.del(key);
            }
            return Ok(true);
        }
        let ends = self.redis.time() + left * 1000;
        for (field, its) in self.redis.hgetall(of.slots)?.to_vec() {
            if !known.iter().any(|(known, _)| *known == field) {
                self.redis.zadd(of.key, ends, &member(&field, &its))?;
                known.push((field, its));
            }
        }
        self.redis.del(of.slots);
        self.redis.del(of.taken);
        for (field, its) in known {
            self.redis.hset(of.slots, &field, &its)?;
            for slot in each(&its) {
                self.redis.zadd(of.taken, number(slot)?, slot)?;
            }
        }
        self.extend_all(of, left);
        Ok(true)
    }

    fn free(&mut self, of: PermitKeys<'_>, field: &str, its: &str) -> Result<(), Fault> {
        self.redis.zrem(of.key, &member(field, its))?;
        self.redis.hdel(of.slots, field)?;
        for slot in each(its) {
            self.redis.zrem(of.taken, slot)?;
        }
        Ok(())
    }

    /// The slots of a field, and the end of their lease unless that is over.
    fn permit_of(&mut self, of: PermitKeys<'_>, field: &str) -> Result<Option<(String, Option<i64>)>, Fault> {
        let Some(its) = self.redis.hget(of.slots, field)? else { return Ok(None) };
        let now = self.redis.time();
        let ends = self.redis.zscore(of.key, &member(field, &its))?.filter(|ends| *ends > now);
        Ok(Some((its, ends)))
    }

    fn sweep(&mut self, of: PermitKeys<'_>) -> Result<bool, Fault> {
        let over = self.redis.zuntil(of.key, self.redis.time())?;
        for one in over.iter().take(100) {
            let (field, its) = parse_member(one).ok_or_else(|| unusable(of.key))?;
            self.free(of, field, its)?;
        }
        Ok(!over.is_empty())
    }

    fn free_after(&mut self, of: PermitKeys<'_>, before: i64) -> Result<i64, Fault> {
        let (mut least, mut most) = (0, self.redis.zcard(of.taken)?);
        while least < most {
            let middle = usize::midpoint(least, most);
            let slot = self.redis.znth(of.taken, middle)?.and_then(|slot| slot.parse().ok()).unwrap_or(0_i64);
            if slot - middle.cast_signed() as i64 > before { most = middle } else { least = middle + 1 }
        }
        Ok(least.cast_signed() as i64 + before)
    }

    fn find_free(&mut self, of: PermitKeys<'_>, count: i64, size: i64) -> Result<Option<Vec<i64>>, Fault> {
        loop {
            if self.free_after(of, count - 1)? < size {
                return (0..count).map(|before| self.free_after(of, before)).collect::<Result<_, _>>().map(Some);
            }
            if !self.sweep(of)? {
                return Ok(None);
            }
        }
    }

    fn taken_below(&mut self, of: PermitKeys<'_>, slot: i64) -> Result<i64, Fault> {
        let (mut least, mut most) = (0, self.redis.zcard(of.taken)?);
        while least < most {
            let middle = usize::midpoint(least, most);
            let other = self.redis.znth(of.taken, middle)?.and_then(|slot| slot.parse().ok()).unwrap_or(0_i64);
            if other < slot { least = middle + 1 } else { most = middle }
        }
        Ok(least.cast_signed() as i64)
    }

    fn find_from(
        &mut self,
        of: PermitKeys<'_>,
        start: i64,
        (count, size): (i64, i64),
    ) -> Result<Option<Vec<i64>>, Fault> {
        let free = size - self.taken_below(of, size)?;
        if free < count {
            return Ok(None);
        }
        let before = start - self.taken_below(of, start)?;
        let mut found: Vec<i64> =
            (0..count).map(|at| self.free_after(of, (before + at) % free)).collect::<Result<_, _>>()?;
        found.sort_unstable();
        Ok(Some(found))
    }

    /// Whether a permit with the slots `its`, "" for none, can have those in `wanted`.
    fn can_have(&mut self, of: PermitKeys<'_>, its: &str, wanted: &str) -> Result<bool, Fault> {
        for slot in each(wanted) {
            if !each(its).any(|own| own == slot) && self.redis.zscore(of.taken, slot)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn enlist(&mut self, of: PermitKeys<'_>, field: &str, its: &str, ends: i64) -> Result<(), Fault> {
        for slot in each(its) {
            self.redis.zadd(of.taken, number(slot)?, slot)?;
        }
        self.redis.hset(of.slots, field, its)?;
        self.redis.zadd(of.key, ends, &member(field, its))
    }

    fn exchange(
        &mut self,
        of: PermitKeys<'_>,
        field: &str,
        (its, wanted): (&str, &str),
        ends: i64,
    ) -> Result<(), Fault> {
        self.enlist(of, field, wanted, ends)?;
        self.redis.zrem(of.key, &member(field, its))?;
        for slot in each(its).filter(|slot| each(wanted).all(|kept| kept != *slot)) {
            self.redis.zrem(of.taken, slot)?;
        }
        Ok(())
    }

    fn tokens_of(&mut self, tokens: &str, its: &str) -> Result<String, Fault> {
        let mut drawn = Vec::new();
        for slot in each(its) {
            let token = self.redis.hget(tokens, slot)?.unwrap_or_else(|| "0".to_owned());
            drawn.push(format!("{slot}:{token}"));
        }
        Ok(drawn.join(","))
    }

    fn draw_each(&mut self, tokens: &str, token_ttl: &str, found: &[i64], proposal: &str) -> Result<String, Fault> {
        let mut now = self.redis.time();
        let proposed = number(proposal)?;
        if proposed != 0 {
            now = proposed.clamp(now - PROPOSAL_SLACK, now + PROPOSAL_SLACK);
        }
        let mut drawn = Vec::new();
        for slot in found {
            let slot = &slot.to_string();
            let last = self.redis.hget(tokens, slot)?.and_then(|last| last.parse::<i64>().ok()).unwrap_or_default();
            let token = if last >= now && last < LARGEST_EXACT - 1 { last + 1 } else { now };
            self.redis.hset(tokens, slot, &token.to_string())?;
            drawn.push(format!("{slot}:{token}"));
        }
        if token_ttl != "0" {
            self.redis.pexpire(tokens, number(token_ttl)?);
        }
        Ok(drawn.join(","))
    }

    /// `grant` of `lua/semaphore.lua`
    fn grant_slots(
        &mut self,
        of: PermitKeys<'_>,
        (tokens, token_ttl): (&str, &str),
        (field, found): (&str, &[i64]),
        ttl: i64,
        proposal: &str,
    ) -> Result<String, Fault> {
        let drawn = self.draw_each(tokens, token_ttl, found, proposal)?;
        let its = found.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        self.enlist(of, field, &its, self.redis.time() + ttl * 1000)?;
        self.keep_all(of, ttl);
        Ok(drawn)
    }

    /// Whether this entry of the queue wants one slot, and none is free.
    fn finds_it_full(&mut self, of: PermitKeys<'_>, entry: &str) -> Result<bool, Fault> {
        match SemaphoreEntry::parse(entry) {
            Some(wanted) if wanted.count == 1 => Ok(self.find_free(of, 1, wanted.of)?.is_none()),
            _ => Ok(false),
        }
    }

    /// Returns the first of those that wait on, and until when its client counts as alive. `head`: the first waiter, if
    /// the script has looked for it.
    fn let_in(
        &mut self,
        permit: &Permit<&str>,
        waiting: &PermitWaiting<&str>,
        head: Option<(String, i64)>,
    ) -> Result<Option<(String, i64)>, Fault> {
        self.let_in_from("", &mut Vec::new(), (permit, waiting), head)
    }

    /// The same for a script that the client `sender` sent; `sender_grants` gets the grants of its waiters.
    fn let_in_from(
        &mut self,
        sender: &str,
        sender_grants: &mut Vec<Reply>,
        (permit, waiting): (&Permit<&str>, &PermitWaiting<&str>),
        mut head: Option<(String, i64)>,
    ) -> Result<Option<(String, i64)>, Fault> {
        let of = permit_keys(permit);
        if waiting.handover == "i" {
            if !waiting.wake.is_empty() {
                self.redis.publish(waiting.wake);
            }
            return Ok(head);
        }
        let mut notified: Vec<String> = Vec::new();
        loop {
            let next = match head.take() {
                Some(head) => Some(head),
                None => self.first(waiting.queue, waiting.alive)?,
            };
            let Some((entry, alive_until)) = next else { return Ok(None) };
            let Some(wanted) = SemaphoreEntry::parse(&entry) else {
                self.redis.zrem(waiting.queue, &entry)?;
                continue;
            };
            let found = self.find_free(of, wanted.count, wanted.of)?;
            let is_full = found.is_none() && wanted.count == 1;
            if !is_full && self.redis.hexists(of.slots, wanted.field)? {
                self.redis.zrem(waiting.queue, &entry)?;
                continue;
            }
            let Some(found) = found else { return Ok(Some((entry, alive_until))) };
            let wake = format!("{}:{}", waiting.wake, wanted.client);
            if waiting.handover == "0" {
                self.redis.publish(&wake);
                return Ok(Some((entry, alive_until)));
            }
            self.redis.hgetall(permit.tokens)?;
            self.redis.zrem(waiting.queue, &entry)?;
            let is_sender = wanted.client == sender;
            let alive_for = (alive_until - self.redis.time() + 999) / 1000;
            let ttl = if is_sender { wanted.ttl } else { wanted.ttl.min(alive_for) };
            let drawn = self.grant_slots(of, (permit.tokens, waiting.token_ttl), (wanted.field, &found), ttl, "0")?;
            if is_sender {
                sender_grants.extend([Reply::Text(wanted.field.to_owned()), Reply::Text(drawn)]);
            } else if !notified.contains(&wake) {
                self.redis.publish(&wake);
                notified.push(wake);
            }
        }
    }
}

/// The scripts.
impl Wired<'_> {
    /// `lua/semaphore/acquire.lua`
    pub(super) fn acquire_permit(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let waiting = PermitWaiting::read(&mut given).ok_or_else(missing)?;
        let EnterSemaphore { count, of: size, ttl, client, place_ttl } =
            EnterSemaphore::read(&mut given).ok_or_else(missing)?;
        let (of, now) = (permit_keys(&permit), self.redis.time());
        if self.redis.pttl(of.key) == -1 || !self.mend(of)? {
            return Ok(vote(CONFLICT, 0, now));
        }
        let entry = format!("{ttl}/{client}/{count}:{size}/{}", permit.field);
        let (count, size, ttl, place_ttl) = (number(count)?, number(size)?, number(ttl)?, number(place_ttl)?);
        if let Some(granted) = self.mine(&permit, ttl)? {
            return Ok(granted);
        }
        let mut head = self.first(waiting.queue, waiting.alive)?;
        let before = head.as_ref().map(|(head, _)| head.clone()).filter(|head| *head != entry);
        let must_wait = match &before {
            Some(before) => waiting.handover == "0" || self.finds_it_full(of, before)?,
            None => false,
        };
        if before.is_some() && !must_wait {
            head = self.let_in(&permit, &waiting, head)?;
            if head.as_ref().map(|(head, _)| head) != before.as_ref()
                && let Some(granted) = self.mine(&permit, ttl)?
            {
                return Ok(granted);
            }
        }
        if head.as_ref().is_none_or(|(head, _)| *head == entry)
            && let Some(found) = self.find_free(of, count, size)?
        {
            self.redis.hgetall(permit.tokens)?;
            if head.is_some() {
                self.redis.zrem(waiting.queue, &entry)?;
            }
            let drawn = self.grant_slots(of, (permit.tokens, waiting.token_ttl), (permit.field, &found), ttl, "0")?;
            return Ok(Reply::Text(format!("1 {drawn} {now}")));
        }
        let mut retry_after = match self.redis.zend(of.key, false)? {
            Some((_, soonest)) => ((soonest - now + 999) / 1000).max(1),
            None => -1,
        };
        if place_ttl == 0 {
            return Ok(vote(DENIED, retry_after, now));
        }
        let ticket = self.give_place((waiting.queue, waiting.alive), &entry, client, place_ttl)?;
        if let Some((head, mut alive_until)) = head.filter(|(head, _)| *head != entry) {
            if parse_entry(&head).is_some_and(|(_, of_head, _)| of_head == client) {
                alive_until = alive_until.max(now + place_ttl * 1000);
            }
            retry_after = retry_after.max((alive_until - now + 999) / 1000);
        }
        let ahead = self.ahead(waiting.queue, &entry)?;
        Ok(Reply::Text(format!("{DENIED} {retry_after} {now} {ticket} {ahead}")))
    }

    fn mine(&mut self, permit: &Permit<&str>, ttl: i64) -> Result<Option<Reply>, Fault> {
        let (of, now) = (permit_keys(permit), self.redis.time());
        let Some((its, ends)) = self.permit_of(of, permit.field)? else { return Ok(None) };
        let Some(ends) = ends else {
            self.free(of, permit.field, &its)?;
            return Ok(None);
        };
        let drawn = self.tokens_of(permit.tokens, &its)?;
        self.keep_all(of, ttl);
        self.redis.zadd(of.key, ends.max(now + ttl * 1000), &member(permit.field, &its))?;
        Ok(Some(Reply::Text(format!("1 {drawn} {now}"))))
    }

    /// `lua/semaphore/take.lua`
    pub(super) fn take_slots(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let waiting = PermitWaiting::read(&mut given).ok_or_else(missing)?;
        let TakeSlots { count, of: size, ttl, start, proposal } = TakeSlots::read(&mut given).ok_or_else(missing)?;
        let (of, now) = (permit_keys(&permit), self.redis.time());
        if let Some(refusal) = self.refusal(given)? {
            return Ok(refusal);
        }
        if self.redis.pttl(of.key) == -1 || !self.mend(of)? {
            return Ok(vote(CONFLICT, 0, now));
        }
        let ttl = number(ttl)?;
        if let Some(granted) = self.mine(&permit, ttl)? {
            return Ok(granted);
        }
        while self.sweep(of)? {}
        if let Some(found) = self.find_from(of, number(start)?, (number(count)?, number(size)?))? {
            let tokens = (permit.tokens, waiting.token_ttl);
            let drawn = self.grant_slots(of, tokens, (permit.field, &found), ttl, proposal)?;
            return Ok(Reply::Text(format!("1 {drawn} {now}")));
        }
        let left = match self.redis.zend(of.key, false)? {
            Some((_, soonest)) => ((soonest - now + 999) / 1000).max(1),
            None => -1,
        };
        Ok(vote(DENIED, left, now))
    }

    /// `lua/semaphore/relocate.lua`
    pub(super) fn relocate_permit(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let waiting = PermitWaiting::read(&mut given).ok_or_else(missing)?;
        let RelocatePermit { wanted, proposal } = RelocatePermit::read(&mut given).ok_or_else(missing)?;
        let (of, now) = (permit_keys(&permit), self.redis.time());
        let refusal = self.refusal(given)?;
        let may_vote = refusal.is_none();
        let refusal = refusal.unwrap_or_else(|| vote(DENIED, 0, now));
        self.redis.hgetall(permit.tokens)?;
        let held = if self.mend(of)? { self.permit_of(of, permit.field)? } else { None };
        let Some((its, ends)) = held else { return Ok(refusal) };
        if ends.is_some() && its == wanted && may_vote {
            let drawn = self.tokens_of(permit.tokens, &its)?;
            return Ok(Reply::Text(format!("1 {drawn} {now}")));
        }
        while self.sweep(of)? {}
        if let Some(ends) = ends
            && may_vote
            && self.can_have(of, &its, wanted)?
        {
            let found: Vec<i64> = each(wanted).map(number).collect::<Result<_, _>>()?;
            let drawn = self.draw_each(permit.tokens, waiting.token_ttl, &found, proposal)?;
            self.exchange(of, permit.field, (&its, wanted), ends)?;
            return Ok(Reply::Text(format!("1 {drawn} {now}")));
        }
        self.free(of, permit.field, &its)?;
        self.let_in(&permit, &waiting, None)?;
        Ok(refusal)
    }

    /// `lua/semaphore/bump.lua`
    pub(super) fn bump_permit(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let BumpPermit { token_ttl, granted, agreed } = BumpPermit::read(&mut given).ok_or_else(missing)?;
        let Some(its) = self.redis.hget(permit.slots, permit.field)? else { return Ok(Reply::Int(0)) };
        for (slot, token) in with_tokens(granted) {
            if !each(&its).any(|own| own == slot) || self.redis.hget(permit.tokens, slot)?.as_deref() != Some(token) {
                return Ok(Reply::Int(0));
            }
        }
        for (slot, token) in with_tokens(agreed) {
            self.redis.hset(permit.tokens, slot, token)?;
        }
        if token_ttl != "0" {
            self.redis.pexpire(permit.tokens, number(token_ttl)?);
        }
        Ok(Reply::Int(1))
    }

    /// `lua/semaphore/repair.lua`
    pub(super) fn repair_permit(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let waiting = PermitWaiting::read(&mut given).ok_or_else(missing)?;
        let RepairPermit { ended, wanted: tokens, ttl } = RepairPermit::read(&mut given).ok_or_else(missing)?;
        let (of, now) = (permit_keys(&permit), self.redis.time());
        let code = |code| Ok(Reply::List(vec![Reply::Int(code)]));
        if self.refusal(given)?.is_some() {
            return code(GONE);
        }
        if self.redis.get(ended)?.is_some_and(|note| note.contains(&format!(" {} ", permit.field))) {
            return code(ENDED);
        }
        self.redis.hgetall(permit.tokens)?;
        if self.redis.pttl(of.key) == -1 || !self.mend(of)? {
            return code(TAKEN);
        }
        while self.sweep(of)? {}
        let wanted = with_tokens(tokens).map(|(slot, _)| slot).collect::<Vec<_>>().join(",");
        let ends = now + number(ttl)? * 1000;
        let its = self.redis.hget(of.slots, permit.field)?;
        if its.as_ref() != Some(&wanted) {
            let had = its.as_deref().unwrap_or_default();
            if !self.can_have(of, had, &wanted)? {
                if its.is_some() {
                    self.free(of, permit.field, had)?;
                    self.let_in(&permit, &waiting, None)?;
                }
                return code(TAKEN);
            }
            for (slot, token) in with_tokens(tokens) {
                let last = self.redis.hget(permit.tokens, slot)?.and_then(|last| last.parse::<i64>().ok());
                if last.unwrap_or_default() < number(token)? {
                    self.redis.hset(permit.tokens, slot, token)?;
                }
            }
            if waiting.token_ttl != "0" {
                self.redis.pexpire(permit.tokens, number(waiting.token_ttl)?);
            }
            self.exchange(of, permit.field, (had, &wanted), ends)?;
        }
        self.keep_all(of, number(ttl)?);
        let known = self.redis.zscore(of.key, &member(permit.field, &wanted))?.unwrap_or_default();
        self.redis.zadd(of.key, known.max(ends), &member(permit.field, &wanted))?;
        code(EXTENDED)
    }

    /// The reply of a node that may not vote; `None` if it may, or if no [`MarkerCheck`] follows.
    fn refusal(&mut self, given: Arguments<'_>) -> Result<Option<Reply>, Fault> {
        let now = self.redis.time();
        Ok(self.refuses(given)?.map(|(code, left)| vote(code, left, now)))
    }

    /// `lua/semaphore/leave.lua`
    pub(super) fn leave_permit(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let waiting = PermitWaiting::read(&mut given).ok_or_else(missing)?;
        let LeavePermit { entry, sender } = LeavePermit::read(&mut given).ok_or_else(missing)?;
        let of = permit_keys(&permit);
        let left = !entry.is_empty() && self.redis.zrem(waiting.queue, entry)?;
        if !self.mend(of)? {
            return Ok(Reply::Int(0));
        }
        let held = self.permit_of(of, permit.field)?;
        if held.is_none() && !left {
            return Ok(Reply::Int(0));
        }
        let mut released = false;
        if let Some((its, ends)) = held {
            released = ends.is_some();
            self.free(of, permit.field, &its)?;
        }
        let mut reply = vec![Reply::Int(released.into())];
        self.let_in_from(sender, &mut reply, (&permit, &waiting), None)?;
        Ok(if reply.len() > 1 { Reply::List(reply) } else { reply.remove(0) })
    }

    /// `lua/semaphore/renew.lua`
    pub(super) fn renew_permits(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let now = self.redis.time();
        let mut replies = Vec::new();
        while let Some(RenewPermit { lock, ended, slots, taken, field, ttl, wanted }) = RenewPermit::read(&mut given) {
            let of = PermitKeys { key: lock, slots, taken };
            let held = if self.mend(of)? { self.permit_of(of, field)? } else { None };
            let held = held.filter(|(its, _)| its == wanted);
            replies.push(Reply::Int(if let Some((its, Some(ends))) = held {
                let ttl = number(ttl)?;
                if ttl != 0 {
                    self.keep_all(of, ttl);
                    self.redis.zadd(of.key, ends.max(now + ttl * 1000), &member(field, &its))?;
                }
                EXTENDED
            } else if self
                .redis
                .get(ended)
                .is_ok_and(|notified| notified.is_some_and(|notified| notified.contains(&format!(" {field} "))))
            {
                ENDED
            } else if self.redis.exists(lock) {
                TAKEN
            } else {
                GONE
            }));
        }
        Ok(Reply::List(replies))
    }

    /// `lua/semaphore/end.lua`
    pub(super) fn end_permits(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let waiting = PermitWaiting::read(&mut given).ok_or_else(missing)?;
        let EndPermits { ended } = EndPermits::read(&mut given).ok_or_else(missing)?;
        let of = permit_keys(&permit);
        let pttl = self.redis.pttl(of.key);
        if pttl == -1 || !self.mend(of)? {
            return Ok(Reply::Int(-1));
        }
        let all: Vec<String> = self.redis.hkeys(of.slots)?.cloned().collect();
        if all.is_empty() {
            return Ok(Reply::Int(0));
        }
        for key in of.all() {
            self.redis.del(key);
        }
        self.redis.set_px(ended, format!(" {} ", all.join(" ")), pttl.max(1000))?;
        self.let_in(&permit, &waiting, None)?;
        Ok(Reply::Int(all.len().cast_signed() as i64))
    }

    /// `lua/semaphore/inspect.lua`
    pub(super) fn inspect_permits(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let InspectPermits { lock } = InspectPermits::read(&mut given).ok_or_else(missing)?;
        let now = self.redis.time();
        let mut reply = Vec::new();
        for one in self.redis.zfirst(lock, usize::MAX)? {
            let Some((field, its)) = parse_member(&one) else { return Ok(Reply::Int(-1)) };
            let ends = self.redis.zscore(lock, &one)?.unwrap_or_default();
            if ends > now {
                let left = (ends - now + 999) / 1000;
                reply.extend([Reply::Text(field.to_owned()), Reply::Text(its.to_owned()), Reply::Int(left)]);
            }
        }
        Ok(Reply::List(reply))
    }

    /// `lua/semaphore/attach.lua`
    pub(super) fn attach_permit(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let permit = Permit::read(&mut given).ok_or_else(missing)?;
        let AttachPermit { old, ttl, wanted } = AttachPermit::read(&mut given).ok_or_else(missing)?;
        let (of, now) = (permit_keys(&permit), self.redis.time());
        if !self.mend(of)? {
            return Ok(Reply::Int(-2));
        }
        if let Some((its, Some(ends))) = self.permit_of(of, permit.field)? {
            return Ok(Reply::Int(if its == wanted { (ends - now) / 1000 } else { -2 }));
        }
        let Some((its, Some(ends))) = self.permit_of(of, old)?.filter(|(its, _)| its == wanted) else {
            return Ok(Reply::Int(-2));
        };
        let left = ((ends - now) / 1000).max(number(ttl)?);
        if left <= 0 {
            return Ok(Reply::Int(-2));
        }
        self.redis.zrem(of.key, &member(old, &its))?;
        self.redis.hdel(of.slots, old)?;
        self.redis.hset(of.slots, permit.field, &its)?;
        self.redis.zadd(of.key, now + left * 1000, &member(permit.field, &its))?;
        self.keep_all(of, left);
        Ok(Reply::Int(left))
    }
}
