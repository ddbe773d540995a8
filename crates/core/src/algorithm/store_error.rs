//! Reasons why a store could not judge a check.

/// Reason why a store could not judge a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum StoreError {
    /// There is no room for a new counter.
    #[error("store full")]
    NoRoom,
    /// The counter's state is of another algorithm or format.
    #[error("counter state unreadable: written by another algorithm or format")]
    Unreadable,
    /// The store cannot be reached; nothing was sent to it.
    #[error("store unavailable")]
    Unavailable,
    /// No reply arrived in time; the request may have been executed.
    #[error("store timed out")]
    Late,
    /// The connection broke before the reply; the request may have been executed.
    #[error("connection to the store lost")]
    Lost,
    /// The store refused; the log has the reason.
    #[error("store refused the request")]
    Refused,
}

impl StoreError {
    /// All errors.
    pub const ALL: [Self; 6] =
        [Self::NoRoom, Self::Unreadable, Self::Unavailable, Self::Late, Self::Lost, Self::Refused];

    /// Returns the kind of error as a metric label.
    pub fn kind(self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::Unreadable => "unreadable",
            Self::Unavailable => "unavailable",
            Self::Late => "late",
            Self::Lost => "lost",
            Self::Refused => "refused",
        }
    }

    /// Returns the position in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        Self::ALL.iter().position(|error| *error == self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_label_and_a_position_of_its_own() {
        let labels = ["no_room", "unreadable", "unavailable", "late", "lost", "refused"];
        assert_eq!(StoreError::ALL.map(StoreError::kind), labels);
        assert_eq!(StoreError::ALL.map(StoreError::index), [0, 1, 2, 3, 4, 5]);
    }
}
