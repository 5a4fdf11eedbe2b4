//! A lock that changes hands between another library's process and one of ours: no two hold it at once, and every
//! waiter is woken. Counts the hand-offs between the two sides and measures how long each took.

use std::{
    env::temp_dir,
    fmt::Write,
    fs::{create_dir_all, remove_dir_all},
    path::PathBuf,
    process::id,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread::sleep,
    time::Duration,
};

use redlock::{LockError, Owner, Ttl, Wire};
use redlock_tests::{
    contender::{Contender, PATIENCE, until},
    history::{self, Hold},
};

use crate::{Party, client, lock, place::Place};

/// A line of the table at the end.
pub(crate) struct Row {
    from: String,
    to: String,
    handoffs: usize,
    failures: usize,
    /// The times from the release, or from the call if that came later, to the grant; in ns, sorted.
    waits: Vec<u64>,
}

impl Row {
    pub(crate) fn new(from: &str, to: &str, mut waits: Vec<u64>, failures: usize) -> Self {
        waits.sort_unstable();
        Self { from: from.to_owned(), to: to.to_owned(), handoffs: waits.len(), failures, waits }
    }

    /// A quantile in ms; `part` is from 0 to 1.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let last = self.waits.len().saturating_sub(1);
        self.waits.get((last as f64 * part) as usize).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
    }
}

/// Formats all rows for people.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "\n{:<33} {:<33} {:>9} {:>9} {:>10} {:>10} {:>10}\n",
        "from", "to", "hand-offs", "failures", "median ms", "p99 ms", "longest"
    );
    for row in rows {
        let [median, late, longest] = [0.5, 0.99, 1.0].map(|part| row.quantile(part));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<33} {:<33} {:>9} {:>9} {median:>10.2} {late:>10.2} {longest:>10.2}",
            row.from, row.to, row.handoffs, row.failures
        );
    }
    let sum: usize = rows.iter().map(|row| row.handoffs).sum();
    let failures: usize = rows.iter().map(|row| row.failures).sum();
    text + &format!("{:<67} {sum:>9} {failures:>9}\n", "all")
}

/// The two sides of a fight, and its settings.
pub(crate) struct Fight<'a> {
    pub(crate) place: &'a Place,
    /// The other library, and the action that it gets as an argument.
    pub(crate) theirs: &'a Party,
    pub(crate) action: &'a str,
    /// One of our languages.
    pub(crate) ours: &'a Party,
    pub(crate) wire: Wire,
    /// The prefix that our side adds to a name, where the library adds one by itself.
    pub(crate) prefix: &'a str,
    /// How often the lock must change sides.
    pub(crate) handoffs: usize,
    /// The fewest hand-offs of a round: a shorter round is over before both sides have started.
    pub(crate) least: usize,
    /// How often each side (theirs, then ours) acquires the lock for each hand-off wanted.
    pub(crate) shares: [f64; 2],
    /// How long each side holds the lock at most, in ms.
    pub(crate) hold: u64,
    /// How long each side (theirs, then ours) pauses at most, in ms.
    pub(crate) pauses: [u64; 2],
}

const NAME: &str = "fight";

/// Runs rounds until there were enough hand-offs. Each round is a fight of its own, with new processes.
pub(crate) fn fight(fight: &Fight<'_>) -> Vec<Row> {
    let (mut to_ours, mut to_theirs, mut failures) = (Vec::new(), Vec::new(), 0);
    let parties = [fight.theirs, fight.ours].map(|party| party.0.as_str());
    for attempt in 0.. {
        let missing = fight.handoffs.saturating_sub(to_ours.len() + to_theirs.len());
        if missing == 0 {
            break;
        }
        assert!(attempt < 8, "{parties:?}: too few hand-offs: {} and {}", to_ours.len(), to_theirs.len());
        let (logs, folder) = round(fight, missing.max(fight.least));
        let findings = history::check(logs.concat());
        let wrong = findings.overlaps.len() + findings.disorder.len();
        failures += wrong;
        if wrong == 0 {
            remove_dir_all(folder).unwrap();
        } else {
            println!("{findings:?}; logs in {}", folder.display());
        }
        to_theirs.extend(waits(&logs, 0));
        to_ours.extend(waits(&logs, 1));
    }
    assert_eq!(failures, 0, "{parties:?}: overlaps, or tokens out of order");
    let [theirs, ours] = parties;
    vec![Row::new(theirs, ours, to_ours, failures), Row::new(ours, theirs, to_theirs, failures)]
}

/// How long one of two sides waited after each release of the other.
pub(crate) fn waits(logs: &[Vec<Hold>], side: usize) -> Vec<u64> {
    let of_side = |(who, log): (usize, &Vec<Hold>)| log.iter().map(|hold| (who, hold.clone())).collect::<Vec<_>>();
    let mut all: Vec<(usize, Hold)> = logs.iter().enumerate().flat_map(of_side).collect();
    all.sort_by_key(|(_, hold)| hold.from);
    let handoffs = all.windows(2).filter(|pair| pair[0].0 != side && pair[1].0 == side);
    let wait = |pair: &[(usize, Hold)]| {
        let (earlier, later) = (&pair[0].1, &pair[1].1);
        later.from.saturating_sub(earlier.until.unwrap_or(0).max(later.called))
    };
    handoffs.map(wait).collect()
}

/// Runs one fight. Returns the holds of theirs and ours, and the folder of the logs.
fn round(fight: &Fight<'_>, handoffs: usize) -> (Vec<Vec<Hold>>, PathBuf) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let place = fight.place;
    let folder = temp_dir().join(format!("redlock-interop-{}-{}", id(), NUMBER.fetch_add(1, Relaxed)));
    create_dir_all(&folder).unwrap();
    let url = place.url();
    let key = format!("{}{NAME}", fight.prefix);
    let times = fight.shares.map(|share| (handoffs as f64 * share).ceil() as usize);

    // Holds the lock until both sides wait for it, since some languages start slowly.
    let client = client(&url, |config| {
        config.wire = fight.wire;
        fight.prefix.clone_into(&mut config.prefix);
    });
    let lock = lock(&client, NAME, Ttl::Watchdog);
    let mut go_on = || Ok::<(), LockError>(());
    let barrier = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on).unwrap();

    let counts = times.map(|times| times.to_string());
    let hold = fight.hold.to_string();
    let pauses = fight.pauses.map(|pause| pause.to_string());
    let (name, command) = fight.theirs;
    let command = format!("{command} {}", fight.action);
    let theirs = Contender::start(name, &command, [&url, NAME, &counts[0]], &[&hold, &pauses[0]], &folder);
    let (name, command) = fight.ours;
    let wire = if fight.wire == Wire::Token { "token" } else { "redisson" };
    let more = [&hold, &pauses[1], wire, fight.prefix];
    let ours = Contender::start(name, command, [&url, NAME, &counts[1]], &more, &folder);
    let mut both = [theirs, ours];
    until("both of them wait", || {
        for Contender { name, child, .. } in &mut both {
            assert_eq!(child.try_wait().unwrap(), None, "{name} has ended");
        }
        // The other library may be polling, so only its progress shows that it waits.
        both[0].progress() > 0 && place.listeners(&key) > 0
    });
    barrier.release_interruptible(&mut go_on).unwrap();

    let (mut seen, mut still) = (0, Duration::ZERO);
    let tick = Duration::from_millis(10);
    let goes_on = |one: &mut Contender| match one.child.try_wait().unwrap() {
        Some(status) => {
            assert!(status.success(), "{} ended with {status}; logs in {}", one.name, folder.display());
            false
        }
        None => true,
    };
    while both.each_mut().map(goes_on) != [false; 2] {
        let now = both.iter().map(Contender::progress).sum();
        (seen, still) = if now == seen { (seen, still + tick) } else { (now, Duration::ZERO) };
        assert!(still < PATIENCE, "nobody gets the lock; logs in {}", folder.display());
        sleep(tick);
    }
    until("the lock leaves no key and no listener", || place.keys().is_empty() && place.listeners(&key) == 0);

    let logs: Vec<Vec<Hold>> = both.iter().map(|one| history::read([&one.log]).unwrap()).collect();
    for ((one, holds), times) in both.iter().zip(&logs).zip(times) {
        assert_eq!(holds.len(), times, "grants of {}", one.name);
        assert!(holds.iter().all(|hold| hold.until.is_some()), "{} released all of them", one.name);
    }
    (logs, folder)
}
