//! Whether the clocks of the servers agree, and run as fast as this machine's. Keys expire by a server's wall clock,
//! and a token counter that was lost starts again from it.

use std::time::{Duration, UNIX_EPOCH};

use redlock::examination::ClockReading;

use crate::doctor::{facts::Facts, finding::Report};

/// An offset that no server has whose clock is kept by NTP, in seconds.
const OFFSET: f64 = 1.0;
/// The largest difference of the rates.
const RATE: f64 = 0.01;

/// A server's clock compared with those of the others.
pub(crate) struct Offset<'a> {
    pub(crate) address: &'a str,
    /// The server's time minus that of the others, in seconds.
    pub(crate) seconds: f64,
    /// How wrong that may be.
    pub(crate) error: f64,
}

impl Offset<'_> {
    /// Whether it is larger than NTP would leave it.
    pub(crate) fn is_large(&self) -> bool {
        self.seconds.abs() - self.error > OFFSET
    }
}

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.answering() {
        match &one.state.clocks {
            Ok(readings) => {
                if let [first, .., last] = &readings[..] {
                    rate(&mut report, one.address(), first, last);
                }
            }
            Err(why) => report.skip(one.address(), &format!("TIME is not told: {}", why.cause)),
        }
    }
    disagreements(facts, &mut report);
    report
}

/// The offsets of the servers that tell their time.
pub(crate) fn offsets(facts: &Facts) -> Vec<Offset<'_>> {
    let start = facts.start.duration_since(UNIX_EPOCH).unwrap_or_default();
    let told = facts.answering().filter_map(|one| {
        let first = one.state.clocks.as_ref().ok()?.first()?;
        let (seconds, error) = (signed(first.time, start + first.at), first.error.as_secs_f64());
        Some(Offset { address: one.address(), seconds, error })
    });
    let mut offsets: Vec<_> = told.collect();
    let reference = median(&offsets);
    for offset in &mut offsets {
        offset.seconds -= reference;
    }
    offsets
}

/// The difference of two times in seconds.
fn signed(one: Duration, other: Duration) -> f64 {
    one.as_secs_f64() - other.as_secs_f64()
}

/// Compares the time that passed on a server with the time that passed here.
fn rate(report: &mut Report, address: &str, first: &ClockReading, last: &ClockReading) {
    let here = signed(last.at, first.at);
    let rate = (signed(last.time, first.time) - here) / here;
    let error = (first.error + last.error).as_secs_f64() / here;
    if rate.abs() - error > RATE {
        let how = if rate > 0.0 { "fast" } else { "slow" };
        report.warning(
            address,
            format!("its clock runs {:.0} % too {how}, or was set while it was read", rate.abs() * 100.0),
            "Run an NTP client that slews; `drift` (10 %) must stay above all differences.",
        );
    }
}

fn disagreements(facts: &Facts, report: &mut Report) {
    let offsets = offsets(facts);
    let whose = if offsets.len() == 1 { "this machine's" } else { "the others'" };
    for offset in &offsets {
        let Offset { address, seconds: off, error } = *offset;
        report.remark(format!("{address}: {off:+.3} s ± {error:.3} s"));
        if !offset.is_large() {
            continue;
        }
        let how = if off > 0.0 { "ahead of" } else { "behind" };
        let shown = off.abs();
        let tokens = if shown - error > facts.settings.max_ttl.as_secs_f64() / 4.0 {
            "; if it loses its token counters, tokens are not in order"
        } else {
            ""
        };
        report.warning(
            address,
            format!("its clock is {shown:.1} s {how} {whose}{tokens}"),
            "Run an NTP client on every server; a step forward ends leases early.",
        );
    }
}

/// The time that most clocks agree on. This machine's decides between two servers, and is the only one beside one.
fn median(offsets: &[Offset<'_>]) -> f64 {
    let mut all: Vec<f64> = offsets.iter().map(|offset| offset.seconds).collect();
    match all.len() {
        0 | 1 => return 0.0,
        2 => all.push(0.0),
        _ => {}
    }
    all.sort_by(f64::total_cmp);
    all[(all.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::Warning,
    };

    /// Clocks that are ahead by so many ms, each read with this error.
    fn ahead(millis: &[i64], error: u64) -> Report {
        let mut made = Made::quorum(millis.len());
        let start = made.facts.start.duration_since(UNIX_EPOCH).unwrap_or_default();
        for (node, ahead) in millis.iter().enumerate() {
            let time = start.as_millis() as i64 + ahead + 5;
            made.state(node).clocks = Ok(vec![ClockReading {
                at: Duration::from_millis(5),
                time: Duration::from_millis(time as u64),
                error: Duration::from_millis(error),
            }]);
        }
        check(&made.facts)
    }

    #[test]
    fn a_clock_that_differs_from_most_is_named() {
        assert_eq!(severities(&ahead(&[0, 400, -400], 1)), []);
        let report = ahead(&[0, 3000, 10], 1);
        assert_eq!(severities(&report), [Warning]);
        let finding = &report.findings[0];
        assert_eq!(finding.node.as_deref(), Some("127.0.0.1:1001"));
        assert!(finding.found.starts_with("its clock is 3.0 s ahead of the others'"), "{finding:?}");
        assert!(!finding.found.contains("tokens"), "{finding:?}");
        assert!(ahead(&[0, 20_000, 10], 1).findings[0].found.contains("tokens are not in order"));
        assert!(ahead(&[0, -20_000, 10], 1).findings[0].found.contains("behind"));
        assert_eq!(severities(&ahead(&[0, 3000], 1)), [Warning], "this machine decides");
        assert!(ahead(&[3000], 1).findings[0].found.contains("this machine's"));
        assert_eq!(severities(&ahead(&[9000, 9000, 9000], 1)), [], "only this machine's clock is wrong");
        assert_eq!(severities(&ahead(&[0, 3000, 10], 2500)), [], "the round trip is too long to tell");
    }

    #[test]
    fn a_clock_that_runs_faster_is_named() {
        let with = |passed: u64, error: u64| {
            let mut made = Made::one();
            let state = made.state(0);
            let first = state.clocks.as_ref().expect("a clock")[0];
            let error = Duration::from_millis(error);
            let last = ClockReading {
                at: first.at + Duration::from_secs(2),
                time: first.time + Duration::from_millis(passed),
                error,
            };
            state.clocks = Ok(vec![ClockReading { error, ..first }, last]);
            severities(&check(&made.facts))
        };
        assert_eq!(with(2019, 0), []);
        assert_eq!(with(2021, 0), [Warning]);
        assert_eq!(with(1979, 0), [Warning]);
        assert_eq!(with(2100, 50), [], "the round trips are too long to tell");
    }
}
