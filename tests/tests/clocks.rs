//! Clocks that jump. A lease counts as over by whichever clock ran fastest, so a suspended machine or a wall clock set
//! forward ends it, and a wall clock set back does not prolong it. One test, since it moves the clocks of the process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use redlock::{Client, Config, LockOptions, LostReason, clock};
use redlock_tests::{
    server::{Server, release_channel},
    until,
};

const HOUR: i64 = 3_600_000_000_000;

#[tokio::test]
async fn a_jump_forward_ends_a_lease_and_a_jump_back_does_not_prolong_it() {
    let server = Server::start();
    let client = Client::new(Config::new([server.url()])).unwrap();
    // Boot time and raw time: the machine was suspended. Wall time: it was set forward, and so may the server's be.
    for (boot, raw, real) in [(HOUR, 0, 0), (0, HOUR, 0), (0, 0, HOUR)] {
        let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
        assert!(lease.held());
        clock::test::shift(boot, raw, real);
        assert!(!lease.held(), "at once, by reading a clock: {boot} {raw} {real}");
        // The watchdog's own timer slept through it; its tick finds out.
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
    // A wait counts otherwise: one of a minute is not over because the wall clock was set forward by an hour.
    let _: () = server.command(&["HSET", "z", "somebody:1", "1"]);
    let _: () = server.command(&["EXPIRE", "z", "7200"]);
    let mut options = LockOptions::default();
    options.wait = Some(Duration::from_secs(60));
    let waiting = tokio::spawn(client.lock("z", options).unwrap().acquire());
    until(Duration::from_secs(20), "it waits", || server.waiting("z") == 1).await;
    clock::test::shift(0, 0, HOUR);
    let _: () = server.command(&["DEL", "z"]);
    let _: () = server.command(&["PUBLISH", &release_channel("z"), "0"]);
    waiting.await.unwrap().expect("it waits for a minute").release().await.unwrap();
    clock::test::shift(0, 0, -HOUR);
    // And a loss that nobody looks at is still reported within a tick.
    clock::test::shift(HOUR, 0, 0);
    assert_eq!(lease.lost().await, Some(LostReason::Expired));
}
