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

use redlock::Kind;

use super::{
    group::{group, grouped},
    routes::failed,
    viewer::Viewer,
};
use crate::live::{
    nodes::{Condition, Node},
    snapshot::{Lock, Snapshot},
};

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
    /// In seconds; `None` if of no holder it is known since when it has its lock.
    oldest: Option<f64>,
}

impl Group {
    fn of(lock: &Lock, when: SystemTime) -> Self {
        let since = lock.info.as_ref().and_then(|info| info.since);
        let oldest = since.map(|since| when.duration_since(since).unwrap_or_default().as_secs_f64());
        let held = lock.info.as_ref().is_some_and(|info| info.kind != Kind::Rest);
        Self { held: held.into(), waiting: lock.waiting as u64, oldest }
    }

    fn add(&mut self, other: Self) {
        self.held += other.held;
        self.waiting += other.waiting;
        self.oldest = self.oldest.into_iter().chain(other.oldest).reduce(f64::max);
    }
}

/// A snapshot as metrics.
fn text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    nodes(&mut text, &snapshot.nodes);
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
        let each = || groups.iter().map(|(name, group)| (vec![("group", name.as_str())], group));
        let held = each().map(|(labels, group)| (labels, group.held));
        metric(&mut text, "redlock_held", "Locks that are held, of those that are known.", held);
        let waiting = each().map(|(labels, group)| (labels, group.waiting));
        metric(&mut text, "redlock_waiting", "Clients that wait for a lock.", waiting);
        let oldest = each().filter_map(|(labels, group)| Some((labels, group.oldest?)));
        metric(&mut text, "redlock_oldest_hold_seconds", "For how long the oldest holder has its lock.", oldest);
    }
    text
}

/// The metrics of the nodes. What is not known of a node is missing.
fn nodes(text: &mut String, nodes: &[Node]) {
    let each = || nodes.iter().map(|node| (vec![("node", node.status.node.as_str())], node));
    let up = each().map(|(labels, node)| (labels, u8::from(node.status.state.is_ok())));
    metric(text, "redlock_node_up", "Whether the node answers.", up);
    let silent = |node: &Node| u8::from(matches!(node.condition(), Condition::NoAnswer(_)));
    let silent = each().map(|(labels, node)| (labels, silent(node)));
    metric(text, "redlock_node_no_answer", "Whether the node gave no answer in time: frozen, or out of reach.", silent);
    let answering = each().filter(|(_, node)| node.status.state.is_ok());
    let times = answering.map(|(labels, node)| (labels, node.status.round_trip.as_secs_f64()));
    metric(text, "redlock_node_round_trip_seconds", "The time until the node answered a ping.", times);
    let votes = each().filter_map(|(labels, node)| Some((labels, u8::from(node.votes()?))));
    metric(text, "redlock_node_votes", "Whether the node of a quorum votes.", votes);
    let quarantines = each().filter_map(|(labels, node)| match node.condition() {
        Condition::InQuarantine(left) => Some((labels, left.as_secs_f64())),
        _ => node.votes()?.then_some((labels, 0.0)),
    });
    metric(text, "redlock_node_quarantine_seconds", "The time until the node votes.", quarantines);
    let clocks = each().filter_map(|(labels, node)| Some((labels, node.clock()?)));
    let help = "How far the node's clock is ahead of the others', or of this machine's.";
    metric(text, "redlock_node_clock_offset_seconds", help, clocks);
    let roles = each().filter_map(|(mut labels, node)| {
        labels.push(("role", node.role()?.as_str()));
        Some((labels, 1))
    });
    metric(text, "redlock_node_role", "The role of the node: master, replica, cluster or sentinel.", roles);
    let replicas = each().filter_map(|(labels, node)| Some((labels, node.role()?.replicas()?)));
    metric(text, "redlock_node_replicas", "Connected replicas of the node, a master.", replicas);
}

/// The labels of a sample, and their values.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// The only sample of a metric without labels.
fn one<T>(value: T) -> impl Iterator<Item = (Labels<'static>, T)> {
    std::iter::once((Vec::new(), value))
}

/// Adds a gauge with its samples.
fn metric<'a, T: Display>(text: &mut String, name: &str, help: &str, samples: impl Iterator<Item = (Labels<'a>, T)>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    for (labels, sample) in samples {
        let escaped = |value: &str| value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels: Vec<_> =
            labels.into_iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(text, "{name}{labels} {sample}");
    }
}
