//! Asks one server.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Examined, Looked,
    facts::{ClockReading, Marker, NotTold, ServerConfig, ServerFacts, ServerState, SlowCommand, Spike},
    info::ServerInfo,
    rights,
};
use crate::{
    identity::Identity,
    protocol::{calls::MARKER, script::Reply},
    server::{NodeError, redis::Probe},
    url::Endpoint,
};

/// How many round trips are measured.
const PINGS: usize = 5;
/// How often a clock is read in a row: the fastest round trip counts.
const READINGS: usize = 3;
/// How many commands of the slow log are read.
const SLOW_COMMANDS: &str = "32";

/// Where a server was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// As a replica of another one.
    pub(super) as_replica: bool,
    /// In a cluster.
    pub(super) in_cluster: bool,
}

/// Asks a server for all facts.
pub(super) async fn look(examined: &Examined<'_>, endpoint: &Endpoint, found: Found) -> Looked {
    let address = endpoint.transport.to_string();
    let as_replica = found.as_replica;
    let (state, probe) = match connected(examined, endpoint, found).await {
        Ok((state, probe)) => (Ok(state), Some(probe)),
        Err(error) => (Err(error.into()), None),
    };
    Looked { facts: ServerFacts { address, as_replica, state }, probe }
}

async fn connected(
    examined: &Examined<'_>,
    endpoint: &Endpoint,
    found: Found,
) -> Result<(ServerState, Probe), NodeError> {
    let start = Instant::now();
    let probe = Probe::connect(endpoint, &examined.settings.config).await?;
    let mut round_trips = Vec::new();
    for _ in 0..PINGS {
        let sent = Instant::now();
        match probe.ask(&["PING"]).await {
            // A user without the right to PING gets a reply, too.
            Err(error) if !error.detail.starts_with("NOPERM") => return Err(error),
            _ => round_trips.push(sent.elapsed()),
        }
    }
    let connect = start.elapsed().saturating_sub(round_trips.iter().sum());
    let state = ask_all(examined, &probe, found, (connect, round_trips)).await;
    Ok((state, probe))
}

async fn ask_all(
    examined: &Examined<'_>,
    probe: &Probe,
    found: Found,
    (connect, round_trips): (Duration, Vec<Duration>),
) -> ServerState {
    let user = text(probe.ask(&["ACL", "WHOAMI"]).await).map_err(NotTold::from);
    let clock = read_clock(examined, probe).await;
    let has_marker = examined.settings.uses_markers() && !found.as_replica && !found.in_cluster;
    ServerState {
        connect,
        round_trips,
        clocks: clock.map(|reading| vec![reading]).map_err(NotTold::from),
        info: text(probe.ask(&["INFO"]).await).map(|info| ServerInfo::parse(&info)).map_err(NotTold::from),
        config: config(probe).await.map_err(NotTold::from),
        lua: if found.as_replica { Ok(()) } else { lua(probe).await.map_err(NotTold::from) },
        marker: if has_marker { marker(probe).await.map_err(NotTold::from) } else { Ok(None) },
        latency: probe.ask(&["LATENCY", "LATEST"]).await.map(|reply| spikes(&reply)).map_err(NotTold::from),
        slow: probe.ask(&["SLOWLOG", "GET", SLOW_COMMANDS]).await.map(|reply| slow(&reply)).map_err(NotTold::from),
        denied: match &user {
            _ if found.as_replica => Ok(Vec::new()),
            Ok(user) => rights::denied(examined, probe, user, found.in_cluster).await.map_err(NotTold::from),
            Err(cause) => Err(cause.clone()),
        },
        clients: clients(probe).await.map_err(NotTold::from),
        user,
    }
}

/// Reads the clock once more, after the interval.
pub(super) async fn read_clock_again(examined: &Examined<'_>, looked: &mut Looked) {
    if let (Some(probe), Ok(ServerState { clocks: Ok(readings), .. })) = (&looked.probe, &mut looked.facts.state)
        // A clock that cannot be read again has one reading.
        && let Ok(reading) = read_clock(examined, probe).await
    {
        readings.push(reading);
    }
}

async fn read_clock(examined: &Examined<'_>, probe: &Probe) -> Result<ClockReading, NodeError> {
    let mut best: Option<ClockReading> = None;
    for _ in 0..READINGS {
        let sent = Instant::now();
        let reply = probe.ask(&["TIME"]).await?;
        let error = sent.elapsed() / 2;
        let time = time(&reply).ok_or_else(NodeError::no_answer)?;
        let reading = ClockReading { at: sent.duration_since(examined.began) + error, time, error };
        if best.is_none_or(|best| error < best.error) {
            best = Some(reading);
        }
    }
    best.ok_or_else(NodeError::no_answer)
}

/// The reply to TIME: seconds and µs.
fn time(reply: &Reply) -> Option<Duration> {
    let [seconds, micros] = reply.list()? else { return None };
    Some(Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?))
}

async fn config(probe: &Probe) -> Result<ServerConfig, NodeError> {
    Ok(ServerConfig {
        appendfsync: setting(probe, "appendfsync").await?,
        min_replicas_to_write: setting(probe, "min-replicas-to-write").await?.and_then(|value| value.parse().ok()),
        max_clients: setting(probe, "maxclients").await?.and_then(|value| value.parse().ok()),
    })
}

/// The value of a setting; `None` if the server does not have it.
async fn setting(probe: &Probe, name: &str) -> Result<Option<String>, NodeError> {
    let reply = probe.ask(&["CONFIG", "GET", name]).await?;
    Ok(reply.list().and_then(|pair| pair.get(1)).and_then(|value| word(value).map(str::to_owned)))
}

async fn lua(probe: &Probe) -> Result<(), NodeError> {
    match probe.ask(&["EVAL", "return 1", "0"]).await? {
        Reply::Int(1) => Ok(()),
        _ => Err(NodeError::no_answer()),
    }
}

async fn marker(probe: &Probe) -> Result<Option<Marker>, NodeError> {
    match probe.ask(&["GET", MARKER]).await? {
        Reply::Text(text) => read_marker(&text).map(Some).ok_or_else(NodeError::no_answer),
        Reply::List(none) if none.is_empty() => Ok(None),
        _ => Err(NodeError::no_answer()),
    }
}

/// A marker: `<run id> <µs since when its keys are incomplete>`.
fn read_marker(text: &str) -> Option<Marker> {
    let (run, lost_at) = text.split_once(' ')?;
    Some(Marker { run: run.to_owned(), lost_at: Duration::from_micros(lost_at.parse().ok()?) })
}

async fn clients(probe: &Probe) -> Result<Vec<Identity>, NodeError> {
    Ok(probe.clients().await?.into_iter().map(|one| one.identity).collect())
}

/// LATENCY LATEST: for each event its name, the time of the last one, how long it took, and the longest one.
fn spikes(reply: &Reply) -> Vec<Spike> {
    let each = reply.list().unwrap_or_default().iter().filter_map(|one| {
        let [event, at, latest, ..] = one.list()? else { return None };
        let (at, latest) = (Duration::from_secs(number(at)?), Duration::from_millis(number(latest)?));
        Some(Spike { event: word(event)?.to_owned(), at, latest })
    });
    each.collect()
}

/// SLOWLOG GET: for each command its number, the time, how long it took in µs, and its words. The arguments are left
/// out: they may be secrets.
fn slow(reply: &Reply) -> Vec<SlowCommand> {
    let each = reply.list().unwrap_or_default().iter().filter_map(|one| {
        let [_, at, took, words, ..] = one.list()? else { return None };
        let (at, took) = (Duration::from_secs(number(at)?), Duration::from_micros(number(took)?));
        Some(SlowCommand { name: word(words.list()?.first()?)?.to_ascii_uppercase(), at, took })
    });
    each.collect()
}

fn text(reply: Result<Reply, NodeError>) -> Result<String, NodeError> {
    match reply? {
        Reply::Text(text) => Ok(text),
        Reply::Int(_) | Reply::List(_) => Err(NodeError::no_answer()),
    }
}

fn word(reply: &Reply) -> Option<&str> {
    if let Reply::Text(text) = reply { Some(text) } else { None }
}

fn number(reply: &Reply) -> Option<u64> {
    match reply {
        Reply::Int(number) => u64::try_from(*number).ok(),
        Reply::Text(text) => text.parse().ok(),
        Reply::List(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    #[test]
    fn markers_times_and_logs_are_read() {
        let marker = Marker { run: "abc".to_owned(), lost_at: Duration::from_millis(1500) };
        assert_eq!(read_marker("abc 1500000"), Some(marker));
        assert_eq!(read_marker("abc"), None);
        let time_of = |seconds, micros| time(&Reply::List(vec![text(seconds), text(micros)]));
        assert_eq!(time_of("7", "250000"), Some(Duration::from_millis(7250)));
        assert_eq!(time_of("7", "x"), None);
        let spike = Reply::List(vec![text("fork"), Reply::Int(9), Reply::Int(120), Reply::Int(130)]);
        let expected =
            Spike { event: "fork".to_owned(), at: Duration::from_secs(9), latest: Duration::from_millis(120) };
        assert_eq!(spikes(&Reply::List(vec![spike, Reply::Int(1)])), [expected]);
        let words = Reply::List(vec![text("keys"), text("secret")]);
        let command = Reply::List(vec![Reply::Int(1), Reply::Int(9), Reply::Int(20_000), words]);
        let took = Duration::from_millis(20);
        let expected = SlowCommand { name: "KEYS".to_owned(), at: Duration::from_secs(9), took };
        assert_eq!(slow(&Reply::List(vec![command])), [expected]);
        assert_eq!(slow(&Reply::Int(1)), []);
    }
}
