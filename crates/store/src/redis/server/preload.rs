//! Loading of scripts on connect, so that no decision waits until a server has compiled its script.

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Pipeline, RedisError};

use super::failure::CallFailure;
use crate::redis::script::{Script, scripts_to_load};

/// Loads the scripts that the server does not have. Each is run without a request: it reads and
/// writes no key. One round trip if the server has all of them, otherwise two.
///
/// # Errors
/// The server does not answer.
pub(super) async fn load_scripts(mut connection: MultiplexedConnection) -> Result<(), RedisError> {
    let scripts: Vec<&Script> = scripts_to_load().collect();
    let known = pipeline(scripts.iter().map(|script| ("EVALSHA", script.sha.as_str())));
    let replies = connection.req_packed_commands(&known, 0, known.len()).await?;
    let missing = scripts.iter().zip(replies).filter_map(|(script, reply)| {
        (CallFailure::in_reply(reply) == Some(CallFailure::NoScript)).then_some(script)
    });
    let missing = pipeline(missing.map(|script| ("EVAL", script.text.as_str())));
    if !missing.is_empty() {
        connection.req_packed_commands(&missing, 0, missing.len()).await?;
    }
    Ok(())
}

/// Returns commands that run scripts without a request, at the server's time.
fn pipeline<'a>(scripts: impl Iterator<Item = (&'static str, &'a str)>) -> Pipeline {
    let mut pipeline = redis::pipe();
    for (command, script) in scripts {
        pipeline.cmd(command).arg(script).arg(0).arg("").arg(1);
    }
    pipeline
}
