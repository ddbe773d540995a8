//! Checks on connect: whether the user has the permissions that decisions need, whether the server
//! is a master, and whether all keys are at one server.
//!
//! Every command that decisions need is sent in a form that changes nothing. Servers check
//! permissions before arguments, slots and roles, so any other error proves that the user is
//! permitted.
//!
//! Behind a proxy that shards keys across servers (Envoy's `redis_proxy`, Codis), a script goes to
//! the server of its first key and keeps the counters of the other keys there, where no other call
//! looks for them. Servers are distinguished by the address of a table in the Lua interpreter: it
//! differs between processes, and is the same for all keys of one process.

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, Value};

use super::failure::{CallFailure, is_of_login};

/// The key used for the checks, after the prefix of all keys. It is never written.
const PROBE: &[u8] = b"tollgate:probe";
/// A digest that matches no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";
/// Script that returns an identifier of the server.
const IDENTITY: &str = "return tostring(redis)";
/// Number of keys used to detect sharding: of two servers, both are hit in all but one of eight
/// million cases.
const IDENTITIES: usize = 24;
/// Commands that decisions need, in the order of [`RightsCheck::new`].
const COMMANDS: [&str; 6] = ["evalsha", "eval", "time", "get", "set", "del"];

/// Commands needed for features other than decisions, in forms that change nothing.
pub(in crate::redis) const EXTRAS: [FeatureCommand; 14] = [
    FeatureCommand::new("hset", &["HSET", "KEY", "a", "b", "c"], DENIALS_AND_HOLDS),
    FeatureCommand::new("hgetall", &["HGETALL", "KEY"], DENIALS),
    FeatureCommand::new("pexpire", &["PEXPIRE", "KEY", "1"], DENIALS_AND_HOLDS),
    FeatureCommand::new("hget", &["HGET", "KEY", "a"], HOLDS),
    FeatureCommand::new("hlen", &["HLEN", "KEY"], HOLDS),
    FeatureCommand::new("hdel", &["HDEL", "KEY", "a"], HOLDS),
    FeatureCommand::new("hrandfield", &["HRANDFIELD", "KEY", "1"], HOLDS),
    FeatureCommand::new("zadd", &["ZADD", "KEY", "NX", "XX", "1", "a"], REPLICAS),
    FeatureCommand::new("zcard", &["ZCARD", "KEY"], REPLICAS),
    FeatureCommand::new("zrange", &["ZRANGE", "KEY", "0", "0"], REPLICAS),
    FeatureCommand::new("zremrangebyscore", &["ZREMRANGEBYSCORE", "KEY", "1", "0"], REPLICAS),
    FeatureCommand::new("exists", &["EXISTS", "KEY"], "one call for many slots of a Cluster node"),
    FeatureCommand::new("scan", &["SCAN", "0", "COUNT", "1"], "tollgate reset --ahead-of-clock"),
    FeatureCommand::new(
        "info",
        &["INFO", "server"],
        "startup warnings, /api/v1/store, clocks of replicas",
    ),
];
const HOLDS: &str = "limits with holds";
const DENIALS: &str = "denials of all replicas";
const DENIALS_AND_HOLDS: &str = "denials of all replicas, limits with holds";
const REPLICAS: &str = "number of replicas for on_store_error: local";

/// A command that a feature other than decisions needs.
#[derive(Debug)]
pub(in crate::redis) struct FeatureCommand {
    /// The name in an ACL.
    pub(in crate::redis) name: &'static str,
    /// The command; `KEY` is a key that is never written.
    words: &'static [&'static str],
    /// The feature that fails without it.
    pub(in crate::redis) purpose: &'static str,
}

impl FeatureCommand {
    const fn new(
        name: &'static str,
        words: &'static [&'static str],
        purpose: &'static str,
    ) -> Self {
        Self { name, words, purpose }
    }

    /// Returns the words of the command, with `key` as the key.
    pub(in crate::redis) fn command<'a>(&'a self, key: &'a str) -> Vec<&'a str> {
        self.words.iter().map(|word| if *word == "KEY" { key } else { *word }).collect()
    }
}

/// Commands that verify a user's permissions.
#[derive(Clone, Debug)]
pub(in crate::redis) struct RightsCheck {
    commands: Pipeline,
    length: usize,
    /// The commands of [`EXTRAS`], sent only if others are forbidden, for a complete error.
    extras: Pipeline,
    /// Deletes a key that is never written. A replica refuses it.
    write: Cmd,
}

/// Result of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GrantedRights {
    /// `true` if the server refuses writes because it is a replica.
    pub(in crate::redis) is_replica: bool,
    /// `true` if keys are sharded across several servers.
    pub(in crate::redis) is_sharded: bool,
    /// Commands that the user may not run.
    pub(in crate::redis) forbidden: Vec<&'static str>,
}

impl RightsCheck {
    /// Creates the checks of a server that may have only some of the keys that begin with `prefix`.
    pub(in crate::redis) fn of_cluster_node(prefix: &[u8]) -> Self {
        Self::new(prefix, 0)
    }

    /// Creates the checks of a server that must have all keys that begin with `prefix`.
    pub(in crate::redis) fn of_only_server(prefix: &[u8]) -> Self {
        Self::new(prefix, IDENTITIES)
    }

    fn new(prefix: &[u8], identities: usize) -> Self {
        let key = [prefix, PROBE].concat();
        let mut pipeline = Pipeline::with_capacity(COMMANDS.len());
        pipeline.cmd("EVALSHA").arg(NO_SCRIPT).arg(0);
        pipeline.cmd("EVAL").arg("return 1").arg(0);
        pipeline.cmd("TIME");
        pipeline.cmd("GET").arg(&key);
        // An option that does not exist: a syntax error.
        pipeline.cmd("SET").arg(&key).arg("").arg("NOTHING");
        let mut write = redis::cmd("DEL");
        write.arg(&key);
        pipeline.add_command(write.clone());
        for number in 0..identities {
            let key = [&key, format!(":{number}").as_bytes()].concat();
            pipeline.cmd("EVAL").arg(IDENTITY).arg(1).arg(key);
        }
        let probe = String::from_utf8_lossy(&key);
        let mut extras = Pipeline::with_capacity(EXTRAS.len());
        for extra in &EXTRAS {
            let mut command = Cmd::new();
            extra.command(&probe).into_iter().for_each(|word| _ = command.arg(word));
            extras.add_command(command);
        }
        Self { length: pipeline.len(), commands: pipeline, extras, write }
    }

    /// Returns the commands of [`EXTRAS`] that the user may not run.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub(super) async fn forbidden_extras(
        &self,
        mut connection: MultiplexedConnection,
    ) -> Result<Vec<&'static str>, RedisError> {
        let replies = connection.req_packed_commands(&self.extras, 0, EXTRAS.len()).await?;
        let mut forbidden = Vec::new();
        for (extra, reply) in EXTRAS.iter().zip(replies) {
            if CallFailure::in_reply(reply).is_some_and(|failure| failure.is_of_command()) {
                forbidden.push(extra.name);
            }
        }
        Ok(forbidden)
    }

    /// Returns `true` if the server is a master and lets the user write.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub(in crate::redis) async fn may_write(
        &self,
        mut connection: MultiplexedConnection,
    ) -> Result<bool, RedisError> {
        let failure = CallFailure::in_reply(connection.req_packed_command(&self.write).await?);
        Ok(failure.is_none_or(|failure| failure != CallFailure::ReadOnly && !failure.is_of_user()))
    }

    /// Runs all checks against a server.
    ///
    /// # Errors
    /// Returns an error if the server does not answer, or refuses the login.
    pub(super) async fn run(
        &self,
        mut connection: MultiplexedConnection,
    ) -> Result<GrantedRights, RedisError> {
        let replies = connection.req_packed_commands(&self.commands, 0, self.length).await?;
        let mut replies = replies.into_iter();
        let errors: Vec<Option<RedisError>> = replies
            .by_ref()
            .take(COMMANDS.len())
            .map(|reply| reply.extract_error().err())
            .collect();
        if let Some(error) = errors.iter().flatten().find(|error| is_of_login(error)) {
            return Err(error.clone());
        }
        let failures = errors.iter().map(|error| error.as_ref().map(CallFailure::of));
        // All identifiers are equal if there is one server.
        let servers: Vec<_> =
            replies.filter(|reply| matches!(reply, Value::BulkString(_))).collect();
        let is_sharded = servers.windows(2).any(|pair| pair.first() != pair.last());
        let mut proved = GrantedRights { is_replica: false, is_sharded, forbidden: Vec::new() };
        for (command, failure) in COMMANDS.into_iter().zip(failures) {
            match failure {
                // A forbidden probe key proves nothing about the keys of counters.
                Some(failure) if failure.is_of_command() => proved.forbidden.push(command),
                Some(CallFailure::ReadOnly) => proved.is_replica = true,
                Some(_) | None => {}
            }
        }
        Ok(proved)
    }
}

/// Returns an error message with the command that grants all of these permissions: those that
/// decisions need, and those that other features need.
pub(in crate::redis) fn advice(user: Option<&str>, forbidden: &[&str], extras: &[&str]) -> String {
    let name = user.unwrap_or("default");
    let others = match extras {
        [] => String::new(),
        extras => format!(", nor, for other features, for {}", extras.join(", ")),
    };
    let command = acl_setuser(user, &[forbidden, extras].concat());
    format!(
        "user `{name}` has no permission for {}{others}; to grant it, run {command}",
        forbidden.join(", ")
    )
}

/// Returns the Redis command that permits a user to run these commands.
pub(in crate::redis) fn acl_setuser(user: Option<&str>, commands: &[&str]) -> String {
    let commands: Vec<String> = commands.iter().map(|command| format!("+{command}")).collect();
    format!("ACL SETUSER {} {}", user.unwrap_or("default"), commands.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the commands that a script names.
    fn commands_of(script: &str) -> Vec<String> {
        let is_command =
            |word: &&str| word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase());
        script.split('\'').filter(is_command).map(str::to_lowercase).collect()
    }

    #[test]
    fn every_command_of_the_operations_on_holds_is_proved_for_them() {
        let script = include_str!("../script/lua/holds.lua");
        let options = ["withvalues"];
        let commands = commands_of(script);
        let commands: Vec<_> =
            commands.iter().filter(|name| !options.contains(&name.as_str())).collect();
        assert!(commands.len() > 6, "{commands:?}");
        for name in commands {
            let is_extra =
                |extra: &FeatureCommand| extra.name == name && extra.purpose.contains(HOLDS);
            assert!(COMMANDS.contains(&name.as_str()) || EXTRAS.iter().any(is_extra), "{name}");
        }
    }

    #[test]
    fn the_advice_is_a_command_that_can_be_sent() {
        assert_eq!(
            advice(Some("app"), &["evalsha", "eval"], &[]),
            "user `app` has no permission for evalsha, eval; to grant it, run ACL SETUSER app +evalsha +eval"
        );
        assert_eq!(
            advice(None, &["del"], &["hset", "info"]),
            "user `default` has no permission for del, nor, for other features, for hset, info; \
             to grant it, run ACL SETUSER default +del +hset +info"
        );
    }
}
