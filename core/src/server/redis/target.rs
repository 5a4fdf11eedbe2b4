//! Which server a node leads to: always the same, or wherever the Sentinels say.

use std::sync::Arc;

use redis::ConnectionAddr;

use super::{sentinel::Sentinels, setup::Clients};
use crate::{config::Config, error::LockError, server::NodeError, url::Endpoint};

/// Where a node's server is.
pub(super) enum Target {
    Fixed(Arc<Clients>),
    /// Wherever the Sentinels say.
    Followed(Box<Sentinels>),
}

impl Target {
    pub(super) fn new(endpoint: &Endpoint, config: &Config) -> Result<Self, LockError> {
        Ok(match Sentinels::new(endpoint, config)? {
            Some(sentinels) => Self::Followed(Box::new(sentinels)),
            None => Self::Fixed(Arc::new(Clients::new(endpoint, &config.tls)?)),
        })
    }

    pub(super) async fn clients(&self) -> Result<Arc<Clients>, NodeError> {
        match self {
            Self::Fixed(clients) => Ok(Arc::clone(clients)),
            Self::Followed(sentinels) => sentinels.master().await,
        }
    }

    /// Whether it may lead to another server later.
    pub(super) fn follows(&self) -> bool {
        matches!(self, Self::Followed(_))
    }

    /// Whether an event loop may own a connection to it.
    pub(super) fn is_hostable(&self) -> bool {
        match self {
            Self::Fixed(clients) => {
                !matches!(clients.resp2.get_connection_info().addr(), ConnectionAddr::TcpTls { .. })
            }
            Self::Followed(sentinels) => !sentinels.tls(),
        }
    }
}
