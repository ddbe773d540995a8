//! Modes of a limit: when hits are charged, and the decision if the store cannot decide.

/// The condition under which the hits of a request are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charge {
    /// If the whole request is admitted and this limit allows it: denied requests cost nothing.
    Admitted,
    /// If the request is admitted, or if this limit itself denies the hits.
    Blamed,
    /// Always: a client that keeps retrying stays denied.
    Always,
    /// Always, and a peek passes only if one more hit fits: for costs known after the response.
    Afterwards,
}

impl Charge {
    /// Returns the word of policies.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Blamed => "blamed",
            Self::Always => "always",
            Self::Afterwards => "afterwards",
        }
    }

    /// Returns `true` if allowed hits are charged only if the whole request is admitted: they are
    /// taken back otherwise.
    pub const fn is_revocable(self) -> bool {
        match self {
            Self::Admitted | Self::Blamed => true,
            Self::Always | Self::Afterwards => false,
        }
    }

    /// Returns `true` if hits that the limit denies are charged as well.
    pub const fn counts_denied(self) -> bool {
        match self {
            Self::Admitted => false,
            Self::Blamed | Self::Always | Self::Afterwards => true,
        }
    }

    /// Returns `true` if costs are charged when they are known, beyond the limit if need be, and
    /// peeks need room for one hit.
    pub const fn is_afterwards(self) -> bool {
        match self {
            Self::Admitted | Self::Blamed | Self::Always => false,
            Self::Afterwards => true,
        }
    }

    /// Returns `true` if an algorithm that stores each hit supports it: hits past the limit are not
    /// charged without a bound.
    pub const fn is_bounded(self) -> bool {
        match self {
            Self::Admitted | Self::Blamed => true,
            Self::Always | Self::Afterwards => false,
        }
    }
}

/// The failure mode of a limit: its decision if the store cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnStoreError {
    /// Fails the call, so that the caller's own failure mode decides.
    #[default]
    Error,
    /// Returns OK without the remaining hits.
    Allow,
    /// Returns OVER_LIMIT.
    Deny,
    /// Decides in this process alone, by its share of the limit.
    Local,
}
