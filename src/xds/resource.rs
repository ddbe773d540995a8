//! Resources of responses: `RateLimitConfig`s in envelopes, with bounds on their number and size.

use prost::Message as _;
use prost_types::Any;

use super::{Update, yaml};
use crate::grpc::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
use crate::policy::Source;

/// The only resource type of the subscription.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
/// Maximum number of resources in a configuration.
pub(super) const MAX_RESOURCES: usize = 100_000;
/// Maximum bytes of all of them as text, the same as for files.
pub(super) const MAX_BYTES: usize = 256 * 1024 * 1024;

/// Reads all resources of a response.
pub(super) fn read_all(resources: &[Any]) -> Update {
    if resources.len() > MAX_RESOURCES {
        return Err(format!(
            "expected at most {MAX_RESOURCES} resources, found {}",
            resources.len()
        ));
    }
    let mut room = MAX_BYTES;
    resources.iter().map(|any| read(any, &mut room)).collect()
}

/// Reads one resource. `room`: the bytes left for texts, from which its own are subtracted.
pub(super) fn read(any: &Any, room: &mut usize) -> Result<Source, String> {
    if any.type_url != TYPE_URL {
        return Err(format!(
            "expected a resource of type {TYPE_URL}, found `{}`",
            any.type_url.escape_debug()
        ));
    }
    let config = RateLimitConfig::decode(any.value.as_slice())
        .map_err(|error| format!("invalid RateLimitConfig: {error}"))?;
    let source = yaml::source(&config, *room)
        .ok_or_else(|| format!("more than {MAX_BYTES} bytes of policies"))?;
    *room = room.saturating_sub(source.text.len());
    Ok(source)
}
