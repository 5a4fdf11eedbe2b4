//! `/metrics`: what the servers show, in the text format of Prometheus. Names of locks are grouped.

use std::{
    fmt::{Display, Write as _},
    sync::Arc,
    time::SystemTime,
};

use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    group::{group, grouped},
    routes::failed,
    viewer::Viewer,
};
use crate::live::snapshot::{Lock, Snapshot};

pub(super) async fn metrics(State(viewer): State<Arc<Viewer>>) -> Response {
    match viewer.looks.latest(&viewer).await {
        Ok(look) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text(&look.snapshot)).into_response(),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

/// The values of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    held: u64,
    waiting: u64,
    /// In seconds.
    oldest: f64,
}

impl Group {
    fn of(lock: &Lock, when: SystemTime) -> Self {
        let since = lock.info.as_ref().and_then(|info| info.since);
        let oldest = since.and_then(|since| when.duration_since(since).ok()).unwrap_or_default().as_secs_f64();
        Self { held: lock.info.is_some().into(), waiting: lock.waiting as u64, oldest }
    }

    fn add(&mut self, other: Self) {
        self.held += other.held;
        self.waiting += other.waiting;
        self.oldest = self.oldest.max(other.oldest);
    }
}

/// A snapshot as metrics.
fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let nodes = || snapshot.nodes.iter().map(|node| ("node", node.node.as_str(), node));
    let up = nodes().map(|(label, name, node)| (label, name, u8::from(node.state.is_ok())));
    metric(&mut text, "redlock_node_up", "Whether the node answers.", up);
    let answering = nodes().filter(|(.., node)| node.state.is_ok());
    let times = answering.map(|(label, name, node)| (label, name, node.round_trip.as_secs_f64()));
    metric(&mut text, "redlock_node_round_trip_seconds", "The time until the node answered a ping.", times);
    let known = u8::from(snapshot.trouble.is_none());
    metric(&mut text, "redlock_locks_known", "Whether enough nodes answered to know the locks.", one(known));
    if let Some(clients) = &snapshot.clients {
        metric(&mut text, "redlock_clients", "Clients that name their connections.", one(clients.len()));
        let odd = clients.iter().filter(|client| client.odd.is_some()).count();
        let help = "Clients whose settings differ from those of others of the same program.";
        metric(&mut text, "redlock_odd_clients", help, one(odd));
    }
    if snapshot.trouble.is_none() {
        let locks = snapshot.locks.iter().map(|lock| (group(&lock.name), Group::of(lock, snapshot.when)));
        let groups = grouped(locks, Group::add);
        let each = || groups.iter().map(|(name, group)| ("group", name.as_str(), group));
        let held = each().map(|(label, name, group)| (label, name, group.held));
        metric(&mut text, "redlock_held", "Locks that are held, of those that are known.", held);
        let waiting = each().map(|(label, name, group)| (label, name, group.waiting));
        metric(&mut text, "redlock_waiting", "Clients that wait for a lock.", waiting);
        let oldest = each().map(|(label, name, group)| (label, name, group.oldest));
        metric(&mut text, "redlock_oldest_hold_seconds", "For how long the oldest holder has its lock.", oldest);
    }
    text
}

/// The only sample of a metric without labels.
fn one<T>(value: T) -> impl Iterator<Item = (&'static str, &'static str, T)> {
    std::iter::once(("", "", value))
}

/// Adds a gauge, with a sample for each value of its label.
fn metric<'a, T: Display>(
    text: &mut String,
    name: &str,
    help: &str,
    samples: impl Iterator<Item = (&'a str, &'a str, T)>,
) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (label, value, sample) in samples {
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels = if label.is_empty() { String::new() } else { format!("{{{label}=\"{value}\"}}") };
        let _ = writeln!(text, "{name}{labels} {sample}");
    }
}
