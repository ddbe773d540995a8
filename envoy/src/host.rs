//! The parts of Envoy that the filter uses: implemented over its ABI, and by doubles in tests.

/// A counter, gauge or histogram among Envoy's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Stat {
    /// Requests that were admitted here.
    Decided,
    /// Requests that were denied here.
    OverLimit,
    /// Requests that the rate limit filter decides.
    PassedOn,
    /// Calls of `Exchange`.
    Exchanges,
    /// Calls of `Exchange` without an answer.
    ExchangeErrors,
    /// Hits that an exchange without an answer may have lent, or given back in vain: they count
    /// until they expire.
    UnknownHits,
    /// Blocks in hand: a gauge.
    Blocks,
    /// Nanoseconds that the module took for a request: a histogram.
    DecisionTime,
}

impl Stat {
    /// All, in the order of their values.
    pub(crate) const ALL: [(Self, &'static str); 8] = [
        (Self::Decided, "decided"),
        (Self::OverLimit, "over_limit"),
        (Self::PassedOn, "passed_on"),
        (Self::Exchanges, "exchanges"),
        (Self::ExchangeErrors, "exchange_errors"),
        (Self::UnknownHits, "unknown_hits"),
        (Self::Blocks, "blocks"),
        (Self::DecisionTime, "decision_ns"),
    ];
}

/// A source of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataSource {
    /// The metadata of the request, written by filters.
    Dynamic,
    /// The metadata of its route.
    Route,
}

/// A request in the filter chain.
pub(crate) trait Request {
    /// Returns a value of a header, by its index, and the number of its values.
    fn header(&self, name: &str, index: usize) -> (Option<&[u8]>, usize);

    /// Returns the address of the client and its port, as text.
    fn remote_address(&self) -> Option<&[u8]>;

    /// Returns the cluster of the route.
    fn cluster(&self) -> Option<&[u8]>;

    /// Returns a text of metadata.
    fn metadata(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]>;

    /// Marks the request as decided. Returns `false` if that is not possible.
    fn mark_decided(&mut self) -> bool;

    /// Answers the request.
    fn respond(&mut self, status: u32, headers: &[(&str, &str)], details: &str);

    /// Adds one to a counter.
    fn count(&mut self, stat: Stat);
}

/// A response in the filter chain.
pub(crate) trait Response {
    /// Sets a header.
    fn set_header(&mut self, name: &str, value: &str);
}

/// Envoy's main thread.
pub(crate) trait MainThread {
    /// Sends a request to a cluster. Its response comes with the returned ID.
    ///
    /// # Errors
    ///
    /// The reason, if no request was sent.
    fn call(
        &mut self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout_ms: u64,
    ) -> Result<u64, &'static str>;

    /// Adds to a counter.
    fn add(&mut self, stat: Stat, value: u64);

    /// Sets a gauge.
    fn set(&mut self, stat: Stat, value: u64);

    /// Writes a warning to Envoy's log.
    fn warn(&mut self, text: &str);
}
