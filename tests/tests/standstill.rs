//! Callers that stop: a blocked event loop, a future that nobody polls. A lock that is granted to them meanwhile is
//! released after the sixth part of its ttl, and 5 s at most, and nobody waits behind them for longer. Once they run
//! again, their calls continue.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use redlock::{
    Client, Config, Lease, Lock, LockError, LockOptions, Owner, ReleaseOutcome, Request,
    ffi::{
        Call, Calls,
        Operation::{Acquire, Attach, Release},
        Value,
        completions::Started,
    },
};
use redlock_tests::{
    clients::{client, options, servers, urls},
    event_loop::Loop,
    server::Server,
    wait_until,
};

/// The longest time that an uncollected grant is kept, 5 s, and 5 s for a slow machine to do the rest.
const OFFERED: Duration = Duration::from_secs(5 + 5);
const LONG: Duration = Duration::from_secs(40);

fn lock(client: &Client) -> Lock {
    client.lock("x", LockOptions::default()).unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn acquired(lock: &Lock, wait: Duration) -> Result<Lease, LockError> {
    let request = Request { wait: Some(wait), ..lock.request(Owner::Fresh) };
    lock.acquire_interruptible(request, &mut || Ok::<(), LockError>(()))
}

fn released(lease: &Lease) {
    let outcome = lease.release_interruptible(&mut || Ok::<(), LockError>(())).unwrap();
    assert_eq!(outcome, ReleaseOutcome::Released);
}

/// Checks that other clients get the lock one after the other, although the caller that was granted it does not run.
fn others_get_it_soon(clients: [&Client; 2]) {
    let start = Instant::now();
    for client in clients {
        let lease = acquired(&lock(client), LONG).unwrap();
        assert!(start.elapsed() < OFFERED, "waited {:?} behind a caller that does not run", start.elapsed());
        released(&lease);
    }
}

fn pending(call: Result<Call, LockError>) -> u64 {
    match call.unwrap() {
        Started::Pending(id) => id,
        Started::Done(outcome) => panic!("ended at once: {outcome:?}"),
    }
}

/// The last token that was drawn.
fn token(server: &Server) -> Option<String> {
    server.command(&["GET", "redlock_token:{x}"])
}

/// A loop with a connection, whose acquire waits for a lock that another client holds.
fn waiting(server: &Server, client: &Client, holder: &Lock) -> (Loop, Lease, u64) {
    let mut host = Loop::new();
    let free = lock(client);
    let first = host.lease(host.calls.start(Acquire(&free, free.request(Owner::Fresh))));
    assert_eq!(host.release(&first), ReleaseOutcome::Released);
    let held = acquired(holder, LONG).unwrap();
    let id = pending(host.calls.start(Acquire(&free, free.request(Owner::Fresh))));
    host.calls.flush();
    wait_until(LONG, "it listens", || {
        host.turn(Duration::from_millis(5));
        server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len() == 1
    });
    (host, held, id)
}

/// The loop is first in the queue, of its client and of all clients; then it blocks.
#[test]
fn a_loop_that_stands_still_holds_up_nobody_and_goes_on() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let (mut host, held, id) = waiting(&server, &ours, &lock(&others));
    released(&held);
    others_get_it_soon([&ours, &others]);
    let lease = host.lease(Ok(Started::Pending(id)));
    assert!(lease.held());
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// Two calls of one owner: the second shares the grant of the first, and neither collects it.
#[test]
fn a_loop_that_stands_still_with_nested_calls_holds_up_nobody() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let free = lock(&ours);
    let shared = || Request { owner: Owner::Explicit("shared".into()), ..free.request(Owner::Fresh) };
    let held = acquired(&lock(&others), LONG).unwrap();
    let mut host = Loop::new();
    let ids = [0, 1].map(|_| pending(host.calls.start(Acquire(&free, shared()))));
    host.calls.flush();
    wait_until(LONG, "they listen", || {
        host.turn(Duration::from_millis(5));
        server_waiters(&server) == 1
    });
    released(&held);
    others_get_it_soon([&ours, &others]);
    for lease in ids.map(|id| host.lease(Ok(Started::Pending(id)))) {
        assert_eq!(host.release(&lease), ReleaseOutcome::Released);
    }
}

/// An acquire whose wait is over before the loop runs again times out.
#[test]
fn a_wait_that_is_over_when_the_loop_goes_on_has_timed_out() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let (mut host, held, id) = waiting(&server, &ours, &lock(&others));
    let short = lock(&ours);
    let request = Request { wait: Some(Duration::from_secs(1)), ..short.request(Owner::Fresh) };
    let behind = pending(host.calls.start(Acquire(&short, request)));
    host.calls.flush();
    released(&held);
    let lease = acquired(&lock(&others), LONG).unwrap();
    released(&lease);
    assert!(matches!(host.end(Ok(Started::Pending(behind))), Err(LockError::Timeout { .. })));
    let lease = host.lease(Ok(Started::Pending(id)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// A task of a loop waits for the lock; then the loop's own thread blocks until it has the lock itself.
#[test]
fn a_thread_that_blocks_goes_ahead_of_the_tasks_it_stops() {
    a_thread_goes_ahead_of_its_tasks(lock);
}

/// The server has a queue of its own, in which the task is before the thread.
#[test]
fn a_thread_that_blocks_goes_ahead_of_the_tasks_it_stops_in_the_queue_of_a_server() {
    a_thread_goes_ahead_of_its_tasks(|client| client.lock("x", options(|options| options.fair = true)).unwrap());
    a_thread_goes_ahead_of_its_tasks(|client| {
        client.semaphore("x", 1, LockOptions::default()).unwrap().taking(1).unwrap()
    });
}

fn a_thread_goes_ahead_of_its_tasks(lock: fn(&Client) -> Lock) {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let mut host = Loop::new();
    let (task, own, other) = (lock(&ours), lock(&ours), lock(&others));
    let held = acquired(&other, LONG).unwrap();
    let of_thread = |blocking, wait| Request { thread: Some(1), blocking, wait, ..task.request(Owner::Fresh) };
    let id = pending(host.calls.start(Acquire(&task, of_thread(false, None))));
    host.calls.flush();
    let release = thread::spawn(move || {
        wait_until(LONG, "a thread waits, too", || server_waiters(&server) >= 1);
        thread::sleep(Duration::from_millis(500));
        released(&held);
        server
    });
    let lease = own
        .acquire_interruptible(of_thread(true, Some(Duration::from_secs(4))), &mut || Ok::<(), LockError>(()))
        .unwrap();
    let _server = release.join().unwrap();
    released(&lease);
    let lease = host.lease(Ok(Started::Pending(id)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

fn server_waiters(server: &Server) -> usize {
    server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len()
}

/// As above, but the task's grant has arrived already and is not collected.
#[test]
fn a_grant_that_a_task_has_not_collected_goes_to_its_thread() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let (task, own, other) = (lock(&ours), lock(&ours), lock(&others));
    let mut host = Loop::new();
    let held = acquired(&other, LONG).unwrap();
    let of_thread = |blocking, wait| Request { thread: Some(1), blocking, wait, ..task.request(Owner::Fresh) };
    let id = pending(host.calls.start(Acquire(&task, of_thread(false, None))));
    host.calls.flush();
    wait_until(LONG, "it listens", || {
        host.turn(Duration::from_millis(5));
        server_waiters(&server) == 1
    });
    let before = token(&server);
    released(&held);
    wait_until(LONG, "it is granted", || token(&server) != before);
    let lease = own
        .acquire_interruptible(of_thread(true, Some(Duration::from_secs(4))), &mut || Ok::<(), LockError>(()))
        .unwrap();
    released(&lease);
    let lease = host.lease(Ok(Started::Pending(id)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
    // If the task has collected its lease, the thread's acquire is a deadlock, as ever.
    let lease = host.lease(host.calls.start(Acquire(&task, of_thread(false, None))));
    let refused = own.acquire_interruptible(of_thread(true, None), &mut || Ok::<(), LockError>(())).unwrap_err();
    assert!(matches!(refused, LockError::Deadlock { .. }), "{refused}");
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// A first try was sent and answered; the loop blocks before it reads the reply.
#[test]
fn a_first_try_that_nobody_polls_is_given_up() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let mut host = Loop::new();
    let free = lock(&ours);
    let first = host.lease(host.calls.start(Acquire(&free, free.request(Owner::Fresh))));
    assert_eq!(host.release(&first), ReleaseOutcome::Released);
    let before = token(&server);
    let id = pending(host.calls.start(Acquire(&free, free.request(Owner::Fresh))));
    host.calls.flush();
    wait_until(LONG, "it is granted", || token(&server) != before);
    others_get_it_soon([&ours, &others]);
    let lease = host.lease(Ok(Started::Pending(id)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// A grant whose reply the loop has read, and whose result nobody drains from the queue.
#[test]
fn a_grant_that_nobody_drains_is_given_back() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let mut host = Loop::new();
    let free = lock(&ours);
    let first = host.lease(host.calls.start(Acquire(&free, free.request(Owner::Fresh))));
    assert_eq!(host.release(&first), ReleaseOutcome::Released);
    let id = pending(host.calls.start(Acquire(&free, free.request(Owner::Fresh))));
    // Takes turns without draining: the reply is read, and the result waits in the queue.
    wait_until(LONG, "it is held", || {
        host.calls.flush();
        free.token(&Owner::Fresh).is_some()
    });
    others_get_it_soon([&ours, &others]);
    let lease = host.lease(Ok(Started::Pending(id)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// A thread that fetches results for other threads collects none for them: each collects its lease when it runs.
#[test]
fn a_grant_that_was_fetched_and_is_not_taken_is_given_back() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let (calls, free) = (Calls::fetched(), lock(&ours));
    let offered = |number: i64| {
        let mut fetched = calls.fetch().unwrap();
        let (id, Ok(Value::Lease(lease))) = fetched.remove(0) else { panic!("no lease") };
        assert_eq!((id, fetched.len()), (number.cast_unsigned(), 0));
        lease
    };
    let fetched = || {
        let number = calls.start_numbered(Acquire(&free, free.request(Owner::Fresh))).unwrap();
        offered(number);
        number.cast_unsigned()
    };
    let number = fetched();
    others_get_it_soon([&ours, &others]);
    assert!(!calls.take(number), "it goes on");
    let lease = offered(number.cast_signed());
    assert!(calls.take(number));
    assert!(lease.held());
    released(&lease);
    // An abandoned grant is released before it would have been as uncollected.
    assert!(!calls.abandon(fetched()));
    released(&acquired(&lock(&others), Duration::from_secs(4)).unwrap());
}

/// A release that was started and not sent, since the loop is blocked.
#[test]
fn a_release_that_nobody_polls_is_sent() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let mut host = Loop::new();
    let (one, two) = (lock(&ours), ours.client_lock("y"));
    let lease = host.lease(host.calls.start(Acquire(&one, one.request(Owner::Fresh))));
    // A second call is pending, so the release is sent only with the next turn.
    pending(host.calls.start(Acquire(&two, two.request(Owner::Fresh))));
    let id = pending(host.calls.start(Release(&lease)));
    others_get_it_soon([&ours, &others]);
    let outcome = host.end(Ok(Started::Pending(id)));
    assert!(matches!(outcome, Ok(Value::Released("released"))), "{outcome:?}");
}

/// The number of scripts that the server has run.
fn scripts(server: &Server) -> u64 {
    let stats: String = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| {
        let line = line.strip_prefix("cmdstat_evalsha:calls=").or_else(|| line.strip_prefix("cmdstat_eval:calls="))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

/// The server ran the release while the loop was blocked. The background sends another one, which finds nothing.
#[test]
fn a_release_whose_reply_is_read_late_has_released() {
    let server = Server::start();
    let ours = client([server.url()]);
    let mut host = Loop::new();
    let one = lock(&ours);
    // Loads the scripts, so that one request is enough from here on.
    let first = host.lease(host.calls.start(Acquire(&one, one.request(Owner::Fresh))));
    assert_eq!(host.release(&first), ReleaseOutcome::Released);
    let lease = host.lease(host.calls.start(Acquire(&one, one.request(Owner::Fresh))));
    let id = pending(host.calls.start(Release(&lease)));
    wait_until(LONG, "the server released it", || server.command::<i64>(&["EXISTS", "x"]) == 0);
    let before = scripts(&server);
    wait_until(LONG, "the background releases it, too", || scripts(&server) > before);
    let outcome = host.end(Ok(Started::Pending(id)));
    assert!(matches!(outcome, Ok(Value::Released("released"))), "{outcome:?}");
}

/// A loop is blocked while the server waits for replicas on its behalf: the client's other calls are served.
#[test]
fn a_loop_that_waits_for_replicas_holds_up_nobody() {
    let server = Server::start();
    let replica = Server::start();
    replica.command::<String>(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    wait_until(LONG, "the replica is in step", || {
        server.command::<String>(&["INFO", "replication"]).contains("state=online")
    });
    let mut config = Config::new([server.url()]);
    config.min_replicas = 1;
    let ours = Client::new(config).unwrap();
    let mut host = Loop::new();
    let one = lock(&ours);
    let first = host.lease(host.calls.start(Acquire(&one, one.request(Owner::Fresh))));
    assert_eq!(host.release(&first), ReleaseOutcome::Released);
    let before = token(&server);
    let id = pending(host.calls.start(Acquire(&one, one.request(Owner::Fresh))));
    host.calls.flush();
    wait_until(LONG, "it is granted", || token(&server) != before);
    released(&acquired(&ours.client_lock("y"), Duration::from_secs(8)).unwrap());
    let lease = host.lease(Ok(Started::Pending(id)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

trait Named {
    fn client_lock(&self, name: &str) -> Lock;
}

impl Named for Client {
    fn client_lock(&self, name: &str) -> Lock {
        self.lock(name, LockOptions::default()).unwrap()
    }
}

/// An attach that nobody collects is undone, so that the text is valid again. A caller that collects it later attaches
/// then.
#[test]
fn an_attached_lease_that_nobody_takes_is_detached_again() {
    let server = Server::start();
    let (ours, others) = (client([server.url()]), client([server.url()]));
    let mut host = Loop::new();
    let text = acquired(&lock(&others), LONG).unwrap().detach().unwrap();
    let fields = || server.command::<Vec<String>>(&["HKEYS", "x"]);
    let detached = fields();
    let id = pending(host.calls.start(Attach(&ours, &text, Owner::Fresh)));
    wait_until(LONG, "it is attached", || fields() != detached);
    wait_until(LONG, "it is detached again", || fields() == detached);
    let lease = host.lease(Ok(Started::Pending(id)));
    assert!(lease.held() && fields() != detached);
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// A Rust future that is not polled, on one server and on three, after none, one or two polls.
#[test]
fn a_future_that_nobody_polls_keeps_nobody_out() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (ours, others) = (client(urls(&servers)), client(urls(&servers)));
        for polls in 0..3 {
            let mut future: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(lock(&ours).acquire());
            let held = acquired(&lock(&others), LONG).unwrap();
            for _ in 0..polls {
                let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_pending());
                thread::sleep(Duration::from_millis(50));
            }
            released(&held);
            let start = Instant::now();
            for client in [&ours, &others] {
                let lease = acquired(&lock(client), LONG).unwrap();
                assert!(start.elapsed() < OFFERED, "{nodes} nodes, {polls} polls: {:?}", start.elapsed());
                released(&lease);
            }
            let lease = block_on(future).unwrap();
            assert!(lease.held());
            assert_eq!(block_on(lease.release()).unwrap(), ReleaseOutcome::Released);
            // A future that is dropped instead leaves nothing behind.
            let mut future: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(lock(&ours).acquire());
            block_on(poll_fn(|context| {
                let _ = future.as_mut().poll(context);
                Poll::Ready(())
            }));
            drop(future);
            released(&acquired(&lock(&others), LONG).unwrap());
        }
    }
}
