//! The order of waiters on one server. An observer looks into the queue of a lock again and again, and so knows of a
//! *place*: from when to when a waiter certainly had it. A request that was called after that began, and granted before
//! it ended, has overtaken that waiter. A place ends, for this check, when its waiter leaves or gets another place, and
//! when its client is silent for longer than the server waits for it.
//!
//! This holds for the waiters of fair locks and semaphores, and for writers among each other. Readers come in by phases,
//! which cannot be told from outside: the simulation checks them.

use super::{Hold, Share};

/// A time during which a waiter certainly had one and the same place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The waiter, as the server names it.
    pub entry: String,
    /// It was there when this began.
    pub from: u64,
    /// It was still there then.
    pub until: u64,
}

/// The result of a check of the order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The number of grants that were called while another waiter was seen to have a place, once for each such waiter.
    pub compared: usize,
    /// Those that overtook that waiter.
    pub overtakes: Vec<(Place, Hold)>,
}

impl Order {
    /// Adds the order of another lock.
    pub fn extend(&mut self, other: Self) {
        self.compared += other.compared;
        self.overtakes.extend(other.overtakes);
    }
}

/// Finds grants that overtook a waiter. `holds` may have readers and upgrades, which do not wait in this queue.
pub fn check_order(places: &[Place], holds: &[Hold]) -> Order {
    let mut queued: Vec<&Hold> = holds.iter().filter(|hold| !hold.ahead && hold.share != Share::Read).collect();
    queued.sort_by_key(|hold| hold.called);
    let mut order = Order::default();
    for place in places {
        let first = queued.partition_point(|hold| hold.called <= place.from);
        let later = queued[first..].iter().take_while(|hold| hold.called < place.until);
        for hold in later {
            order.compared += 1;
            if hold.from < place.until {
                order.overtakes.push((place.clone(), (*hold).clone()));
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hold, reader, writer};
    use super::*;

    fn place(from: u64, until: u64) -> Place {
        Place { entry: "600/client/client:1".to_owned(), from, until }
    }

    #[test]
    fn in_order_nobody_is_overtaken() {
        // Called before the place was seen; granted after its end; and both.
        let holds =
            [(5, 12), (15, 30), (5, 30)].map(|(called, from)| Hold { called, ..hold(from, from, from + 1) }).to_vec();
        assert_eq!(check_order(&[place(10, 20)], &holds), Order { compared: 1, overtakes: Vec::new() });
    }

    #[test]
    fn whoever_overtakes_is_found() {
        for late in [hold(1, 15, 16), writer(1, 15, 16)] {
            let late = Hold { called: 11, ..late };
            let found = check_order(&[place(10, 20)], &[hold(0, 1, 2), late.clone()]);
            assert_eq!(found, Order { compared: 1, overtakes: vec![(place(10, 20), late)] });
        }
    }

    #[test]
    fn readers_and_upgrades_are_left_out() {
        let called = |hold: Hold| Hold { called: 11, ..hold };
        let upgrade = Hold { ahead: true, ..called(writer(1, 15, 16)) };
        assert_eq!(check_order(&[place(10, 20)], &[called(reader(1, 15, 16)), upgrade]), Order::default());
    }
}
