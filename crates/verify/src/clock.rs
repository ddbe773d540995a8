//! The clock of this machine.

/// Returns the microseconds since the epoch.
pub(crate) fn epoch_micros() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()
}
