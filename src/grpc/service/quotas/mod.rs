//! A stream of RLQS: reports of a proxy in, assignments out.
//!
//! The hits of an assignment are charged before it is sent. A response that the connection does not
//! accept at once is not sent, and its hits are given back; each response is followed by a PING,
//! whose acknowledgement proves that the proxy has read it.
//!
//! | file | subject |
//! |---|---|
//! | `messages`, `report` | messages of the call, in turns, and the reports in them |
//! | `buckets` | buckets within and beyond the bounds, and by changed policies |
//! | `refused` | answers to buckets beyond the bounds |
//! | `lending` | calls of the store: hits that are lent, given back |
//! | `admitted` | hits that were admitted without a loan, charged afterwards |
//! | `sending` | responses, sent if there is room for them |
//! | `response` | assignments as messages |
//! | `body` | the body of the answer |

mod admitted;
mod body;
mod buckets;
mod lending;
mod messages;
mod refused;
mod report;
mod response;
mod sending;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Either, select};
use tonic::Status;
use tonic::body::Body;

use self::admitted::PendingCharge;
use self::body::QuotaBody;
use self::buckets::RefusedReport;
use self::lending::Wants;
use self::messages::{OF_BUCKET, OF_FIELD, OF_REPORT, ReportMessages, SessionTurn};
use self::refused::RefusedAnswers;
use self::report::MessageField;
use super::Rls;
use crate::grpc::refusal::Refusals;
use crate::grpc::request::RequestError;
use crate::grpc::rights::DomainRights;
use crate::http2::{CallAccount, CallHold, Delivery, RequestBody};
use crate::limiter::Undecided;
use crate::receipts::CounterDigest;
use crate::rlqs::QuotaOptions;
use crate::rlqs::bucket::BucketStep;
use crate::rlqs::share::{ProxyWant, WantTable};
use crate::rlqs::stream::{QuotaStream, StreamEnd};
use crate::rlqs::terms::Assignment;
use crate::store::backend::Backend;
use crate::store::clock::instant;
use crate::store::layer::Layered;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::ProxyHits;

/// Path of the only method.
pub const PATH: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// Interval at which a stream with buckets looks for other policies.
const POLICY_INTERVAL: Duration = Duration::from_secs(1);

/// State that all streams of the process share.
#[derive(Debug, Default)]
pub struct QuotaShared {
    options: QuotaOptions,
    wants: WantTable,
    streams: AtomicU64,
    unsupported: LogThrottle,
    refused: LogThrottle,
}

impl QuotaShared {
    /// Creates the state of streams with these options.
    pub fn new(options: QuotaOptions) -> Arc<Self> {
        Arc::new(Self { options, ..Self::default() })
    }
}

/// Names of the ends of streams in metrics.
pub(super) const ENDS: [&str; 2] = ["silent", "unacknowledged"];

/// The proxy that opens a stream, and what its connection grants it.
#[derive(Debug)]
pub struct QuotaCaller {
    /// Domains that it may use.
    pub rights: DomainRights,
    /// Delivery of the answer.
    pub delivery: Delivery,
    /// Account of the connection, to which the buckets are charged.
    pub account: CallAccount,
    /// Timeout for the rest of a message that has begun.
    pub message_timeout: Duration,
}

/// A stream of a proxy.
struct QuotaSession<B: Backend> {
    rls: Arc<Rls<Layered<B>>>,
    rights: DomainRights,
    delivery: Delivery,
    account: CallAccount,
    turn: SessionTurn,
    messages: ReportMessages,
    stream: QuotaStream<BucketMemory>,
    /// Number of the stream in the process.
    number: u64,
    domain: Option<Box<str>>,
    /// Generation of the policies by which the terms of all buckets are.
    policies: Option<u64>,
    policies_at: Instant,
    acknowledged: u32,
    version: u32,
    /// Hits that the proxy has admitted without a loan, to be charged.
    admitted: Vec<PendingCharge>,
    /// Actions for the next responses.
    pending: Vec<(usize, PendingAction)>,
    /// Bytes of the next response for steps that are under way.
    reserved: usize,
    refused: RefusedAnswers,
}

/// The part of a response for a bucket.
#[derive(Clone, Copy, Debug)]
enum PendingAction {
    Assign(Assignment),
    Abandon,
}

/// State kept with a bucket.
#[derive(Debug)]
struct BucketMemory {
    _hold: CallHold,
    /// The hits that other streams know to be wanted.
    want: ProxyWant,
    /// The hits that the proxy holds of a rule; `None` if it is lent none.
    lent: Option<ProxyHits>,
    /// The counter of its loans; `None` without a limit.
    counter: Option<CounterDigest>,
}

impl<B: Backend> Rls<Layered<B>> {
    /// Opens a stream of RLQS: returns the body of the answer to a call with these messages.
    pub fn open_quotas(self: Arc<Self>, caller: QuotaCaller, messages: RequestBody) -> Body {
        Body::new(QuotaBody::new(QuotaSession::new(self, caller, messages)))
    }
}

/// An event of a stream.
enum StreamEvent {
    Message(Bytes),
    Ended,
    /// An acknowledgement, or the shutdown of the connection.
    Delivered,
    Time,
}

impl<B: Backend> QuotaSession<B> {
    fn new(rls: Arc<Rls<Layered<B>>>, caller: QuotaCaller, body: RequestBody) -> Self {
        let QuotaCaller { rights, delivery, account, message_timeout } = caller;
        let refusals = Refusals::new(Arc::clone(&rls.metrics), message_timeout);
        let now = instant();
        let number = rls.quotas.streams.fetch_add(1, Ordering::Relaxed);
        rls.metrics.loans.quotas.streams.inc();
        Self {
            stream: QuotaStream::new(rls.quotas.options, now),
            rls,
            rights,
            delivery,
            turn: SessionTurn::new(account.clone()),
            account,
            messages: ReportMessages { body, refusals },
            number,
            domain: None,
            policies: None,
            policies_at: now,
            acknowledged: 0,
            version: 0,
            admitted: Vec::new(),
            pending: Vec::new(),
            reserved: 0,
            refused: RefusedAnswers::default(),
        }
    }

    /// Returns the next response, encoded; `None` if the stream ends.
    ///
    /// # Errors
    /// The status with which the stream ends.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        loop {
            self.check_acknowledgements()?;
            if let Some(response) = self.response() {
                return Ok(Some(response));
            }
            match self.event().await? {
                StreamEvent::Message(message) => self.on_message(message).await?,
                StreamEvent::Ended => return Ok(None),
                StreamEvent::Delivered => {
                    self.acknowledged = self.delivery.acknowledged();
                    let is_arriving = self.messages.is_arriving();
                    self.stream.on_acknowledged(self.acknowledged, is_arriving);
                }
                StreamEvent::Time => self.on_time().await?,
            }
        }
    }

    /// Ends the stream with its connection, or if a response was not acknowledged in time.
    /// Acknowledgements that arrived while the stream was busy count from then on.
    fn check_acknowledgements(&mut self) -> Result<(), Status> {
        for (number, at) in self.delivery.take_acknowledgements() {
            self.stream.on_acknowledgement(number, at);
        }
        if self.stream.is_acknowledged_late(instant()) {
            return Err(self.end(StreamEnd::Unacknowledged));
        }
        if self.delivery.is_shutting_down() {
            return Err(Status::unavailable("the connection is shutting down"));
        }
        Ok(())
    }

    /// Counts the end of the stream, and returns its status.
    fn end(&self, end: StreamEnd) -> Status {
        let [silent, unacknowledged] = ENDS;
        let (kind, text) = match end {
            StreamEnd::Silent => (silent, "no report for two intervals"),
            StreamEnd::Unacknowledged => {
                (unacknowledged, "a response was not acknowledged in time")
            }
        };
        self.rls.metrics.loans.quotas.ended(kind);
        Status::unavailable(text)
    }

    async fn event(&mut self) -> Result<StreamEvent, Status> {
        let next = self.next_time();
        let time = async {
            match next {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let delivered = self.delivery.changed(self.acknowledged);
        let message = std::pin::pin!(self.messages.next());
        let delivered = std::pin::pin!(delivered);
        let time = std::pin::pin!(time);
        Ok(match select(message, select(delivered, time)).await {
            Either::Left((message, _)) => message?.map_or(StreamEvent::Ended, StreamEvent::Message),
            Either::Right((Either::Left(_), _)) => StreamEvent::Delivered,
            Either::Right((Either::Right(_), _)) => StreamEvent::Time,
        })
    }

    fn next_time(&self) -> Option<Instant> {
        let policies = (!self.stream.is_empty()).then(|| self.policies_at + POLICY_INTERVAL);
        [self.stream.next_time(), policies].into_iter().flatten().min()
    }

    async fn on_message(&mut self, message: Bytes) -> Result<(), Status> {
        let domain = self.domain_of(&message).await.map_err(malformed)?;
        self.accept_domain(domain)?;
        let now = instant();
        self.stream.on_report(now);
        let rls = Arc::clone(&self.rls);
        let snapshot = rls.limiter.snapshot();
        let Some(live) = snapshot.as_deref() else {
            return Err(Status::unavailable(Undecided::NoPolicy.to_string()));
        };
        // Loans and returns are those of one generation of the policies.
        for place in self.apply_policies(live, now).await {
            self.stream.schedule(place);
        }
        let mut wants = Wants::new();
        self.refused.begin();
        let mut id = Vec::new();
        let mut rest = &*message;
        while let Some(field) = report::next_field(&mut rest).transpose() {
            let read = field.and_then(|field| match field {
                MessageField::Report(report) => {
                    Ok(Some((report.len(), report::read_usage(report, &mut id)?)))
                }
                MessageField::Domain(_) | MessageField::Other => Ok(None),
            });
            match read {
                Ok(None) => self.turn.spend(OF_FIELD).await,
                Ok(Some((length, (usage, bucket)))) => {
                    match self.place_of(live, &id) {
                        Some(place) => self.on_usage(live, place, usage, now, &mut wants),
                        None => self.refuse(live, &id, RefusedReport { bucket, usage }),
                    }
                    self.turn.spend(OF_REPORT.saturating_add(length)).await;
                }
                Err(error) => return Err(malformed(error)),
            }
        }
        // The store may take a while.
        drop(message);
        self.stream.on_reported(self.messages.is_arriving());
        self.run(live, wants).await;
        Ok(())
    }

    /// Returns the domain of a message; empty if it has none.
    async fn domain_of<'a>(&mut self, message: &'a [u8]) -> Result<&'a str, RequestError> {
        let mut rest = message;
        let mut domain = "";
        while let Some(field) = report::next_field(&mut rest)? {
            if let MessageField::Domain(found) = field {
                domain = found;
            }
            self.turn.spend(OF_FIELD).await;
        }
        Ok(domain)
    }

    /// Accepts the domain of a message; after the first one, it may be empty.
    fn accept_domain(&mut self, domain: &str) -> Result<(), Status> {
        match &self.domain {
            Some(known) if domain.is_empty() || **known == *domain => Ok(()),
            Some(_) => Err(Status::invalid_argument("domain must not change within a stream")),
            None if domain.is_empty() => Err(Status::invalid_argument("domain must not be empty")),
            None if !self.rights.include(domain) => Err(self.rls.forbidden(domain, &self.rights)),
            None => {
                self.domain = Some(domain.into());
                Ok(())
            }
        }
    }

    async fn on_time(&mut self) -> Result<(), Status> {
        let now = instant();
        if let Some(end) = self.stream.end(now) {
            return Err(self.end(end));
        }
        if self.stream.is_ping_due(now) {
            self.stream.on_ping(self.delivery.request_acknowledgement(), now);
        }
        let rls = Arc::clone(&self.rls);
        let snapshot = rls.limiter.snapshot();
        let Some(live) = snapshot.as_deref() else { return Ok(()) };
        let mut places = self.apply_policies(live, now).await;
        places.extend(self.stream.take_due(now));
        let mut wants = Wants::new();
        for place in places {
            self.advance(place, now, &mut wants);
            self.turn.spend(OF_BUCKET).await;
        }
        self.run(live, wants).await;
        Ok(())
    }

    /// Takes the next step of a bucket, or adds it to what is wanted.
    fn advance(&mut self, place: usize, now: Instant, wants: &mut Wants) {
        let options = self.stream.options();
        let Some(entry) = self.stream.get_mut(place) else { return };
        let reserved = self.reserved + response::max_length(&entry.id);
        if self.delivery.room() < reserved {
            // Nothing is charged that could not be sent.
            return self.postpone(place, now);
        }
        let step = entry.bucket.step(now, &options);
        if step != BucketStep::Nothing {
            self.reserved = reserved;
        }
        match step {
            BucketStep::Nothing => self.stream.schedule(place),
            BucketStep::Assign(assignment) => {
                self.pending.push((place, PendingAction::Assign(assignment)));
            }
            BucketStep::Want(hits) => wants.push((place, hits)),
            BucketStep::Abandon => self.pending.push((place, PendingAction::Abandon)),
        }
    }
}

/// Returns the status for a malformed message.
fn malformed(error: RequestError) -> Status {
    Status::invalid_argument(error.to_string())
}

impl<B: Backend> Drop for QuotaSession<B> {
    fn drop(&mut self) {
        drop(self.charge_admitted());
        for (place, action) in std::mem::take(&mut self.pending) {
            self.unsent(place, action);
        }
        self.stream.places().into_iter().for_each(|place| self.close(place));
        self.rls.metrics.loans.quotas.streams.dec();
    }
}
