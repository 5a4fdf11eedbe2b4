//! Deployments of several servers: a Redis Cluster, and a master with replicas under Sentinels. They are real
//! processes, whose slots a test can move and whose masters it can kill.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use crate::{port::Port, server::Server, wait_until};

const SLOTS: usize = 16_384;
/// How long servers may take to find and to replace each other on a busy machine.
const SETTLING: Duration = Duration::from_secs(60);

fn until(what: &str, happened: impl FnMut() -> bool) {
    wait_until(SETTLING, what, happened);
}

/// The value of a line `name:value`, as in INFO.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(|value| value.trim().to_owned())
}

/// A Redis Cluster. The first servers start as its masters, each with an equal range of slots. The rest are replicas,
/// in the order of their masters.
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    masters: usize,
    ids: Vec<String>,
    /// The ports on which the servers talk to each other.
    _buses: Vec<Port>,
}

impl Cluster {
    /// Starts a cluster and waits until all of its servers agree.
    pub fn start(masters: usize, replicas: usize) -> Self {
        Self::with_args(masters, replicas, &[])
    }

    /// Starts a cluster whose servers have these options.
    pub fn with_args(masters: usize, replicas: usize, args: &[&str]) -> Self {
        let count = masters * (1 + replicas);
        let buses: Vec<Port> = (0..count).map(|_| Port::free()).collect();
        let servers: Vec<Server> = buses
            .iter()
            .map(|bus| {
                let bus = bus.number().to_string();
                let own = ["--cluster-enabled", "yes", "--cluster-port", &bus];
                let timing = ["--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0"];
                Server::with_args(&[&own[..], &timing[..], args].concat())
            })
            .collect();
        for (index, server) in servers.iter().enumerate() {
            let _: String = server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < masters {
                let (first, end) = (SLOTS * index / masters, SLOTS * (index + 1) / masters);
                let (first, last) = (first.to_string(), (end - 1).to_string());
                let _: String = server.command(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            }
        }
        let (port, bus) = (servers[0].port().to_string(), buses[0].number().to_string());
        for server in &servers[1..] {
            let _: String = server.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let ids = servers.iter().map(|server| server.command(&["CLUSTER", "MYID"])).collect();
        let cluster = Self { servers, masters, ids, _buses: buses };
        cluster.agree();
        for index in masters..count {
            let master = (index - masters) / replicas;
            let _: String = cluster.servers[index].command(&["CLUSTER", "REPLICATE", &cluster.ids[master]]);
        }
        for replica in &cluster.servers[masters..] {
            until("replicas are in step", || {
                let info: String = replica.command(&["INFO", "replication"]);
                field(&info, "master_link_status").as_deref() == Some("up")
            });
        }
        // A master learns later that a replica has loaded its data.
        for master in &cluster.servers[..masters] {
            until("masters know that replicas are in step", || {
                let info: String = master.command(&["INFO", "replication"]);
                info.matches("state=online").count() == replicas
            });
        }
        cluster.agree();
        cluster
    }

    /// Waits until every running server knows all others and reports the cluster as ok.
    pub fn agree(&self) {
        let count = self.servers.len().to_string();
        for server in self.servers.iter().filter(|server| server.is_up()) {
            until("the servers of the cluster agree", || {
                let info: String = server.command(&["CLUSTER", "INFO"]);
                field(&info, "cluster_state").as_deref() == Some("ok")
                    && field(&info, "cluster_known_nodes").as_deref() == Some(&count)
            });
        }
    }

    /// Its URL, with the address of the first server.
    pub fn url(&self) -> String {
        self.url_of(0)
    }

    /// Its URL, with the address of one of its servers.
    pub fn url_of(&self, server: usize) -> String {
        self.servers[server].url().replacen("://", "+cluster://", 1)
    }

    /// The node id of a server.
    pub fn id(&self, server: usize) -> &str {
        &self.ids[server]
    }

    /// Its servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// One of its servers.
    pub fn server(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> usize {
        let up = self.servers.iter().find(|server| server.is_up()).expect("a server that runs");
        up.command(&["CLUSTER", "KEYSLOT", key])
    }

    /// The server that serves a key now.
    pub fn owner(&self, key: &str) -> usize {
        let slot = self.slot(key);
        let mut owner = None;
        until("a server serves the slot", || {
            let up = self.servers.iter().filter(|server| server.is_up());
            owner = up.clone().find_map(|server| {
                let nodes: String = server.command(&["CLUSTER", "NODES"]);
                let line = nodes.lines().find(|line| {
                    line.contains("myself")
                        && line.contains("master")
                        && line.split(' ').skip(8).any(|range| match range.split_once('-') {
                            Some((first, last)) => first.parse().is_ok_and(|first: usize| {
                                last.parse().is_ok_and(|last: usize| (first..=last).contains(&slot))
                            }),
                            None => range.parse() == Ok(slot),
                        })
                })?;
                let id = line.split(' ').next()?;
                self.ids.iter().position(|known| known == id)
            });
            owner.is_some()
        });
        owner.expect("just seen")
    }

    /// One of the initial masters that does not serve the key.
    pub fn another(&self, key: &str) -> usize {
        let owner = self.owner(key);
        (0..self.masters).find(|index| *index != owner).expect("more than one master")
    }

    /// Starts to move the slot of a key. Its keys stay for now.
    pub fn begin_move(&self, key: &str, to: usize) {
        self.agree_on_slots();
        let (from, slot) = (self.owner(key), self.slot(key).to_string());
        let _: String = self.servers[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]]);
        let _: String = self.servers[from].command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]]);
    }

    /// Moves one key of a slot whose move has started.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.servers[to].port().to_string();
        let _: String = self.servers[from].command(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    /// Moves the remaining keys of the slot, and the slot itself.
    pub fn end_move(&self, key: &str, from: usize, to: usize) {
        let slot = self.slot(key).to_string();
        loop {
            let keys: Vec<String> = self.servers[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.is_empty() {
                break;
            }
            for key in keys {
                self.move_key(&key, from, to);
            }
        }
        let others = (0..self.masters).filter(|index| ![to, from].contains(index));
        for index in [to, from].into_iter().chain(others) {
            let _: String = self.servers[index].command(&["CLUSTER", "SETSLOT", &slot, "NODE", &self.ids[to]]);
        }
        until("the slot has its new owner", || self.owner(key) == to);
        self.agree_on_slots();
    }

    /// Waits until all servers see the same masters with the same epochs and slots. A server that claims a slot with an
    /// epoch that some servers do not know yet can lose the slot to an older claim. In the end no server has it, so
    /// moves must not follow each other faster.
    fn agree_on_slots(&self) {
        let master = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let slots = words.iter().skip(8).filter(|range| !range.starts_with('['));
            let seen = [words[0], words[6]].into_iter().chain(slots.copied());
            words[2].contains("master").then(|| seen.collect::<Vec<_>>().join(" "))
        };
        until("the servers agree on who has which slots", || {
            let views = self.servers.iter().filter(|server| server.is_up()).map(|server| {
                let nodes: String = server.command(&["CLUSTER", "NODES"]);
                nodes.lines().filter_map(master).collect::<BTreeSet<_>>()
            });
            views.collect::<HashSet<_>>().len() == 1
        });
    }
}

/// A master, replicas and three Sentinels that watch over them.
#[derive(Debug)]
pub struct Watched {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

/// The name of the service at the Sentinels.
pub const SERVICE: &str = "main";

impl Watched {
    /// Starts them and waits until the Sentinels know all of them. The first server is the master.
    pub fn start(replicas: usize) -> Self {
        Self::with_args(replicas, &[], "")
    }

    /// Starts servers with these options, and Sentinels with these lines of configuration.
    pub fn with_args(replicas: usize, args: &[&str], lines: &str) -> Self {
        let own = ["--repl-diskless-sync-delay", "0"];
        let master = Server::with_args(&[&own[..], args].concat());
        let port = master.port().to_string();
        let mut servers = vec![master];
        for _ in 0..replicas {
            servers.push(Server::with_args(&[&own[..], &["--replicaof", &format!("127.0.0.1 {port}")], args].concat()));
        }
        let configuration = format!(
            "sentinel monitor {SERVICE} 127.0.0.1 {port} 2\nsentinel down-after-milliseconds {SERVICE} 700\n\
             sentinel failover-timeout {SERVICE} 3000\n{lines}\n"
        );
        let sentinels = (0..3).map(|_| Server::sentinel(&configuration)).collect();
        let watched = Self { servers, sentinels };
        watched.agree();
        watched
    }

    /// Waits until every Sentinel knows all running servers and all Sentinels.
    pub fn agree(&self) {
        let replicas = (self.servers.len() - 1).to_string();
        for replica in self.servers.iter().filter(|server| server.is_up()) {
            until("replicas are in step", || {
                let info: String = replica.command(&["INFO", "replication"]);
                field(&info, "role").as_deref() == Some("master")
                    || field(&info, "master_link_status").as_deref() == Some("up")
            });
        }
        let master = &self.servers[self.master()];
        // A new replica acknowledges no write for a while.
        until("all replicas acknowledge", || {
            let running = self.servers.iter().filter(|server| server.is_up()).count() - 1;
            master.command::<usize>(&["WAIT", &running.to_string(), "200"]) == running
        });
        for sentinel in &self.sentinels {
            until("the Sentinels know each other", || {
                let known: Vec<String> = sentinel.command(&["SENTINEL", "MASTER", SERVICE]);
                let value = |name: &str| known.iter().position(|one| one == name).map(|at| known[at + 1].clone());
                value("num-slaves").as_ref() == Some(&replicas)
                    && value("num-other-sentinels").as_deref() == Some("2")
                    && value("flags").as_deref() == Some("master")
            });
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let addresses: Vec<_> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        let scheme = if self.sentinels[0].url().starts_with("rediss") { "rediss" } else { "redis" };
        format!("{scheme}+sentinel://{}/{SERVICE}", addresses.join(","))
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// One of the servers.
    pub fn server(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// One of the Sentinels.
    pub fn sentinel(&mut self, index: usize) -> &mut Server {
        &mut self.sentinels[index]
    }

    /// The server that most Sentinels name as the master.
    pub fn master(&self) -> usize {
        let ports: Vec<u16> = self
            .sentinels
            .iter()
            .filter(|sentinel| sentinel.is_up())
            .filter_map(|sentinel| {
                let address: Vec<String> = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
                address.get(1)?.parse().ok()
            })
            .collect();
        let votes = |index: &usize| ports.iter().filter(|port| **port == self.servers[*index].port()).count();
        (0..self.servers.len()).max_by_key(votes).expect("a server")
    }

    /// Waits until another server than `from` is the master and has taken over. Returns it.
    pub fn failed_over(&self, from: usize) -> usize {
        let mut master = from;
        until("the Sentinels have elected another master", || {
            master = self.master();
            master != from && self.servers[master].is_up() && {
                let info: String = self.servers[master].command(&["INFO", "replication"]);
                field(&info, "role").as_deref() == Some("master")
            }
        });
        master
    }

    /// Makes the Sentinels change the master although it works. Returns the new one.
    pub fn hand_over(&self) -> usize {
        let from = self.master();
        until("a failover begins", || {
            let mut connection = self.sentinels[0].connect().expect("a Sentinel that runs");
            redis::cmd("SENTINEL").arg(&["FAILOVER", SERVICE]).query::<String>(&mut connection).is_ok()
        });
        self.failed_over(from)
    }
}
