//! Implementation of `ShouldRateLimit`.

mod caller;
mod exchange;
pub mod gateway;
mod holds;
mod origin;
pub mod quotas;

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use tonic::Status;
use tracing::warn;

pub use self::caller::CallerAnswer;
pub use self::holds::{HoldCall, HoldMethod};
pub use self::origin::Caller;
use self::origin::HttpAccounts;
use self::quotas::QuotaShared;
use super::large_request::{self, USUAL_DESCRIPTORS};
use super::metadata;
use super::proto::RateLimitRequest;
use super::request::{self, InvalidRequest, RequestBounds, RequestError};
use super::request_log::RequestLog;
use super::response::{self, AnswerStyle, Receiver};
use super::rights::DomainRights;
use crate::descriptor::Request;
use crate::http2::{Budget, CallHold};
use crate::limiter::{Decision, Limiter, Undecided};
use crate::printable::excerpt;
use crate::receipts::ReceiptKeys;
use crate::store::Store;
use crate::store::clock::instant;
use crate::store::loan::LoanNumber;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::spans::{Recording, SpanAttributes, Tracer};
pub use tonic::Status as CallStatus;

/// Source of the numbers of loans, of which no client may guess one.
pub type LoanNumbers = Arc<dyn Fn() -> LoanNumber + Send + Sync>;

/// Maximum bytes shown of a forbidden domain and of the client's names.
const MAX_SHOWN: usize = 256;

/// The rate limit service: decodes requests, calls the limiter and encodes the decisions.
pub struct Rls<S> {
    limiter: Limiter<S>,
    metrics: Arc<Metrics>,
    latency: Arc<Histogram>,
    bounds: RequestBounds,
    style: AnswerStyle,
    /// Timeout of a decision if the caller sets none.
    timeout: Duration,
    /// Accounts of requests over HTTP.
    http_accounts: HttpAccounts,
    forbidden: LogThrottle,
    invalid: LogThrottle,
    tracer: Option<Tracer>,
    /// Keys that sign the receipts of loans.
    receipt_keys: ReceiptKeys,
    loan_numbers: LoanNumbers,
    /// State of all RLQS streams of the process.
    quotas: Arc<QuotaShared>,
    /// Logs requests, if enabled.
    request_log: Option<Arc<RequestLog>>,
}

impl<S: Store> Rls<S> {
    /// Creates a service that decides with `limiter`.
    pub fn new(
        limiter: Limiter<S>,
        metrics: Arc<Metrics>,
        bounds: RequestBounds,
        style: AnswerStyle,
        timeout: Duration,
    ) -> Self {
        let latency = metrics.call_latency();
        let http_accounts = HttpAccounts::of(&large_request::budget_for(&bounds));
        let forbidden = LogThrottle::default();
        let invalid = LogThrottle::default();
        let service = Self {
            limiter,
            metrics,
            latency,
            bounds,
            style,
            timeout,
            http_accounts,
            forbidden,
            invalid,
            tracer: None,
            receipt_keys: ReceiptKeys::default(),
            loan_numbers: Arc::new(rand::random),
            quotas: Arc::default(),
            request_log: None,
        };
        service.show_exchanges();
        service
    }

    /// Sets the log of requests.
    pub fn with_request_log(self, request_log: Option<Arc<RequestLog>>) -> Self {
        Self { request_log, ..self }
    }

    /// Charges large requests over HTTP to the budget of all clients.
    pub fn with_budget(self, budget: &Arc<Budget>) -> Self {
        Self { http_accounts: HttpAccounts::of(budget), ..self }
    }

    /// Sets the keys that sign the receipts of loans.
    pub fn with_receipt_keys(self, receipt_keys: ReceiptKeys) -> Self {
        Self { receipt_keys, ..self }
    }

    /// Sets the source of the numbers of loans; by default, they are random.
    pub fn with_loan_numbers(self, loan_numbers: LoanNumbers) -> Self {
        Self { loan_numbers, ..self }
    }

    /// Sets the state that RLQS streams share.
    pub fn with_quotas(self, quotas: Arc<QuotaShared>) -> Self {
        Self { quotas, ..self }
    }

    /// Sets the tracer of calls.
    pub fn with_tracer(self, tracer: Option<Tracer>) -> Self {
        Self { tracer, ..self }
    }

    /// Returns the tracer, if calls are traced.
    pub(super) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// Returns the limiter.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Decides an encoded `RateLimitRequest`, appends an encoded `RateLimitResponse` to `answer`
    /// and returns its overall code. `recording` is set if the call is traced.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the caller may not use the domain, INVALID_ARGUMENT for content that
    /// no proxy sends, INTERNAL if the message is malformed, RESOURCE_EXHAUSTED while large
    /// requests use up their memory budget, UNAVAILABLE if no decision could be made.
    #[inline]
    pub fn answer(
        &self,
        message: &[u8],
        caller: Caller<'_>,
        mut recording: Option<&mut Recording>,
        answer: &mut Vec<u8>,
    ) -> impl Future<Output = Result<CallerAnswer, Status>> + Send {
        let now = instant();
        let deadline = self.deadline(now, caller.time);
        async move {
            let mut attributes = recording.as_mut().map(|recording| recording.attributes_mut());
            let request = self.read(message, caller, attributes.as_deref_mut());
            let answered = match &request {
                Ok((request, _held)) => {
                    let call = (message, caller.receiver, deadline);
                    self.answer_request(call, request, attributes, answer).await
                }
                Err(status) => Err(status.clone()),
            };
            let length = now.elapsed();
            self.latency.record(length);
            if let Some((trace, span)) = recording.map(|recording| recording.ids()) {
                self.latency.remember(length, trace, span);
            }
            answered
        }
    }

    /// Returns the deadline of a call at `now` whose caller waits for `time`; by default, the
    /// service's own timeout applies.
    #[inline]
    fn deadline(&self, now: Instant, time: Option<Duration>) -> Instant {
        now.checked_add(time.unwrap_or(self.timeout)).unwrap_or(now)
    }

    /// Reads an encoded request, and holds the memory that it takes if it is large.
    fn read<'a>(
        &self,
        message: &'a [u8],
        caller: Caller<'_>,
        attributes: Option<&mut SpanAttributes>,
    ) -> Result<(Request<'a>, Option<CallHold>), Status> {
        let request = request::read(message, &self.bounds)
            .map_err(|unreadable| self.refusal(message, &unreadable))?;
        self.check_rights(request.domain, caller.rights, attributes)?;
        let held = large_request::hold(caller.account, &request, USUAL_DESCRIPTORS)?;
        Ok((request, held))
    }

    /// Reads a decoded request as an encoded one is read.
    fn read_decoded<'a>(
        &self,
        message: &'a RateLimitRequest,
        rights: &DomainRights,
        attributes: Option<&mut SpanAttributes>,
    ) -> Result<Request<'a>, Status> {
        let request = request::of_message(message, &self.bounds)
            .map_err(|invalid| self.invalid_request(&invalid))?;
        self.check_rights(request.domain, rights, attributes)?;
        Ok(request)
    }

    #[inline]
    fn check_rights(
        &self,
        domain: &str,
        rights: &DomainRights,
        attributes: Option<&mut SpanAttributes>,
    ) -> Result<(), Status> {
        if let Some(attributes) = attributes {
            domain.clone_into(&mut attributes.domain);
        }
        if rights.include(domain) { Ok(()) } else { Err(self.forbidden(domain, rights)) }
    }

    fn answer_request(
        &self,
        (message, receiver, deadline): (&[u8], Receiver, Instant),
        request: &Request<'_>,
        mut attributes: Option<&mut SpanAttributes>,
        answer: &mut Vec<u8>,
    ) -> impl Future<Output = Result<CallerAnswer, Status>> + Send {
        async move {
            let snapshot = self.limiter.snapshot();
            let store_time = attributes.as_mut().map(|attributes| &mut attributes.store_time);
            let decision =
                self.limiter.decide_timed(&snapshot, request, deadline, store_time).await;
            if let Some(log) = &self.request_log {
                log.log(&snapshot, request, decision.as_ref());
            }
            let decision = decision.map_err(|undecided| self.unavailable(&undecided))?;
            if let Some(attributes) = attributes {
                describe(&decision, attributes);
            }
            response::write(&decision, &self.style, receiver, answer);
            if self.style.dynamic_metadata {
                let message = RateLimitRequest::decode(message)
                    .map_err(|error| Status::internal(error.to_string()))?;
                response::write_metadata(&metadata::of(&message, &decision), answer);
            }
            Ok(CallerAnswer::of(&decision))
        }
    }

    fn forbidden(&self, domain: &str, rights: &DomainRights) -> Status {
        self.metrics.clients.forbidden.inc();
        let domain = excerpt(domain, MAX_SHOWN);
        if let Some(times) = self.forbidden.due() {
            let client = rights.to_string();
            let client = excerpt(&client, MAX_SHOWN);
            warn!(domain = &*domain, client = &*client, peer = ?rights.peer(), times, "client requested a domain that --allow does not grant");
        }
        Status::permission_denied(format!("client has no permission for domain \"{domain}\""))
    }

    fn refusal(&self, message: &[u8], unreadable: &RequestError) -> Status {
        // tonic decodes the whole message before the service validates it, and reports prost's
        // errors. A long message is not decoded again, since its decoded form takes many times its
        // size.
        let read = (message.len() <= MAX_READ_TWICE).then(|| RateLimitRequest::decode(message));
        if let Some(Err(error)) = read {
            return malformed(&error);
        }
        match unreadable {
            RequestError::Invalid(invalid) => self.invalid_request(invalid),
            RequestError::Malformed(_) | RequestError::CutShort | RequestError::Domain => {
                malformed(unreadable)
            }
        }
    }

    fn invalid_request(&self, invalid: &InvalidRequest) -> Status {
        if let Some(times) = self.invalid.due() {
            warn!(reason = %invalid, times, "invalid requests rejected; most proxies admit a request after this error");
        }
        self.invalid_call(invalid)
    }

    /// Counts an invalid call, and returns its status.
    fn invalid_call(&self, invalid: &impl ToString) -> Status {
        self.metrics.requests.invalid.inc();
        Status::invalid_argument(invalid.to_string())
    }

    /// Maps the limiter's errors to gRPC codes, exhaustively.
    fn unavailable(&self, undecided: &Undecided) -> Status {
        match undecided {
            Undecided::NoPolicy => self.metrics.requests.without_policy.inc(),
            Undecided::Store(_) => self.metrics.requests.without_store.inc(),
        }
        Status::unavailable(undecided.to_string())
    }
}

/// Sets the attributes of a span that describe a decision.
fn describe(decision: &Decision<'_>, attributes: &mut SpanAttributes) {
    let statuses = decision.statuses().iter().take(MAX_RULES_OF_SPAN);
    let rules = statuses.map(|status| status.rule().map_or("", |rule| rule.path()).to_owned());
    attributes.rules = rules.collect();
    attributes.is_over_limit = Some(decision.is_over_limit());
}

/// Returns the status for malformed bytes.
fn malformed(error: &(impl ToString + ?Sized)) -> Status {
    Status::internal(error.to_string())
}

/// Maximum number of rules in a span.
const MAX_RULES_OF_SPAN: usize = 64;

/// Maximum size of an invalid message that is decoded again to report the error, in bytes.
const MAX_READ_TWICE: usize = 4 << 10;
