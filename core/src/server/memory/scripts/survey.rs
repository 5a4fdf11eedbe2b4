//! The scripts that look at a whole server.

use super::{super::store::Value, Commands, Fault, missing, number};
use crate::protocol::{
    calls::{Arguments, Forget, ReadQueue, ScanKeys},
    script::Reply,
};

impl Commands<'_> {
    /// `lua/survey/listeners.lua`. Understands patterns that end in a star, or have none.
    pub(super) fn listeners(&self, patterns: &[String]) -> Reply {
        let matches = |channel: &str| patterns.iter().any(|pattern| is_like(pattern, channel));
        let channels = self.state.subscribers.iter().filter(|(channel, all)| !all.is_empty() && matches(channel));
        let each = channels.flat_map(|(channel, all)| {
            [Reply::Text(channel.clone()), Reply::Int(i64::try_from(all.len()).unwrap_or(i64::MAX))]
        });
        Reply::List(each.collect())
    }

    /// `lua/survey/queue.lua`
    pub(super) fn queue(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let ReadQueue { alive, most } = ReadQueue::read(&mut given).ok_or_else(missing)?;
        let (most, now) = (usize::try_from(number(most)?).unwrap_or_default(), self.time());
        let mut reply = vec![Reply::Text(now.to_string())];
        for (queue, number) in given.other_keys().into_iter().zip(1..) {
            for entry in self.zfirst(queue, most)? {
                let client = entry.split('/').nth(1).unwrap_or_default();
                let alive_until = self.zscore(alive, client)?.filter(|until| *until > now);
                let Some((alive_until, ticket)) = alive_until.zip(self.zscore(queue, &entry)?) else { continue };
                let [ticket, alive_until] = [ticket, alive_until].map(|score| Reply::Text(score.to_string()));
                reply.extend([Reply::Int(number), ticket, Reply::Text(entry), alive_until]);
            }
        }
        Ok(Reply::List(reply))
    }

    /// `lua/survey/scan.lua`, which visits all keys at once here.
    pub(super) fn scan(&self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let ScanKeys { pattern, .. } = ScanKeys::read(&mut given).ok_or_else(missing)?;
        let live = self.state.keys.iter().filter(|(_, entry)| !entry.expired(self.now));
        let (mut reply, mut count) = (vec![Reply::Text("0".to_owned())], 0);
        let mut names: Vec<&String> = Vec::new();
        for (key, entry) in live {
            count += 1;
            if is_like(pattern, key) && is_lock(key, &entry.value) {
                names.push(key);
            }
        }
        reply.push(Reply::Int(count));
        names.sort();
        reply.extend(names.into_iter().map(|name| Reply::Text(name.clone())));
        Ok(Reply::List(reply))
    }

    /// `lua/survey/forget.lua`
    pub(super) fn forget(&mut self, mut given: Arguments<'_>) -> Result<Reply, Fault> {
        let Forget { lock, counter } = Forget::read(&mut given).ok_or_else(missing)?;
        if self.exists(lock) {
            return Ok(Reply::Int(0));
        }
        self.del(counter);
        Ok(Reply::Int(1))
    }
}

/// Whether a text matches a pattern in which only the last character may be a star, and others are escaped.
fn is_like(pattern: &str, text: &str) -> bool {
    let literal = pattern.strip_suffix('*').filter(|rest| !rest.ends_with('\\'));
    let plain: String = unescaped(literal.unwrap_or(pattern));
    if literal.is_some() { text.starts_with(&plain) } else { text == plain }
}

fn unescaped(pattern: &str) -> String {
    let mut characters = pattern.chars();
    let mut plain = String::new();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

fn is_lock(key: &str, value: &Value) -> bool {
    let number = |text: &str| text.parse::<f64>().is_ok();
    match value {
        Value::Text(text) => text.len() <= 400 && is_tenure(text),
        Value::Hash(all) => {
            let fits = |(field, value): &(String, String)| field == "mode" || is_tenure(field) && number(value);
            !all.is_empty() && !key.starts_with("redlock_slots:") && all.iter().all(fits)
        }
        Value::Sorted(sorted) => sorted.order.first().is_some_and(|(_, member)| {
            let slots = member.rsplit_once('|').map(|(_, slots)| slots);
            let listed = |slots: &str| !slots.is_empty() && slots.chars().all(|c| c.is_ascii_digit() || c == ',');
            is_tenure(member) && slots.is_some_and(listed)
        }),
    }
}

/// Whether a text begins as the field of a tenure does, or of its rest: with an explicit owner or a UUID, and a number.
fn is_tenure(text: &str) -> bool {
    let numbered = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    if let Some(owner) = text.strip_prefix('=') {
        return owner.match_indices(':').any(|(at, _)| numbered(&owner[at + 1..]));
    }
    let drawn = text.strip_prefix('~').unwrap_or(text);
    let Some((client, rest)) = drawn.split_once(':') else { return false };
    let hex = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    client.len() > 9 && client.as_bytes()[8] == b'-' && !client[..8].contains('-') && hex(client) && numbered(rest)
}
