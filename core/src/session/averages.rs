//! The average time for which locks with an adaptive ttl are held, as the nodes last reported it.

use std::{collections::HashMap, time::Duration};

/// A cache of averages. It is bounded, since a client may use any number of names: two generations, the recent and the
/// older.
#[derive(Default)]
pub(super) struct Averages {
    recent: HashMap<String, Duration>,
    older: HashMap<String, Duration>,
}

impl Averages {
    /// The size of a generation: the cache keeps at least so many of the names that were used last, and at most twice
    /// as many. The nodes know the others.
    const RECENT: usize = 4096;

    pub(super) fn get(&mut self, key: &str) -> Option<Duration> {
        if let Some(average) = self.recent.get(key) {
            return Some(*average);
        }
        let average = self.older.remove(key)?;
        self.insert(key, average);
        Some(average)
    }

    pub(super) fn insert(&mut self, key: &str, average: Duration) {
        self.recent.insert(key.to_owned(), average);
        if self.recent.len() >= Self::RECENT {
            self.older = std::mem::take(&mut self.recent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_names_without_number_are_not_all_remembered() {
        let mut averages = Averages::default();
        for order in 0..1_000_000_u64 {
            averages.insert(&format!("order-{order}"), Duration::from_millis(order));
            // This name is used all the time, so it is remembered.
            averages.insert("report", Duration::from_secs(1));
        }
        assert!(averages.recent.len() + averages.older.len() <= 2 * Averages::RECENT);
        assert_eq!(averages.get("report"), Some(Duration::from_secs(1)));
        assert_eq!(averages.get("order-999999"), Some(Duration::from_millis(999_999)));
        assert_eq!(averages.get("order-1"), None);
    }
}
