//! A chaos campaign: workers on several locks of one kind, one nemesis for the servers and one for the workers, an
//! observer of the queue if the locks have one, and the check of the workers' logs. A failure keeps the histories, and
//! prints where they are and which command repeats the run.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, sleep},
    time::{Duration, Instant},
};

use fastrand::Rng;

use crate::{
    history::{self, Findings, Hold, Kind, Order, Place},
    left, locked,
    nemesis::{Arena, Fault, Plan},
    observer,
    register::{Check, Register, Total},
    server::Server,
    worker::{self, Orders, Worker},
};

/// How long workers may take to return from all calls, and servers to lose the keys and connections of workers.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time of a grant on a slow machine; a campaign that is slower ends with fewer grants.
const SLOWEST: Duration = Duration::from_millis(5);

/// When a campaign ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// After its time and its grants.
    #[default]
    Time,
    /// When the checker finds an overlap. For a negative control, which must have one.
    Overlap,
    /// When the register loses an update. Also for a negative control.
    LostUpdate,
}

/// The settings of a campaign: servers, workers, faults and their duration.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "independent settings")]
pub struct Campaign {
    /// The name of its test.
    pub name: &'static str,
    /// The `worker` binary.
    pub program: PathBuf,
    /// The directory of the histories.
    pub folder: PathBuf,
    /// The kind of the locks.
    pub kind: Kind,
    /// The number of servers.
    pub nodes: usize,
    /// The quorum, by default a majority.
    pub quorum: Option<usize>,
    /// Whether restarted nodes do not vote for a while.
    pub quarantine: bool,
    /// Whether servers keep their keys through a restart.
    pub durable: bool,
    /// If set, each server has its own wall clock, faster by this many parts per million.
    pub clocks: Option<i64>,
    /// Whether the nemesis keeps the assumptions of exclusion.
    pub careful: bool,
    /// The faults of servers and network.
    pub faults: Vec<Fault>,
    /// Whether workers are suspended, some for longer than their lease.
    pub pauses: bool,
    /// Whether workers are killed and replaced.
    pub kills: bool,
    /// The share of kills among what happens to workers, if they are suspended as well.
    pub deaths: f64,
    /// The number of worker processes.
    pub workers: usize,
    /// The largest number of concurrent tenures of a worker.
    pub tasks: usize,
    /// The number of locks.
    pub names: usize,
    /// The ttl of a lease.
    pub ttl: Duration,
    /// How long an acquire waits.
    pub wait: Duration,
    /// The longest work under a lock, and the share of tenures with work.
    pub work: (Duration, f64),
    /// The share of tenures that are held until the lease ends.
    pub stays: f64,
    /// The workers' setting `drift`: by which share a server's clock may run faster than theirs.
    pub drift: f64,
    /// How strictly the register checks tokens.
    pub check: Check,
    /// The shortest duration. A campaign takes longer if not every fault has happened by then.
    pub time: Duration,
    /// The least number of grants, unless the machine is too slow.
    pub grants: u64,
    /// When it ends.
    pub goal: Goal,
}

impl Campaign {
    /// A campaign without faults on one server.
    pub fn new(name: &'static str, program: &str, folder: &str) -> Self {
        Self {
            name,
            program: program.into(),
            folder: folder.into(),
            kind: Kind::Lock,
            nodes: 1,
            quorum: None,
            quarantine: true,
            durable: false,
            clocks: None,
            careful: true,
            faults: Vec::new(),
            pauses: false,
            kills: false,
            deaths: 0.2,
            workers: 3,
            tasks: 16,
            names: 64,
            ttl: Duration::from_millis(600),
            wait: Duration::from_secs(1),
            work: (Duration::from_millis(20), 0.1),
            stays: 0.002,
            drift: 0.1,
            check: Check::Always,
            time: Duration::from_secs(6),
            grants: 0,
            goal: Goal::Time,
        }
    }

    /// Runs it with the seed in `REDLOCK_CHAOS_SEED`, or a random one. `REDLOCK_CHAOS_SECONDS` replaces its time.
    pub fn run(mut self) -> Outcome {
        let seed = number("REDLOCK_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
        if self.goal == Goal::Time
            && let Some(seconds) = number("REDLOCK_CHAOS_SECONDS")
        {
            self.time = Duration::from_secs(seconds);
        }
        println!("{}: REDLOCK_CHAOS_SEED={seed}", self.name);
        let folder = self.folder.join(format!("chaos-{}-{seed}", self.name));
        // An earlier run with this seed may have left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder for histories");
        let mut dice = Rng::with_seed(seed);
        let mut arena = Arena::start(Plan {
            nodes: self.nodes,
            needed: self.quorum.unwrap_or(self.nodes / 2 + 1),
            durable: self.durable,
            clocks: self.clocks,
            lease: self.ttl,
            quarantine: self.quarantine,
            careful: self.careful,
            available: false,
        });
        let register = Register::start();
        let sides = [arena.urls(0), arena.urls(1)];
        let hire = |number: usize| {
            let orders = self.orders(&register, &sides, seed, number, &folder);
            Worker::start(&self.program, &orders).expect("the worker's binary")
        };
        let crew = Mutex::new(Crew { working: (0..self.workers).map(hire).collect(), dead: Vec::new() });
        let faults = Mutex::new(Faults::new(&folder));
        let over = AtomicBool::new(false);
        // Whether each fault has happened once.
        let struck = AtomicBool::new(self.faults.is_empty());
        let (mut server_dice, mut worker_dice) = (dice.fork(), dice.fork());
        let names: Vec<String> = (0..self.names).map(worker::name).collect();
        let queue =
            observer::queue(self.kind).filter(|_| self.nodes == 1).map(|queue| (arena.servers()[0].url(), queue));
        let mut places = Vec::new();
        let started = Instant::now();
        // A thread that fails ends the others as well.
        let guard = || EndOnDrop(&over);
        thread::scope(|scope| {
            if !self.faults.is_empty() {
                scope.spawn(|| {
                    let _guard = guard();
                    // Use every fault once before any is used again.
                    let mut deck = Vec::new();
                    while !over.load(SeqCst) {
                        if deck.is_empty() {
                            deck.clone_from(&self.faults);
                            server_dice.shuffle(&mut deck);
                        }
                        let Some(fault) = deck.pop() else { break };
                        arena.strike(fault, &mut server_dice, &mut |line| {
                            locked(&faults).note(&format!("{fault:?}"), &line);
                        });
                        if deck.is_empty() {
                            struck.store(true, SeqCst);
                        }
                        sleep(Duration::from_millis(server_dice.u64(20..300)));
                    }
                });
            }
            if self.pauses || self.kills {
                scope.spawn(|| {
                    let _guard = guard();
                    while !over.load(SeqCst) {
                        self.trouble(&crew, &faults, &hire, &mut worker_dice);
                        sleep(Duration::from_millis(worker_dice.u64(50..500)));
                    }
                });
            }
            if let Some((url, queue)) = &queue {
                let (names, places, over) = (&names, &mut places, &over);
                scope.spawn(move || *places = observer::observe(url, queue, names, over));
            }
            let _guard = guard();
            while !over.load(SeqCst) && !self.is_over(started.elapsed(), struck.load(SeqCst), &crew, &register) {
                sleep(Duration::from_millis(50));
            }
        });
        let took = started.elapsed();
        let mut crew = crew.into_inner().expect("nobody panicked");
        self.dismiss(&mut crew.working, seed, &folder);
        self.tidy(arena.servers(), seed, &folder);
        let judgement = crew.judge(self.kind, &names, &places, &mut |name, holds| self.export(seed, name, holds));
        let outcome = Outcome {
            repeat: self.repeat(seed, &folder),
            grants: judgement.grants,
            took,
            findings: judgement.findings,
            order: queue.map(|_| judgement.order),
            register: self.total(&register, &names),
            failures: worker::failures(crew.logs().iter().map(PathBuf::as_path)).expect("failures"),
            faults: faults.into_inner().expect("nobody panicked").counts,
            folder,
        };
        println!("{}: {}", self.name, outcome.line());
        outcome
    }

    fn orders(&self, register: &Register, sides: &[Vec<String>; 2], seed: u64, number: usize, folder: &Path) -> Orders {
        Orders {
            urls: sides[number % 2].clone(),
            quorum: self.quorum,
            quarantine: self.quarantine,
            kind: self.kind,
            names: self.names,
            tasks: self.tasks,
            ttl_ms: self.ttl.as_millis() as u64,
            wait_ms: self.wait.as_millis() as u64,
            work_us: self.work.0.as_micros() as u64,
            works: self.work.1,
            stays: self.stays,
            drift: self.drift,
            register: register.url(),
            check: self.check,
            seed: seed.wrapping_add(number as u64),
            logs: folder.join(format!("worker-{number}")),
        }
    }

    /// Suspends or replaces a worker.
    fn trouble(&self, crew: &Mutex<Crew>, faults: &Mutex<Faults>, hire: &dyn Fn(usize) -> Worker, dice: &mut Rng) {
        let number = dice.usize(0..self.workers);
        if self.pauses && (!self.kills || dice.f64() >= self.deaths) {
            let lasting = self.ttl.mul_f64(dice.f64() * 2.0);
            locked(faults).note("SIGSTOP a worker", &format!("SIGSTOP worker {number} for {lasting:?}"));
            locked(crew).working[number].freeze();
            sleep(lasting);
            locked(crew).working[number].thaw();
        } else {
            locked(faults).note("kill a worker", &format!("kill -9 worker {number}"));
            let mut crew = locked(crew);
            let next = crew.dead.len() + self.workers;
            // It uses the same side as the worker that it replaces.
            let next = hire(next * 2 + number % 2);
            let killed = std::mem::replace(&mut crew.working[number], next);
            crew.dead.push((killed.logs().to_path_buf(), killed.grants()));
        }
    }

    fn is_over(&self, elapsed: Duration, struck: bool, crew: &Mutex<Crew>, register: &Register) -> bool {
        let mut crew = locked(crew);
        for worker in &mut crew.working {
            let ended = worker.ended().expect("a child");
            assert_eq!(ended, None, "a worker gave up; its logs are in {}", worker.logs().display());
        }
        match self.goal {
            Goal::Time => {
                let late = elapsed > self.time * 20 + SLOWEST * self.grants as u32;
                elapsed >= self.time && struck && (crew.grants() >= self.grants || late)
            }
            Goal::Overlap => {
                let names: Vec<String> = (0..self.names).map(worker::name).collect();
                let found = || crew.judge(self.kind, &names, &[], &mut |_, _| {}).findings;
                elapsed > PATIENCE || !found().overlaps.is_empty()
            }
            Goal::LostUpdate => {
                let names: Vec<String> = (0..self.names).map(worker::name).collect();
                elapsed > PATIENCE || self.total(register, &names).lost() > 0
            }
        }
    }

    /// The sum over everything that these locks protect.
    fn total(&self, register: &Register, names: &[String]) -> Total {
        let protected: Vec<String> = names.iter().flat_map(|name| worker::protected(self.kind, name)).collect();
        register.total(protected.iter().map(String::as_str))
    }

    /// Writes a history into the folder that `REDLOCK_HISTORY` names, if exclusion must hold.
    fn export(&self, seed: u64, name: &str, holds: &[Hold]) {
        let Some(folder) = env::var_os("REDLOCK_HISTORY").filter(|_| self.careful && self.goal == Goal::Time) else {
            return;
        };
        let file = Path::new(&folder).join(format!("{}-{seed}-{name}.jsonl", self.name));
        fs::create_dir_all(folder).expect("a folder for histories");
        history::write_tenures(&file, name, self.kind, holds).expect("a history");
    }

    /// Ends the workers. Each exits once all of its calls have returned.
    fn dismiss(&self, working: &mut [Worker], seed: u64, folder: &Path) {
        working.iter_mut().for_each(Worker::finish);
        let start = Instant::now();
        for worker in working {
            let status = loop {
                if let Some(status) = worker.ended().expect("a child") {
                    break status;
                }
                assert!(start.elapsed() < PATIENCE, "a worker's calls do not return; {}", self.repeat(seed, folder));
                sleep(Duration::from_millis(5));
            };
            assert!(status.success(), "a worker ended with {status}; {}", self.repeat(seed, folder));
        }
    }

    /// Waits until servers hold no lock, no subscription and no connection of a worker.
    fn tidy(&self, servers: &[Server], seed: u64, folder: &Path) {
        let start = Instant::now();
        for (node, server) in servers.iter().enumerate() {
            // A key that was written while the clock was ahead lives longer by that.
            let jumped = self.clocks.is_some() && node == 0;
            loop {
                let keys: Vec<String> = left(server).into_iter().filter(|key| !ends_by_itself(server, key)).collect();
                let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS"]);
                let clients: String = server.command(&["CLIENT", "LIST", "TYPE", "normal"]);
                let clients = clients.lines().count() - 1;
                if (keys.is_empty() || jumped) && channels.is_empty() && clients == 0 {
                    break;
                }
                let left = format!("{keys:?} {channels:?} {clients} connections");
                assert!(start.elapsed() < PATIENCE, "left on node {node}: {left}; {}", self.repeat(seed, folder));
                sleep(Duration::from_millis(20));
            }
        }
    }

    fn repeat(&self, seed: u64, folder: &Path) -> String {
        format!(
            "histories in {}; repeat with REDLOCK_CHAOS_SEED={seed} REDLOCK_CHAOS_SECONDS={} cargo test -p redlock-tests \
             --test chaos -- --exact --nocapture {}",
            folder.display(),
            self.time.as_secs(),
            self.name,
        )
    }
}

/// True for a node's marker, and for queues of nobody: the places of killed workers count for 5 s after their last word.
fn ends_by_itself(server: &Server, key: &str) -> bool {
    let queues = ["redlock_queue", "redlock_wqueue", "redlock_rqueue", "redlock_alive"];
    key.starts_with("redlock_node")
        || queues.iter().any(|kind| key.starts_with(kind))
            && (1..=5_000).contains(&server.command::<i64>(&["PTTL", key]))
}

/// A number from the environment.
pub fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The workers, and the logs of those that were killed.
struct Crew {
    working: Vec<Worker>,
    dead: Vec<(PathBuf, u64)>,
}

impl Crew {
    fn grants(&self) -> u64 {
        self.working.iter().map(Worker::grants).chain(self.dead.iter().map(|(_, grants)| *grants)).sum()
    }

    fn logs(&self) -> Vec<PathBuf> {
        let working = self.working.iter().map(|worker| worker.logs().to_path_buf());
        working.chain(self.dead.iter().map(|(logs, _)| logs.clone())).collect()
    }

    /// Checks the history of each lock, and calls `seen` with it. `places` has an item for each lock, or none.
    fn judge(
        &self,
        kind: Kind,
        names: &[String],
        places: &[Vec<Place>],
        seen: &mut dyn FnMut(&str, &[Hold]),
    ) -> Judgement {
        let logs = self.logs();
        let mut judgement = Judgement::default();
        for (number, name) in names.iter().enumerate() {
            let holds = worker::history(logs.iter().map(PathBuf::as_path), name).expect("histories");
            seen(name, &holds);
            judgement.grants += holds.len();
            if let Some(places) = places.get(number) {
                judgement.order.extend(history::check_order(places, &holds));
            }
            judgement.findings.extend(history::check_as(kind, holds));
        }
        judgement
    }
}

/// What the histories of all locks show.
#[derive(Default)]
struct Judgement {
    grants: usize,
    findings: Findings,
    order: Order,
}

/// The faults so far.
struct Faults {
    started: Instant,
    log: File,
    counts: BTreeMap<String, u64>,
}

impl Faults {
    fn new(folder: &Path) -> Self {
        let log = File::create(folder.join("faults")).expect("a log of faults");
        Self { started: Instant::now(), log, counts: BTreeMap::new() }
    }

    fn note(&mut self, kind: &str, line: &str) {
        *self.counts.entry(kind.to_owned()).or_default() += 1;
        writeln!(self.log, "{:9.3} s  {line}", self.started.elapsed().as_secs_f64()).expect("a log of faults");
    }
}

/// The result of a campaign.
#[derive(Debug)]
pub struct Outcome {
    /// The number of grants.
    pub grants: usize,
    /// The duration.
    pub took: Duration,
    /// The findings of the checker.
    pub findings: Findings,
    /// The order of waiters, if the locks promise one and it was observed.
    pub order: Option<Order>,
    /// The total of the register.
    pub register: Total,
    /// Failed acquires, by error code.
    pub failures: BTreeMap<String, u64>,
    /// How often each fault happened.
    pub faults: BTreeMap<String, u64>,
    repeat: String,
    folder: PathBuf,
}

impl Outcome {
    fn line(&self) -> String {
        let mut line = format!(
            "{} grants in {:.1} s, {} overlaps, {} slots too many, {} tokens out of order, {} of {} updates lost; failed \
             acquires {:?};",
            self.grants,
            self.took.as_secs_f64(),
            self.findings.overlaps.len(),
            self.findings.excess.len(),
            self.findings.disorder.len(),
            self.register.lost(),
            self.register.accepted,
            self.failures,
        );
        if let Some(order) = &self.order {
            // Writing to a string cannot fail.
            let _ = write!(line, " {} of {} waiters overtaken;", order.overtakes.len(), order.compared);
        }
        for (fault, count) in &self.faults {
            let _ = write!(line, " {count} {fault},");
        }
        line
    }

    /// Fails unless tokens are in order and the register has lost no update. That holds under all faults.
    pub fn expect_order(&self) {
        let repeat = &self.repeat;
        assert!(self.grants > 0 && self.register.accepted > 0, "nothing happened; {repeat}");
        assert!(self.findings.disorder.is_empty(), "tokens: {:?}; {repeat}", first(&self.findings.disorder));
        assert_eq!(self.register.lost(), 0, "updates were lost; {repeat}");
    }

    /// Fails unless also no two holds overlap that exclude each other, and no more slots are held than there are.
    pub fn expect_exclusion(&self) {
        let repeat = &self.repeat;
        assert!(self.findings.overlaps.is_empty(), "overlaps: {:?}; {repeat}", first(&self.findings.overlaps));
        assert!(self.findings.excess.is_empty(), "slots too many: {:?}; {repeat}", first(&self.findings.excess));
        self.expect_order();
    }

    /// Fails unless also no waiter is overtaken, of those that were seen to wait.
    pub fn expect_turns(&self) {
        let (repeat, order) = (&self.repeat, self.order.as_ref().expect("an order"));
        assert!(order.compared > 0, "nobody was seen to wait; {repeat}");
        assert!(order.overtakes.is_empty(), "waiters were overtaken: {:?}; {repeat}", first(&order.overtakes));
        self.expect_exclusion();
    }

    /// Negative control: fails unless the checker has found overlaps.
    pub fn expect_overlaps(&self) {
        assert!(!self.findings.overlaps.is_empty(), "the checker found no overlap; {}", self.repeat);
    }

    /// Negative control: fails unless the register has lost updates.
    pub fn expect_lost_updates(&self) {
        assert!(self.register.lost() > 0, "the register lost no update; {}", self.repeat);
    }
}

/// As many findings as a message has. The line of the outcome has their number.
fn first<T>(findings: &[T]) -> &[T] {
    &findings[..findings.len().min(5)]
}

impl Drop for Outcome {
    fn drop(&mut self) {
        if !thread::panicking() {
            // The histories of a success are not needed.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
