//! The calls of the scripts that look at a whole server.

use std::sync::Arc;

use crate::protocol::{
    calls::{Forget, Protocol, ReadQueue, ScanKeys, joined},
    names::{Names, escaped},
    reply::Kind,
    script::{ScriptCall, survey_scripts},
};

impl Protocol {
    /// Counts the listeners of the channels that match these patterns. `server`: of a cluster. `key`: on a cluster, asks
    /// the server that serves it.
    pub(crate) fn listeners(server: Option<Arc<str>>, key: Option<&str>, patterns: Vec<String>) -> ScriptCall {
        let keys = key.map(str::to_owned).into_iter().collect();
        ScriptCall { server, ..ScriptCall::new(&survey_scripts().listeners, keys, patterns) }
    }

    /// Reads the waiters of a lock, `most` of each queue at most. `kinds`: whose queues. Writers and readers have their
    /// own; all others wait in one.
    pub(crate) fn queue(names: &Names, kinds: &[Kind], most: u32) -> ScriptCall {
        let [mut keys, args] = ReadQueue { alive: names.alive(), most: most.to_string() }.lists();
        keys.extend(kinds.iter().map(|kind| match kind {
            Kind::Write => names.writers_queue(),
            Kind::Read => names.readers_queue(),
            Kind::Lock | Kind::Semaphore | Kind::Rest => names.queue(),
        }));
        ScriptCall::new(&survey_scripts().queue, keys, args)
    }

    /// Visits about `count` keys from `cursor` on. `server`: of a cluster.
    pub(crate) fn scan(&self, server: Option<Arc<str>>, cursor: &str, count: u32) -> ScriptCall {
        let pattern = escaped(&self.settings.config.prefix) + "*";
        let scan = ScanKeys { cursor: cursor.to_owned(), pattern, count: count.to_string() };
        ScriptCall { server, ..joined(&survey_scripts().scan, [scan.lists()]) }
    }

    /// Visits one key on the server of a cluster that has it.
    pub(crate) fn visit(&self, key: String) -> ScriptCall {
        self.scan(None, "0", 1).with(vec![key], Vec::new())
    }

    /// Deletes the token counter of a lock that nobody holds.
    pub(crate) fn forget(names: &Names) -> ScriptCall {
        let forget = Forget { lock: names.lock.clone(), counter: names.counter() };
        joined(&survey_scripts().forget, [forget.lists()])
    }
}
