//! `redlock watch`: the holders of locks as they change, a line each, for pipes and terminals.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock::{Kind, LockInfo};
use serde_json::{Value, json};

use super::{
    client,
    pause::{Pause, Woken},
    snapshot::{Lock, Source, not_known, seconds},
};
use crate::{
    block::block, connect::ConnectOptions, duration, exit_code::ExitStatusCode, failure::Failure, holder,
    table::visible, talk::Talk,
};

/// How far the clock of a node may be behind that of this machine.
const SKEW: Duration = Duration::from_secs(1);

/// Print each change of the holders of locks: held at the beginning, taken, changed, freed
///
/// Asks the servers again and again, so it misses a lock that was taken and freed between two looks. A pattern without
/// wildcards is a name, whose lock is always watched; of others, those that somebody waits for or, with --scan, all that
/// there are at the beginning.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends with Ctrl-C, and when nobody reads its output any more.

Examples:
  redlock watch deploy
  redlock watch 'order:*' --scan --json | jq -r .app")]
pub(crate) struct WatchOptions {
    /// Only names that match this pattern: * ? [a-z]
    pattern: Option<String>,
    /// The time between two looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::pause)]
    every: Duration,
    /// Walk through all keys of the servers first
    #[arg(long)]
    scan: bool,
}

pub(crate) fn run(options: &WatchOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let mut source = Source::new(client(servers, talk)?, options.pattern.as_deref());
    if options.scan {
        block(source.scan(None, |_, _| ()))?;
    }
    // After the scan, which Ctrl-C ends with the process.
    let pause = Pause::new()?;
    let mut watched = Watched::default();
    let (mut outage, mut warned) = (None, Vec::new());
    loop {
        let when = SystemTime::now();
        match look(&mut source) {
            Ok(locks) => {
                if outage.take().is_some() {
                    talk.say("the servers answer again");
                }
                if watched.last_look.is_none() && !options.scan && source.is_without_name() {
                    talk.say("only locks that somebody waits for; --scan finds all");
                }
                let lines = not_known(&locks);
                for line in lines.iter().filter(|line| !warned.contains(*line)) {
                    talk.warn(line);
                }
                warned = lines;
                for change in watched.changes(locks, when, |name| source.keeps(name)) {
                    if !pause.until_writable()? {
                        source.client().close_blocking();
                        return Ok(ExitStatusCode::DONE);
                    }
                    match change.print(when, talk) {
                        Err(_) if pause.is_unread() => return Ok(ExitStatusCode::DONE),
                        printed => printed?,
                    }
                }
            }
            // At the beginning, the options may be wrong.
            Err(failure) if watched.last_look.is_none() => return Err(failure),
            Err(failure) => {
                // The message of an outage has its length, and so is another one each time.
                if outage != Some(failure.code) {
                    talk.warn(&failure.message);
                }
                outage = Some(failure.code);
            }
        }
        if pause.wait(options.every)? != Woken::InTime {
            source.client().close_blocking();
            return Ok(ExitStatusCode::DONE);
        }
    }
}

fn look(source: &mut Source) -> Result<Vec<Lock>, Failure> {
    block(async {
        // Holders are looked up in this list. Without it they are shown by their owner.
        let _ = source.clients().await;
        source.locks().await
    })
}

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// It was taken before the first look, or before somebody waited for it.
    Held,
    Taken,
    /// Its holders are others than at the look before.
    Changed,
    /// Nobody holds it.
    Freed,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Taken => "taken",
            Self::Changed => "changed",
            Self::Freed => "freed",
        }
    }
}

/// A change of the holders of a lock.
#[derive(Debug)]
struct Change {
    name: String,
    what: What,
    before: Option<LockInfo>,
    now: Option<LockInfo>,
}

impl Change {
    fn print(&self, when: SystemTime, talk: &Talk) -> Result<(), Failure> {
        if talk.json() {
            let mut object = holder::json(self.now.as_ref());
            object.insert("time".to_owned(), json!(seconds(when)));
            object.insert("name".to_owned(), json!(self.name));
            object.insert("change".to_owned(), json!(self.what.as_str()));
            let before = self.before.as_ref().map(|before| Value::Object(holder::json(Some(before))));
            object.insert("before".to_owned(), before.unwrap_or_default());
            return talk.object(&Value::Object(object));
        }
        let name = talk.bold(&visible(&self.name));
        let who = |info: &Option<LockInfo>| visible(&info.as_ref().map_or_else(holder::dash, holder::held_by));
        let event = match self.what {
            What::Held => format!("held by {}", who(&self.now)),
            What::Taken => format!("taken by {}", who(&self.now)),
            What::Changed => format!("now held by {}, before by {}", who(&self.now), who(&self.before)),
            What::Freed => format!("freed by {}", who(&self.before)),
        };
        talk.line(&format!("{} {name}: {event}", clock_time(when)))
    }
}

/// The holders at the last look.
#[derive(Debug, Default)]
struct Watched {
    held: BTreeMap<String, LockInfo>,
    /// The locks that could not be inspected at the last look.
    unknown: BTreeSet<String>,
    last_look: Option<SystemTime>,
}

impl Watched {
    /// The changes since the last look, by name. `is_kept`: whether each look asks for this name.
    fn changes(&mut self, locks: Vec<Lock>, when: SystemTime, is_kept: impl Fn(&str) -> bool) -> Vec<Change> {
        let (unknown, known): (Vec<_>, Vec<_>) = locks.into_iter().partition(|lock| lock.error.is_some());
        let unknown: BTreeSet<String> = unknown.into_iter().map(|lock| lock.name).collect();
        let mut held: BTreeMap<_, _> = known.into_iter().filter_map(|lock| Some((lock.name, lock.info?))).collect();
        let mut changes = Vec::new();
        for (name, now) in &held {
            let before = self.held.remove(name);
            let what = match &before {
                Some(before) if is_same(before, now) => continue,
                Some(_) => What::Changed,
                None if self.unknown.contains(name) => What::Held,
                None if self.last_look.is_some_and(|last| is_kept(name) || is_new(now, last)) => What::Taken,
                None => What::Held,
            };
            changes.push(Change { name: name.clone(), what, before, now: Some(now.clone()) });
        }
        // Until it can be inspected again, a lock counts as held as before.
        let (kept, freed): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.held).into_iter().partition(|(name, _)| unknown.contains(name));
        held.extend(kept);
        (self.held, self.unknown) = (held, unknown);
        changes.extend(freed.into_iter().map(|(name, before)| Change {
            name,
            what: What::Freed,
            before: Some(before),
            now: None,
        }));
        changes.sort_by(|one, other| one.name.cmp(&other.name));
        self.last_look = Some(when);
        changes
    }
}

/// Whether a holder that was not seen at the last look got the lock since. It may have held it for long, while nobody
/// waited for it.
fn is_new(info: &LockInfo, last_look: SystemTime) -> bool {
    info.since.is_none_or(|since| since + SKEW >= last_look)
}

/// Whether the holders are the same. An explicit owner that released the lock and acquired it again counts as the same:
/// the token of a quorum may differ between two looks at one holder.
fn is_same(before: &LockInfo, now: &LockInfo) -> bool {
    (before.kind == Kind::Rest) == (now.kind == Kind::Rest) && before.owners == now.owners
}

/// The time of day in UTC.
pub(super) fn clock_time(when: SystemTime) -> String {
    let second = when.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_in_utc() {
        assert_eq!(clock_time(UNIX_EPOCH + Duration::from_secs(86_400 + 3_661)), "01:01:01Z");
    }
}
