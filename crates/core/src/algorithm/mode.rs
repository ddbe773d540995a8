//! Modes of a limit: when hits are charged, and the decision if the store cannot decide.

use super::words;

words! {
    /// The condition under which the hits of a request are written.
    pub enum Charge {
        /// If the whole request is admitted and this limit allows it: denied requests cost nothing.
        Admitted = "admitted",
        /// If the request is admitted, or if this limit itself denies the hits.
        Blamed = "blamed",
        /// Always: a client that keeps retrying stays denied.
        Always = "always",
        /// Always, and a peek passes only if one more hit fits: for costs known after the response.
        Afterwards = "afterwards",
    }
}

impl Charge {
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

    /// Returns the mode by which hits are charged before they are lent: a store that denies them
    /// lends none.
    pub const fn of_loans(self) -> Self {
        match self {
            Self::Admitted | Self::Blamed | Self::Always | Self::Afterwards => Self::Admitted,
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

words! {
    /// The failure mode of a limit: its decision if the store cannot decide.
    #[derive(Default)]
    pub enum OnStoreError {
        /// Fails the call, so that the caller's own failure mode decides.
        #[default]
        Error = "error",
        /// Returns OK without the remaining hits.
        Allow = "allow",
        /// Returns OVER_LIMIT.
        Deny = "deny",
        /// Decides in this process alone, by its share of the limit.
        Local = "local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_charge_mode_has_its_properties() {
        let modes = [Charge::Admitted, Charge::Blamed, Charge::Always, Charge::Afterwards];
        assert_eq!(modes.map(Charge::is_revocable), [true, true, false, false]);
        assert_eq!(modes.map(Charge::counts_denied), [false, true, true, true]);
        assert_eq!(modes.map(Charge::is_afterwards), [false, false, false, true]);
        assert_eq!(modes.map(Charge::is_bounded), [true, true, false, false]);
    }
}
