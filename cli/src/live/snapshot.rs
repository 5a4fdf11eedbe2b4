//! The nodes, the locks and the clients at one moment. A [`Source`] keeps the names of locks that it has found, so that
//! a look asks only for what may have changed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures_util::future::{join, join_all};
use redlock::{
    Client, Kind, LockError, LockInfo, LockOptions, NodeView, Page, Scan,
    identity::{ConnectedClient, Identity},
};
use serde_json::{Map, Value, json};

use super::nodes::{Examiner, Node};
use crate::{failure::Failure, glob, holder, table::visible};

/// How many locks are inspected at once.
pub(crate) const AT_ONCE: usize = 1000;
/// For how many locks, the first ones, the nodes that hold them are counted: each costs two requests a node.
const COUNTED: usize = 100;
/// Above so many clients, `CLIENT LIST` is long and holds up other requests.
const MANY_CLIENTS: usize = 2000;
/// The least time between two lists of that many clients.
const LIST_PAUSE: Duration = Duration::from_secs(10);

/// What the servers show at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The time of this machine.
    pub(crate) when: SystemTime,
    pub(crate) nodes: Vec<Node>,
    /// The locks that are taken or waited for. First those with the most waiters, of these the oldest. In an outage they
    /// are those of the last look that found them.
    pub(crate) locks: Vec<Lock>,
    /// When the locks were found; `None` if they never were.
    pub(crate) locks_when: Option<SystemTime>,
    /// The clients that name their connections; `None` if no node lists them.
    pub(crate) clients: Option<Vec<Connected>>,
    /// Why the locks are not known now.
    pub(crate) trouble: Option<String>,
    /// When the keys were scanned; `None` if only contended locks are known.
    pub(crate) scanned: Option<SystemTime>,
}

/// A lock that is taken or waited for.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) name: String,
    /// How many clients wait.
    pub(crate) waiting: usize,
    /// The holders; `None` if it is free or not known.
    pub(crate) info: Option<LockInfo>,
    /// Why it cannot be inspected.
    pub(crate) error: Option<Failure>,
    /// How many nodes have its holder. Counted on a quorum, for the first locks of a snapshot.
    pub(crate) nodes: Option<usize>,
}

/// A client, and how its settings differ from those of others.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    pub(crate) client: ConnectedClient,
    /// How it differs from other clients of the same program and prefix that are at least as many; `None` if it does
    /// not. Their locks may not exclude each other.
    pub(crate) odd: Option<String>,
}

impl Lock {
    /// The members of its JSON object, but for `nodes`.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let mut object = holder::json(self.info.as_ref());
        object.insert("name".to_owned(), Value::from(self.name.as_str()));
        object.insert("waiting".to_owned(), Value::from(self.waiting));
        object.insert("error".to_owned(), json!(self.error.as_ref().map(|error| error.message.as_str())));
        object
    }
}

impl Snapshot {
    /// The members of its JSON object.
    pub(crate) fn json(&self) -> Map<String, Value> {
        let locks = self.locks.iter().map(|lock| {
            let mut object = lock.json();
            object.insert("nodes".to_owned(), json!(lock.nodes));
            Value::Object(object)
        });
        let members = [
            ("when", json!(seconds(self.when))),
            ("nodes", self.nodes.iter().map(Node::json).collect()),
            ("locks", locks.collect()),
            ("locks_when", json!(self.locks_when.map(seconds))),
            ("clients", self.clients.as_ref().map_or(Value::Null, |all| all.iter().map(Connected::json).collect())),
            ("trouble", json!(self.trouble)),
            ("scanned", json!(self.scanned.map(seconds))),
        ];
        members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Connected {
    fn json(&self) -> Value {
        let Identity { version, client, host, pid, app, nodes, quorum, wire, max_ttl, prefix_hash, .. } =
            &self.client.identity;
        json!({
            "client": client, "app": app, "host": host, "pid": pid, "version": version, "nodes": nodes,
            "quorum": quorum, "wire": wire.as_str(), "max_ttl": max_ttl.as_secs_f64(),
            "prefix_hash": format!("{prefix_hash:016x}"), "seen": self.client.nodes, "odd": self.odd,
        })
    }
}

/// A time in seconds since 1970.
pub(crate) fn seconds(when: SystemTime) -> f64 {
    when.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Takes snapshots.
pub(crate) struct Source {
    client: Client,
    /// The pattern that names must match.
    pattern: Option<String>,
    /// The pattern, if it is a name.
    name: Option<String>,
    /// The names that each look asks for, taken or not: those of the last scan, and a name without wildcards.
    kept: BTreeSet<String>,
    /// Further names that had waiters once, as long as the lock is taken.
    contended: BTreeSet<String>,
    scanned: Option<SystemTime>,
    examiner: Examiner,
    /// The locks of the last look that found them, and when that was.
    found: Option<(SystemTime, Vec<Lock>)>,
    /// The last list of clients, if there were many.
    listed: Option<(Instant, Vec<Connected>)>,
}

/// A scan for all locks.
pub(crate) struct Finder {
    scan: Scan,
    pattern: Option<String>,
}

impl Finder {
    /// The names of the locks that match the pattern, and the last page if keys are left. See [`Source::scan`].
    pub(crate) async fn find(
        mut self,
        limit: Option<u64>,
        mut progress: impl FnMut(&Page, usize),
    ) -> Result<(BTreeSet<String>, Option<Page>), LockError> {
        let mut found = BTreeSet::new();
        while let Some(mut page) = self.scan.next_page().await? {
            found.extend(page.names.drain(..).filter(|name| matches(self.pattern.as_deref(), name)));
            progress(&page, found.len());
            if limit.is_some_and(|limit| page.visited >= limit && page.visited < page.keys) {
                return Ok((found, Some(page)));
            }
        }
        Ok((found, None))
    }
}

fn matches(pattern: Option<&str>, name: &str) -> bool {
    pattern.is_none_or(|pattern| glob::matches(pattern, name))
}

impl Source {
    /// A source of the locks that match the pattern. One without wildcards is a name, whose lock is always looked at.
    pub(crate) fn new(client: Client, pattern: Option<&str>) -> Self {
        let name = pattern.filter(|pattern| !pattern.contains(['*', '?', '[', '\\']));
        let (pattern, name) = (pattern.map(str::to_owned), name.map(str::to_owned));
        let kept = name.clone().into_iter().collect();
        let examiner = Examiner::new(client.clone());
        let contended = BTreeSet::new();
        Self { client, pattern, name, kept, contended, scanned: None, examiner, found: None, listed: None }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether no lock is looked at but the contended ones.
    pub(crate) fn is_without_name(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether each look asks for this name, taken or not.
    pub(crate) fn keeps(&self, name: &str) -> bool {
        self.kept.contains(name)
    }

    /// Finds all locks by the keys of the servers; they replace those of the scan before. Stops after about `limit`
    /// keys. `progress` gets each page, and the number of locks so far. Returns the last page if keys are left.
    pub(crate) async fn scan(
        &mut self,
        limit: Option<u64>,
        progress: impl FnMut(&Page, usize),
    ) -> Result<Option<Page>, LockError> {
        let (found, left) = self.finder().find(limit, progress).await?;
        self.keep(found);
        Ok(left)
    }

    /// A scan that does not hold up this source. Its names are for [`keep`](Self::keep).
    pub(crate) fn finder(&self) -> Finder {
        Finder { scan: self.client.scan(), pattern: self.pattern.clone() }
    }

    /// Keeps the names of a scan, instead of those of the scan before.
    pub(crate) fn keep(&mut self, found: BTreeSet<String>) {
        self.kept = found;
        // A name without wildcards stays, with or without a key.
        self.kept.extend(self.name.clone());
        self.scanned = Some(SystemTime::now());
    }

    /// The nodes, locks and clients now. Fails only if the client is closed: an outage is part of the snapshot. A node
    /// that gives no answer holds it up by three times the limit of a reply at most.
    pub(crate) async fn snapshot(&mut self) -> Result<Snapshot, LockError> {
        self.examiner.begin();
        // Before the locks: their holders are looked up in the list of clients.
        let (pinged, clients) = join(self.client.ping(), self.clients()).await;
        let pinged = pinged?;
        let when = SystemTime::now();
        let trouble = match self.locks().await {
            Ok(mut locks) => {
                self.count_nodes(&mut locks).await?;
                self.found = Some((when, locks));
                None
            }
            Err(error) => Some(Failure::from(error).message),
        };
        let (locks_when, locks) = self.found.clone().unzip();
        let (nodes, locks) = (self.examiner.nodes(pinged).await, locks.unwrap_or_default());
        Ok(Snapshot { when, nodes, locks, locks_when, clients, trouble, scanned: self.scanned })
    }

    /// The locks now, in the order of a snapshot. One that cannot be inspected has its error. Fails if none can be.
    pub(crate) async fn locks(&mut self) -> Result<Vec<Lock>, LockError> {
        let contended = self.client.contended().await?.into_iter().filter(|lock| self.wants(&lock.name));
        let waiting: BTreeMap<String, usize> = contended.map(|lock| (lock.name, lock.waiting)).collect();
        self.contended.extend(waiting.keys().cloned());
        let names: Vec<String> = self.kept.union(&self.contended).cloned().collect();
        let infos = self.inspect(&names).await?;
        let is_any_known = infos.iter().any(Result::is_ok);
        let mut locks = Vec::new();
        for (name, info) in names.into_iter().zip(infos) {
            let waiting = waiting.get(&name).copied().unwrap_or_default();
            let (info, error) = match info {
                Ok(None) if waiting == 0 => {
                    self.contended.remove(&name);
                    continue;
                }
                Ok(info) => (info, None),
                // A key that only looked like a lock.
                Err(LockError::Conflict { .. } | LockError::Invalid { .. }) => {
                    self.contended.remove(&name);
                    continue;
                }
                Err(error) if is_any_known => (None, Some(Failure::from(error))),
                // The nodes fail, and not one lock.
                Err(error) => return Err(error),
            };
            locks.push(Lock { name, waiting, info, error, nodes: None });
        }
        locks.sort_by_cached_key(order);
        Ok(locks)
    }

    /// Lists the clients, so that [`locks`](Self::locks) knows their processes. `None` if no node lists them.
    pub(crate) async fn clients(&mut self) -> Option<Vec<Connected>> {
        if let Some((when, listed)) = &self.listed
            && when.elapsed() < LIST_PAUSE
        {
            return Some(listed.clone());
        }
        let clients = with_differences(self.client.connected_clients().await.ok()?);
        self.listed = (clients.len() > MANY_CLIENTS).then(|| (Instant::now(), clients.clone()));
        Some(clients)
    }

    fn wants(&self, name: &str) -> bool {
        matches(self.pattern.as_deref(), name)
    }

    /// Inspects locks, many at once.
    async fn inspect(&self, names: &[String]) -> Result<Vec<Result<Option<LockInfo>, LockError>>, LockError> {
        let mut infos = Vec::with_capacity(names.len());
        for some in names.chunks(AT_ONCE) {
            let locks: Vec<_> = some.iter().map(|name| self.client.lock(name, LockOptions::default())).collect();
            infos.extend(join_all(locks.into_iter().map(|lock| async move { lock?.inspect().await })).await);
        }
        Ok(infos)
    }

    /// Counts the nodes that have the holder, for the first locks.
    async fn count_nodes(&self, locks: &mut [Lock]) -> Result<(), LockError> {
        if self.client.nodes().len() == 1 {
            return Ok(());
        }
        let first = locks.iter_mut().filter(|lock| lock.error.is_none()).take(COUNTED);
        let counted: Vec<_> = first.map(|lock| (self.client.inspect_nodes(&lock.name), lock)).collect();
        let (looks, locks): (Vec<_>, Vec<_>) = counted.into_iter().unzip();
        for (views, lock) in join_all(looks).await.into_iter().zip(locks) {
            lock.nodes = Some(holding(&views?, lock.info.as_ref()));
        }
        Ok(())
    }
}

/// A line for each reason why locks cannot be inspected.
pub(crate) fn not_known(locks: &[Lock]) -> Vec<String> {
    let mut reasons = BTreeMap::<&str, Vec<&str>>::new();
    for lock in locks {
        if let Some(error) = &lock.error {
            reasons.entry(&error.message).or_default().push(&lock.name);
        }
    }
    let line = |(reason, names): (&str, Vec<&str>)| {
        let others = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        format!("cannot inspect \"{}\"{others}: {reason}", visible(names[0]))
    };
    reasons.into_iter().map(line).collect()
}

/// The most waited for first, then the oldest. Those whose age is not known come last, by their names.
fn order(lock: &Lock) -> (Reverse<usize>, bool, Option<SystemTime>, String) {
    let since = lock.info.as_ref().and_then(|info| info.since);
    (Reverse(lock.waiting), since.is_none(), since, lock.name.clone())
}

/// How many nodes have the first holder.
fn holding(views: &[NodeView], info: Option<&LockInfo>) -> usize {
    let Some(info) = info else { return 0 };
    let states = views.iter().filter_map(|view| view.state.as_ref().ok());
    states.filter(|state| state.kind == Some(Kind::Rest) || state.owners.contains(&info.owner)).count()
}

/// Compares the settings of the clients of each program and prefix.
fn with_differences(clients: Vec<ConnectedClient>) -> Vec<Connected> {
    let programs = Programs::new(clients.iter().map(|client| &client.identity));
    let odd: Vec<_> = clients.iter().map(|client| programs.odd(&client.identity)).collect();
    clients.into_iter().zip(odd).map(|(client, odd)| Connected { client, odd }).collect()
}

/// The settings that the clients of each program and prefix have: for each, a client that has them, and how many do.
struct Programs<'a>(HashMap<(&'a str, u64), Vec<(Identity, usize)>>);

impl<'a> Programs<'a> {
    fn new(clients: impl Iterator<Item = &'a Identity>) -> Self {
        let mut programs = HashMap::<_, Vec<(Identity, usize)>>::new();
        for client in clients {
            let settings = programs.entry((client.app.as_str(), client.prefix_hash)).or_default();
            match settings.iter_mut().find(|(known, _)| known.differences(client).is_none()) {
                Some((_, count)) => *count += 1,
                None => settings.push((client.clone(), 1)),
            }
        }
        Self(programs)
    }

    /// How a client differs from the most others, if these are at least as many as those like it.
    fn odd(&self, client: &Identity) -> Option<String> {
        let settings = self.0.get(&(client.app.as_str(), client.prefix_hash))?;
        let (same, others): (Vec<_>, Vec<_>) =
            settings.iter().partition(|(other, _)| other.differences(client).is_none());
        let same: usize = same.iter().map(|(_, count)| count).sum();
        let (other, _) = others.into_iter().filter(|(_, count)| *count >= same).max_by_key(|(_, count)| *count)?;
        other.differences(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::block;

    #[test]
    fn an_outage_leaves_the_locks_of_the_last_look() {
        let client = Client::new(redlock::Config::new(["memory://outage"])).expect("a client");
        let lease = client.lock("x", LockOptions::default()).expect("a lock").acquire_blocking().expect("a lease");
        let mut source = Source::new(client.clone(), Some("x"));
        let mut look = || block(source.snapshot()).expect("a look");
        let before = look();
        assert_eq!((before.locks.len(), before.locks_when), (1, Some(before.when)));
        let memory = redlock::Memory::named("outage");
        memory.stop();
        let outage = look();
        assert!(outage.trouble.is_some() && outage.nodes[0].status.state.is_err(), "{outage:?}");
        assert_eq!((outage.locks.len(), outage.locks_when), (1, Some(before.when)));
        memory.start();
        let after = look();
        assert_eq!(
            (after.locks.len(), after.locks_when, after.trouble),
            (0, Some(after.when), None),
            "its keys are lost"
        );
        drop(lease);
        client.close_blocking();
    }

    fn identity(app: &str, quorum: usize) -> Identity {
        let uuid = "0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59";
        let name = format!("redlock/1.2.3;h:web-3;a:{app};p:812;u:{uuid};n:5;q:{quorum};w:r;m:60000;f:1");
        Identity::parse(&name).expect("a name")
    }

    #[test]
    fn only_settings_of_a_minority_are_odd() {
        let odd = |clients: &[(&str, usize)]| {
            let clients: Vec<Identity> = clients.iter().map(|(app, quorum)| identity(app, *quorum)).collect();
            let programs = Programs::new(clients.iter());
            clients.iter().map(|client| programs.odd(client)).collect::<Vec<_>>()
        };
        let four = Some("quorum 4 instead of 3".to_owned());
        let three = Some("quorum 3 instead of 4".to_owned());
        assert_eq!(odd(&[("a", 3), ("a", 3), ("a", 4)]), [None, None, four.clone()]);
        assert_eq!(odd(&[("a", 3), ("b", 4)]), [None, None]);
        // Nobody knows which of two is right.
        assert_eq!(odd(&[("a", 3), ("a", 4)]), [three, four]);
    }
}
