//! All about one lock: its holders, its waiters, and what each node has.

use ratatui::text::Line;
use redlock::{Kind, NodeView};

use super::{
    paint::{self, Column, Paint, Tone},
    render::{held_for, kind, process},
    state::State,
};
use crate::{duration, holder, table::visible};

const HOLDERS: [Column; 4] = [
    Column { title: "HELD BY", from: 0, right: false, gives: true },
    Column { title: "SLOTS", from: 0, right: false, gives: true },
    Column { title: "TTL", from: 0, right: true, gives: false },
    Column { title: "OWNER", from: 50, right: false, gives: true },
];

const NODES: [Column; 6] = [
    Column { title: "NODE", from: 0, right: false, gives: true },
    Column { title: "STATE", from: 0, right: false, gives: true },
    Column { title: "TTL", from: 0, right: true, gives: false },
    Column { title: "WAITING", from: 50, right: true, gives: false },
    Column { title: "TOKEN", from: 60, right: false, gives: false },
    Column { title: "OWNER", from: 80, right: false, gives: true },
];

/// The lines of the view.
pub(super) fn lines(state: &State, name: &str, paint: Paint, width: usize) -> Vec<Line<'static>> {
    let lock = state.lock(name);
    let info = lock.and_then(|lock| lock.info.as_ref());
    let mut lines = paint.wrapped(&format!("Lock {name}"), Tone::Strong, width, 3);
    let now = state.locks_when();
    let mut fact = |title: &str, value: String| {
        lines.push(paint.line(&format!("{title:8} {value}"), Tone::Plain, width));
    };
    fact("kind", lock.map_or_else(|| "free".to_owned(), kind));
    if let Some(info) = info {
        fact("held by", holder::who(info));
        fact("for", now.and_then(|now| held_for(info, now)).map_or_else(holder::dash, duration::show));
        fact("ttl", holder::ttl(info.ttl));
        fact("token", holder::token(info.token));
    }
    fact("waiting", lock.map_or(0, |lock| lock.waiting).to_string());
    if let Some(error) = lock.and_then(|lock| lock.error.as_ref()) {
        lines.extend(paint.wrapped(&format!("! {}", error.message), Tone::Bad, width, 4));
    }
    lines.push(Line::default());
    let details = state.details.as_ref().filter(|details| details.name == name);
    let owners = info.map(|info| info.owners.as_slice()).unwrap_or_default();
    if !owners.is_empty() {
        let rows = owners.iter().map(|owner| {
            let permit = details.and_then(|details| details.permits.iter().find(|permit| permit.owner == *owner));
            let slots = permit.map_or_else(holder::dash, |permit| {
                permit.slots.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            });
            let ttl = permit.map(|permit| permit.ttl).or_else(|| info.and_then(|info| info.ttl));
            let who = state.process_of(owner).map_or_else(|| owner.clone(), process);
            vec![who, slots, holder::ttl(ttl), owner.clone()]
        });
        let mut columns = HOLDERS;
        if info.is_none_or(|info| info.kind != Kind::Semaphore) {
            columns[1].from = usize::MAX;
        }
        lines.extend(table(&columns, rows.collect(), paint, width));
        lines.push(Line::default());
    }
    match details {
        None => lines.push(paint.line("looking at the nodes", Tone::Faint, width)),
        Some(details) => lines.extend(table(&NODES, details.nodes.iter().map(node).collect(), paint, width)),
    }
    lines
}

fn node(view: &NodeView) -> Vec<String> {
    let waiting = view.waiting.map_or_else(holder::dash, |waiting| waiting.to_string());
    match &view.state {
        Ok(state) => vec![
            view.node.clone(),
            state.kind.map_or("free", Kind::as_str).to_owned(),
            holder::ttl(state.ttl),
            waiting,
            holder::token(state.token),
            holder::holders(&state.owners),
        ],
        Err(cause) => {
            let mut row = vec![view.node.clone(), format!("! {}", cause.cause)];
            row.extend((0..4).map(|_| holder::dash()));
            row
        }
    }
}

fn table(columns: &[Column], rows: Vec<Vec<String>>, paint: Paint, width: usize) -> Vec<Line<'static>> {
    let visible_row = |row: Vec<String>| (row.iter().map(|cell| visible(cell)).collect(), Tone::Plain);
    let rows: Vec<_> = rows.into_iter().map(visible_row).collect();
    paint::table(columns, &rows, None, paint, width)
}
