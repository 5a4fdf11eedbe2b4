//! Grants on their way to this client's waiters. The reply to a release has the grants of those waiters of the same client
//! that it let in, so that these need no request of their own.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::Notify;

use crate::{clock::Stamp, sync::Mutex};

/// The waiters of this client that a release can grant a permit.
#[derive(Default)]
pub(crate) struct Deliveries(Mutex<BTreeMap<String, Expected>>);

/// The waiters for one semaphore, by their fields. Ordered, so that a simulation can be repeated.
struct Expected {
    /// The UUID of this client.
    client: String,
    by_field: BTreeMap<String, Arc<Delivery>>,
}

/// What a waiter was told since its last request.
struct Delivery {
    news: Mutex<News>,
    /// Notified of news.
    wake: Arc<Notify>,
}

#[derive(Default)]
enum News {
    #[default]
    Nothing,
    /// It was granted these slots, "slot:token,...", by a release that was sent at this time.
    Granted(String, Stamp),
    /// The reply to a release is missing. The release may have granted it slots.
    InDoubt,
}

/// One waiter. Releases of this client can grant it a permit until this is dropped.
pub(super) struct Expecting {
    deliveries: Arc<Deliveries>,
    key: String,
    field: String,
    delivery: Arc<Delivery>,
}

impl Deliveries {
    /// Adds a waiter for the semaphore `key`. `wake` is notified of news.
    pub(super) fn expect(self: &Arc<Self>, key: &str, client: &str, field: &str, wake: Arc<Notify>) -> Expecting {
        let delivery = Arc::new(Delivery { news: Mutex::default(), wake });
        let mut all = self.0.lock();
        let new = || Expected { client: client.to_owned(), by_field: BTreeMap::new() };
        let expected = all.entry(key.to_owned()).or_insert_with(new);
        expected.by_field.insert(field.to_owned(), delivery.clone());
        Expecting { deliveries: self.clone(), key: key.to_owned(), field: field.to_owned(), delivery }
    }

    /// This client, if it has waiters for the semaphore.
    pub(crate) fn client_waiting(&self, key: &str) -> Option<String> {
        self.0.lock().get(key).map(|expected| expected.client.clone())
    }

    /// Tells a waiter that it was granted these slots, by a release that was sent at `since`. A waiter that has given up
    /// gives up the grant, too, by the request that gives up its place.
    pub(crate) fn deliver(&self, key: &str, field: &str, slots: &str, since: Stamp) {
        let delivery = self.0.lock().get(key).and_then(|expected| expected.by_field.get(field)).cloned();
        if let Some(delivery) = delivery {
            *delivery.news.lock() = News::Granted(slots.to_owned(), since);
            delivery.wake.notify_one();
        }
    }

    /// Tells all waiters for the semaphore that the reply to a release is missing. The first of them sends a request.
    pub(crate) fn doubt(&self, key: &str) {
        for delivery in self.0.lock().get(key).into_iter().flat_map(|expected| expected.by_field.values()) {
            let mut news = delivery.news.lock();
            if matches!(*news, News::Nothing) {
                *news = News::InDoubt;
                delivery.wake.notify_one();
            }
        }
    }
}

impl Expecting {
    pub(super) fn is_granted(&self) -> bool {
        matches!(*self.delivery.news.lock(), News::Granted(..))
    }

    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(*self.delivery.news.lock(), News::InDoubt)
    }

    /// Takes the grant, if there is one: the slots, and when the release was sent.
    pub(super) fn take(&self) -> Option<(String, Stamp)> {
        match std::mem::take(&mut *self.delivery.news.lock()) {
            News::Granted(slots, since) => Some((slots, since)),
            News::Nothing | News::InDoubt => None,
        }
    }
}

impl Drop for Expecting {
    fn drop(&mut self) {
        let mut all = self.deliveries.0.lock();
        let Some(expected) = all.get_mut(&self.key) else { return };
        expected.by_field.remove(&self.field);
        if expected.by_field.is_empty() {
            all.remove(&self.key);
        }
    }
}
