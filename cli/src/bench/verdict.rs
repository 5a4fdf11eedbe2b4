//! What the times mean for the settings, in words. No speed is good or bad by itself: it is compared with the settings,
//! and each node with the others.

use std::time::Duration;

use redlock::Config;
use serde_json::{Value, json};

use super::times::{Row, What};

/// A reply may take this many times the slowest of a hundred round trips.
const MARGIN: u32 = 4;
/// A node this many times slower than the median one is named.
const SLOWER: f64 = 2.0;
/// So many callers on locks of their own should reach more than this many times the rate of one.
const MORE: f64 = 1.5;

/// A remark about the times.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    /// Whether something should be done.
    pub(crate) warns: bool,
    pub(crate) text: String,
}

impl Remark {
    /// Its JSON object.
    pub(crate) fn json(&self) -> Value {
        json!({ "what": "verdict", "warning": self.warns, "text": self.text })
    }
}

/// A time in milliseconds.
pub(crate) fn millis(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1000.0)
}

/// The remarks about all rows.
pub(crate) fn verdict(rows: &[Row], config: &Config) -> Vec<Remark> {
    let mut remarks = Vec::new();
    let mut say = |warns, text| remarks.push(Remark { warns, text });
    let trips: Vec<(&str, &Row)> = rows
        .iter()
        .filter_map(|row| if let What::RoundTrip(node) = &row.what { Some((node.as_str(), row)) } else { None })
        .collect();
    for (node, row) in &trips {
        if let Some(error) = &row.error {
            say(true, format!("{node} failed: {error}. redlock doctor says more."));
        }
    }
    let answering: Vec<_> = trips.iter().filter(|(_, row)| row.count() > 0).collect();
    let slowest = answering.iter().max_by_key(|(_, row)| row.percentile(99.0));
    if let Some((node, row)) = slowest {
        let (p99, reply, watchdog) = (row.percentile(99.0), config.reply_timeout, config.watchdog);
        let ms = millis(p99);
        if reply < p99 * MARGIN {
            say(
                true,
                format!(
                    "reply_timeout ({reply:?}) is less than {MARGIN} times the p99 round trip to {node} ({ms} ms): replies that \
                 are only late count as missing. Raise it."
                ),
            );
        } else {
            say(
                false,
                format!(
                    "reply_timeout ({reply:?}) is {} times the p99 round trip to {node} ({ms} ms).",
                    times(reply, p99)
                ),
            );
        }
        // A lease is renewed when a third of it is over.
        let left = watchdog * 2 / 3;
        if left < (reply + p99) * 2 {
            say(
                true,
                format!(
                    "A renewed lease of {watchdog:?} (watchdog) has {left:?} left at its first renewal, which is not enough for \
                 two that time out after {reply:?}. Raise watchdog."
                ),
            );
        } else {
            say(
                false,
                format!(
                    "A renewed lease of {watchdog:?} (watchdog) has {left:?} left at its first renewal: it survives an outage \
                 of that length, or {} replies that are missing.",
                    times(left, reply)
                ),
            );
        }
    }
    slow_nodes(&answering, &mut say);
    callers(rows, &mut say);
    hand_offs(rows, slowest.map(|(_, row)| *row), &mut say);
    remarks
}

/// How many times one time is longer than another.
fn times(long: Duration, short: Duration) -> u64 {
    (long.as_secs_f64() / short.as_secs_f64().max(1e-6)) as u64
}

fn slow_nodes(answering: &[&(&str, &Row)], say: &mut impl FnMut(bool, String)) {
    if answering.len() < 2 {
        return;
    }
    let mut all: Vec<Duration> = answering.iter().map(|(_, row)| row.percentile(50.0)).collect();
    all.sort();
    let median = all[(all.len() - 1) / 2];
    let mut found = false;
    for (node, row) in answering {
        let p50 = row.percentile(50.0);
        let ratio = p50.as_secs_f64() / median.as_secs_f64().max(1e-6);
        if ratio > SLOWER {
            found = true;
            let ms = millis(p50);
            say(
                true,
                format!(
                    "{node} is {ratio:.1} times slower than the median node (p50 {ms} ms). A quorum does not wait for its \
                 slowest nodes, as long as the others answer."
                ),
            );
        }
    }
    if !found {
        say(false, format!("No node is more than {SLOWER} times slower than the median one."));
    }
}

fn callers(rows: &[Row], say: &mut impl FnMut(bool, String)) {
    let rate = |wanted: &dyn Fn(usize) -> bool| {
        rows.iter().find_map(|row| match row.what {
            What::Pairs(callers) if wanted(callers) => Some((callers, row.rate()?)),
            _ => None,
        })
    };
    let (Some((_, one)), Some((callers, many))) = (rate(&|callers| callers == 1), rate(&|callers| callers > 1)) else {
        return;
    };
    if one <= 0.0 {
        return;
    }
    let ratio = many / one;
    let text = format!("{callers} callers with locks of their own make {ratio:.1} times as many acquires as one.");
    if ratio < MORE {
        say(true, format!("{text} The servers, the network or this machine are at their limit."));
    } else {
        say(false, text);
    }
}

fn hand_offs(rows: &[Row], slowest: Option<&Row>, say: &mut impl FnMut(bool, String)) {
    let row = rows.iter().find(|row| row.what == What::HandOff && row.count() > 0);
    let (Some(row), Some(slowest)) = (row, slowest) else { return };
    let ratio = row.percentile(50.0).as_secs_f64() / slowest.percentile(50.0).as_secs_f64().max(1e-6);
    say(
        false,
        format!(
            "A waiter has the lock {} ms after its release (p50): {ratio:.1} round trips.",
            millis(row.percentile(50.0))
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: What, millis: u64, all: u64) -> Row {
        let mut row = Row::new(what);
        for _ in 0..100 {
            row.record(Duration::from_millis(millis));
        }
        row.all = Duration::from_secs(all);
        row
    }

    fn node(name: &str, millis: u64) -> Row {
        row(What::RoundTrip(name.to_owned()), millis, 1)
    }

    fn warnings(rows: &[Row], config: &Config) -> Vec<String> {
        verdict(rows, config).into_iter().filter(|remark| remark.warns).map(|remark| remark.text).collect()
    }

    #[test]
    fn round_trips_are_compared_with_the_time_outs() {
        let mut config = Config::new(["redis://localhost"]);
        assert!(warnings(&[node("a", 100)], &config).is_empty());
        config.reply_timeout = Duration::from_millis(300);
        let found = warnings(&[node("a", 100)], &config);
        assert!(found.len() == 1 && found[0].contains("less than 4 times the p99 round trip to a (100."), "{found:?}");
        config.reply_timeout = Duration::from_secs(2);
        config.watchdog = Duration::from_secs(3);
        let found = warnings(&[node("a", 1)], &config);
        assert!(found.len() == 1 && found[0].contains("Raise watchdog"), "{found:?}");
    }

    #[test]
    fn a_slow_node_and_a_failed_one_are_named() {
        let config = Config::new(["redis://localhost"]);
        let mut failed = Row::new(What::RoundTrip("d".to_owned()));
        failed.error = Some("connection refused".to_owned());
        let found = warnings(&[node("a", 10), node("b", 11), node("c", 30), failed], &config);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("d failed: connection refused"), "{found:?}");
        assert!(found[1].contains("c is 2.7 times slower"), "{found:?}");
        assert!(warnings(&[node("a", 10), node("b", 11)], &config).is_empty());
    }

    #[test]
    fn callers_that_are_no_faster_together_show_a_limit() {
        let config = Config::new(["redis://localhost"]);
        let of = |many| [row(What::Pairs(1), 1, 10), row(What::Pairs(8), 1, many)];
        assert!(warnings(&of(2), &config).is_empty());
        let found = warnings(&of(9), &config);
        assert!(found.len() == 1 && found[0].contains("8 callers") && found[0].contains("limit"), "{found:?}");
    }

    #[test]
    fn a_hand_off_is_told_in_round_trips() {
        let config = Config::new(["redis://localhost"]);
        let remarks = verdict(&[node("a", 10), row(What::HandOff, 25, 1)], &config);
        assert!(remarks.iter().any(|remark| remark.text.contains("2.5 round trips")), "{remarks:?}");
    }
}
