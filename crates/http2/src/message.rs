//! The frame of a gRPC message: a prefix of a flag and the length, and the message.

use super::refusal::Refusal;

/// Length of the prefix in bytes.
pub(super) const PREFIX: usize = 5;

/// Returns the length of the first message with its prefix, if that has arrived.
pub(super) fn message_length(bytes: &[u8]) -> Option<usize> {
    let &[_, ref length @ ..] = bytes.first_chunk::<PREFIX>()?;
    Some(PREFIX.saturating_add(usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX)))
}

/// Returns the length of the first message, if that is all there.
///
/// # Errors
/// [`Refusal::MessageTooLarge`] beyond `max` bytes without the prefix.
pub(super) fn whole_message(bytes: &[u8], max: usize) -> Result<Option<usize>, Refusal> {
    match message_length(bytes) {
        Some(length) if length > max.saturating_add(PREFIX) => {
            Err(Refusal::MessageTooLarge { max })
        }
        length => Ok(length.filter(|length| *length <= bytes.len())),
    }
}
