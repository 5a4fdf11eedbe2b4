//! Which clients are connected to the nodes, by the names of their connections. It finds the process that holds a lock,
//! and warns of clients of the same program whose settings differ. The clients of a process share their looks at a
//! server: on a server with many connections, CLIENT LIST is long and holds up other requests.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{
    FutureExt, StreamExt,
    future::{Shared, join_all, ready},
    stream::FuturesUnordered,
};

use crate::{
    clock::{self, Stamp},
    error::LockError,
    event::Event,
    identity::{self, ConnectedClient, Identity},
    owner,
    process::{fork::PerProcess, runtime},
    server::{BoxFuture, NamedConnection, Node},
    session::Session,
};

/// How long the clients of a process share what a look at a server showed.
const FRESH: Duration = Duration::from_secs(10);
/// The most differences of settings that a process warns of.
const MOST_WARNINGS: usize = 100;

/// The clients that a server listed; `None` if it did not.
type Listed = Option<Arc<[NamedConnection]>>;

/// A look at a server, under way or done.
struct Look {
    began: Stamp,
    listed: Shared<BoxFuture<Listed>>,
}

impl Look {
    fn is_fresh(&self, now: Stamp) -> bool {
        now.since(self.began) < FRESH
    }
}

/// What the clients of this process share. Its mutex is the standard library's also in the tests of interleavings, whose
/// nodes list no clients.
#[derive(Default)]
struct Seen {
    /// The last look at each server, by the name of the node.
    looks: HashMap<String, Look>,
    /// The differences of settings that this process has warned of.
    warned: HashSet<String>,
}

impl Seen {
    /// Keeps a look at a server, and forgets those that are too old.
    fn share(&mut self, node: &str, look: Look) {
        let now = look.began;
        self.looks.retain(|_, look| look.is_fresh(now));
        self.looks.insert(node.to_owned(), look);
    }
}

fn seen() -> MutexGuard<'static, Seen> {
    static SEEN: PerProcess<Mutex<Seen>> = PerProcess::new();
    SEEN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this client looks for the processes of others.
pub(crate) fn may_look(session: &Session) -> bool {
    let lists_clients = |node: &Arc<dyn Node>| node.traits().lists_clients;
    session.settings.config.identify && session.quorum.nodes.iter().any(lists_clients)
}

/// The client that drew a field; `None` if it has no name, or if too few nodes tell.
pub(crate) async fn client_of(session: &Arc<Session>, field: &str) -> Option<Arc<Identity>> {
    client(session, owner::client(field)?).await
}

/// The client with this UUID; `None` if it has no name, or if too few nodes tell.
pub(crate) async fn client(session: &Arc<Session>, client: &str) -> Option<Arc<Identity>> {
    if !may_look(session) {
        return None;
    }
    if let Some(known) = identity::in_this_process(client) {
        return Some(known);
    }
    let mut looks: FuturesUnordered<_> = session.quorum.nodes.iter().map(|node| look_at(session, node)).collect();
    let mut answered = 0;
    // A holder has a connection to each node of a quorum, and any two quorums share a node.
    while answered < session.quorum.needed()
        && let Some(listed) = looks.next().await
    {
        let Some(listed) = listed else { continue };
        if let Some(known) = listed.iter().find(|one| one.identity.client == client) {
            return Some(Arc::new(known.identity.clone()));
        }
        answered += 1;
    }
    None
}

/// Looks at a node, or takes part in a look that is fresh. The look runs to its end, whether or not anybody waits.
fn look_at(session: &Arc<Session>, node: &Arc<dyn Node>) -> Shared<BoxFuture<Listed>> {
    let now = clock::now();
    let mut seen = seen();
    if let Some(look) = seen.looks.get(node.name()).filter(|look| look.is_fresh(now)) {
        return look.listed.clone();
    }
    let (session, asked) = (session.clone(), node.clone());
    let look = runtime::spawn_in_background(async move {
        let listed: Arc<[_]> = asked.clients(session.settings.config.reply_timeout).await.ok()?.into();
        warn_of_others(&session, asked.name(), &listed);
        Some(listed)
    });
    let look: BoxFuture<Listed> = Box::pin(look.map(Option::flatten));
    let listed = look.shared();
    seen.share(node.name(), Look { began: now, listed: listed.clone() });
    listed
}

/// Warns of clients of the same program and prefix that have other settings: their locks may not exclude this client's.
fn warn_of_others(session: &Session, node: &str, listed: &[NamedConnection]) {
    let own = &session.identity;
    for NamedConnection { identity: other, .. } in listed {
        let Some(differences) = differences(own, other) else { continue };
        let about = format!("{} {:x} {differences}", own.app, own.prefix_hash);
        let is_new = {
            let mut seen = seen();
            seen.warned.len() < MOST_WARNINGS && seen.warned.insert(about)
        };
        if is_new {
            let detail = format!(
                "another client of {:?}, pid {} on {}, has other settings: {differences}",
                other.app, other.pid, other.host
            );
            (session.events)(&Event::NodeWarning { node: node.to_owned(), detail });
        }
    }
}

/// How the settings of a client of the same program and prefix differ; `None` if they do not.
fn differences(own: &Identity, other: &Identity) -> Option<String> {
    if (&own.app, own.prefix_hash) != (&other.app, other.prefix_hash) {
        return None;
    }
    let on_quorum = own.nodes.min(other.nodes) > 1;
    let settings = [
        ("nodes", own.nodes.to_string(), other.nodes.to_string()),
        ("quorum", own.quorum.to_string(), other.quorum.to_string()),
        ("wire", own.wire.as_str().to_owned(), other.wire.as_str().to_owned()),
        // On one node it has no meaning.
        ("max_ttl", format!("{:?}", own.max_ttl), format!("{:?}", if on_quorum { other.max_ttl } else { own.max_ttl })),
    ];
    let each: Vec<String> = settings
        .into_iter()
        .filter(|(_, own, other)| own != other)
        .map(|(name, own, other)| format!("{name} {other} instead of {own}"))
        .collect();
    (!each.is_empty()).then(|| each.join(", "))
}

impl Identity {
    /// How the settings of another client of the same program and prefix differ from these; `None` if they do not.
    #[doc(hidden)]
    pub fn differences(&self, other: &Self) -> Option<String> {
        differences(self, other)
    }
}

/// Lists the clients that are connected to the nodes, now, and shares the look. Fails with `unavailable` if no node
/// lists its clients.
pub(crate) async fn list(session: &Session) -> Result<Vec<ConnectedClient>, LockError> {
    let quorum = &session.quorum;
    let (limit, began) = (session.settings.config.reply_timeout, clock::now());
    let lists = join_all(quorum.nodes.iter().map(|node| node.clients(limit))).await;
    let (mut clients, mut causes) = (HashMap::<String, ConnectedClient>::new(), Vec::new());
    for (node, list) in lists.into_iter().enumerate() {
        match list {
            Ok(list) => {
                let listed: Listed = Some(list.as_slice().into());
                seen().share(quorum.nodes[node].name(), Look { began, listed: ready(listed).boxed().shared() });
                for one in list {
                    add(&mut clients, one);
                }
            }
            Err(error) => causes.push(quorum.cause(node, error)),
        }
    }
    if causes.len() == quorum.nodes.len() {
        return Err(quorum.unavailable(causes));
    }
    let mut clients: Vec<_> = clients.into_values().collect();
    let order = |client: &ConnectedClient| {
        let Identity { app, host, pid, client, .. } = &client.identity;
        (app.clone(), host.clone(), *pid, client.clone())
    };
    clients.sort_by_cached_key(order);
    Ok(clients)
}

/// Counts a client's connection to one more node.
fn add(clients: &mut HashMap<String, ConnectedClient>, NamedConnection { identity, address }: NamedConnection) {
    let client = identity.client.clone();
    let known = clients.entry(client).or_insert_with(|| ConnectedClient { identity, nodes: 0, address: None });
    known.nodes += 1;
    known.address = known.address.take().or(address);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(change: &str) -> Identity {
        let name =
            "redlock/1.2.3;h:web-3;a:billing;p:812;u:0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59;n:5;q:3;w:r;m:60000;f:1";
        let (from, to) = change.split_once('>').unwrap_or_default();
        Identity::parse(&name.replacen(from, to, 1)).expect("a name")
    }

    #[test]
    fn settings_differ_only_from_those_of_the_same_program_and_prefix() {
        let own = identity("");
        for (change, difference) in [
            ("", None),
            ("h:web-3>h:web-4", None),
            ("n:5>n:3", Some("nodes 3 instead of 5")),
            ("q:3>q:4", Some("quorum 4 instead of 3")),
            ("w:r>w:t", Some("wire token instead of redisson")),
            ("m:60000>m:30000", Some("max_ttl 30s instead of 60s")),
            ("n:5;q:3;w:r;m:60000>n:1;q:1;w:r;m:1", Some("nodes 1 instead of 5, quorum 1 instead of 3")),
        ] {
            assert_eq!(differences(&own, &identity(change)).as_deref(), difference, "{change}");
        }
        for change in ["a:billing>a:shop", "f:1>f:2"] {
            let mut other = identity(change);
            other.quorum = 4;
            assert_eq!(differences(&own, &other), None, "{change}");
        }
    }

    #[cfg(not(feature = "shuttle"))]
    #[test]
    fn a_look_is_shared_for_ten_seconds() {
        let now = clock::now();
        let is_fresh = |age| Look { began: now.back(age), listed: async { None }.boxed().shared() }.is_fresh(now);
        assert!(is_fresh(Duration::ZERO) && is_fresh(FRESH.mul_f64(0.999)));
        assert!(!is_fresh(FRESH));
    }
}
