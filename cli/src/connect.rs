//! The options that name the servers, and the client that they make.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use redlock::{Client, Config, Event, Wire};

use crate::{duration, failure::Failure, talk::Talk};

/// The servers, as for the library.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
#[allow(clippy::doc_markdown, rustdoc::bare_urls, reason = "clap prints these texts as they are")]
pub(crate) struct ConnectOptions {
    /// A node's URL; repeat it for each node of a quorum. A password in it is visible to all users of this machine: use
    /// REDLOCK_URL or --url-file for that [env: REDLOCK_URL] [default: redis://127.0.0.1:6379]
    #[arg(short, long = "url", value_name = "URL", global = true)]
    urls: Vec<String>,
    /// A file with the URLs, one a line, in place of REDLOCK_URL; lines that begin with # are skipped
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "urls")]
    url_file: Option<PathBuf>,
    /// How many nodes must agree [default: a majority]
    #[arg(long, value_name = "N", global = true, env = "REDLOCK_QUORUM")]
    quorum: Option<usize>,
    /// The text before every lock name on the servers
    #[arg(long, value_name = "TEXT", global = true, env = "REDLOCK_PREFIX")]
    prefix: Option<String>,
    /// How locks are written: redisson or token
    #[arg(long, value_name = "WIRE", global = true, env = "REDLOCK_WIRE", value_parser = wire)]
    wire: Option<Wire>,
    /// The longest ttl of a lease on a quorum [default: 60s]
    #[arg(long, value_name = "DURATION", global = true, env = "REDLOCK_MAX_TTL", value_parser = duration::parse)]
    max_ttl: Option<Duration>,
    /// A PEM file with the CA certificates to trust instead of the system's
    #[arg(long, value_name = "FILE", global = true, env = "REDLOCK_CA")]
    ca: Option<String>,
    /// A PEM file with the client's certificate
    #[arg(long, value_name = "FILE", global = true, env = "REDLOCK_CERT", requires = "key")]
    cert: Option<String>,
    /// A PEM file with the client's private key
    #[arg(long, value_name = "FILE", global = true, env = "REDLOCK_KEY", requires = "cert")]
    key: Option<String>,
}

fn wire(word: &str) -> Result<Wire, String> {
    word.parse().map_err(|error: redlock::LockError| error.to_string())
}

impl ConnectOptions {
    /// A client with these options.
    pub(crate) fn client(&self, talk: &Talk) -> Result<Client, Failure> {
        self.client_with(talk, |_| {})
    }

    /// A client with these options and those of a command, which `configure` sets.
    pub(crate) fn client_with(&self, talk: &Talk, configure: impl FnOnce(&mut Config)) -> Result<Client, Failure> {
        let talk = *talk;
        self.client_warning(configure, move |warning| talk.say(warning))
    }

    /// As `client_with`, but `warn` gets the warnings about nodes.
    pub(crate) fn client_warning(
        &self,
        configure: impl FnOnce(&mut Config),
        warn: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Client, Failure> {
        let mut config = self.config()?;
        configure(&mut config);
        let warn = move |event: &Event| {
            if let Event::NodeWarning { .. } = event {
                warn(&event.to_string());
            }
        };
        Ok(Client::with_events(config, Arc::new(warn))?)
    }

    /// The configuration that these options make.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let mut config = self.nodes()?;
        if let Some(memory) = config.urls.iter().find(|url| url.starts_with("memory:")) {
            return Err(Failure::usage(format!(
                "{memory} is a store inside one process, so no other process would see the lock. Give the URL of a server."
            )));
        }
        config.quorum = self.quorum;
        if let Some(prefix) = &self.prefix {
            config.prefix.clone_from(prefix);
        }
        if let Some(wire) = self.wire {
            config.wire = wire;
        }
        if let Some(max_ttl) = self.max_ttl {
            config.max_ttl = max_ttl;
            config.watchdog = config.default_watchdog();
        }
        config.tls.ca.clone_from(&self.ca);
        config.tls.cert.clone_from(&self.cert);
        config.tls.key.clone_from(&self.key);
        Ok(config)
    }

    /// The defaults, for the nodes that the options name; else those of the environment.
    fn nodes(&self) -> Result<Config, Failure> {
        if !self.urls.is_empty() {
            return Ok(Config::from_list(&self.urls.join(",")));
        }
        let Some(file) = &self.url_file else { return Ok(Config::from_env()) };
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::usage(format!("cannot read --url-file {}: {error}", file.display())))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Config::from_list(&lines.collect::<Vec<_>>().join(",")))
    }
}
