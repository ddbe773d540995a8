//! Resources of responses: `RateLimitConfig`s in envelopes, with bounds on their number and size.

use prost::{DecodeError, Message as _};
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

/// The reason why resources cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum ResourceError {
    /// More resources than a configuration may have.
    #[error("expected at most {MAX_RESOURCES} resources, found {found}")]
    TooMany { found: usize },
    /// A resource of another type.
    #[error("expected a resource of type {TYPE_URL}, found `{}`", found.escape_debug())]
    Type { found: String },
    /// A resource that cannot be decoded.
    #[error("invalid RateLimitConfig: {0}")]
    Invalid(#[from] DecodeError),
    /// Longer texts than a configuration may have.
    #[error("more than {MAX_BYTES} bytes of policies")]
    TooLong,
}

/// Reads all resources of a response.
pub(super) fn read_all(resources: &[Any]) -> Update {
    if resources.len() > MAX_RESOURCES {
        return Err(ResourceError::TooMany { found: resources.len() });
    }
    let mut room = MAX_BYTES;
    resources.iter().map(|any| read(any, &mut room)).collect()
}

/// Reads one resource. `room`: the bytes left for texts, from which its own are subtracted.
pub(super) fn read(any: &Any, room: &mut usize) -> Result<Source, ResourceError> {
    if any.type_url != TYPE_URL {
        return Err(ResourceError::Type { found: any.type_url.clone() });
    }
    let config = RateLimitConfig::decode(any.value.as_slice())?;
    let source = yaml::source(&config, *room).ok_or(ResourceError::TooLong)?;
    *room = room.saturating_sub(source.text.len());
    Ok(source)
}
