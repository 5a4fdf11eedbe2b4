//! `redlock ls`: the locks that somebody waits for or, with `--scan`, all of them.

use std::io::{IsTerminal, stderr};

use futures_util::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use redlock::{Client, LockError, Queued};
use serde_json::Value;

use crate::{
    block::block,
    connect::ConnectOptions,
    exit_code::ExitStatusCode,
    failure::Failure,
    holder,
    live::snapshot::{AT_ONCE, Lock, Source, not_known},
    queue,
    table::Table,
    talk::Talk,
};

/// List the locks that somebody waits for or, with --scan, all locks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  redlock ls
  redlock ls 'order:*' --scan --json")]
pub(crate) struct LsOptions {
    /// Only names that match this pattern: * ? [a-z]
    pattern: Option<String>,
    /// Walk through all keys of the servers, a thousand at a time
    #[arg(long)]
    scan: bool,
    /// Stop after about so many keys
    #[arg(long, value_name = "N", requires = "scan", default_value_t = 100_000, conflicts_with = "all")]
    limit: u64,
    /// Visit all keys
    #[arg(long, requires = "scan")]
    all: bool,
}

pub(crate) fn run(options: &LsOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let mut source = Source::new(servers.client(talk)?, options.pattern.as_deref());
    if options.scan {
        scan(options, &mut source, talk)?;
    }
    let mut locks = block(source.locks())?;
    if !options.scan && source.is_without_name() {
        talk.say("only locks that somebody waits for; --scan finds all");
    }
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    let queues = block(queues(source.client(), &locks))?;
    print(talk, &locks, &queues)?;
    for line in not_known(&locks) {
        talk.error(&line);
    }
    source.client().close_blocking();
    let failed = locks.iter().find_map(|lock| lock.error.as_ref());
    Ok(failed.map_or(ExitStatusCode::DONE, |failure| failure.code))
}

/// Finds all locks, up to the limit of keys.
fn scan(options: &LsOptions, source: &mut Source, talk: &Talk) -> Result<(), Failure> {
    let bar = if stderr().is_terminal() && !talk.quiet() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} keys, {msg} locks");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let limit = (!options.all).then_some(options.limit);
    let left = block(source.scan(limit, |page, found| {
        bar.set_length(page.keys);
        bar.set_position(page.visited);
        bar.set_message(found.to_string());
    }))?;
    bar.finish_and_clear();
    if let Some(page) = left {
        talk.warn(&format!("stopped after {} of {} keys; --all visits all", page.visited, page.keys));
    }
    Ok(())
}

/// The waiters of each lock in their order; `None` where nobody waits, or the server does not tell.
async fn queues(client: &Client, locks: &[Lock]) -> Result<Vec<Option<Vec<Queued>>>, LockError> {
    let mut queues = Vec::with_capacity(locks.len());
    for some in locks.chunks(AT_ONCE) {
        let each = some.iter().map(|lock| async move {
            let waited_for = lock.waiting > 0;
            if waited_for { client.queue(&lock.name).await.ok() } else { None }
        });
        queues.extend(join_all(each).await);
    }
    Ok(queues)
}

fn print(talk: &Talk, locks: &[Lock], queues: &[Option<Vec<Queued>>]) -> Result<(), Failure> {
    let [held_by, time, ttl, token] = holder::COLUMNS;
    let mut table = Table::new(vec!["NAME", "KIND", held_by, time, ttl, token, "WAITING", "NEXT"]);
    for (lock, queue) in locks.iter().zip(queues) {
        if talk.json() {
            let mut object = lock.json();
            object.insert("queue".to_owned(), queue.as_deref().map_or(Value::Null, queue::json));
            talk.object(&Value::Object(object))?;
        } else {
            let kind = match (&lock.info, &lock.error) {
                (Some(info), _) => info.kind.as_str(),
                (None, Some(_)) => "not known",
                (None, None) => "free",
            };
            let kind = kind.to_owned();
            let [held_by, time, ttl, token] = holder::columns(lock.info.as_ref());
            let (waiting, next) = (lock.waiting.to_string(), queue::next(queue.as_deref().unwrap_or_default()));
            table.row(&[lock.name.clone(), kind, held_by, time, ttl, token, waiting, next]);
        }
    }
    table.print(talk)
}
