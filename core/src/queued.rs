//! Reads who waits for a lock in the queue that a server keeps for it, and in which order.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::join_all;

use crate::{
    client::Client,
    connected,
    error::LockError,
    identity::Identity,
    owner,
    protocol::{
        calls::{Protocol, QueueEntry},
        names::Names,
        reply::Kind,
        script::Reply,
    },
    session::{Session, run_to_completion},
    survey,
};

/// How many waiters of a queue are read at most.
const MOST: u32 = 1000;

/// A waiter with a place in the queue that a server keeps for a fair lock, a read/write lock or a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// What it waits for: [`Kind::Lock`], [`Kind::Read`], [`Kind::Write`] or [`Kind::Semaphore`].
    pub kind: Kind,
    /// How many slots of a semaphore it wants; 1 for a lock.
    pub slots: u32,
    /// The owner that waits: an explicit owner, or `uuid:tenure`.
    pub owner: String,
    /// Since when it has its place, by the server's clock.
    pub since: SystemTime,
    /// How long its place stays valid if its client does not confirm it again: 5 s at most.
    pub valid_for: Duration,
    /// The name of the machine on which it waits. `None` if its connections have no name, or if this client may not
    /// read it.
    pub host: Option<String>,
    /// The number of its process on that machine.
    pub pid: Option<u32>,
    /// The name of its program: [`app`](crate::Config::app).
    pub app: Option<String>,
}

/// A waiter, before it is known which process it is.
struct Found {
    /// In the order of arrival, over both queues of a read/write lock.
    ticket: i64,
    client: String,
    waiter: Queued,
}

impl Client {
    /// The waiters in the server's queue of a lock, in the order in which they arrived. The first one is next. For a
    /// read/write lock a writer is followed by all readers that wait. At most the first 1000 of each queue are read;
    /// waiters whose client is silent for 5 s do not count. Empty for plain locks and on several nodes, where nobody
    /// keeps an order. Waits for `reply_timeout` (default: 2 s) at most.
    ///
    /// Fails with `invalid` if the name is wrong, with `conflict` if its key holds something else than a lock, and with
    /// `unavailable` if the server does not answer.
    pub fn queue(&self, name: &str) -> impl Future<Output = Result<Vec<Queued>, LockError>> + Send + use<> {
        let begun = self.names(name).and_then(|names| Ok((self.inner().session()?, names)));
        async move {
            let (session, names) = begun?;
            run_to_completion(async move { queue(&session, &names).await }).await
        }
    }
}

async fn queue(session: &Arc<Session>, names: &Names) -> Result<Vec<Queued>, LockError> {
    let quorum = &session.quorum;
    if quorum.nodes.len() > 1 {
        return Ok(Vec::new());
    }
    let failed = |error| quorum.unavailable(vec![quorum.cause(0, error)]);
    let kind = survey::state_of(session, 0, names).await?.kind;
    let kinds: &[Kind] = match kind {
        Some(Kind::Read | Kind::Write) => &[Kind::Write, Kind::Read],
        Some(Kind::Lock | Kind::Semaphore | Kind::Rest) | None => &[Kind::Lock],
    };
    let call = Protocol::queue(names, kinds, MOST);
    let mut found = quorum.run(0, call, |reply| read(reply, kinds)).await.map_err(failed)?;
    found.sort_by_key(|found| found.ticket);
    let identified = found.into_iter().map(|Found { client, waiter, .. }| async move {
        let identity = connected::client(session, &client).await;
        let (host, pid, app) = Identity::process(identity.as_deref());
        Queued { host, pid, app, ..waiter }
    });
    Ok(join_all(identified).await)
}

/// The reply to `survey/queue`. `kinds`: what the waiters of each queue want.
fn read(reply: &Reply, kinds: &[Kind]) -> Option<Vec<Found>> {
    let number = |reply: &Reply| if let Reply::Text(text) = reply { text.parse::<i64>().ok() } else { None };
    let [now, waiters @ ..] = reply.list()? else { return None };
    let now = number(now)?;
    let each = waiters.chunks(4).map(|waiter| {
        let [Reply::Int(queue), ticket, Reply::Text(entry), alive_until] = waiter else { return None };
        let kind = *kinds.get(usize::try_from(*queue).ok()?.checked_sub(1)?)?;
        let (ticket, entry) = (number(ticket)?, QueueEntry::parse(entry)?);
        let left = number(alive_until)?.checked_sub(now)?;
        Some(Found {
            ticket,
            client: entry.client.to_owned(),
            waiter: Queued {
                kind: if entry.slots.is_some() { Kind::Semaphore } else { kind },
                slots: entry.slots.unwrap_or(1),
                owner: owner::shown(entry.field).to_owned(),
                since: UNIX_EPOCH + Duration::from_micros(u64::try_from(ticket).ok()?),
                valid_for: Duration::from_micros(u64::try_from(left).ok()?),
                host: None,
                pid: None,
                app: None,
            },
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(queue: i64, ticket: &str, entry: &str, alive_until: &str) -> [Reply; 4] {
        let text = |text: &str| Reply::Text(text.to_owned());
        [Reply::Int(queue), text(ticket), text(entry), text(alive_until)]
    }

    fn reply(waiters: impl IntoIterator<Item = [Reply; 4]>) -> Reply {
        Reply::List([Reply::Text("1000000".to_owned())].into_iter().chain(waiters.into_iter().flatten()).collect())
    }

    #[test]
    fn entries_tell_owners_and_slots() {
        let (plain, permit) = ("6000/client/client:7", "6000/client/2:5/=a/b:12");
        let found =
            read(&reply([waiter(1, "500", plain, "1002500"), waiter(1, "600", permit, "1000001")]), &[Kind::Lock]);
        let found: Vec<Queued> = found.expect("a reply").into_iter().map(|found| found.waiter).collect();
        let [first, second] = &found[..] else { panic!("{found:?}") };
        assert_eq!((first.kind, first.slots, first.owner.as_str()), (Kind::Lock, 1, "client:7"));
        assert_eq!(first.since, UNIX_EPOCH + Duration::from_micros(500));
        assert_eq!(first.valid_for, Duration::from_micros(2500));
        assert_eq!((second.kind, second.slots, second.owner.as_str()), (Kind::Semaphore, 2, "a/b"));
    }

    #[test]
    fn replies_of_another_shape_are_refused() {
        let entry = "6000/client/client:7";
        for wrong in [
            Reply::Int(1),
            Reply::List(Vec::new()),
            reply([waiter(2, "500", entry, "1002500")]),
            reply([waiter(0, "500", entry, "1002500")]),
            reply([waiter(1, "x", entry, "1002500")]),
            reply([waiter(1, "500", "no entry", "1002500")]),
            reply([waiter(1, "500", entry, "999999")]),
        ] {
            assert!(read(&wrong, &[Kind::Lock]).is_none(), "{wrong:?}");
        }
    }
}
