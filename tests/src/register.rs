//! A resource that checks fencing tokens: one number for each lock, on a redis-server of its own without faults. A
//! holder of the lock reads the number and writes it back plus one. The register counts the writes that it accepts. If
//! no update is lost, the number equals that count, whatever the holders believed.
//!
//! How strictly it checks is a parameter, because two of the three ways are negative controls: no check, and a check of
//! writes only. The third registers the token on the first access of a tenure, reads included (`docs/fencing.md`).

use redis::{AsyncConnectionConfig, RedisResult, aio::MultiplexedConnection, cmd};
use serde::{Deserialize, Serialize};

use crate::server::Server;

/// The checks of the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// It checks nothing.
    Never,
    /// A write must not have a smaller token than the last write.
    Writes,
    /// No access may have a smaller token than any access before.
    #[default]
    Always,
}

/// Replies with the number, or -1 for an outdated token.
const ACCESS: &str = "
local write = ARGV[3] ~= ''
if ARGV[2] == 'Always' or (ARGV[2] == 'Writes' and write) then
  if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or 0) then return -1 end
  redis.call('SET', KEYS[1], ARGV[1])
end
if write then
  redis.call('SET', KEYS[2], ARGV[3])
  redis.call('INCR', KEYS[3])
end
return tonumber(redis.call('GET', KEYS[2]) or 0)";

/// The keys of one lock: the largest token, the number, the accepted writes.
fn keys(name: &str) -> [String; 3] {
    ["fence", "value", "accepted"].map(|what| format!("{what}:{name}"))
}

/// The server of a register.
#[derive(Debug)]
pub struct Register {
    server: Server,
}

/// The state of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The number of accepted writes.
    pub accepted: u64,
    /// The number. It is smaller than `accepted` if updates were lost.
    pub value: u64,
}

impl Total {
    /// The number of lost updates: accepted, but missing in the number.
    pub fn lost(self) -> u64 {
        self.accepted - self.value
    }
}

impl Register {
    /// Starts one.
    pub fn start() -> Self {
        Self { server: Server::start() }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The sum over these names.
    pub fn total<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Total {
        names.into_iter().fold(Total::default(), |sum, name| {
            let [_, value, accepted] = keys(name);
            // One command reads both, as of one moment.
            let (accepted, value): (Option<u64>, Option<u64>) = self.server.command(&["MGET", &accepted, &value]);
            let total = |number: Option<u64>| number.unwrap_or_default();
            Total { accepted: sum.accepted + total(accepted), value: sum.value + total(value) }
        })
    }
}

/// A process's connection to a register. Clones share it.
#[derive(Clone)]
pub struct Access {
    connection: MultiplexedConnection,
    check: Check,
}

impl Access {
    /// Connects to it.
    pub async fn connect(url: &str, check: Check) -> RedisResult<Self> {
        // No time-outs: the server never fails, and this process may be suspended for any time.
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { connection, check })
    }

    /// Reads the number. `None` if the token is outdated.
    pub async fn read(&mut self, name: &str, token: u64) -> RedisResult<Option<u64>> {
        self.access(name, token, String::new()).await
    }

    /// Writes the number. Returns true if the write was accepted.
    pub async fn write(&mut self, name: &str, token: u64, value: u64) -> RedisResult<bool> {
        Ok(self.access(name, token, value.to_string()).await?.is_some())
    }

    async fn access(&mut self, name: &str, token: u64, value: String) -> RedisResult<Option<u64>> {
        let (check, [fence, number, accepted]) = (format!("{:?}", self.check), keys(name));
        let mut eval = cmd("EVAL");
        eval.arg(ACCESS).arg(3).arg(fence).arg(number).arg(accepted).arg(token).arg(check).arg(value);
        let reply: i64 = eval.query_async(&mut self.connection).await?;
        Ok(u64::try_from(reply).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The old holder (1) and the new one (2) interleave as in section "Why a check on writes is not enough" of
    /// `docs/fencing.md`.
    #[tokio::test]
    async fn only_registering_reads_loses_nothing() -> RedisResult<()> {
        for (check, lost) in [(Check::Never, 1), (Check::Writes, 1), (Check::Always, 0)] {
            let register = Register::start();
            let mut access = Access::connect(&register.url(), check).await?;
            let old = access.read("x", 1).await?.expect("the first token");
            let new = access.read("x", 2).await?.expect("a larger token");
            access.write("x", 1, old + 1).await?;
            assert!(access.write("x", 2, new + 1).await?);
            assert_eq!(register.total(["x"]).lost(), lost, "{check:?}");
        }
        Ok(())
    }
}
