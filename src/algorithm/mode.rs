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
