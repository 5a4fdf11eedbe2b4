//! The server that a node connects to: always the same one, or the master that the Sentinels name.

use std::sync::Arc;

use redis::ConnectionAddr;

use super::{sentinel::Sentinels, setup::Clients};
use crate::{config::Config, error::LockError, server::NodeError, url::Endpoint};

/// The server that a node connects to.
pub(super) enum Target {
    Fixed(Arc<Clients>),
    /// The master that the Sentinels name.
    Followed(Box<Sentinels>),
}

impl Target {
    /// Creates the target of an endpoint. Fails if an option is invalid.
    pub(super) fn new(endpoint: &Endpoint, config: &Config) -> Result<Self, LockError> {
        Ok(match Sentinels::new(endpoint, config)? {
            Some(sentinels) => Self::Followed(Box::new(sentinels)),
            None => Self::Fixed(Arc::new(Clients::new(endpoint, &config.tls)?)),
        })
    }

    /// Returns the clients to connect with; queries the Sentinels if there are any.
    pub(super) async fn clients(&self) -> Result<Arc<Clients>, NodeError> {
        match self {
            Self::Fixed(clients) => Ok(Arc::clone(clients)),
            Self::Followed(sentinels) => sentinels.master().await,
        }
    }

    /// Whether the Sentinels can elect another server later.
    pub(super) fn can_fail_over(&self) -> bool {
        matches!(self, Self::Followed(_))
    }

    /// Whether an event loop may own a connection to the server: not with TLS.
    pub(super) fn is_hostable(&self) -> bool {
        match self {
            Self::Fixed(clients) => {
                !matches!(clients.resp2.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
            }
            Self::Followed(sentinels) => !sentinels.tls(),
        }
    }
}
