//! Exchanges with the service, on Envoy's main thread: wants of keys that are hot, and returns of
//! blocks that have ended. One is under way at a time, and none is ever repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message;
use tollgate_lease::Block;

use crate::host::{MainThread, Stat};
use crate::keys::{Key, Keys};
use crate::wire::{self, Answer, EXCHANGE, ExchangeRequest, ExchangeResponse, Return, Want};

/// Bounds of an exchange; those of the service are 256 and 64 KiB.
const MAX_ITEMS: usize = 256;
const MAX_BYTES: usize = 48 << 10;
/// Timeout of an exchange. A block that arrives late is usable for less time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two removals of idle keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two warnings in the log.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// The state of exchanges.
#[derive(Debug)]
pub(crate) struct Exchanger {
    domain: String,
    cluster: String,
    held: Vec<HeldBlock>,
    under_way: Option<UnderWay>,
    /// Hits of calls whose caller has ended, to be counted.
    abandoned: Option<u64>,
    swept: Option<Instant>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct HeldBlock {
    key: Arc<Key>,
    block: Arc<Block>,
    receipt: Vec<u8>,
}

#[derive(Debug)]
struct UnderWay {
    /// The caller, and the ID of its call.
    driver: u64,
    id: Option<u64>,
    sent: Instant,
    wanting: Vec<Arc<Key>>,
    /// Hits that are wanted or returned.
    hits: u64,
}

/// The response of a call.
#[derive(Debug)]
pub(crate) enum CallResult {
    /// Its status, the status of gRPC if that is among the headers, and the body.
    Response { status: Vec<u8>, grpc_status: Option<Vec<u8>>, body: Vec<u8> },
    /// None.
    Reset,
}

impl Exchanger {
    /// Creates the state of exchanges for a domain, by calls to a cluster.
    pub(crate) fn new(domain: String, cluster: String) -> Self {
        Self {
            domain,
            cluster,
            held: Vec::new(),
            under_way: None,
            abandoned: None,
            swept: None,
            warned: None,
        }
    }

    /// Returns `true` if the exchanges are those of the domain and cluster.
    pub(crate) fn is_of(&self, domain: &str, cluster: &str) -> bool {
        self.domain == domain && self.cluster == cluster
    }

    /// Makes an exchange, if none is under way and there is anything to want or to return.
    pub(crate) fn run(
        &mut self,
        driver: u64,
        keys: &Keys,
        host: &mut impl MainThread,
        now: Instant,
    ) {
        if self.under_way.is_some() {
            return;
        }
        if let Some(hits) = self.abandoned.take() {
            host.add(Stat::ExchangeErrors, 1);
            host.add(Stat::UnknownHits, hits);
        }
        let sweeps =
            self.swept.is_none_or(|at| now.saturating_duration_since(at) >= SWEEP_INTERVAL);
        if sweeps {
            self.swept = Some(now);
        }
        keys.update(sweeps, now);
        let mut request = ExchangeRequest { domain: self.domain.clone(), ..Default::default() };
        let mut bytes = self.domain.len();
        let mut hits = self.collect_returns(&mut request, &mut bytes, now);
        let mut wanting = Vec::new();
        while wanting.len() < MAX_ITEMS
            && bytes < MAX_BYTES
            && let Some(key) = keys.next_want()
        {
            let want =
                Want { descriptor: Some(key.descriptor.message()), hits: key.wanted_hits(now) };
            bytes = bytes.saturating_add(want.encoded_len());
            hits = hits.saturating_add(want.hits.into());
            request.wants.push(want);
            wanting.push(key);
        }
        self.show_blocks(host);
        if request.wants.is_empty() && request.returns.is_empty() {
            return;
        }
        host.add(Stat::Exchanges, 1);
        self.under_way = Some(UnderWay { driver, id: None, sent: now, wanting, hits });
        match self.call(&request, host) {
            Ok(id) => {
                if let Some(under_way) = &mut self.under_way {
                    under_way.id = Some(id);
                }
            }
            Err(reason) => self.lost(reason, host, now),
        }
    }

    /// Closes the blocks that have ended, are empty, or are of a limit that has changed.
    fn collect_returns(
        &mut self,
        request: &mut ExchangeRequest,
        bytes: &mut usize,
        now: Instant,
    ) -> u64 {
        let mut returned = 0_u64;
        self.held.retain_mut(|held| {
            let is_over = held.block.left(now) == 0 || !held.key.has(&held.block);
            if !is_over || request.returns.len() >= MAX_ITEMS || *bytes >= MAX_BYTES {
                return true;
            }
            let unused = held.block.close();
            let used = held.block.hits().saturating_sub(unused);
            let back = Return {
                descriptor: Some(held.key.descriptor.message()),
                receipt: std::mem::take(&mut held.receipt),
                unused: u32::try_from(unused).unwrap_or_default(),
                used: u32::try_from(used).unwrap_or_default(),
            };
            *bytes = bytes.saturating_add(back.encoded_len());
            request.returns.push(back);
            returned = returned.saturating_add(unused);
            held.key.forget(&held.block);
            false
        });
        returned
    }

    fn call(
        &self,
        request: &ExchangeRequest,
        host: &mut impl MainThread,
    ) -> Result<u64, &'static str> {
        let headers = [
            (":method", "POST"),
            (":path", EXCHANGE),
            (":scheme", "http"),
            (":authority", self.cluster.as_str()),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let timeout = u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        host.call(&self.cluster, &headers, &wire::frame(request), timeout)
    }

    /// Records the response of a call.
    pub(crate) fn on_response(
        &mut self,
        driver: u64,
        id: u64,
        result: CallResult,
        host: &mut impl MainThread,
        now: Instant,
    ) {
        let is_this = |under_way: &UnderWay| (under_way.driver, under_way.id) == (driver, Some(id));
        if !self.under_way.as_ref().is_some_and(is_this) {
            return;
        }
        let response = match read(result) {
            Ok(response) => response,
            Err(reason) => return self.lost(&reason, host, now),
        };
        let Some(UnderWay { sent, wanting, .. }) = self.under_way.take() else { return };
        for (index, key) in wanting.into_iter().enumerate() {
            let answer = response.answers.get(index);
            let block = key.record(answer, sent, now);
            if let Some(block) = block
                && let Some(Answer::Loan(loan)) = answer.and_then(|answer| answer.answer.as_ref())
            {
                self.held.push(HeldBlock { key, block, receipt: loan.receipt.clone() });
            }
        }
        self.show_blocks(host);
    }

    /// Records that no response will arrive: what the exchange may have lent or given back counts
    /// until it expires.
    fn lost(&mut self, reason: &str, host: &mut impl MainThread, now: Instant) {
        let Some(UnderWay { sent, wanting, hits, .. }) = self.under_way.take() else { return };
        host.add(Stat::ExchangeErrors, 1);
        host.add(Stat::UnknownHits, hits);
        for key in wanting {
            key.record(None, sent, now);
        }
        if self.warned.is_none_or(|at| now.saturating_duration_since(at) >= WARN_INTERVAL) {
            self.warned = Some(now);
            let cluster = &self.cluster;
            let domain = &self.domain;
            host.warn(&format!(
                "tollgate: no exchange with cluster {cluster} for domain {domain}: {reason}"
            ));
        }
    }

    /// Records that a caller has ended, and with it its call.
    pub(crate) fn abandon(&mut self, driver: u64, now: Instant) {
        if let Some(UnderWay { sent, wanting, hits, .. }) =
            self.under_way.take_if(|under_way| under_way.driver == driver)
        {
            self.abandoned = Some(hits);
            for key in wanting {
                key.record(None, sent, now);
            }
        }
    }

    fn show_blocks(&self, host: &mut impl MainThread) {
        host.set(Stat::Blocks, u64::try_from(self.held.len()).unwrap_or(u64::MAX));
    }

    /// Returns the instant at which the next block ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.block.end()).min()
    }
}

/// Returns the message of a response.
fn read(result: CallResult) -> Result<ExchangeResponse, String> {
    let CallResult::Response { status, grpc_status, body } = result else {
        return Err("the call was reset".to_owned());
    };
    if status != b"200" {
        return Err(format!("status {}", String::from_utf8_lossy(&status)));
    }
    match grpc_status {
        Some(code) if code != b"0" => {
            Err(format!("gRPC status {}", String::from_utf8_lossy(&code)))
        }
        _ => wire::unframe(&body).map_err(str::to_owned),
    }
}
