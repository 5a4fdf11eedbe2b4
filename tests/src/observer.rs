//! Observes the queues of locks on one server, for the check of the order of waiters: since when, and until when, each
//! waiter certainly had its place. See `history::Place`.

use std::{
    collections::HashMap,
    mem,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread::sleep,
    time::Duration,
};

use redis::{Connection, RedisResult, Value, from_redis_value};

use crate::{
    history::{Kind, Place},
    process::monotonic,
};

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(5);
/// How long a reply may take before the observer connects again.
const REPLY: Duration = Duration::from_secs(5);

/// Replies with the server's time in us, and for each lock with its queue, and until when each client counts as alive.
const LOOK: &str = "
local time = redis.call('TIME')
local reply = {time[1] * 1000000 + time[2]}
for _, name in ipairs(ARGV) do
  table.insert(reply, redis.call('ZRANGE', KEYS[1] .. ':{' .. name .. '}', 0, -1, 'WITHSCORES'))
  table.insert(reply, redis.call('ZRANGE', 'redlock_alive:{' .. name .. '}', 0, -1, 'WITHSCORES'))
end
return reply";

/// The queue in which the order of requests is promised, if there is one.
pub fn queue(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Lock => None,
        Kind::Fair | Kind::Semaphore { .. } => Some("redlock_queue"),
        Kind::ReadWrite { .. } => Some("redlock_wqueue"),
    }
}

/// Looks until `over`. Returns the places in the queue of each lock.
pub fn observe(url: &str, queue: &str, names: &[String], over: &AtomicBool) -> Vec<Vec<Place>> {
    let mut lines: Vec<Line> = names.iter().map(|_| Line::default()).collect();
    let mut connection = None;
    while !over.load(SeqCst) {
        sleep(INTERVAL);
        // Faults of the server end the connection, or keep it from opening. No place ends by that alone.
        connection = connection.or_else(|| connect(url).ok());
        let Some(mut open) = connection.take() else { continue };
        if look(&mut open, queue, names, &mut lines).is_ok() {
            connection = Some(open);
        }
    }
    lines.into_iter().map(Line::end).collect()
}

fn connect(url: &str) -> RedisResult<Connection> {
    let connection = redis::Client::open(url)?.get_connection_with_timeout(REPLY)?;
    connection.set_read_timeout(Some(REPLY))?;
    Ok(connection)
}

fn look(connection: &mut Connection, queue: &str, names: &[String], lines: &mut [Line]) -> RedisResult<()> {
    let sent = monotonic();
    let reply: Vec<Value> = redis::cmd("EVAL").arg(LOOK).arg(1).arg(queue).arg(names).query(connection)?;
    let replied = monotonic();
    let mut reply = reply.into_iter();
    let mut next = || reply.next().unwrap_or(Value::Nil);
    let moment = Moment { sent, replied, time: from_redis_value(next())? };
    for line in lines {
        let (entries, clients) = (from_redis_value(next())?, from_redis_value(next())?);
        line.note(moment, entries, &clients);
    }
    Ok(())
}

/// When the server looked: between two times of this machine, and at a time of its own.
#[derive(Clone, Copy)]
struct Moment {
    sent: u64,
    replied: u64,
    time: u64,
}

/// The queue of one lock, as far as it was seen.
#[derive(Default)]
struct Line {
    waiting: HashMap<String, Waiter>,
    places: Vec<Place>,
}

struct Waiter {
    ticket: u64,
    /// Its client counts until then, by the server's time.
    alive: u64,
    place: Place,
}

impl Line {
    /// Takes note of the entries with their tickets, and of the clients with the end of their lives.
    fn note(&mut self, moment: Moment, entries: Vec<(String, u64)>, clients: &HashMap<String, u64>) {
        let mut before = mem::take(&mut self.waiting);
        for (entry, ticket) in entries {
            let client = entry.split('/').nth(1).unwrap_or_default();
            let alive = clients.get(client).copied().unwrap_or_default();
            if alive < moment.time {
                continue;
            }
            // The client was never silent for too long if its last word before this look still counts.
            let same = |waiter: &Waiter| waiter.ticket == ticket && waiter.alive >= moment.time;
            let place = match before.remove(&entry) {
                Some(waiter) if same(&waiter) => Place { until: moment.sent, ..waiter.place },
                other => {
                    self.places.extend(other.map(|waiter| waiter.place));
                    Place { entry: entry.clone(), from: moment.replied, until: moment.replied }
                }
            };
            self.waiting.insert(entry, Waiter { ticket, alive, place });
        }
        self.places.extend(before.into_values().map(|waiter| waiter.place));
    }

    /// The places that were seen twice.
    fn end(mut self) -> Vec<Place> {
        self.places.extend(self.waiting.into_values().map(|waiter| waiter.place));
        self.places.retain(|place| place.from < place.until);
        self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of one waiter of client `c`, seen at these times, with these tickets, alive until these times.
    fn places(looks: &[(u64, Option<(u64, u64)>)]) -> Vec<(u64, u64)> {
        let mut line = Line::default();
        for (time, seen) in looks {
            let moment = Moment { sent: *time, replied: *time + 1, time: *time };
            let entries = seen.map(|(ticket, _)| ("600/c/c:1".to_owned(), ticket));
            let clients = seen.map(|(_, alive)| ("c".to_owned(), alive));
            line.note(moment, entries.into_iter().collect(), &clients.into_iter().collect());
        }
        line.end().into_iter().map(|place| (place.from, place.until)).collect()
    }

    #[test]
    fn a_place_lasts_from_the_first_reply_to_the_last_look() {
        let there = |alive| Some((7, alive));
        assert_eq!(places(&[(10, there(20)), (20, there(40)), (30, there(40)), (40, None)]), [(11, 30)]);
        assert_eq!(places(&[(10, there(20)), (20, None)]), [], "seen once");
    }

    #[test]
    fn a_place_ends_with_another_ticket_or_after_silence() {
        let looks = [(10, Some((7, 99))), (20, Some((7, 99))), (30, Some((8, 99))), (40, Some((8, 99)))];
        assert_eq!(places(&looks), [(11, 20), (31, 40)]);
        // Its last word counted until 25. It has spoken again since, but others may have come in between.
        let looks = [(10, Some((7, 25))), (20, Some((7, 25))), (30, Some((7, 60))), (40, Some((7, 60)))];
        assert_eq!(places(&looks), [(11, 20), (31, 40)]);
        let looks = [(10, Some((7, 25))), (20, Some((7, 25))), (30, Some((7, 25)))];
        assert_eq!(places(&looks), [(11, 20)], "dead");
    }
}
