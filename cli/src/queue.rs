//! The waiters of a lock in the order that a server keeps, as `ls` and `inspect` show them.

use std::time::UNIX_EPOCH;

use redlock::{Kind, Queued};
use serde_json::{Value, json};

use crate::{duration, holder, table::Table};

/// The waiters in their order, a row each.
pub(crate) fn table(queue: &[Queued]) -> Table {
    let mut table = Table::new(vec!["TURN", "WANTS", "WAITER", "FOR", "PLACE VALID"]);
    for (waiter, turn) in queue.iter().zip(1..) {
        let waits = waiter.since.elapsed().unwrap_or_default();
        table.row(&[
            turn.to_string(),
            wants(waiter),
            who(waiter),
            duration::show(waits),
            duration::show(waiter.valid_for),
        ]);
    }
    table
}

/// The waiter whose turn is next, as a cell of a table.
pub(crate) fn next(queue: &[Queued]) -> String {
    queue.first().map_or_else(holder::dash, who)
}

/// The waiters in their order, as JSON.
pub(crate) fn json(queue: &[Queued]) -> Value {
    queue.iter().map(object).collect()
}

fn object(waiter: &Queued) -> Value {
    let since = waiter.since.duration_since(UNIX_EPOCH).ok();
    json!({
        "kind": waiter.kind.as_str(),
        "slots": (waiter.kind == Kind::Semaphore).then_some(waiter.slots),
        "owner": waiter.owner,
        "host": waiter.host,
        "pid": waiter.pid,
        "app": waiter.app,
        "since": since.map(|since| since.as_secs_f64()),
        "valid_for": waiter.valid_for.as_secs_f64(),
    })
}

fn wants(waiter: &Queued) -> String {
    match (waiter.kind, waiter.slots) {
        (Kind::Semaphore, 1) => "1 slot".to_owned(),
        (Kind::Semaphore, slots) => format!("{slots} slots"),
        (kind, _) => kind.as_str().to_owned(),
    }
}

/// The process that waits if it is known, or else the owner.
fn who(waiter: &Queued) -> String {
    holder::process(waiter.host.as_ref(), waiter.pid, waiter.app.as_ref()).unwrap_or_else(|| waiter.owner.clone())
}
