//! The deployment that a check uses: a server or a cluster.

use std::slice;

use redis::FromRedisValue;
use redlock_tests::{contender::until, deployments::Cluster, server::Server};

pub(crate) enum Place {
    Server(Server),
    Cluster(Cluster),
}

impl Place {
    pub(crate) fn server() -> Self {
        Self::Server(Server::start())
    }

    /// Three masters, so that most locks are on another server than the one that a client connects to first.
    pub(crate) fn cluster() -> Self {
        Self::Cluster(Cluster::start(3, 0))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    fn servers(&self) -> &[Server] {
        match self {
            Self::Server(server) => slice::from_ref(server),
            Self::Cluster(cluster) => cluster.servers(),
        }
    }

    /// Runs a command on a key.
    pub(crate) fn ask<T: FromRedisValue>(&self, command: &str, key: &str) -> T {
        let server = match self {
            Self::Server(server) => server,
            Self::Cluster(cluster) => &cluster.servers()[cluster.owner(key)],
        };
        server.command(&[command, key])
    }

    /// Removes every key.
    pub(crate) fn clear(&self) {
        for server in self.servers() {
            let _: () = server.command(&["FLUSHALL"]);
        }
    }

    /// The keys that nobody should leave behind: all but token counters, and the notes of unlocks that some versions of
    /// Redisson keep for some seconds for retries.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> =
            self.servers().iter().flat_map(|server| server.command::<Vec<String>>(&["KEYS", "*"])).collect();
        keys.retain(|key| !key.contains("_token:") && !key.starts_with("redisson_unlock_latch:"));
        keys
    }

    /// How many clients listen for the release of a lock, or of a read/write lock.
    pub(crate) fn listeners(&self, key: &str) -> usize {
        let both = ["redisson_lock__channel", "redisson_rwlock"].map(|kind| {
            let sharded = if matches!(self, Self::Cluster(_)) { self.count("SHARDNUMSUB", kind, key) } else { 0 };
            self.count("NUMSUB", kind, key) + sharded
        });
        both.into_iter().sum()
    }

    /// How many clients listen to the shard of a lock, on a cluster.
    pub(crate) fn listeners_of_shards(&self, key: &str) -> usize {
        self.count("SHARDNUMSUB", "redisson_lock__channel", key)
    }

    fn count(&self, how: &str, kind: &str, key: &str) -> usize {
        let channel = format!("{kind}:{{{key}}}");
        let of = |server: &Server| server.command::<(String, usize)>(&["PUBSUB", how, &channel]).1;
        self.servers().iter().map(of).sum()
    }

    /// Waits until a client listens for the release of a lock.
    pub(crate) fn somebody_listens(&self, key: &str) {
        until("a waiter listens", || self.listeners(key) > 0);
    }

    /// How many script calls the servers have received so far.
    pub(crate) fn scripts(&self) -> u64 {
        let of = |server: &Server| {
            let text: String = server.command(&["INFO", "commandstats"]);
            let lines = text.lines().filter_map(|line| line.split_once(":calls="));
            let scripts = lines.filter(|(name, _)| ["cmdstat_eval", "cmdstat_evalsha"].contains(name));
            scripts.map(|(_, rest)| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
        };
        self.servers().iter().map(of).sum()
    }
}
