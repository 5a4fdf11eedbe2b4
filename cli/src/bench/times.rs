//! The times of one kind of call.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The longest time that is told from longer ones, in µs.
const LONGEST: u64 = 3_600_000_000;

/// A kind of call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A script on one node.
    RoundTrip(String),
    /// An acquire and its release, by so many callers at once, each with a lock of its own.
    Pairs(usize),
    /// From a release to the grant of a waiter in another client.
    HandOff,
}

impl What {
    fn code(&self) -> &'static str {
        match self {
            Self::RoundTrip(_) => "round_trip",
            Self::Pairs(_) => "pairs",
            Self::HandOff => "hand_off",
        }
    }
}

/// The times of one kind of call, and how long all took together.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) what: What,
    micros: Histogram<u64>,
    pub(crate) all: Duration,
    /// Why there are no more of them.
    pub(crate) error: Option<String>,
}

impl Row {
    pub(crate) fn new(what: What) -> Self {
        let micros = Histogram::new_with_max(LONGEST, 3).expect("valid limits");
        Self { what, micros, all: Duration::ZERO, error: None }
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.micros.saturating_record(u64::try_from(time.as_micros()).unwrap_or(LONGEST));
    }

    /// Adds the times of another caller.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same limits.
        let _ = self.micros.add(&other.micros);
    }

    pub(crate) fn count(&self) -> u64 {
        self.micros.len()
    }

    /// The time that so many per cent of the calls did not exceed.
    pub(crate) fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(self.micros.value_at_percentile(percent))
    }

    pub(crate) fn max(&self) -> Duration {
        Duration::from_micros(self.micros.max())
    }

    /// Calls in a second. `None` for hand-offs, since each holder keeps the lock for a while.
    pub(crate) fn rate(&self) -> Option<f64> {
        let is_rate = self.what != What::HandOff && !self.all.is_zero();
        is_rate.then(|| self.count() as f64 / self.all.as_secs_f64())
    }

    /// Its JSON object.
    pub(crate) fn json(&self) -> Value {
        let (node, callers) = match &self.what {
            What::RoundTrip(node) => (Some(node), None),
            What::Pairs(callers) => (None, Some(callers)),
            What::HandOff => (None, None),
        };
        let time = |time: Duration| (self.count() > 0).then_some(time.as_secs_f64());
        json!({
            "what": self.what.code(),
            "node": node,
            "callers": callers,
            "count": self.count(),
            "rate": self.rate(),
            "p50": time(self.percentile(50.0)),
            "p99": time(self.percentile(99.0)),
            "max": time(self.max()),
            "error": self.error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_percentiles_and_a_rate() {
        let mut row = Row::new(What::Pairs(2));
        for millis in 1..=100 {
            row.record(Duration::from_millis(millis));
        }
        let mut other = Row::new(What::Pairs(2));
        other.record(Duration::from_secs(7200));
        row.add(&other);
        row.all = Duration::from_secs(2);
        assert_eq!((row.count(), row.rate()), (101, Some(50.5)));
        let near = |time: Duration, millis: f64| (time.as_secs_f64() * 1000.0 / millis - 1.0).abs() < 0.002;
        assert!(near(row.percentile(50.0), 51.0), "{:?}", row.percentile(50.0));
        assert!(near(row.percentile(99.0), 100.0), "{:?}", row.percentile(99.0));
        assert!(near(row.max(), 3_600_000.0), "{:?}", row.max());
        let object = row.json();
        assert_eq!((&object["what"], &object["callers"], &object["node"]), (&"pairs".into(), &2.into(), &Value::Null));
    }

    #[test]
    fn without_calls_there_are_no_times() {
        let object = Row::new(What::HandOff).json();
        assert!(object["p50"].is_null() && object["max"].is_null() && object["rate"].is_null(), "{object}");
    }
}
