//! `redlock inspect`: who holds a lock, and what each node has.

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use redlock::{Client, Kind, LockInfo, LockOptions, NodeView, Queued};
use serde_json::{Value, json};

use crate::{
    block::block,
    connect::ConnectOptions,
    duration,
    exit_code::ExitStatusCode,
    failure::Failure,
    holder, queue,
    table::{Table, visible},
    talk::Talk,
};

/// The pause between two looks of `--wait`.
const PAUSE: Duration = Duration::from_millis(200);

/// Show who holds a lock, and what each node has of it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 held; 1 free; 69 too few nodes answered.

Example:
  redlock inspect deploy --wait 10m >/dev/null; [ $? = 1 ] && echo free")]
pub(crate) struct InspectOptions {
    /// The name of the lock
    name: String,
    /// Wait until the lock is free, and at most so long
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse)]
    wait: Option<Duration>,
}

pub(crate) fn run(options: &InspectOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let client = servers.client(talk)?;
    let held = until_free(options, &client);
    let nodes = block(client.inspect_nodes(&options.name))?;
    // Without the rights, or in an outage, everything else is shown.
    let queue = block(client.queue(&options.name)).ok();
    // In an outage the nodes say more than the error does.
    if talk.json() {
        talk.object(&object(&options.name, &held, &nodes, queue.as_deref()))?;
    } else {
        print(&options.name, &held, &nodes, queue.as_deref(), talk)?;
    }
    let code = if held?.is_some() { ExitStatusCode::DONE } else { ExitStatusCode::FREE };
    client.close_blocking();
    Ok(code)
}

/// The holder of a lock, `None` if it is free.
type Held = Result<Option<LockInfo>, Failure>;

/// The holder; with `--wait` once there is none, or when the wait is over.
fn until_free(options: &InspectOptions, client: &Client) -> Held {
    let lock = client.lock(&options.name, LockOptions::default())?;
    let start = Instant::now();
    loop {
        let held = block(lock.inspect())?;
        let left = options.wait.unwrap_or_default().saturating_sub(start.elapsed());
        if held.is_none() || left.is_zero() {
            return Ok(held);
        }
        sleep(left.min(PAUSE));
    }
}

/// How many clients wait: those of a quorum listen on every node.
fn waiting(nodes: &[NodeView]) -> Option<usize> {
    nodes.iter().filter_map(|node| node.waiting).max()
}

fn object(name: &str, held: &Held, nodes: &[NodeView], queue: Option<&[Queued]>) -> Value {
    let mut object = holder::json(held.as_ref().ok().and_then(Option::as_ref));
    object.insert("name".to_owned(), json!(name));
    object.insert("held".to_owned(), held.as_ref().map_or(Value::Null, |info| json!(info.is_some())));
    object.insert("waiting".to_owned(), json!(waiting(nodes)));
    object.insert("queue".to_owned(), queue.map_or(Value::Null, queue::json));
    object.insert("error".to_owned(), json!(held.as_ref().err().map(|failure| failure.message.as_str())));
    object.insert("nodes".to_owned(), nodes.iter().map(node_object).collect());
    Value::Object(object)
}

fn node_object(node: &NodeView) -> Value {
    let state = node.state.as_ref().ok();
    json!({
        "node": node.node,
        "kind": state.and_then(|state| state.kind).map(Kind::as_str),
        "owners": state.map(|state| state.owners.clone()).unwrap_or_default(),
        "ttl": state.and_then(|state| state.ttl).map(|ttl| ttl.as_secs_f64()),
        "token": state.filter(|state| state.token > 0).map(|state| state.token.to_string()),
        "waiting": node.waiting,
        "error": node.state.as_ref().err().map(|cause| cause.cause.clone()),
    })
}

fn print(name: &str, held: &Held, nodes: &[NodeView], queue: Option<&[Queued]>, talk: &Talk) -> Result<(), Failure> {
    let state = match held {
        Ok(Some(info)) => format!("held by {}", visible(&holder::sentence(info))),
        Ok(None) => "free".to_owned(),
        Err(failure) if failure.code == ExitStatusCode::CONFLICT => "no lock".to_owned(),
        Err(_) => "not known".to_owned(),
    };
    talk.line(&format!("{}: {state}", talk.bold(&visible(name))))?;
    let mut table = Table::new(vec!["NODE", "STATE", "OWNER", "TTL", "TOKEN", "WAITING"]);
    for node in nodes {
        let waiting = node.waiting.map_or_else(holder::dash, |waiting| waiting.to_string());
        let [state, owner, ttl, token] = match &node.state {
            Ok(state) => [
                state.kind.map_or("free", Kind::as_str).to_owned(),
                if state.kind == Some(Kind::Rest) { "nobody".to_owned() } else { holder::holders(&state.owners) },
                holder::ttl(state.ttl),
                holder::token(state.token),
            ],
            Err(cause) => [cause.cause.clone(), holder::dash(), holder::dash(), holder::dash()],
        };
        table.row(&[node.node.clone(), state, owner, ttl, token, waiting]);
    }
    table.print(talk)?;
    match queue {
        Some(queue) if !queue.is_empty() => {
            talk.line("")?;
            queue::table(queue).print(talk)
        }
        _ => Ok(()),
    }
}
