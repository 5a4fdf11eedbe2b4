//! Builds the `redis` crate's client from a configuration: address, credentials, TLS material.

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    TlsCertificates,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};

use super::KEEPALIVE;
use crate::{
    config::Tls,
    error::LockError,
    url::{Address, Endpoint, Transport},
};

/// The clients of a server, one for each protocol version.
pub(super) struct Clients {
    /// Preferred: with RESP3 a disconnection is noticed at once. `None` if the URL rules it out.
    pub(super) resp3: Option<Client>,
    /// For servers without HELLO.
    pub(super) resp2: Client,
    /// The master that they lead to, if Sentinels named it.
    pub(super) master: Option<Address>,
}

impl Clients {
    /// Builds both clients. Fails if an option is invalid.
    pub(super) fn new(endpoint: &Endpoint, tls: &Tls) -> Result<Self, LockError> {
        let resp3 = (!endpoint.resp2).then(|| client(endpoint, tls, ProtocolVersion::RESP3)).transpose()?;
        Ok(Self { resp3, resp2: client(endpoint, tls, ProtocolVersion::RESP2)?, master: None })
    }
}

/// Builds the client of one server. Fails if an option is invalid.
pub(super) fn client(endpoint: &Endpoint, tls: &Tls, protocol: ProtocolVersion) -> Result<Client, LockError> {
    let invalid = |error: RedisError| LockError::invalid("urls", error.to_string());
    let address = match &endpoint.transport {
        Transport::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
        Transport::Unix { path } => ConnectionAddr::Unix(path.into()),
        Transport::Tls { host, port } => {
            ServerName::try_from(host.as_str())
                .map_err(|_| LockError::invalid("urls", format!("{host:?} is no host name for TLS")))?;
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        // These have several servers, or none.
        Transport::Cluster { .. } | Transport::Sentinel { .. } | Transport::Memory { .. } => {
            return Err(LockError::invalid("urls", format!("{} is not the URL of a server", endpoint.transport)));
        }
    };
    let mut login = RedisConnectionInfo::default()
        .set_db(endpoint.db)
        .set_protocol(protocol)
        .set_lib_name("redlock", env!("CARGO_PKG_VERSION"));
    if let Some(username) = &endpoint.username {
        // Without a password the crate would not log in, and the server would treat it as the default user.
        login = login.set_username(username).set_password("");
    }
    if let Some(password) = &endpoint.password {
        login = login.set_password(password);
    }
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
    let info = address.into_connection_info().map_err(invalid)?.set_tcp_settings(tcp).set_redis_settings(login);
    if matches!(endpoint.transport, Transport::Tls { .. }) {
        Client::build_with_tls(info, certificates(tls)?).map_err(invalid)
    } else {
        Client::open(info).map_err(invalid)
    }
}

/// Reads and checks the TLS settings, so that a mistake shows here and not as a node that is down.
fn certificates(tls: &Tls) -> Result<TlsCertificates, LockError> {
    // Fails if a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = tls.ca.as_deref().map(|ca| pem("ca", ca)).transpose()?;
    let mut roots = rustls::RootCertStore::empty();
    if let Some(ca) = &ca {
        for certificate in chain("ca", ca)? {
            roots.add(certificate).map_err(|error| LockError::invalid("ca", error.to_string()))?;
        }
    }
    let client = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let (cert, key) = (pem("cert", cert)?, pem("key", key)?);
            let parsed =
                PrivateKeyDer::from_pem_slice(&key).map_err(|error| LockError::invalid("key", error.to_string()))?;
            rustls::ClientConfig::builder()
                .with_root_certificates(roots)
                .with_client_auth_cert(chain("cert", &cert)?, parsed)
                .map_err(|error| LockError::invalid("cert", error.to_string()))?;
            Some(ClientTlsConfig { client_cert: cert, client_key: key })
        }
        _ => None,
    };
    Ok(TlsCertificates { client_tls: client, root_cert: ca })
}

/// Returns PEM text, which the option contains or names as the path of a file.
fn pem(argument: &'static str, text: &str) -> Result<Vec<u8>, LockError> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Ok(text.as_bytes().to_vec());
    }
    std::fs::read(text).map_err(|error| LockError::invalid(argument, format!("{text}: {error}")))
}

fn chain(argument: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, LockError> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| LockError::invalid(argument, error.to_string()))?;
    if chain.is_empty() {
        return Err(LockError::invalid(argument, "holds no certificate"));
    }
    Ok(chain)
}
