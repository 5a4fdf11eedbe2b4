//! Who a client is: what it tells the servers in the names of its connections (`CLIENT SETNAME`), and what others read
//! in `CLIENT LIST`. `docs/protocol.md` has the format.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use crate::{
    config::{Settings, Wire},
    process::{fork::PerProcess, names},
    url::percent_decode,
};

/// The beginning of each name.
const HEAD: &str = "redlock/";
/// The longest name in bytes.
const MOST_BYTES: usize = 200;
/// The longest version in a name, in bytes.
const MOST_VERSION: usize = 16;
/// The length of a UUID in bytes.
const UUID_BYTES: usize = 36;

/// A client as the names of its connections describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// The version of the library.
    pub version: String,
    /// The client's UUID. The owners of its leases begin with it.
    pub client: String,
    /// The name of the machine.
    pub host: String,
    /// The number of the process on that machine.
    pub pid: u32,
    /// The name of the program: [`Config::app`](crate::Config::app).
    pub app: String,
    /// The number of nodes that the client is configured with.
    pub nodes: usize,
    /// How many of them must agree.
    pub quorum: usize,
    /// How the client writes a lock.
    pub wire: Wire,
    /// The longest ttl of a lease on a quorum. A name has it in whole milliseconds.
    pub max_ttl: Duration,
    /// The hash of the client's prefix: 64-bit FNV-1a of its UTF-8 bytes, the same in every version and language.
    pub prefix_hash: u64,
}

impl Identity {
    /// The identity of a client with these settings in this process.
    pub(crate) fn new(settings: &Settings, client: &str) -> Self {
        let config = &settings.config;
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            client: client.to_owned(),
            host: names::host(),
            pid: std::process::id(),
            app: config.app.clone().unwrap_or_else(default_app),
            nodes: settings.endpoints.len(),
            quorum: settings.quorum,
            wire: config.wire,
            max_ttl: config.max_ttl,
            prefix_hash: fnv1a(config.prefix.as_bytes()),
        }
    }

    /// The machine, the process and the program of a client; nothing if it is not known.
    pub(crate) fn process(known: Option<&Self>) -> (Option<String>, Option<u32>, Option<String>) {
        known.map_or_else(Default::default, |Self { host, pid, app, .. }| {
            (Some(host.clone()), Some(*pid), Some(app.clone()))
        })
    }

    /// The name of a connection: printable ASCII without spaces and `=`, 200 bytes at most. The values are
    /// percent-encoded. If they are too long, host and app are cut, each after a whole character; the longer one is cut
    /// first.
    pub fn to_name(&self) -> String {
        let mut rest = String::new();
        let wire = match self.wire {
            Wire::Redisson => "r",
            Wire::Token => "t",
        };
        let max_ttl = u64::try_from(self.max_ttl.as_millis()).unwrap_or(u64::MAX);
        let client = encoded(&self.client, UUID_BYTES);
        // Writing to a string cannot fail.
        let _ = write!(
            rest,
            ";p:{};u:{client};n:{};q:{};w:{wire};m:{max_ttl};f:{:016x}",
            self.pid, self.nodes, self.quorum, self.prefix_hash
        );
        let version = encoded(&self.version, MOST_VERSION);
        // Positive: the values of `rest` are bounded.
        let room = MOST_BYTES - (HEAD.len() + version.len() + ";h:;a:".len() + rest.len());
        let (host, app) = (encoded(&self.host, room), encoded(&self.app, room));
        let (for_host, for_app) = match room / 2 {
            half if host.len() <= half => (host.len(), room - host.len()),
            half if app.len() <= half => (room - app.len(), app.len()),
            half => (half, half),
        };
        let (host, app) = (encoded(&self.host, for_host), encoded(&self.app, for_app));
        format!("{HEAD}{version};h:{host};a:{app}{rest}")
    }

    /// Reads the name of a connection. `None` if it is not one that [`to_name`](Self::to_name) makes. Ignores fields
    /// that it does not know, which a later version may add.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(HEAD)?.split(';');
        let version = decoded(parts.next()?)?;
        let fields: Vec<(&str, &str)> = parts.map(|part| part.split_once(':')).collect::<Option<_>>()?;
        let field = |key| fields.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        Some(Self {
            version,
            client: uuid::Uuid::try_parse(field("u")?).ok()?.hyphenated().to_string(),
            host: decoded(field("h")?)?,
            pid: field("p")?.parse().ok()?,
            app: decoded(field("a")?)?,
            nodes: field("n")?.parse().ok()?,
            quorum: field("q")?.parse().ok()?,
            wire: match field("w")? {
                "r" => Wire::Redisson,
                "t" => Wire::Token,
                _ => return None,
            },
            max_ttl: Duration::from_millis(field("m")?.parse().ok()?),
            prefix_hash: u64::from_str_radix(field("f")?, 16).ok()?,
        })
    }
}

/// The name of the program if no option gives one.
fn default_app() -> String {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    variable("REDLOCK_APP").or_else(|| variable("OTEL_SERVICE_NAME")).unwrap_or_else(names::program)
}

/// The 64-bit FNV-1a hash. Source: Fowler, Noll, Vo, "The FNV Non-Cryptographic Hash Algorithm".
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Percent-encodes whole characters, in `most` bytes at most. A control character becomes `?`: a name is shown to
/// people.
fn encoded(text: &str, most: usize) -> String {
    let mut encoded = String::new();
    for character in text.chars() {
        let before = encoded.len();
        if character.is_ascii_alphanumeric() || "-._~".contains(character) {
            encoded.push(character);
        } else {
            let shown = if character.is_control() { '?' } else { character };
            for byte in shown.encode_utf8(&mut [0; 4]).bytes() {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
        if encoded.len() > most {
            encoded.truncate(before);
            break;
        }
    }
    encoded
}

/// Decodes a value. `None` if it has control characters.
fn decoded(text: &str) -> Option<String> {
    percent_decode(text).filter(|text| !text.contains(char::is_control))
}

/// Identities by UUID.
type Known = HashMap<String, Weak<Identity>>;

/// The identities of the clients in this process. Its mutex is the standard library's also in the tests of
/// interleavings, which do not depend on it: it outlives each of them.
fn of_this_process() -> MutexGuard<'static, Known> {
    static KNOWN: PerProcess<Mutex<Known>> = PerProcess::new();
    KNOWN.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an identity known to all clients of this process, for as long as it lives.
pub(crate) fn announce(identity: &Arc<Identity>) {
    let mut known = of_this_process();
    known.retain(|_, identity| identity.strong_count() > 0);
    known.insert(identity.client.clone(), Arc::downgrade(identity));
}

/// The client of this process with this UUID.
pub(crate) fn in_this_process(client: &str) -> Option<Arc<Identity>> {
    of_this_process().get(client)?.upgrade()
}

/// A client that is connected to the nodes, as [`Client::connected_clients`](crate::Client::connected_clients) finds
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectedClient {
    /// The client.
    pub identity: Identity,
    /// On how many nodes it was seen.
    pub nodes: usize,
    /// The address of one of its connections, as a server sees it; `None` for a store in memory.
    pub address: Option<String>,
}

#[cfg(test)]
#[path = "testing/identity.rs"]
mod tests;
