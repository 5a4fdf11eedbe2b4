//! The URLs of nodes: their grammar, the address that each gives, and how they are shown without credentials.

use std::fmt;

use ::url::Url;

use crate::error::LockError;

/// Schemes whose URLs may list several addresses, separated by commas.
const LIST_SCHEMES: [&str; 4] = ["redis+cluster://", "rediss+cluster://", "redis+sentinel://", "rediss+sentinel://"];

/// Whether a URL may list several addresses.
pub(crate) fn may_list_addresses(url: &str) -> bool {
    LIST_SCHEMES.iter().any(|scheme| url.starts_with(scheme))
}

/// The address, database and credentials of a node.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) transport: Transport,
    pub(crate) db: i64,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// Whether to use RESP2 without requesting RESP3.
    pub(crate) resp2: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    Tcp {
        host: String,
        port: u16,
    },
    Tls {
        host: String,
        port: u16,
    },
    Unix {
        path: String,
    },
    /// A Redis Cluster, discovered by any of these addresses.
    Cluster {
        seeds: Vec<Address>,
        tls: bool,
    },
    /// The master that these Sentinels name.
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
        tls: bool,
        username: Option<String>,
        password: Option<String>,
    },
    Memory {
        name: String,
    },
}

/// A host and its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    pub(crate) fn transport(self, tls: bool) -> Transport {
        let Self { host, port } = self;
        if tls { Transport::Tls { host, port } } else { Transport::Tcp { host, port } }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl Endpoint {
    /// Parses a URL. `username` and `password` are used where the URL has none.
    pub(crate) fn parse(text: &str, username: Option<&str>, password: Option<&str>) -> Result<Self, LockError> {
        let given = Given::parse(text)?;
        given.check_parameters()?;
        let (transport, db) = given.transport()?;
        let resp2 = given.resp2()?;
        let user = Some(given.decode(given.url.username())?).filter(|user| !user.is_empty());
        let secret = given.url.password().map(|password| given.decode(password)).transpose()?;
        Ok(Self {
            transport,
            db,
            username: user.or_else(|| username.map(str::to_owned)),
            password: secret.or_else(|| password.map(str::to_owned)),
            resp2,
        })
    }
}

/// A URL that is being parsed.
struct Given {
    url: Url,
    /// The other addresses that it lists, as URLs: their hosts and ports are parsed like those of the first.
    others: Vec<String>,
}

impl Given {
    fn parse(text: &str) -> Result<Self, LockError> {
        if text.split(',').filter(|part| part.contains("://")).count() > 1 {
            return Err(LockError::invalid("urls", "one text with several URLs: give a list"));
        }
        let (text, others) = split_addresses(text);
        Ok(Self { url: parsed(&text)?, others })
    }

    fn bad(&self, what: &str) -> LockError {
        LockError::invalid("urls", format!("{}: {what}", shown(&self.url)))
    }

    fn decode(&self, part: &str) -> Result<String, LockError> {
        percent_decode(part).ok_or_else(|| self.bad("user, password and path must be percent-encoded UTF-8"))
    }

    fn host_of(&self, url: &Url) -> Result<String, LockError> {
        match url.host() {
            None => Err(self.bad("the host is missing")),
            Some(::url::Host::Domain(name)) => self.decode(name),
            Some(::url::Host::Ipv4(ip)) => Ok(ip.to_string()),
            Some(::url::Host::Ipv6(ip)) => Ok(ip.to_string()),
        }
    }

    fn host(&self) -> Result<String, LockError> {
        self.host_of(&self.url)
    }

    fn port(&self) -> u16 {
        self.url.port().unwrap_or(6379)
    }

    /// All addresses, sorted. `default_port`: the port of an address without one.
    fn addresses(&self, default_port: u16) -> Result<Vec<Address>, LockError> {
        let mut all = vec![Address { host: self.host()?, port: self.url.port().unwrap_or(default_port) }];
        for other in &self.others {
            let other = parsed(other).map_err(|_| self.bad("an address of the list is wrong"))?;
            all.push(Address { host: self.host_of(&other)?, port: other.port().unwrap_or(default_port) });
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// A parameter of the query. If it occurs several times, the last one counts. `None` if it is missing or empty.
    fn query(&self, name: &str) -> Option<String> {
        let last = self.url.query_pairs().filter(|(key, _)| key == name).last();
        last.map(|(_, value)| value.into_owned()).filter(|value| !value.is_empty())
    }

    fn db(&self, number: &str) -> Result<i64, LockError> {
        if number.is_empty() {
            return Ok(0);
        }
        let db = number.parse().ok().filter(|db| *db >= 0);
        db.ok_or_else(|| self.bad("the database must be a number of at least 0"))
    }

    /// The number of the database in the path.
    fn path_db(&self) -> Result<i64, LockError> {
        self.db(self.url.path().trim_matches('/'))
    }

    /// The number of the database in the path or in the parameter `db`.
    fn server_db(&self) -> Result<i64, LockError> {
        match (self.url.path().trim_matches('/'), self.query("db")) {
            ("", Some(db)) => self.db(&db),
            (_, None) => self.path_db(),
            (_, Some(_)) => Err(self.bad("the database is given twice, in the path and as a parameter")),
        }
    }

    /// Refuses parameters that URLs of this scheme do not have: ignored, they would mislead.
    fn check_parameters(&self) -> Result<(), LockError> {
        let known: &[&str] = match self.url.scheme() {
            "redis+cluster" | "rediss+cluster" => &["protocol"],
            "redis+sentinel" | "rediss+sentinel" => &["protocol", "sentinel_username", "sentinel_password"],
            "memory" => &[],
            _ => &["db", "protocol"],
        };
        // Not the name of the unknown one: it is a part of the password if that has an unencoded question mark.
        match self.url.query_pairs().all(|(name, _)| known.contains(&&*name)) {
            true => Ok(()),
            false if known.is_empty() => Err(self.bad("there are no parameters")),
            false => Err(self.bad(&format!("an unknown parameter; there are only {}", known.join(", ")))),
        }
    }

    /// Whether the parameter `protocol` demands RESP2.
    fn resp2(&self) -> Result<bool, LockError> {
        match self.query("protocol").as_deref() {
            None | Some("3") => Ok(false),
            Some("2") => Ok(true),
            Some(_) => Err(self.bad("the protocol must be 2 or 3")),
        }
    }

    /// The transport and the number of the database.
    fn transport(&self) -> Result<(Transport, i64), LockError> {
        match self.url.scheme() {
            "redis" | "valkey" => Ok((Transport::Tcp { host: self.host()?, port: self.port() }, self.server_db()?)),
            "rediss" | "valkeys" => Ok((Transport::Tls { host: self.host()?, port: self.port() }, self.server_db()?)),
            "unix" | "redis+unix" => self.unix(),
            scheme @ ("redis+cluster" | "rediss+cluster") => self.cluster(scheme.starts_with("rediss")),
            scheme @ ("redis+sentinel" | "rediss+sentinel") => self.sentinel(scheme.starts_with("rediss")),
            "memory" => self.memory(),
            other => Err(unknown_scheme(other)),
        }
    }

    fn memory(&self) -> Result<(Transport, i64), LockError> {
        if !self.url.path().trim_matches('/').is_empty() {
            return Err(self.bad("a store in memory has a name and no path"));
        }
        Ok((Transport::Memory { name: self.url.host_str().unwrap_or_default().to_owned() }, 0))
    }

    fn unix(&self) -> Result<(Transport, i64), LockError> {
        if cfg!(not(unix)) {
            return Err(self.bad("there are no Unix sockets on this system; use redis or rediss"));
        }
        if self.url.path().len() < 2 || self.url.cannot_be_a_base() {
            return Err(self.bad("the socket's path is missing"));
        }
        let db = self.db(self.query("db").as_deref().unwrap_or_default())?;
        Ok((Transport::Unix { path: self.decode(self.url.path())? }, db))
    }

    fn cluster(&self, tls: bool) -> Result<(Transport, i64), LockError> {
        if self.path_db()? != 0 {
            return Err(self.bad("a cluster has database 0 only"));
        }
        Ok((Transport::Cluster { seeds: self.addresses(6379)?, tls }, 0))
    }

    fn sentinel(&self, tls: bool) -> Result<(Transport, i64), LockError> {
        let mut path = self.url.path().trim_start_matches('/').splitn(2, '/');
        let service = self.decode(path.next().unwrap_or_default())?;
        if service.is_empty() {
            return Err(self.bad("the master's name is missing, as in redis+sentinel://host:26379/name"));
        }
        let transport = Transport::Sentinel {
            sentinels: self.addresses(26379)?,
            service,
            tls,
            username: self.query("sentinel_username"),
            password: self.query("sentinel_password"),
        };
        Ok((transport, self.db(path.next().unwrap_or_default())?))
    }
}

/// The schemes whose hosts the URL parser takes for international names. It has no tables for these, and panics.
const WITH_INTERNATIONAL_NAMES: [&str; 6] = ["http", "https", "ws", "wss", "ftp", "file"];

fn parsed(text: &str) -> Result<Url, LockError> {
    // The parser skips spaces and control characters around the text, and tabs and line breaks in it.
    let read = text.chars().filter(|character| !character.is_ascii_control() && *character != ' ');
    let scheme = read.take_while(|character| *character != ':').collect::<String>().to_ascii_lowercase();
    if WITH_INTERNATIONAL_NAMES.contains(&scheme.as_str()) {
        return Err(unknown_scheme(&scheme));
    }
    Url::parse(text).map_err(|error| {
        let detail = match error {
            ::url::ParseError::RelativeUrlWithoutBase => "not a URL: redis:// or another scheme is missing".to_owned(),
            error => format!("not a URL ({error})"),
        };
        LockError::invalid("urls", detail)
    })
}

fn unknown_scheme(scheme: &str) -> LockError {
    let detail = format!("unknown scheme {scheme:?}; use redis, rediss, unix, redis+cluster, redis+sentinel or memory");
    LockError::invalid("urls", detail)
}

/// Splits a URL that lists several addresses into a URL with the first address, and a URL for each of the others.
fn split_addresses(text: &str) -> (String, Vec<String>) {
    let plain = || (text.to_owned(), Vec::new());
    let Some(scheme) = LIST_SCHEMES.iter().find(|scheme| text.starts_with(**scheme)) else { return plain() };
    let rest = &text[scheme.len()..];
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |(login, hosts)| (login, hosts));
    let mut hosts = hosts.split(',').map(str::trim);
    let at = if authority.contains('@') { "@" } else { "" };
    let first = format!("{scheme}{login}{at}{}{tail}", hosts.next().unwrap_or_default());
    (first, hosts.map(|host| format!("{scheme}{host}")).collect())
}

pub(crate) fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A configured URL for messages, without credentials; `?` if it is not a URL, or one of a scheme that is not read.
pub(crate) fn without_credentials(text: &str) -> String {
    parsed(text).map_or_else(|_| "?".to_owned(), |url| shown(&url))
}

/// The scheme, host and port of a URL, for messages. Leaves out the credentials, and also the path and the query: they
/// contain a part of the password if one of its characters should have been encoded and was not.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    match url.host_str() {
        Some(host) => format!("{}://{host}{port}", url.scheme()),
        None => format!("{}:", url.scheme()),
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Tcp { host, port } | Self::Tls { host, port } if host.contains(':') => {
                write!(f, "[{host}]:{port}")
            }
            Self::Tcp { host, port } | Self::Tls { host, port } => write!(f, "{host}:{port}"),
            Self::Cluster { seeds, .. } => write!(f, "redis+cluster://{}", list(seeds)),
            Self::Sentinel { sentinels, service, .. } => write!(f, "redis+sentinel://{}/{service}", list(sentinels)),
            Self::Unix { path } => write!(f, "unix://{path}"),
            Self::Memory { name } => write!(f, "memory://{name}"),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.transport, self.db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_of_a_url_is_ignored() {
        let db = |text| Endpoint::parse(text, None, None).expect("a URL").db;
        assert_eq!(
            [db("redis://h?db=1"), db("rediss://h/?db=2"), db("redis://h/3"), db("unix:///s?db=4")],
            [1, 2, 3, 4]
        );
        for (text, detail) in [
            ("redis://h/1?db=1", "redis://h: the database is given twice, in the path and as a parameter"),
            ("redis://u:p@h?protcol=2", "redis://h: an unknown parameter; there are only db, protocol"),
            ("redis+cluster://h?db=0", "redis+cluster://h: an unknown parameter; there are only protocol"),
            ("memory://a?db=1", "memory://a: there are no parameters"),
            ("memory://a/b", "memory://a: a store in memory has a name and no path"),
        ] {
            match Endpoint::parse(text, None, None) {
                Err(LockError::Invalid { argument: "urls", detail: found }) => assert_eq!(found, detail),
                other => panic!("{text}: {other:?}"),
            }
        }
        let error = Endpoint::parse("redis://:x?s3cr3t@h", None, None).expect_err("a question mark in a password");
        assert!(!error.to_string().contains("s3cr3t"), "{error}");
    }

    #[test]
    fn schemes_with_international_names_are_unknown() {
        for text in [
            "http://A\u{1ee00}",
            " HTTPS://\u{e4}.example",
            "h\tttp://\u{e4}",
            "ftp:",
            "file:///x",
            "ws://x,y",
            "wss:x",
        ] {
            assert!(
                matches!(Endpoint::parse(text, None, None), Err(LockError::Invalid { argument: "urls", .. })),
                "{text}"
            );
            assert_eq!(without_credentials(text), "?", "{text}");
        }
        let host = Endpoint::parse("redis://\u{e4}.example", None, None).expect("a URL").transport;
        assert_eq!(host.to_string(), "\u{e4}.example:6379");
    }
}
