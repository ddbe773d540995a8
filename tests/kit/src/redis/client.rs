//! Redis commands, each on its own connection: no state survives a server that is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, FromRedisValue, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisResult, Value,
};

use super::Redis;
use crate::TEST_TIMEOUT;

impl Redis {
    /// Returns the server's URL, with its password if it has one.
    pub fn url(&self) -> String {
        let scheme = if self.setup.tls.is_some() { "rediss" } else { "redis" };
        let login = self.setup.password.map(|password| format!(":{password}@")).unwrap_or_default();
        format!("{scheme}://{login}{}", self.address)
    }

    /// Sends a command and returns its reply, or the error that Redis replied with.
    pub async fn query<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        self.query_within(TEST_TIMEOUT, command).await
    }

    /// Sends a command with a timeout for connecting and for the reply.
    pub async fn query_within<T: FromRedisValue>(
        &self,
        limit: Duration,
        command: &[&str],
    ) -> RedisResult<T> {
        let mut connection = connect(&self.client()?, limit).await?;
        redis::Cmd::new().arg(command).query_async(&mut connection).await
    }

    /// Sends a command of arbitrary bytes.
    pub async fn query_bytes<T: FromRedisValue>(&self, command: &[&[u8]]) -> RedisResult<T> {
        let mut connection = connect(&self.client()?, TEST_TIMEOUT).await?;
        redis::Cmd::new().arg(command).query_async(&mut connection).await
    }

    /// Sends a command that must not fail.
    pub async fn command(&self, command: &[&str]) -> Value {
        self.query(command)
            .await
            .unwrap_or_else(|error| panic!("{command:?} at {}: {error}", self.address))
    }

    /// Returns a section of `INFO`.
    pub async fn info(&self, section: &str) -> BTreeMap<String, String> {
        self.try_info(section)
            .await
            .unwrap_or_else(|error| panic!("INFO {section} at {}: {error}", self.address))
    }

    /// Returns the number of calls of each command; a subcommand is named as in `config|set`.
    pub async fn commandstats(&self) -> BTreeMap<String, u64> {
        let calls = |value: &str| value.strip_prefix("calls=")?.split(',').next()?.parse().ok();
        let stats = self.info("commandstats").await;
        let stats = stats
            .iter()
            .map(|(name, value)| (name.trim_start_matches("cmdstat_"), calls(value).unwrap()));
        stats.map(|(name, calls)| (name.to_owned(), calls)).collect()
    }

    pub(super) async fn try_info(&self, section: &str) -> RedisResult<BTreeMap<String, String>> {
        let text: String = self.query(&["INFO", section]).await?;
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        Ok(lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn client(&self) -> RedisResult<Client> {
        // Certificates are the service's to verify; the tests' own commands use the Unix socket.
        let address = self.setup.tls.as_ref().map(|_| ConnectionAddr::Unix(self.socket()));
        let info = address.map_or_else(
            || self.url().into_connection_info(),
            |address| address.into_connection_info(),
        )?;
        // Older servers count the unknown `CLIENT SETINFO` as an error.
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let login =
            self.setup.password.iter().fold(login, |login, password| login.set_password(password));
        Client::open(info.set_redis_settings(login))
    }
}

/// Connects with `limit` as the timeout for the connection and for each reply.
pub async fn connect(client: &Client, limit: Duration) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    client.get_multiplexed_async_connection_with_config(&config).await
}
