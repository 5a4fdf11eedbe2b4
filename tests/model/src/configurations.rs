//! Every configuration that is checked: its name, its subject and its expected result. The names up to M7 and T12 are
//! those of the analysis that the algorithm comes from. M8, T13 and what follows cover what the core does beyond it. S
//! and H model what the core does not do yet.
//!
//! A configuration that holds states the number of its canonical states, and one that breaks the length of its shortest
//! trace. A change that removes behaviour from the model would not break what holds, but it changes these numbers.

use crate::{
    exclusion::{self, Repair},
    hand_over, min_hold, read_write,
    resource::{self, Check},
    slots,
    tokens::{self, Memory, Prolonged, Raise, RepairedCounter, Watch},
};

/// The expected result.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// The search exhausts all states, this many, without a violation.
    Holds(usize),
    /// The search finds a violation whose description starts like this, after this many steps.
    Breaks(&'static str, usize),
    /// The search visits this many states without a violation, and more are left.
    Unfinished(usize),
    /// This many schedules lose an update: the number of these, and of all schedules.
    Loses(usize, usize),
}

/// The model that is searched.
#[derive(Clone, Copy, Debug)]
pub enum Subject {
    Exclusion(exclusion::Config),
    Tokens(tokens::Config),
    ReadWrite(read_write::Config),
    Slots(slots::Config),
    HandOver(hand_over::Config),
    MinHold(min_hold::Config),
    Resource(resource::Config),
}

#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    pub name: &'static str,
    pub about: &'static str,
    pub nodes: usize,
    pub expected: Expected,
    pub subject: Subject,
}

/// Three nodes, two clients, one attempt each. The belief is as long as the lease: the longest that is safe.
const M: exclusion::Config = exclusion::Config {
    quorum: 2,
    clients: 2,
    attempts: 1,
    starts: 2,
    renewals: 0,
    repairs: 0,
    lease: 2,
    belief: 2,
    crashes: 0,
    quarantine: 0,
    flushes: 0,
    jumps: 0,
    from_reply: false,
    reused: false,
    resumes: false,
    recreates: false,
    repair: Repair::Absent,
    repairs_lost: false,
    repairs_anywhere: false,
    ordered: false,
    repairs_ordered: false,
    orphans: false,
};

/// Three nodes, two attempts, counters that start at any of 0, 1 and 2.
const T: tokens::Config = tokens::Config {
    quorum: 2,
    attempts: 2,
    raise: Raise::CompareAndSet,
    spread: 2,
    resent: 0,
    amnesias: 0,
    memory: Memory::Lost,
    repairs: 0,
    repaired: RepairedCounter::Larger,
    prolongs: 0,
    prolonged: Prolonged::IfGone,
    ticks: 0,
    skew: 0,
    quarantine: 0,
    prompt: false,
    watch: Watch::Both,
};

/// Counters seeded by clocks. The clocks differ by less than the quarantine of a node that lost its keys.
const CLOCK: tokens::Config =
    tokens::Config { spread: 0, ticks: 3, skew: 1, quarantine: 2, amnesias: 2, prompt: true, ..T };

const TWO: &str = "two clients hold";
const SPOILED: &str = "a client holds on";
const ORPHAN: &str = "a key is left";
const ALONE: &str = "a writer is not alone";
const EARLY: &str = "a client holds before min_hold";

/// All configurations.
#[must_use]
pub fn all() -> Vec<Configuration> {
    let mut list = Vec::new();
    let mut add = |name, nodes, about, expected, subject| {
        list.push(Configuration { name, about, nodes, expected, subject });
    };
    exclusion(&mut add);
    tokens(&mut add);
    read_write(&mut add);
    slots(&mut add);
    hand_over(&mut add);
    min_hold(&mut add);
    resource(&mut add);
    list
}

fn exclusion(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::{Breaks, Holds};
    use exclusion::Config;
    let mut m = |name, nodes, about, expected, config| add(name, nodes, about, expected, Subject::Exclusion(config));
    let long = Config { lease: 3, belief: 3, ..M };
    let twice = Config { attempts: 2, starts: 3, ..M };
    let five = Config { quorum: 3, ..M };
    m("M1", 3, "two clients", Holds(52_541), long);
    m("M1b", 3, "three clients", Holds(891_217), Config { clients: 3, starts: 3, ..M });
    m("M1c", 3, "belief one tick longer than the key's life: no margin", Breaks(TWO, 13), Config { belief: 3, ..M });
    m("M1d", 3, "deadline counted from the reply", Breaks(TWO, 13), Config { from_reply: true, ..M });
    m("M1e", 3, "a quorum of 1 of 3 (below N/2+1)", Breaks(TWO, 6), Config { quorum: 1, ..M });
    m("M1f", 4, "a quorum of N/2: 2 of 4", Breaks(TWO, 10), M);
    m("M2", 3, "a restart without keys, votes at once", Breaks(TWO, 11), Config { crashes: 1, ..M });
    let crash = Config { crashes: 1, quarantine: 1, ..M };
    m("M2b", 3, "a restart without keys, votes one tick too early", Breaks(TWO, 12), crash);
    let crashes = Config { crashes: 2, quarantine: 3, ..long };
    m("M2c", 3, "two restarts without keys, quarantine of the longest lease", Holds(524_876), crashes);
    let crashes = Config { crashes: 2, quarantine: 2, renewals: 2, ..M };
    m("M2d", 3, "the same with two renewals each", Holds(10_667_908), crashes);
    m("M2e", 3, "the same with one renewal each", Holds(589_212), Config { renewals: 1, ..crashes });
    m("M3", 5, "one clock jump, q = 3", Breaks(TWO, 15), Config { jumps: 1, ..five });
    m("M3b", 3, "one clock jump, q = 2", Breaks(TWO, 11), Config { jumps: 1, ..M });
    let four = Config { quorum: 4, ..M };
    m("M3c", 5, "one clock jump, q = 4", Holds(3_370_026), Config { jumps: 1, ..four });
    m("M3d", 5, "two clock jumps, q = 4", Holds(5_427_979), Config { jumps: 2, ..four });
    m("M3e", 5, "three clock jumps, q = 4", Breaks(TWO, 21), Config { jumps: 3, ..four });
    let repaired = Config { jumps: 2, repairs: 1, ..four };
    m("M3f", 5, "two clock jumps, q = 4, one repair", Holds(7_038_139), repaired);
    m("M4", 3, "one value for all attempts of a client", Breaks(TWO, 13), Config { reused: true, ..twice });
    m("M4b", 3, "a fresh value for each attempt, three attempts", Holds(3_182_004), twice);
    let reused = Config { reused: true, renewals: 1, ..twice };
    m("M4c", 3, "one value for all attempts, with a renewal", Breaks(TWO, 13), reused);
    m("M4d", 3, "as M4b with a longer lease", Holds(8_639_876), Config { attempts: 2, starts: 3, ..long });
    m("M5", 3, "two renewals each", Holds(1_604_354), Config { renewals: 2, ..M });
    let reply = Config { renewals: 1, from_reply: true, ..M };
    m("M5b", 3, "deadline counted from the reply of a renewal", Breaks(TWO, 13), reply);
    let resumes = Config { renewals: 1, resumes: true, ..M };
    m("M5c", 3, "a renewal counts after the deadline", Breaks(SPOILED, 21), resumes);
    let recreates = Config { renewals: 1, recreates: true, ..long };
    m("M5d", 3, "a renewal writes keys that are gone, lost is final", Holds(1_564_507), recreates);
    m("M5e", 3, "the same, and counts after the deadline", Breaks(SPOILED, 21), Config { resumes: true, ..recreates });
    m("M5f", 3, "as M5 with a longer lease", Holds(7_897_867), Config { renewals: 2, ..long });
    m("M6", 5, "one renewal each", Holds(13_996_883), Config { renewals: 1, ..five });
    m("M6b", 5, "two clients", Holds(1_442_742), five);
    m("M6c", 5, "as M6b with a longer lease", Holds(5_143_341), Config { quorum: 3, ..long });
    let one = Config { quorum: 1, clients: 3, attempts: 2, starts: 5, renewals: 2, ..long };
    m("M7", 1, "a single node, three clients, five attempts, two renewals", Holds(286_059), one);

    let repair = Config { renewals: 1, repairs: 1, ..M };
    m("M8", 3, "repair: the holder writes its key where none is", Holds(477_265), repair);
    m("M8b", 3, "the same, three attempts", Holds(8_681_310), Config { repairs: 1, ..twice });
    m("M8i", 5, "repair on five nodes", Holds(8_560_940), Config { repairs: 1, ..five });
    let late = Config { repairs: 1, renewals: 0, repairs_lost: true, resumes: true, ..M };
    m("M8c", 3, "a repair after the deadline, on a lost majority", Breaks(SPOILED, 20), late);
    let overwrites = Config { repair: Repair::Overwrites, ..repair };
    m("M8d", 3, "a repair that overwrites another's key", Breaks(TWO, 19), overwrites);
    let orphans = Config { orphans: true, ordered: true, repairs_ordered: true, ..repair };
    m("M8e", 3, "no orphan: a release is ordered behind acquire and repair", Holds(211_115), orphans);
    let overtaken = Config { repairs_ordered: false, ..orphans };
    m("M8f", 3, "orphan: a release overtakes a repair", Breaks(ORPHAN, 9), overtaken);
    let overtaken = Config { repairs: 0, ordered: false, ..orphans };
    m("M8g", 3, "orphan: a release overtakes the acquire", Breaks(ORPHAN, 4), overtaken);
    let from_reply = Config { from_reply: true, renewals: 0, ..repair };
    m("M8h", 3, "deadline counted from the reply of a repair", Breaks(TWO, 13), from_reply);
    let crashes = Config { crashes: 1, quarantine: 2, ..repair };
    m("M9", 3, "a restart, a renewal and a repair, refused in quarantine", Holds(1_871_735), crashes);
    let anywhere = Config { repairs_anywhere: true, ..crashes };
    m("M9b", 3, "the same, repairs written in quarantine", Breaks(TWO, 20), anywhere);
    m("M9c", 3, "as M9 with a quarantine one tick too short", Breaks(TWO, 12), Config { quarantine: 1, ..crashes });
    m("M9d", 3, "as M9 with two restarts", Holds(3_995_057), Config { crashes: 2, ..crashes });
    let flushes = Config { flushes: 2, quarantine: 2, ..M };
    m("M10", 3, "FLUSHALL on two nodes, noticed by the missing marker", Holds(280_161), flushes);
    let repaired = Config { flushes: 1, quarantine: 2, ..repair };
    m("M10b", 3, "FLUSHALL on a node, a renewal and a repair, refused without the marker", Holds(2_414_229), repaired);
    m(
        "M10c",
        3,
        "the marker is written anew without a quarantine",
        Breaks(TWO, 12),
        Config { quarantine: 0, ..flushes },
    );
    let mixed = Config { crashes: 1, flushes: 1, renewals: 1, quarantine: 2, ..M };
    m("M10d", 3, "a restart and a FLUSHALL, one renewal", Holds(1_179_554), mixed);
    let anywhere = Config { repairs_anywhere: true, ..repaired };
    m("M10e", 3, "as M10b, repairs written without the marker", Breaks(TWO, 20), anywhere);
}

fn tokens(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::{Breaks, Holds, Unfinished};
    use tokens::Config;
    let mut t = |name, nodes, about, expected, config| add(name, nodes, about, expected, Subject::Tokens(config));
    let p1 = Config { watch: Watch::P1, ..T };
    let p2 = Config { watch: Watch::P2, ..T };
    let three = Config { attempts: 3, ..T };
    let five = Config { quorum: 3, prompt: true, ..T };
    let naive = Config { raise: Raise::Never, ..p2 };
    t("T1", 3, "token = max, no write-back", Breaks("P2", 9), naive);
    t("T2", 3, "write-back unconditional", Breaks("P1", 11), Config { raise: Raise::Always, ..p1 });
    let mine = Config { raise: Raise::WhileMine, ..T };
    t("T3", 3, "write-back while the key is mine", Holds(90_283), mine);
    t("T3b", 3, "the same, three attempts", Holds(660_481), Config { attempts: 3, prompt: true, ..mine });
    t("T4", 3, "write-back by compare-and-set", Holds(90_283), T);
    t("T4b", 3, "the same, three attempts", Holds(660_481), Config { prompt: true, ..three });
    t("T4c", 3, "as T4b, answers delayed without bound", Holds(12_805_468), three);
    t(
        "T5",
        3,
        "write-back while mine, one resent acquire",
        Breaks("P1", 13),
        Config { resent: 1, watch: Watch::P1, ..mine },
    );
    t("T5b", 3, "compare-and-set, one resent acquire", Holds(1_576_418), Config { resent: 1, ..T });
    t("T5c", 3, "compare-and-set, two resent acquires", Holds(974_314), Config { resent: 2, prompt: true, ..T });
    t(
        "T5d",
        3,
        "three attempts, one resent acquire",
        Holds(4_406_467),
        Config { resent: 1, prompt: true, spread: 1, ..three },
    );
    t("T5e", 5, "one resent acquire, N = 5", Holds(1_270_503), Config { resent: 1, spread: 0, ..five });
    let locks = Config { amnesias: 3, memory: Memory::Kept, resent: 1, prompt: true, ..T };
    t("T6", 3, "three times locks are lost and counters kept, one resent acquire", Holds(740_472), locks);
    t("T7", 3, "a counter is lost", Breaks("P2", 9), Config { amnesias: 1, ..p2 });
    t("T7b", 3, "a counter is rolled back", Breaks("P2", 9), Config { amnesias: 1, memory: Memory::Older, ..p2 });
    let four = Config { quorum: 4, amnesias: 2, spread: 1, ..five };
    t("T7c", 5, "two counters are lost, q = 4, no clock", Holds(4_552_947), four);
    t("T7d", 5, "a counter is lost, q = 3", Breaks("P2", 7), Config { amnesias: 1, watch: Watch::P2, ..five });
    t("T7e", 5, "three counters are lost, q = 4", Breaks("P2", 11), Config { amnesias: 3, watch: Watch::P2, ..four });
    t("T8", 3, "counters seeded by clocks, two amnesias, skew below the quarantine", Holds(1_170_555), CLOCK);
    t("T8a", 3, "the same, three amnesias", Holds(1_716_048), Config { amnesias: 3, ..CLOCK });
    let clock2 = Config { watch: Watch::P2, ..CLOCK };
    t("T8b", 3, "no quarantine after an amnesia", Breaks("P2", 5), Config { quarantine: 0, ..clock2 });
    t("T8c", 3, "skew larger than the quarantine", Breaks("P2", 6), Config { skew: 2, quarantine: 1, ..clock2 });
    t("T8d", 3, "two old snapshots instead of amnesias", Holds(1_170_555), Config { memory: Memory::Older, ..CLOCK });
    t("T9", 5, "token = max, no write-back", Breaks("P2", 13), Config { quorum: 3, ..naive });
    t("T9b", 5, "write-back by compare-and-set", Holds(5_359_334), five);
    t("T9c", 5, "the same, q = 4", Holds(2_716_120), Config { quorum: 4, ..five });
    t("T9d", 5, "write-back unconditional", Breaks("P1", 8), Config { raise: Raise::Always, watch: Watch::P1, ..five });
    let one = Config { quorum: 1, attempts: 3, resent: 1, ..T };
    t("T10", 1, "a single node, three attempts, one resent acquire", Holds(1_911), one);
    t("T10b", 1, "a single node loses its counter", Breaks("P2", 5), Config { amnesias: 1, watch: Watch::P2, ..one });
    let seeded = Config { quorum: 1, attempts: 3, ..CLOCK };
    t("T10c", 1, "the same, seeded by the clock", Holds(1_860), seeded);
    let back = Config { skew: 2, quarantine: 3, ..seeded };
    t("T10d", 1, "its counter ends after longer than its clock is set back", Holds(2_452), back);
    let far = Config { quarantine: 1, watch: Watch::P2, ..back };
    t("T10e", 1, "its counter ends sooner than that", Breaks("P2", 4), far);
    let large = Config { attempts: 3, spread: 1, ..five };
    t("T11", 5, "write-back by compare-and-set, three attempts", Unfinished(40_000_000), large);
    t("T12", 5, "seeded by clocks, two amnesias", Unfinished(40_000_000), Config { quorum: 3, ..CLOCK });

    let repair = Config { repairs: 2, ..T };
    t("T13", 3, "two repairs, which raise the counter to the token", Holds(362_532), repair);
    t("T13b", 3, "the same, three attempts", Holds(4_313_832), Config { repairs: 2, prompt: true, spread: 1, ..three });
    t("T13c", 3, "a repair and a resent acquire", Holds(477_288), Config { repairs: 1, resent: 1, prompt: true, ..T });
    let seeded = Config { repairs: 1, ..CLOCK };
    t("T13e", 3, "a repair, counters seeded by clocks, two amnesias", Holds(4_780_861), seeded);
    let lowers = Config { repairs: 1, repaired: RepairedCounter::Token, attempts: 3, prompt: true, ..p2 };
    t("T13d", 3, "a repair that sets the counter to the token, also down", Breaks("P2", 12), lowers);

    let evicted = Config { memory: Memory::Evicted, prolongs: 2, ..CLOCK };
    let single = Config { quorum: 1, attempts: 3, ..evicted };
    t("T14", 1, "a single node loses its counter alone, and gets it back by a prolongation", Holds(16_076), single);
    t("T14b", 3, "three nodes, one of which does", Holds(3_161_544), Config { amnesias: 1, prolongs: 1, ..evicted });
    let lowers = Config { prolongs: 1, prolonged: Prolonged::Always, watch: Watch::P2, ..T };
    let lowers = Config { quorum: 1, attempts: 3, ..lowers };
    t("T14c", 1, "a prolongation that sets the counter to the token, also down", Breaks("P2", 10), lowers);
}

fn read_write(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::{Breaks, Holds};
    use read_write::Config;
    let mut w = |name, nodes, about, expected, config| add(name, nodes, about, expected, Subject::ReadWrite(config));
    let one = Config {
        readers_quorum: 2,
        writers_quorum: 2,
        writers: 1,
        readers: 1,
        lease: 1,
        belief: 1,
        changes: 0,
        crowded: false,
        ignored: false,
    };
    w("W1", 3, "a writer and two readers", Holds(5_370_305), Config { readers: 2, ..one });
    w("W1b", 3, "two writers and a reader", Holds(2_318_597), Config { writers: 2, ..one });
    w("W1c", 3, "a writer and a reader, two changes between them", Holds(214_942), Config { changes: 2, ..one });
    let readers = Config { writers: 0, readers: 2, changes: 2, ..one };
    w("W1d", 3, "two readers that both want to write", Holds(371_445), readers);
    w("W2", 3, "a reader on one node is one", Breaks(ALONE, 8), Config { readers_quorum: 1, ..one });
    let five = Config { readers_quorum: 2, writers_quorum: 3, ..one };
    w("W2b", 5, "readers on two of five nodes, writers on three", Breaks(ALONE, 12), five);
    w("W3", 3, "a reader becomes the writer beside others", Breaks(ALONE, 15), Config { crowded: true, ..readers });
    w("W4", 3, "readers enter where a plain lock is held", Breaks(ALONE, 10), Config { ignored: true, ..one });
    w("W5", 3, "belief one tick longer than the key's life", Breaks(ALONE, 12), Config { belief: 2, ..one });
}

fn slots(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::{Breaks, Holds, Unfinished};
    use slots::Config;
    let mut s = |name, nodes, about, expected, config| add(name, nodes, about, expected, Subject::Slots(config));
    let two = Config { quorum: 2, clients: 2, permits: 2, starts: 2, lease: 1, belief: 1, ..Config::default() };
    let three = Config { clients: 3, starts: 3, ..two };
    s("S1", 3, "two slots, two clients", Holds(1_363_805), two);
    s("S1b", 3, "two slots, three clients", Unfinished(40_000_000), three);
    let timeless = Config { lease: 0, ..three };
    s("S1c", 3, "two slots, three clients, nothing expires", Holds(8_249_481), timeless);
    let counted = Config { counted: true, ..timeless };
    s("S2", 3, "nodes count their holders, any q grants make one", Breaks("more hold", 15), counted);
    s("S3", 3, "a move takes a slot whoever has it", Breaks("two hold", 13), Config { seizes: true, ..two });
    s("S4", 3, "belief one tick longer than the slot's life", Breaks("two hold", 12), Config { belief: 2, ..two });
}

fn hand_over(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::{Breaks, Holds};
    use hand_over::Config;
    let mut h = |name, about, expected, config| add(name, 1, about, expected, Subject::HandOver(config));
    let queue = Config {
        clients: [0, 0, 1],
        ttl: 2,
        patience: 2,
        belief: 2,
        from_message: false,
        unnamed: false,
        keeps_ticket: false,
        ordered: true,
    };
    h("H1", "two waiters of one client, one of another", Holds(385_113), queue);
    h("H1b", "a waiter of one client, two of another", Holds(385_113), Config { clients: [0, 1, 1], ..queue });
    h("H1c", "waiters wait longer than the lock is held", Holds(589_314), Config { patience: 3, ..queue });
    h("H2", "who is told believes from then on", Breaks(TWO, 14), Config { from_message: true, ..queue });
    let unnamed = Config { unnamed: true, ..queue };
    h("H3", "what a waiter is told does not name its ticket", Breaks(TWO, 17), unnamed);
    let keeps = Config { keeps_ticket: true, ..queue };
    h("H4", "who enters the queue anew does so with its old ticket", Breaks(TWO, 17), keeps);
    h(
        "H5",
        "belief as long as the ttl, though waiters wait for less",
        Breaks(TWO, 13),
        Config { patience: 1, ..queue },
    );
    let overtaken = Config { ordered: false, ..queue };
    h("H6", "what takes an acquire back overtakes it", Breaks("the lock was taken", 4), overtaken);
}

fn min_hold(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::{Breaks, Holds};
    use min_hold::Config;
    let mut l = |name, nodes, about, expected, config| add(name, nodes, about, expected, Subject::MinHold(config));
    let one = Config { quorum: 1, lease: 2, min_hold: 3, frees: false, keeps_key: false, from_request: false };
    let three = Config { quorum: 2, ..one };
    l("L1", 1, "a single node, min_hold longer than the lease", Holds(463), one);
    l("L1b", 3, "three nodes, min_hold longer than the lease", Holds(211_865), three);
    l("L1c", 3, "three nodes, min_hold as long as the lease", Holds(90_270), Config { min_hold: 2, ..three });
    l("L2", 3, "a release frees the lock", Breaks(EARLY, 13), Config { frees: true, ..three });
    l("L3", 3, "the tenure's own key stays", Breaks("a released lock stays", 10), Config { keeps_key: true, ..three });
    l("L4", 3, "the rest counts from before the request", Breaks(EARLY, 16), Config { from_request: true, ..three });
}

fn resource(add: &mut impl FnMut(&'static str, usize, &'static str, Expected, Subject)) {
    use Expected::Loses;
    let mut r = |name, about, expected, check, holders, increments| {
        let config = resource::Config { check, holders, increments };
        add(name, 0, about, expected, Subject::Resource(config));
    };
    r("R1", "the resource checks no token", Loses(4, 6), Check::Never, 2, 1);
    r("R2", "it checks writes, equal passes", Loses(2, 6), Check::Writes, 2, 1);
    r("R2b", "it checks writes, only larger passes", Loses(2, 6), Check::WritesStrictly, 2, 1);
    r("R3", "it checks every access, reads included", Loses(0, 6), Check::EveryAccess, 2, 1);
    r("R3b", "the same, three holders, two increments each", Loses(0, 34_650), Check::EveryAccess, 3, 2);
}
