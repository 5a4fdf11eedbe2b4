//! Thread interleavings, chosen by a scheduler: many random ones and, since most errors need few thread switches, many
//! with few switches (PCT: Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding
//! bugs", 2010). A lost wake-up shows as a deadlock. Run with
//!
//! ```text
//! cargo test --package redlock-core --features shuttle --lib interleavings
//! ```
//! `REDLOCK_SCHEDULES` sets how many schedules of each kind a test tries.
//!
//! The scheduler controls the crate's mutex and atomics (`sync.rs`), and the requests to a server. It does not control
//! tokio's channels: each of their operations is one step. That hides no error of this crate, since no channel runs
//! code of the crate while it holds its own lock; if one did, a thread would wait for itself and the test would hang.
//! Timers never fire, since no runtime drives them: only a wake-up ends a wait.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::{self, Either};
use shuttle::{
    Config as Schedules, Runner,
    future::{block_on, yield_now},
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

#[cfg(target_os = "linux")]
use {
    crate::ffi::host_socket::{HostSocket, Readiness},
    rustix::event::epoll::EventFlags,
    std::{future::poll_fn, io::Write, os::unix::net::UnixStream, pin::Pin},
    tokio::io::{AsyncRead, ReadBuf},
};

use crate::{
    client::Client,
    clock,
    config::{Config, LockOptions, Ttl},
    error::{LockError, LostReason},
    event::Event,
    faults,
    ffi::completions::{Completion, CompletionQueue, Entry, Started},
    lock::Lock,
    owner::{Identity, Owner, OwnerKey},
    protocol::{admission::Admission, reply::Renewed, script::Reply},
    server::BoxFuture,
    session::ClientInner,
    tenure::{Fate, ReleaseOutcome, Tenure},
    testing::scripted::Scripted,
    wait::registry::Registry,
};

fn schedules() -> usize {
    std::env::var("REDLOCK_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_500)
}

/// Runs a test in many schedules.
fn explore(test: impl Fn() + Send + Sync + 'static) {
    // The runtime creates timers but never drives them. All threads of a schedule run on this thread.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let test = Arc::new(test);
    let again = test.clone();
    Runner::new(RandomScheduler::new(schedules()), Schedules::new()).run(move || test());
    Runner::new(PctScheduler::new(3, schedules()), Schedules::new()).run(move || again());
}

/// Asserts that the test fails when this error is switched on in the code.
fn find(error: &'static str, test: impl Fn() + Send + Sync + 'static) {
    faults::put(error);
    let found = catch_unwind(AssertUnwindSafe(|| explore(test)));
    faults::put("");
    assert!(found.is_err(), "{error:?} was not found");
}

// ---- the wait queue -------------------------------------------------------------------------------------------------

/// Four waiters of one lock: two wait until they are first, two leave at any time.
fn everybody_comes_first_or_leaves() {
    let registry = Arc::new(Registry::<Tenure>::default());
    let first_now = Arc::new(AtomicUsize::new(0));
    let waiters: Vec<_> = (0..4)
        .map(|number| {
            let (registry, first_now) = (registry.clone(), first_now.clone());
            thread::spawn(move || {
                let waiter = registry.enqueue("x", (OwnerKey::Ambient(number), Admission::Exclusive), None, false);
                if number % 2 == 0 {
                    block_on(async {
                        while !waiter.first.load(SeqCst) {
                            waiter.wake.notified().await;
                        }
                    });
                    assert_eq!(first_now.fetch_add(1, SeqCst), 0, "two are first");
                    thread::yield_now();
                    first_now.fetch_sub(1, SeqCst);
                }
                registry.leave("x", &waiter);
            })
        })
        .collect();
    for waiter in waiters {
        waiter.join().expect("a waiter");
    }
    assert!(matches!(registry.lookup("x", &OwnerKey::Ambient(9)), crate::wait::registry::Local::Free));
}

#[test]
fn no_wake_up_is_lost_in_the_queue() {
    explore(everybody_comes_first_or_leaves);
}

#[test]
fn a_queue_that_wakes_nobody_is_found() {
    find("nobody is woken", everybody_comes_first_or_leaves);
}

// ---- tenures on a server --------------------------------------------------------------------------------------------

/// A server with one lock, as the set of the tenures that hold it.
#[derive(Default)]
struct Server {
    fields: Mutex<HashSet<String>>,
    token: AtomicI64,
    releases: AtomicUsize,
    lost: AtomicUsize,
    /// The client that is notified of releases.
    listeners: OnceLock<Weak<ClientInner>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let (server, watching) = (self.clone(), self.clone());
        let node = Scripted::new("server", move |call| {
            let reply = server.run(call.script.name, &call.args);
            if call.script.name == "release"
                && let Some(listeners) = server.listeners.get()
            {
                Lock::announce(listeners);
            }
            Ok(reply)
        });
        let count = move |event: &Event| {
            if let Event::Lost { .. } = event {
                watching.lost.fetch_add(1, SeqCst);
            }
        };
        let client = Client::with_nodes(Config::new(["memory://"]), Arc::new(count), vec![node]);
        let client = client.expect("a valid configuration");
        self.listeners.set(lock(&client).listeners()).expect("one client");
        client
    }

    fn run(&self, script: &str, args: &[String]) -> Reply {
        let mut fields = self.fields.lock().expect("no panic");
        match script {
            "acquire" => {
                let token = self.token.fetch_add(1, SeqCst) + 1;
                if fields.is_empty() {
                    fields.insert(args[0].clone());
                    Reply::Text(format!("1 {token} 0"))
                } else {
                    Reply::Text("0 30000 0".to_owned())
                }
            }
            "release" => {
                self.releases.fetch_add(1, SeqCst);
                Reply::Int(i64::from(fields.remove(&args[0])))
            }
            "renew" => Reply::List(vec![Reply::Int(i64::from(fields.contains(&args[0])))]),
            "prolong" => Reply::Int(1),
            other => unreachable!("{other} is not called here"),
        }
    }

    fn is_free(&self) -> bool {
        self.fields.lock().expect("no panic").is_empty()
    }
}

fn lock(client: &Client) -> Lock {
    // So long that no deadline passes.
    lock_for(client, Ttl::Fixed(Duration::from_secs(86_400)))
}

fn lock_for(client: &Client, ttl: Ttl) -> Lock {
    client.lock("x", LockOptions { ttl, ..LockOptions::default() }).expect("a valid lock")
}

/// Three owners take the lock one after the other; a fourth gives up, early or late.
fn owners_take_turns() {
    let server = Arc::new(Server::default());
    let client = server.client();
    let inside = Arc::new(AtomicUsize::new(0));
    let owners: Vec<_> = (0..4)
        .map(|number| {
            let (lock, inside) = (lock(&client), inside.clone());
            thread::spawn(move || {
                block_on(async {
                    let acquire = Box::pin(lock.acquire_here(Owner::Fresh));
                    let lease = if number < 3 {
                        acquire.await.expect("its turn")
                    } else {
                        let patience = Box::pin(async {
                            for _ in 0..3 {
                                yield_now().await;
                            }
                        });
                        match future::select(acquire, patience).await {
                            Either::Left((lease, _)) => lease.expect("its turn"),
                            Either::Right(_) => return,
                        }
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "two hold the lock");
                    assert!(lease.held());
                    yield_now().await;
                    inside.fetch_sub(1, SeqCst);
                    assert_eq!(lease.release_here().await.expect("a lease"), ReleaseOutcome::Released);
                });
            })
        })
        .collect();
    for owner in owners {
        owner.join().expect("an owner");
    }
}

#[test]
fn owners_of_one_client_exclude_each_other_and_all_get_their_turn() {
    explore(owners_take_turns);
}

#[test]
fn owners_that_are_not_woken_are_found() {
    find("nobody is woken", owners_take_turns);
}

/// Two threads release one lease. If `nested`, a third thread releases a nested lease at the same time.
fn one_tenure_is_released_once(nested: bool) {
    let server = Arc::new(Server::default());
    let client = server.client();
    let lock = lock(&client);
    let owner = Owner::Ambient(Identity::new());
    let lease = Arc::new(block_on(lock.acquire_here(owner.clone())).expect("a free lock"));
    let inner = nested.then(|| Arc::new(block_on(lock.acquire_here(owner)).expect("a nested lease")));
    let releasing: Vec<_> = [Some(lease.clone()), Some(lease.clone()), inner]
        .into_iter()
        .flatten()
        .map(|lease| thread::spawn(move || block_on(lease.release_here()).expect("a lease")))
        .collect();
    for outcome in releasing {
        assert_eq!(outcome.join().expect("a release"), ReleaseOutcome::Released);
    }
    assert_eq!(server.releases.load(SeqCst), 1, "released more than once");
    assert!(server.is_free() && !lease.held());
    assert_eq!(block_on(lease.release_here()).expect("a lease"), ReleaseOutcome::Released);
    assert_eq!(server.lost.load(SeqCst), 0);
}

#[test]
fn leases_that_are_released_twice_are_found() {
    find("a claim that ends twice", || one_tenure_is_released_once(false));
}

#[test]
fn a_lease_released_by_two_threads_is_released_once() {
    explore(|| one_tenure_is_released_once(false));
}

#[test]
fn nested_leases_released_at_once_release_the_tenure_once() {
    explore(|| one_tenure_is_released_once(true));
}

/// One thread releases an owner's last lease while another acquires for the same owner: it nests or gets a new tenure.
fn what_an_owner_acquires_is_held() {
    let server = Arc::new(Server::default());
    let client = server.client();
    let lock = Arc::new(lock_for(&client, Ttl::Watchdog));
    let owner = || Owner::Explicit("shared".to_owned());
    let lease = block_on(lock.acquire_here(owner())).expect("a free lock");
    let releasing = thread::spawn(move || block_on(lease.release_here()).expect("a lease"));
    let acquiring = {
        let lock = lock.clone();
        thread::spawn(move || block_on(lock.acquire_here(owner())).expect("its owner's lock"))
    };
    assert_eq!(releasing.join().expect("a release"), ReleaseOutcome::Released);
    let lease = acquiring.join().expect("an acquire");
    assert!(lease.held() && !server.is_free(), "acquired, and not held");
    assert_eq!(block_on(lease.release_here()).expect("a lease"), ReleaseOutcome::Released);
    assert!(server.is_free());
    assert_eq!(server.lost.load(SeqCst), 0);
}

#[test]
fn an_acquire_beside_its_owners_last_release_is_held() {
    explore(what_an_owner_acquires_is_held);
}

#[test]
fn nesting_in_a_tenure_that_ended_is_found() {
    find("a claim of a tenure that ended", what_an_owner_acquires_is_held);
}

/// A release, a detach, a loss and a renewal that finds the key gone, all concurrent. Another thread reads `held`.
fn one_end() {
    let server = Arc::new(Server::default());
    let client = server.client();
    let lease = Arc::new(block_on(lock(&client).acquire_here(Owner::Fresh)).expect("a free lock"));
    let tenure = lease.tenure();
    let looking = {
        let lease = lease.clone();
        thread::spawn(move || {
            let seen: Vec<bool> = (0..4).map(|_| lease.held()).collect();
            assert!(seen.is_sorted_by(|before, after| before >= after), "held again: {seen:?}");
        })
    };
    let releasing = {
        let lease = lease.clone();
        thread::spawn(move || block_on(lease.release_here()))
    };
    let detaching = {
        let lease = lease.clone();
        thread::spawn(move || lease.detach())
    };
    let losing = {
        let tenure = tenure.clone();
        thread::spawn(move || tenure.lose(LostReason::Closed))
    };
    let renewing = {
        let tenure = tenure.clone();
        thread::spawn(move || {
            tenure.renewal_answered(0, Renewed::Gone, Duration::from_secs(30), clock::now());
        })
    };
    let released = releasing.join().expect("a release");
    let detached = detaching.join().expect("a detach");
    for thread in [looking, losing, renewing] {
        thread.join().expect("a thread");
    }
    let fate = tenure.status.get().fate;
    assert_eq!(tenure.current_fate(), fate, "what is told is not what happened");
    let lost = server.lost.load(SeqCst);
    match fate {
        Fate::Held => panic!("it never ended"),
        Fate::Lost(_) => {
            assert_eq!(lost, 1, "told {lost} times");
            assert!(matches!(released, Ok(ReleaseOutcome::Lost)), "{released:?}");
            assert!(matches!(detached, Err(LockError::Lost { .. })), "{detached:?}");
        }
        Fate::Released => {
            assert_eq!((lost, server.releases.load(SeqCst)), (0, 1));
            assert!(matches!(released, Ok(ReleaseOutcome::Released)), "{released:?}");
            assert!(matches!(detached, Err(LockError::NotHeld { .. })), "{detached:?}");
        }
        Fate::Detached => {
            assert_eq!((lost, server.releases.load(SeqCst)), (0, 0));
            assert!(matches!(released, Err(LockError::NotHeld { .. })), "{released:?}");
            assert!(detached.is_ok() && !server.is_free());
        }
    }
    assert!(!lease.held() && lease.remaining().is_zero());
}

#[test]
fn a_tenure_ends_once_and_stays_ended() {
    explore(one_end);
}

// ---- results for a host ---------------------------------------------------------------------------------------------

/// A result that counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A result that its caller has to take, and never takes too late.
struct Offered(Counted);

impl Entry for Offered {
    type HostValue = Option<Counted>;

    fn announcement(self) -> (Option<Counted>, Option<Self>) {
        (None, Some(self))
    }

    fn take(self) -> Result<Option<Counted>, BoxFuture<Self>> {
        Ok(Some(self.0))
    }
}

/// Three calls end while one of them is abandoned. The host acts only when it is woken. It then drains the queue, or
/// announces the results, and each caller takes its own.
fn results_arrive_once(drains: bool) {
    // The number of wake-ups that the host has not handled yet.
    let bell = Arc::new((shuttle::sync::Mutex::new(0), shuttle::sync::Condvar::new()));
    let ring = |bell: &(shuttle::sync::Mutex<usize>, shuttle::sync::Condvar)| {
        *bell.0.lock().expect("no panic") += 1;
        bell.1.notify_one();
    };
    let dropped = Arc::new(AtomicUsize::new(0));
    let waking = bell.clone();
    let queue = CompletionQueue::<Offered>::new(move || ring(&waking));
    let calls: Vec<(u64, Completion<Offered>)> = (0..3)
        .map(|_| {
            let mut place = None;
            let id = queue.start(|completion| {
                place = Some(completion);
                None
            });
            (id, place.expect("a place"))
        })
        .collect();
    let ids: Vec<u64> = calls.iter().map(|(id, _)| *id).collect();
    let (gives_up, unheard) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut threads: Vec<_> = calls
        .into_iter()
        .map(|(_, completion)| {
            let dropped = dropped.clone();
            thread::spawn(move || completion.complete(Offered(Counted(dropped))))
        })
        .collect();
    threads.push({
        let (queue, bell, id) = (queue.clone(), bell.clone(), ids[1]);
        let (gives_up, unheard) = (gives_up.clone(), unheard.clone());
        thread::spawn(move || {
            gives_up.store(true, SeqCst);
            if queue.abandon(id) {
                unheard.fetch_add(1, SeqCst);
            }
            ring(&bell);
        })
    });
    let (mut heard, mut taken, mut takers) = (Vec::new(), Vec::new(), Vec::new());
    while heard.len() + unheard.load(SeqCst) < ids.len() {
        let mut rung = bell.0.lock().expect("no panic");
        while *rung == 0 {
            rung = bell.1.wait(rung).expect("no panic");
        }
        *rung -= 1;
        drop(rung);
        if drains {
            let drained = queue.drain();
            heard.extend(drained.iter().map(|(id, _)| *id));
            taken.extend(drained.into_iter().filter_map(|(_, result)| result));
            continue;
        }
        for (id, _) in queue.announce() {
            heard.push(id);
            let (queue, gives_up) = (queue.clone(), (id == ids[1]).then(|| gives_up.clone()));
            takers.push(thread::spawn(move || {
                // A caller that gave up no longer takes its result.
                let gave_up = gives_up.is_some_and(|gives_up| gives_up.load(SeqCst));
                if gave_up { None } else { queue.take(id).and_then(Started::done).flatten() }
            }));
        }
    }
    for thread in threads {
        thread.join().expect("a thread");
    }
    taken.extend(takers.into_iter().filter_map(|taker| taker.join().expect("a thread")));
    assert!(queue.drain().is_empty(), "delivered after it was given up");
    let unheard = unheard.load(SeqCst);
    let different: HashSet<u64> = heard.iter().copied().collect();
    assert_eq!(different.len(), heard.len(), "told twice");
    assert_eq!(different.contains(&ids[1]), unheard == 0, "given up unheard, and told all the same");
    // A result that was announced but not taken can be abandoned, too.
    let given_up = if drains { unheard } else { ids.len() - taken.len() };
    assert!((unheard..=1).contains(&given_up), "a call that nobody gave up has no result");
    assert_eq!(dropped.load(SeqCst), given_up, "a result leaked, or was dropped while the host has it");
    drop(taken);
    assert_eq!(dropped.load(SeqCst), ids.len());
}

#[test]
fn each_result_is_delivered_or_dropped_once() {
    explore(|| results_arrive_once(true));
    explore(|| results_arrive_once(false));
}

#[test]
fn a_queue_that_forgets_to_wake_is_found() {
    find("two steps to queue a result", || results_arrive_once(true));
}

#[test]
fn a_queue_that_forgets_who_gave_up_is_found() {
    find("two steps to announce a result", || results_arrive_once(false));
}

// ---- the readiness of a socket --------------------------------------------------------------------------------------

/// One thread sends, and marks the socket as readable each time; another thread reads.
#[cfg(target_os = "linux")]
fn everything_is_read() {
    let (ours, mut theirs) = UnixStream::pair().expect("two descriptors");
    ours.set_nonblocking(true).expect("a socket");
    let ready = Arc::new(Readiness::default());
    let mut socket = HostSocket::new(ours.into(), ready.clone(), || ());
    let sending = thread::spawn(move || {
        for byte in 0..3 {
            theirs.write_all(&[byte]).expect("room for three bytes");
            ready.note(EventFlags::IN);
        }
        theirs
    });
    let mut read = Vec::new();
    block_on(async {
        while read.len() < 3 {
            let mut bytes = [0; 8];
            let mut into = ReadBuf::new(&mut bytes);
            poll_fn(|context| Pin::new(&mut socket).poll_read(context, &mut into)).await.expect("an open socket");
            read.extend_from_slice(into.filled());
        }
    });
    assert_eq!(read, [0, 1, 2]);
    sending.join().expect("a sender");
}

#[cfg(target_os = "linux")]
#[test]
fn no_readiness_is_forgotten() {
    explore(everything_is_read);
}
