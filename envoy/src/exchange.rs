//! Exchanges with the service, on Envoy's main thread: one is under way at a time.

use std::time::{Duration, Instant};

use tollgate_lease::holder::{self, Exchanger, HeldLeases};

use crate::descriptor::Descriptor;
use crate::host::{MainThread, Stat};
use crate::wire::{self, EXCHANGE, ExchangeRequest, ExchangeResponse, LeaseAnswer, Return, Want};

/// Timeout of an exchange. A block that arrives late is usable for less time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two warnings in the log.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

type Exchange = holder::LoanExchange<Descriptor>;

/// The state of exchanges.
#[derive(Debug)]
pub(crate) struct Exchanges {
    domain: String,
    cluster: String,
    exchanger: Exchanger<Descriptor>,
    under_way: Option<UnderWay>,
    /// Hits of calls whose caller has ended, to be counted.
    abandoned: Option<u64>,
    warned: Option<Instant>,
}

#[derive(Debug)]
struct UnderWay {
    /// The caller, and the ID of its call.
    driver: u64,
    id: Option<u64>,
    exchange: Exchange,
}

/// The response of a call.
#[derive(Debug)]
pub(crate) enum CallResult {
    /// Its status, the status of gRPC if that is among the headers, and the body.
    Response { status: Vec<u8>, grpc_status: Option<Vec<u8>>, body: Vec<u8> },
    /// None.
    Reset,
}

impl Exchanges {
    /// Creates the state of exchanges for a domain, by calls to a cluster.
    pub(crate) fn new(domain: String, cluster: String) -> Self {
        let exchanger = Exchanger::new();
        Self { domain, cluster, exchanger, under_way: None, abandoned: None, warned: None }
    }

    /// Returns `true` if the exchanges are those of the domain and cluster.
    pub(crate) fn is_of(&self, domain: &str, cluster: &str) -> bool {
        self.domain == domain && self.cluster == cluster
    }

    /// Makes an exchange, if none is under way and there is anything to want or to return.
    pub(crate) fn run(
        &mut self,
        driver: u64,
        leases: &HeldLeases<Descriptor>,
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
        self.exchanger.collect(leases, now);
        let exchange = self.exchanger.begin(now);
        self.show_blocks(host);
        let Some(exchange) = exchange else { return };
        host.add(Stat::Exchanges, 1);
        let called = self.call(&exchange, host);
        self.under_way = Some(UnderWay { driver, id: called.ok(), exchange });
        if let Err(reason) = called {
            self.lost(reason, host, now);
        }
    }

    fn call(&self, exchange: &Exchange, host: &mut impl MainThread) -> Result<u64, &'static str> {
        let headers = [
            (":method", "POST"),
            (":path", EXCHANGE),
            (":scheme", "http"),
            (":authority", self.cluster.as_str()),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let timeout = u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        host.call(&self.cluster, &headers, &wire::frame(&self.request(exchange)), timeout)
    }

    fn request(&self, exchange: &Exchange) -> ExchangeRequest {
        let wants = exchange
            .wants
            .iter()
            .map(|want| Want { descriptor: Some(want.key().message()), hits: want.hits });
        let returns = exchange.returns.iter().map(|back| Return {
            descriptor: Some(back.key().message()),
            receipt: back.receipt.clone(),
            unused: back.unused,
            used: back.used,
        });
        ExchangeRequest {
            domain: self.domain.clone(),
            wants: wants.collect(),
            returns: returns.collect(),
        }
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
        let Some(UnderWay { exchange, .. }) = self.under_way.take() else { return };
        let answers = response.answers.into_iter().map(LeaseAnswer::into_holder);
        self.exchanger.finish(exchange, answers.collect(), now);
        self.show_blocks(host);
    }

    /// Records that no response will arrive: what the exchange may have lent or given back counts
    /// until it expires.
    fn lost(&mut self, reason: &str, host: &mut impl MainThread, now: Instant) {
        let Some(UnderWay { exchange, .. }) = self.under_way.take() else { return };
        host.add(Stat::ExchangeErrors, 1);
        host.add(Stat::UnknownHits, exchange.hits());
        self.exchanger.finish(exchange, Vec::new(), now);
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
        if let Some(UnderWay { exchange, .. }) =
            self.under_way.take_if(|under_way| under_way.driver == driver)
        {
            self.abandoned = Some(exchange.hits());
            self.exchanger.finish(exchange, Vec::new(), now);
        }
    }

    fn show_blocks(&self, host: &mut impl MainThread) {
        host.set(Stat::Blocks, u64::try_from(self.exchanger.blocks()).unwrap_or(u64::MAX));
    }

    /// Returns the instant at which the next block ends.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.exchanger.next_end()
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
