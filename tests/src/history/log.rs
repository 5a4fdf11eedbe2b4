//! The files of a history.
//!
//! A *log* is written by one process. It has one line for each event:
//!
//! - `grant <token> <ns> [<ns of the call> [<tenure> [<share>]]]`, with the time right after an acquire returned. The
//!   share is `read`, `write`, `upgrade` (a writer that did not wait) or the slots of a permit, `3:token,7:token`.
//! - `release <token> <ns> [<tenure>]`, with a time right before the release was sent, at which the lock was still held.
//! - `released <token> <ns> [<tenure>]`, with the time at which the release had succeeded.
//!
//! The tenure tells holds with one token apart; without it the token does. A process writes each line out before its next
//! turn. A grant that is lost at once has no further line. Locks of other libraries have no tokens: a `-` stands in their
//! place, and such holds are only checked for overlaps. Their logs have a further line, `ready - <ns>`, when they start.
//!
//! A *history* is a file of JSON lines for checkers that others wrote: the lock, and then its tenures.

use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    io::{self, BufWriter, Write as _},
    path::Path,
};

use serde::Serialize;

use super::{Hold, Kind, Share, Slot};

/// The line of a grant.
pub fn grant(hold: &Hold, tenure: &str) -> String {
    let Hold { token, called, from, .. } = hold;
    let token = token.map_or_else(|| "-".to_owned(), |token| token.to_string());
    let share = match &hold.share {
        Share::Whole => String::new(),
        Share::Read => " read".to_owned(),
        Share::Write => if hold.ahead { " upgrade" } else { " write" }.to_owned(),
        Share::Slots(slots) => slots.iter().fold(String::new(), |mut text, slot| {
            let comma = if text.is_empty() { ' ' } else { ',' };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{}:{}", slot.number, slot.token);
            text
        }),
    };
    format!("grant {token} {from} {called} {tenure}{share}\n")
}

/// The lines of the end of a tenure with this token, as far as it is known: until when it was held, and when it was
/// released.
pub fn release(token: u64, tenure: &str, until: Option<u64>, released: Option<u64>) -> String {
    let line = |event: &str, time: Option<u64>| {
        time.map_or_else(String::new, |time| format!("{event} {token} {time} {tenure}\n"))
    };
    line("release", until) + &line("released", released)
}

/// Reads the holds from logs.
pub fn read(logs: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Vec<Hold>> {
    let mut holds: Vec<Hold> = Vec::new();
    for log in logs {
        let text = fs::read_to_string(log)?;
        let mut open: HashMap<&str, usize> = HashMap::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(event), Some(token), Some(time)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(time) = time.parse() else { continue };
            if event == "grant" {
                let parsed = if token == "-" { Ok(None) } else { token.parse().map(Some) };
                let Ok(parsed) = parsed else { continue };
                let called = words.next().and_then(|word| word.parse().ok()).unwrap_or(time);
                let tenure = words.next().unwrap_or(token);
                let (share, ahead) = words.next().map_or((Share::Whole, false), share);
                open.insert(tenure, holds.len());
                holds.push(Hold { token: parsed, share, ahead, called, from: time, until: None, released: None });
            } else if let Some(index) = open.get(words.next().unwrap_or(token)) {
                match event {
                    "release" if holds[*index].until.is_none() => holds[*index].until = Some(time),
                    "released" => holds[*index].released = Some(time),
                    _ => {}
                }
            }
        }
    }
    Ok(holds)
}

fn share(word: &str) -> (Share, bool) {
    match word {
        "read" => (Share::Read, false),
        "write" => (Share::Write, false),
        "upgrade" => (Share::Write, true),
        slots => {
            let slot = |pair: &str| {
                let (number, token) = pair.split_once(':')?;
                Some(Slot { number: number.parse().ok()?, token: token.parse().ok()? })
            };
            (Share::Slots(slots.split(',').filter_map(slot).collect()), false)
        }
    }
}

/// The first line of a history.
#[derive(Serialize)]
struct Head<'a> {
    name: &'a str,
    kind: &'a str,
    permits: u32,
    shares_tokens: bool,
}

/// Any other line of a history.
#[derive(Serialize)]
struct Line<'a> {
    share: &'a str,
    token: u64,
    slots: &'a [Slot],
    called: u64,
    from: u64,
    until: Option<u64>,
    released: Option<u64>,
}

/// Writes the history of a lock, in the order of the grants. Leaves out holds without a token.
pub fn write_tenures(path: &Path, name: &str, kind: Kind, holds: &[Hold]) -> io::Result<()> {
    let mut sorted: Vec<&Hold> = holds.iter().collect();
    sorted.sort_by_key(|hold| hold.from);
    let (kind, permits, shares_tokens) = match kind {
        Kind::Lock => ("lock", 0, false),
        Kind::Fair => ("fair", 0, false),
        Kind::ReadWrite { shares_tokens } => ("read_write", 0, shares_tokens),
        Kind::Semaphore { permits } => ("semaphore", permits, false),
    };
    let mut file = BufWriter::new(fs::File::create(path)?);
    writeln!(file, "{}", serde_json::to_string(&Head { name, kind, permits, shares_tokens })?)?;
    for Hold { token, share, called, from, until, released, .. } in sorted {
        let Some(token) = *token else { continue };
        let (share, slots): (_, &[Slot]) = match share {
            Share::Whole => ("whole", &[]),
            Share::Read => ("read", &[]),
            Share::Write => ("write", &[]),
            Share::Slots(slots) => ("slots", slots),
        };
        let line = Line { share, token, slots, called: *called, from: *from, until: *until, released: *released };
        writeln!(file, "{}", serde_json::to_string(&line)?)?;
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{permit, reader, writer},
        *,
    };

    fn read_text(text: &str) -> io::Result<Vec<Hold>> {
        let number = fastrand::u64(..);
        let log = std::env::temp_dir().join(format!("redlock-history-{}-{number}", std::process::id()));
        fs::write(&log, text)?;
        let holds = read([&log]);
        fs::remove_file(&log)?;
        holds
    }

    #[test]
    fn a_log_without_tokens_is_read() -> io::Result<()> {
        let holds = read_text("ready - 1\ngrant - 20 10\nrelease - 30\ngrant - 50 40\n")?;
        let first = Hold { called: 10, from: 20, until: Some(30), ..Hold::default() };
        assert_eq!(holds, vec![first, Hold { called: 40, from: 50, ..Hold::default() }]);
        Ok(())
    }

    #[test]
    fn what_a_log_says_of_each_kind_is_read() -> io::Result<()> {
        let (lost, dead) = (writer(5, 50, 60), Hold { until: None, ..reader(6, 70, 0) });
        let upgraded = Hold { ahead: true, released: Some(49), ..writer(4, 40, 45) };
        let holds = vec![reader(3, 10, 30), reader(3, 11, 20), upgraded, permit(&[(0, 7), (2, 8)], 1, 2), lost, dead];
        let grants = holds.iter().enumerate().map(|(number, hold)| grant(hold, &number.to_string()));
        let ends = holds.iter().enumerate().map(|(number, hold)| {
            release(hold.token.unwrap_or_default(), &number.to_string(), hold.until, hold.released)
        });
        assert_eq!(read_text(&grants.chain(ends).collect::<String>())?, holds);
        Ok(())
    }
}
