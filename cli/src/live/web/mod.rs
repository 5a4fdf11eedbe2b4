//! `redlock web`: a page that shows nodes, locks and clients, and the same as JSON and as metrics.
//!
//! Whoever can open a page on this machine is not yet allowed to read it: `guard.rs` has the refusals.

mod group;
mod guard;
mod metrics;
mod page;
mod release;
mod routes;
mod stream;
mod viewer;

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::http::HeaderName;
use redlock::process::runtime;
use serde_json::json;

use self::{guard::Guard, viewer::Viewer};
use super::{client, pause::Pause, snapshot::Source};
use crate::{connect::ConnectOptions, duration, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// The shortest token that is accepted, in bytes.
const LEAST_TOKEN: usize = 16;

/// Serve a page with nodes, locks and clients, and their metrics; read-only, for this machine only
///
/// The servers are asked only while somebody looks: an open page, /api/snapshot or /metrics. By default the page has the
/// locks that somebody waits for; a button finds all.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Ends with Ctrl-C.

Examples:
  redlock web
  redlock web --listen 0.0.0.0:7379 --token-file /run/secrets/redlock --allow-release")]
pub(crate) struct WebOptions {
    /// The address to listen on; port 0 takes a free one. Others than those of this machine need --token-file
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:7379")]
    listen: SocketAddr,
    /// Let viewers release locks by force; each release is a line on stderr
    #[arg(long)]
    allow_release: bool,
    /// A file with the token that each request needs: Authorization: Bearer TOKEN
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Listen on other addresses than those of this machine without a token
    #[arg(long, conflicts_with = "token_file")]
    insecure_listen: bool,
    /// A further host name, with its port if it has one, by which viewers reach the page; repeat it for several
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// The header in which a proxy names the user, for the line of a release
    #[arg(long, value_name = "HEADER", requires = "allow_release")]
    read_header: Option<HeaderName>,
    /// The name of this deployment, for the title of the page
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The time between two looks at the servers
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::pause)]
    every: Duration,
    /// Walk through all keys of the servers at the first look
    #[arg(long)]
    scan: bool,
}

pub(crate) fn run(options: &WebOptions, servers: &ConnectOptions, talk: &Talk) -> Result<ExitStatusCode, Failure> {
    let token = options.token_file.as_deref().map(token).transpose()?;
    if !options.listen.ip().is_loopback() && token.is_none() && !options.insecure_listen {
        return Err(Failure::usage(format!(
            "--listen {}: others could read the page and the names of locks. Give --token-file, or listen on 127.0.0.1.",
            options.listen
        )));
    }
    let client = client(servers, talk)?;
    let pause = Pause::new()?;
    let cannot =
        |error: io::Error| Failure::usage(format!("--listen {}: cannot listen there: {error}", options.listen));
    let listener = TcpListener::bind(options.listen).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    let viewer = Arc::new(Viewer {
        looks: viewer::Looks::new(Source::new(client.clone(), None), options.every, options.scan),
        guard: Guard::new(address, &options.hosts, token.as_deref()),
        name: options.name.clone(),
        allow_release: options.allow_release,
        read_header: options.read_header.clone(),
        talk: *talk,
    });
    let background = runtime::background();
    let serving = background.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let service = routes::all(viewer).into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service).await
    });
    let url = format!("http://{address}/");
    if talk.json() {
        talk.object(&json!({ "url": url }))?;
    } else {
        talk.line(&url)?;
    }
    pause.until_signal()?;
    serving.abort();
    client.close_blocking();
    Ok(ExitStatusCode::DONE)
}

/// Reads the token.
fn token(file: &Path) -> Result<String, Failure> {
    let refused = |why: String| Failure::usage(format!("--token-file {}: {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| refused(format!("cannot read it: {error}")))?;
    let token = text.trim();
    if token.len() < LEAST_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused(format!(
            "a token has at least {LEAST_TOKEN} printable ASCII characters and no spaces. `openssl rand -hex 32` makes one."
        )));
    }
    Ok(token.to_owned())
}
