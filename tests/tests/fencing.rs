//! The fencing recipe of `docs/fencing.md` in Rust: a hash on a real server that refuses outdated tokens, tested with
//! all interleavings of two holders, and with a lease that ends under its holder. The examples of Python, Node and
//! Kotlin have the recipes for other kinds of resources.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use redis::{ConnectionLike, RedisResult};
use redlock::{Client, Config, LockOptions, Ttl};
use redlock_tests::server::Server;

/// KEYS: a hash. ARGV: the token, then the fields and values to write; none to read only.
const SCRIPT: &str = "
if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > tonumber(ARGV[1]) then return false end
redis.call('HSET', KEYS[1], 'fence', unpack(ARGV))
return redis.call('HGETALL', KEYS[1])";

/// Writes the given fields, if any, and returns all fields. `None` if the hash has seen a larger token: the holder must
/// stop.
fn access(
    redis: &mut impl ConnectionLike,
    key: &str,
    token: u64,
    write: &[(&str, i64)],
) -> RedisResult<Option<HashMap<String, String>>> {
    redis::cmd("EVAL").arg(SCRIPT).arg(1).arg(key).arg(token).arg(write).query(redis)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    EveryAccess,
    WritesOnly,
    NoCheck,
}

/// A counter that two holders read and write, with or without the check.
struct Counter {
    redis: redis::Connection,
    key: String,
}

impl Counter {
    fn plain(&mut self) -> i64 {
        let value: Option<i64> = redis::cmd("HGET").arg(&self.key).arg("count").query(&mut self.redis).unwrap();
        value.unwrap_or(0)
    }

    /// `None` if the hash refuses the holder.
    fn read(&mut self, rule: Rule, token: u64) -> Option<i64> {
        if rule == Rule::EveryAccess {
            let fields = access(&mut self.redis, &self.key, token, &[]).unwrap()?;
            Some(fields.get("count").map_or(0, |count| count.parse().unwrap()))
        } else {
            Some(self.plain())
        }
    }

    /// `None` if the hash refuses the holder.
    fn write(&mut self, rule: Rule, token: u64, value: i64) -> Option<()> {
        if rule == Rule::NoCheck {
            redis::cmd("HSET").arg(&self.key).arg("count").arg(value).exec(&mut self.redis).unwrap();
            Some(())
        } else {
            access(&mut self.redis, &self.key, token, &[("count", value)]).unwrap().map(drop)
        }
    }
}

/// The orders of the steps of A (token 1) and B (token 2) in which an accepted update is lost.
fn losing(server: &Server, rule: Rule) -> Vec<&'static str> {
    let orders = ["AABB", "ABAB", "ABBA", "BAAB", "BABA", "BBAA"];
    let loses = |order: &&str| {
        let mut counter = Counter { redis: server.connect().unwrap(), key: format!("{rule:?}:{order}") };
        let mut seen = HashMap::new();
        let mut refused = BTreeSet::new();
        let mut accepted = 0;
        for who in order.chars() {
            let token = if who == 'A' { 1 } else { 2 };
            if refused.contains(&who) {
                continue;
            }
            if let Some(value) = seen.get(&who) {
                match counter.write(rule, token, value + 1) {
                    Some(()) => accepted += 1,
                    None => _ = refused.insert(who),
                }
            } else {
                match counter.read(rule, token) {
                    Some(value) => _ = seen.insert(who, value),
                    None => _ = refused.insert(who),
                }
            }
        }
        assert!(!refused.contains(&'B'), "the newest holder is never refused");
        counter.plain() != accepted
    };
    orders.into_iter().filter(loses).collect()
}

#[test]
fn fencing_every_access_loses_no_update_and_fencing_writes_only_does() {
    let server = Server::start();
    assert_eq!(losing(&server, Rule::EveryAccess), [""; 0]);
    assert_eq!(losing(&server, Rule::WritesOnly), ["ABAB", "BAAB"]);
    assert_eq!(losing(&server, Rule::NoCheck), ["ABAB", "ABBA", "BAAB", "BABA"]);
}

#[tokio::test]
async fn a_write_after_the_end_of_the_lease_is_refused() {
    let server = Server::start();
    let client = Client::new(Config::new([server.url()])).unwrap();
    let mut redis = server.connect().unwrap();

    let mut brief = LockOptions::default();
    brief.ttl = Ttl::Fixed(Duration::from_millis(200));
    let stale = client.lock("account:7", brief).unwrap().acquire().await.unwrap();
    let before = access(&mut redis, "bank:7", stale.token(), &[]).unwrap().unwrap();
    assert!(!before.contains_key("balance"));

    // Waits until that lease has ended.
    let lease = client.lock("account:7", LockOptions::default()).unwrap().acquire().await.unwrap();
    assert!(access(&mut redis, "bank:7", lease.token(), &[]).unwrap().is_some());
    assert!(!stale.held());
    assert_eq!(access(&mut redis, "bank:7", stale.token(), &[("balance", 1)]).unwrap(), None);
    let after = access(&mut redis, "bank:7", lease.token(), &[("balance", 10)]).unwrap().unwrap();
    assert_eq!(after["balance"], "10");
    assert_eq!(after["fence"], lease.token().to_string());
    lease.release().await.unwrap();
}
