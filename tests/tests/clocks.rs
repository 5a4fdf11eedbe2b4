//! Clocks that jump. A lease counts as over by whichever clock ran fastest. So the suspension of the machine or a wall
//! clock set forward ends it, and a wall clock set back does not prolong it. The tests move the clocks of the process,
//! one test at a time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use redlock::{
    Client, Config, Lease, LockOptions, LostReason, ReleaseOutcome, Wire, clock,
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall, scripts},
    server::{
        Node, SentOn,
        memory::{Memory, MemoryNode},
    },
};
use redlock_tests::{
    server::{Server, release_channel},
    until,
};
use tokio::sync::Mutex;

const HOUR: i64 = 3_600_000_000_000;
const SECOND: i64 = HOUR / 3600;
const SOON: Duration = Duration::from_secs(20);

/// Held by the test that moves the clocks.
static CLOCKS: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn a_jump_forward_ends_a_lease_and_a_jump_back_does_not_prolong_it() {
    let _turn = CLOCKS.lock().await;
    let server = Server::start();
    let client = Client::new(Config::new([server.url()])).unwrap();
    // Boot time and raw time advance while the machine is suspended. The wall clock was set forward, and the server's
    // may be too.
    for (boot, raw, real) in [(HOUR, 0, 0), (0, HOUR, 0), (0, 0, HOUR)] {
        let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
        assert!(lease.held());
        clock::test::shift(boot, raw, real);
        assert!(!lease.held(), "at once, by reading a clock: {boot} {raw} {real}");
        // The watchdog's own timer did not advance; its next tick notices the loss.
        assert_eq!(lease.lost().await, Some(LostReason::Expired));
        clock::test::shift(-boot, -raw, -real);
        assert!(!lease.held(), "lost is final");
        lease.release().await.unwrap();
    }
    let lease = client.lock("y", LockOptions::default()).unwrap().acquire().await.unwrap();
    clock::test::shift(0, 0, -HOUR);
    assert!(lease.held());
    assert!(lease.remaining() <= Duration::from_secs(27));
    clock::test::shift(0, 0, HOUR);
    // A wait uses another clock: a wait of a minute is not over because the wall clock was set forward by an hour.
    let _: () = server.command(&["HSET", "z", "somebody:1", "1"]);
    let _: () = server.command(&["EXPIRE", "z", "7200"]);
    let mut options = LockOptions::default();
    options.wait = Some(Duration::from_secs(60));
    let waiting = tokio::spawn(client.lock("z", options).unwrap().acquire());
    until(SOON, "it waits", || server.waiting("z") == 1).await;
    clock::test::shift(0, 0, HOUR);
    let _: () = server.command(&["DEL", "z"]);
    let _: () = server.command(&["PUBLISH", &release_channel("z"), "0"]);
    waiting.await.unwrap().expect("it waits for a minute").release().await.unwrap();
    clock::test::shift(0, 0, -HOUR);
    // A loss that nobody checks for is still reported within a tick.
    clock::test::shift(HOUR, 0, 0);
    assert_eq!(lease.lost().await, Some(LostReason::Expired));
}

/// A client whose counters live for ten minutes, with leases that are renewed every 63 to 77 s.
fn client(url: &str) -> Client {
    let mut config = Config::new([url]);
    config.token_ttl = Some(Duration::from_secs(600));
    config.watchdog = Duration::from_secs(210);
    Client::new(config).unwrap()
}

/// Advances all clocks by 80 s, so that the watchdog renews the lease once.
async fn let_it_renew(lease: &Lease) {
    clock::test::shift(80 * SECOND, 80 * SECOND, 80 * SECOND);
    until(SOON, "the lease is renewed", || lease.remaining() > Duration::from_secs(150)).await;
}

/// The store in memory reads the same clocks, so its keys expire as on a server.
#[tokio::test]
async fn a_lock_that_is_held_for_longer_than_its_counter_lives_keeps_its_token() {
    let _turn = CLOCKS.lock().await;
    let lock = client("memory://held-for-long").lock("x", LockOptions::default()).unwrap();
    let lease = lock.acquire().await.unwrap();
    let token = lease.token();
    for _ in 0..9 {
        let_it_renew(&lease).await;
        assert_eq!(lock.inspect().await.unwrap().unwrap().token, token);
    }
    // The acquire arrives again, and gets the same reply.
    let node = MemoryNode::open("held-for-long", None);
    let keys = ["x", "redlock_token:{x}"].map(str::to_owned).to_vec();
    let args = [lease.owner(), "", "210000", "600000", "0"].map(str::to_owned).to_vec();
    let call = ScriptCall::new(&scripts(Wire::Redisson).acquire, keys, args);
    let Reply::Text(vote) = node.eval(Driver::Background, call, SOON, SentOn::default()).await.unwrap() else {
        panic!("a vote")
    };
    assert!(vote.starts_with(&format!("1 {token} ")), "{vote}");
    lease.release().await.unwrap();
    clock::test::shift(601 * SECOND, 601 * SECOND, 601 * SECOND);
    assert!(!Memory::named("held-for-long").exists("redlock_token:{x}"));
}

/// The server has its own clock; the ttl of the counter there shows when it was prolonged.
#[tokio::test]
async fn a_counter_is_prolonged_once_every_half_of_its_ttl() {
    let _turn = CLOCKS.lock().await;
    let server = Server::start();
    let lease = client(&server.url()).lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let left = || server.command::<i64>(&["PTTL", "redlock_token:{x}"]);
    let calls = || {
        let text: String = server.command(&["INFO", "commandstats"]);
        let line = text.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|rest| rest.split(',').next()).map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    for _ in 0..2 {
        // Shortens the counter's ttl without the client's knowledge.
        let _: () = server.command(&["PEXPIRE", "redlock_token:{x}", "20000"]);
        let _: () = server.command(&["CONFIG", "RESETSTAT"]);
        for _ in 0..3 {
            let_it_renew(&lease).await;
        }
        assert!(left() <= 20_000, "four of ten minutes have passed");
        assert_eq!(calls(), 3, "each renewal is one script");
        let_it_renew(&lease).await;
        until(SOON, "the counter is prolonged", || left() > 500_000).await;
    }
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}
