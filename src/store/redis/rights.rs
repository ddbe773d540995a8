//! Checks on connect: whether the user has the permissions that decisions need, whether the server
//! is a master, and whether all keys are at one server.
//!
//! Every command that decisions need is sent in a form that changes nothing. Servers check
//! permissions before arguments, slots and roles, so any other error proves that the user is
//! permitted.
//!
//! Behind a proxy that shards keys across servers (Envoy's `redis_proxy`, Codis), a script goes to
//! the server of its first key and keeps the counters of the other keys there, where no other call
//! looks for them. Servers are told apart by the address of a table in the Lua interpreter: it
//! differs between processes, and is the same for all keys of one process.

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, Value};

use super::failure::CallFailure;

/// The key used for the checks, after the prefix of all keys. It is never written.
const PROBE: &[u8] = b"tollgate:probe";
/// A digest that matches no script.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";
/// Text in the error of Redis (since 6.0) and Valkey for a forbidden command, but not for a
/// forbidden key.
const OF_COMMANDS: &str = "permissions to run the";
/// Script that returns an identifier of the server.
const IDENTITY: &str = "return tostring(redis)";
/// Number of keys used to detect sharding: of two servers, both are hit in all but one of eight
/// million cases.
const IDENTITIES: usize = 24;
/// Commands that decisions need, in the order of [`Proof::new`].
const COMMANDS: [&str; 6] = ["evalsha", "eval", "time", "get", "set", "del"];

/// Commands that verify a user's permissions.
#[derive(Clone, Debug)]
pub(super) struct Proof {
    commands: Pipeline,
    length: usize,
    /// Deletes a key that is never written. A replica refuses it.
    write: Cmd,
}

/// Result of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proved {
    /// `true` if the server refuses writes because it is a replica.
    pub(super) is_replica: bool,
    /// `true` if keys are sharded across several servers.
    pub(super) is_sharded: bool,
    /// Commands that the user may not run.
    pub(super) forbidden: Vec<&'static str>,
}

impl Proof {
    /// Creates the checks for keys that begin with `prefix`; with `of_one_server`, also that all
    /// keys are at one server.
    pub(super) fn new(prefix: &[u8], of_one_server: bool) -> Self {
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
        for number in 0..if of_one_server { IDENTITIES } else { 0 } {
            let key = [&key, format!(":{number}").as_bytes()].concat();
            pipeline.cmd("EVAL").arg(IDENTITY).arg(1).arg(key);
        }
        Self { length: pipeline.len(), commands: pipeline, write }
    }

    /// Returns `true` if the server is a replica.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub(super) async fn is_replica(&self, mut connection: MultiplexedConnection) -> Result<bool, RedisError> {
        let reply = connection.req_packed_command(&self.write).await?.extract_error();
        Ok(reply.is_err_and(|error| CallFailure::of(&error) == CallFailure::ReadOnly))
    }

    /// Runs all checks against a server.
    ///
    /// # Errors
    /// Returns an error if the server does not answer.
    pub(super) async fn ask(&self, mut connection: MultiplexedConnection) -> Result<Proved, RedisError> {
        let replies = connection.req_packed_commands(&self.commands, 0, self.length).await?;
        let mut replies = replies.into_iter();
        let failures: Vec<Option<CallFailure>> = replies
            .by_ref()
            .take(COMMANDS.len())
            .map(|reply| reply.extract_error().err().map(|error| CallFailure::of(&error)))
            .collect();
        // All identifiers are equal if there is one server.
        let servers: Vec<_> = replies.filter(|reply| matches!(reply, Value::BulkString(_))).collect();
        let is_sharded = servers.windows(2).any(|pair| pair.first() != pair.last());
        let mut proved = Proved { is_replica: false, is_sharded, forbidden: Vec::new() };
        for (command, failure) in COMMANDS.into_iter().zip(failures) {
            match failure {
                // A forbidden probe key proves nothing about the keys of counters.
                Some(CallFailure::Forbidden(text)) if text.contains(OF_COMMANDS) => proved.forbidden.push(command),
                Some(CallFailure::ReadOnly) => proved.is_replica = true,
                Some(_) | None => {}
            }
        }
        Ok(proved)
    }
}

/// Returns an error message with the command that grants these permissions.
pub(super) fn advice(user: Option<&str>, forbidden: &[&str]) -> String {
    let user = user.unwrap_or("default");
    let commands: Vec<String> = forbidden.iter().map(|command| format!("+{command}")).collect();
    format!(
        "user `{user}` has no permission for {}; to grant it, run ACL SETUSER {user} {}",
        forbidden.join(", "),
        commands.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_a_command_that_can_be_sent() {
        assert_eq!(
            advice(Some("app"), &["evalsha", "eval"]),
            "user `app` has no permission for evalsha, eval; to grant it, run ACL SETUSER app +evalsha +eval"
        );
        assert!(advice(None, &["del"]).contains("ACL SETUSER default +del"));
    }
}
