//! Names the connections of a node, so that others see whose they are, and reads the names of other clients. Both are
//! extras: a server that refuses one is not asked again, and nothing fails for that.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use redis::{Cmd, ServerError, Value, aio::MultiplexedConnection};

use super::{
    Inner,
    errors::{error_from_reply, permanent_error},
    replies::{client_field, reply},
    request::Pipelined,
};
use crate::{
    identity::Identity,
    protocol::script::Reply,
    server::{NamedConnection, NodeError},
};

/// The name of a node's connections, and what its server refuses.
#[derive(Default)]
pub(super) struct Naming {
    /// `None` if the connections get no name.
    name: Option<Arc<str>>,
    refuses_name: AtomicBool,
    refuses_list: AtomicBool,
}

impl Naming {
    pub(super) fn new(name: Option<Arc<str>>) -> Self {
        Self { name, ..Self::default() }
    }

    /// Names a connection. Its end or a refusal is no error.
    pub(super) async fn apply(&self, mut redis: MultiplexedConnection) {
        let Some(name) = self.name.as_deref().filter(|_| !self.refuses_name.load(Relaxed)) else { return };
        if let Ok(Value::ServerError(error)) = redis.send_packed_command(&client_command(&["SETNAME", name])).await
            && is_lasting(&error)
        {
            self.refuses_name.store(true, Relaxed);
        }
    }
}

/// Builds a command of the family CLIENT.
fn client_command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd("CLIENT");
    for word in words {
        command.arg(*word);
    }
    command
}

/// Whether a later request would be refused as well: the right is missing, or the server does not know the command.
fn is_lasting(error: &ServerError) -> bool {
    matches!(error.code(), "NOPERM" | "ERR")
}

impl Inner {
    /// Returns the clients that are connected to the server and name their connections, each once.
    pub(super) async fn clients(self: &Arc<Self>, timeout: Duration) -> Result<Vec<NamedConnection>, NodeError> {
        if self.naming.refuses_list.load(Relaxed) {
            return Err(permanent_error("needs the right to run CLIENT LIST"));
        }
        let connection = self.background(timeout).await?;
        // Each client has another connection than the one that subscribes.
        let command = client_command(&["LIST", "TYPE", "normal"]);
        match self.request(&connection, &command, None, timeout, Pipelined::default()).await? {
            Value::ServerError(error) => {
                if is_lasting(&error) {
                    self.naming.refuses_list.store(true, Relaxed);
                }
                Err(error_from_reply(&error))
            }
            value => match reply(value)? {
                Reply::Text(list) => Ok(named(&list)),
                Reply::Int(_) | Reply::List(_) => Err(NodeError::no_answer()),
            },
        }
    }
}

/// Reads the reply to CLIENT LIST. Leaves out connections without a name of this library.
pub(super) fn named(list: &str) -> Vec<NamedConnection> {
    let each = list.lines().filter_map(|line| {
        let field = |name| client_field(line, name);
        let address = field("addr").filter(|address| !address.is_empty()).map(str::to_owned);
        Some(NamedConnection { identity: Identity::parse(field("name")?)?, address })
    });
    each_once(each)
}

/// Keeps one connection of each client.
pub(super) fn each_once(all: impl IntoIterator<Item = NamedConnection>) -> Vec<NamedConnection> {
    let by_client: HashMap<String, NamedConnection> =
        all.into_iter().map(|one| (one.identity.client.clone(), one)).collect();
    by_client.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_several_connections_is_listed_once() {
        let client = |number| {
            format!(
                "redlock/1.2.3;h:web-3;a:billing;p:812;u:0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a5{number};n:1;q:1;w:r;\
                 m:60000;f:cbf29ce484222325"
            )
        };
        let line = |name: &str| format!("id=5 addr=10.0.0.4:5000 laddr=10.0.0.1:6379 fd=8 name={name} age=3 resp=3\n");
        let other = line("") + &line("shop") + "id=6\n" + &line("redlock/1.2.3;h:a\u{7f}");
        let list = line(&client(1)) + &other + &line(&client(1)) + &line(&client(2));
        let mut seen: Vec<_> = named(&list).into_iter().map(|one| (one.identity.client, one.address)).collect();
        seen.sort();
        let expected =
            |number| (format!("0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a5{number}"), Some("10.0.0.4:5000".to_owned()));
        assert_eq!(seen, [expected(1), expected(2)]);
    }
}
