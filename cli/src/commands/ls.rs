//! `redlock ls`: the locks that somebody waits for or, with `--scan`, all of them.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, stderr},
};

use futures_util::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use redlock::{Client, LockError, LockInfo, LockOptions};
use serde_json::Value;

use crate::{
    block::block, connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, glob, holder, table::Table,
    talk::Talk,
};

/// How many locks are inspected at once.
const AT_ONCE: usize = 100;

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

/// The locks by name, with the number of waiters if that is known.
type Found = BTreeMap<String, Option<usize>>;

pub(crate) fn run(options: &LsOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let client = servers.client(talk)?;
    let mut found: Found = contended(&client)?;
    if options.scan {
        scan(options, &client, talk, &mut found)?;
    } else {
        talk.say("only locks that somebody waits for; --scan finds all");
    }
    if let Some(pattern) = &options.pattern {
        found.retain(|name, _| glob::matches(pattern, name));
    }
    print(&client, talk, &found)?;
    client.close_blocking();
    Ok(ExitStatusCode::DONE)
}

fn contended(client: &Client) -> Result<Found, Failure> {
    let locks = block(client.contended())?;
    Ok(locks.into_iter().map(|lock| (lock.name, Some(lock.waiting))).collect())
}

/// Adds all locks, up to the limit of keys. They have no waiters but those that are known.
fn scan(options: &LsOptions, client: &Client, talk: &Talk, found: &mut Found) -> Result<(), Failure> {
    let bar = if stderr().is_terminal() && !talk.quiet() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} keys, {msg} locks");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut scan = client.scan();
    while let Some(page) = block(scan.next_page())? {
        for name in page.names {
            found.entry(name).or_insert(Some(0));
        }
        bar.set_length(page.keys);
        bar.set_position(page.visited);
        bar.set_message(found.len().to_string());
        if !options.all && page.visited >= options.limit && page.visited < page.keys {
            bar.finish_and_clear();
            talk.warn(&format!("stopped after {} of {} keys; --all visits all", page.visited, page.keys));
            return Ok(());
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Prints the locks. A lock that cannot be inspected is shown without a holder.
fn print(client: &Client, talk: &Talk, found: &Found) -> Result<(), Failure> {
    let [held_by, time, ttl, token] = holder::COLUMNS;
    let mut table = Table::new(vec!["NAME", "KIND", held_by, time, ttl, token, "WAITING"]);
    let locks: Vec<(&String, &Option<usize>)> = found.iter().collect();
    for some in locks.chunks(AT_ONCE) {
        let infos = inspect(client, some.iter().map(|(name, _)| name.as_str()))?;
        for ((name, waiting), info) in some.iter().zip(infos) {
            let info = match info {
                // It was released since.
                Ok(None) if waiting.is_none_or(|waiting| waiting == 0) => continue,
                Ok(info) => info,
                // A key that only looked like a lock.
                Err(LockError::Conflict { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            if talk.json() {
                let mut object = holder::json(info.as_ref());
                object.insert("name".to_owned(), Value::from(name.as_str()));
                object.insert("waiting".to_owned(), Value::from(**waiting));
                talk.object(&Value::Object(object))?;
            } else {
                let kind = info.as_ref().map_or("free", |info| info.kind.as_str()).to_owned();
                let waiting = waiting.map_or_else(holder::dash, |waiting| waiting.to_string());
                let [held_by, time, ttl, token] = holder::columns(info.as_ref());
                table.row(&[(*name).clone(), kind, held_by, time, ttl, token, waiting]);
            }
        }
    }
    table.print(talk)
}

/// Inspects several locks at once.
fn inspect<'a>(
    client: &Client,
    names: impl Iterator<Item = &'a str>,
) -> Result<Vec<Result<Option<LockInfo>, LockError>>, Failure> {
    let locks = names.map(|name| Ok(client.lock(name, LockOptions::default())?.inspect()));
    let inspections: Vec<_> = locks.collect::<Result<_, LockError>>()?;
    block(async move { Ok(join_all(inspections).await) })
}
