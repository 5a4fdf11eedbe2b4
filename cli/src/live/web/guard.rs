//! Which requests are refused, and with which words.
//!
//! A page of another site can make a browser on this machine send requests here. It cannot read the answers, unless it
//! makes its own name resolve to this machine: hence the list of host names. It cannot add headers to a request without
//! a preflight, which nothing here grants: hence `X-Redlock` on requests that cost or change something.

use std::net::SocketAddr;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use ring::digest::{SHA256, digest};

/// The header that only scripts of the page send.
const OWN: HeaderName = HeaderName::from_static("x-redlock");
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, format!("{}\n", self.why)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

const fn refuse<T>(status: StatusCode, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { status, why })
}

/// What this server answers to.
pub(super) struct Guard {
    /// The host names that a request may be for, in lower case; `None` for any.
    hosts: Option<Vec<String>>,
    /// The hash of the token.
    token: Option<[u8; 32]>,
}

impl Guard {
    /// For a server with this address. Without further names, one that others can reach has any: they need the token.
    pub(super) fn new(address: SocketAddr, hosts: &[String], token: Option<&str>) -> Self {
        let port = address.port();
        let mut own = Vec::new();
        if address.ip().is_loopback() {
            let names = ["localhost", "127.0.0.1", "[::1]"];
            own.extend(names.map(|name| format!("{name}:{port}")));
            own.push(address.to_string());
            // Browsers leave the default port out.
            own.extend(names.into_iter().filter(|_| port == 80).map(str::to_owned));
        }
        let all: Vec<String> = own.into_iter().chain(hosts.iter().map(|host| host.to_ascii_lowercase())).collect();
        Self { hosts: (!all.is_empty()).then_some(all), token: token.map(hash) }
    }

    /// Checks what each request needs.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = host(headers).filter(|host| uri.authority().is_none_or(|other| other.as_str() == *host));
        let known = |hosts: &Vec<String>| host.is_some_and(|host| hosts.contains(&host.to_ascii_lowercase()));
        if !self.hosts.as_ref().is_none_or(known) {
            return refuse(
                StatusCode::FORBIDDEN,
                "This host name is not allowed. Use the address that redlock web printed, or start it with --host NAME.",
            );
        }
        if headers.get(SITE).is_some_and(|site| site == "cross-site" || site == "same-site") && uri.path() != "/" {
            return refuse(StatusCode::FORBIDDEN, "Requests of other sites are refused.");
        }
        Ok(())
    }

    /// Checks what a request for data needs besides.
    pub(super) fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = self.token else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given =
            given.and_then(|value| value.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        // The time of a comparison of hashes says nothing about the token. This one is constant nevertheless.
        let differs = |given: [u8; 32]| given.iter().zip(token).fold(0, |all, (one, other)| all | (one ^ other)) != 0;
        if given.is_none_or(|(_, given)| differs(hash(given.trim()))) {
            return refuse(
                StatusCode::UNAUTHORIZED,
                "The token of --token-file is needed: Authorization: Bearer TOKEN.",
            );
        }
        Ok(())
    }
}

/// Checks what a request needs that costs the servers something.
pub(super) fn check_own(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get(OWN).is_none_or(|value| value != "1") {
        return refuse(StatusCode::FORBIDDEN, "The header X-Redlock: 1 is missing.");
    }
    Ok(())
}

/// Checks what a request needs besides that changes something.
pub(super) fn check_change(headers: &HeaderMap) -> Result<(), Refusal> {
    check_own(headers)?;
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "The content must be application/json.");
    }
    let origin = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok());
    let origin = origin.and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    if !origin.zip(host(headers)).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host)) {
        return refuse(StatusCode::FORBIDDEN, "The header Origin must name this host.");
    }
    if headers.get(SITE).is_some_and(|site| site != "same-origin") {
        return refuse(StatusCode::FORBIDDEN, "Requests of other sites are refused.");
    }
    Ok(())
}

/// The only host that a request names.
fn host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next()?.to_str().ok()?;
    hosts.next().is_none().then_some(host)
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_leave_the_default_port_out() {
        let checked = |address: &str, host: &'static str| {
            let guard = Guard::new(address.parse().expect("an address"), &[], None);
            let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static(host))]);
            guard.check(&Uri::from_static("/"), &headers).is_ok()
        };
        for host in ["127.0.0.1", "localhost", "[::1]", "localhost:80"] {
            assert!(checked("127.0.0.1:80", host), "{host}");
        }
        assert!(!checked("127.0.0.1:7379", "127.0.0.1") && !checked("127.0.0.1:80", "evil.example"));
    }
}
