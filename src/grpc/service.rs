//! `ShouldRateLimit`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::Message as _;
use prost::bytes::BufMut;
use tonic::{Code, Status};
use tracing::warn;

use super::metadata;
use super::proto::RateLimitRequest;
use super::request::{self, RequestBounds, Unreadable};
use super::response::{self, AnswerStyle};
use super::rights::Rights;
use crate::limiter::{self, Limiter, Undecided};
use crate::spans::{Recording, Told, Tracer};
use crate::store::Store;
use crate::telemetry::metrics::{Latency, Metrics};
use crate::telemetry::seldom::Seldom;

/// The service: a limiter that speaks RLS.
pub struct Rls<S> {
    limiter: Limiter<S>,
    metrics: Arc<Metrics>,
    latency: Arc<Latency>,
    bounds: RequestBounds,
    style: AnswerStyle,
    /// Time for a decision where the caller sets none.
    timeout: Duration,
    forbidden: Seldom,
    tracer: Option<Tracer>,
}

/// What an answer says of the whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the protocol's words")]
pub enum Answered {
    Ok,
    OverLimit,
}

impl<S: Store> Rls<S> {
    /// A service that answers by `limiter`.
    pub fn new(
        limiter: Limiter<S>,
        metrics: Arc<Metrics>,
        bounds: RequestBounds,
        style: AnswerStyle,
        timeout: Duration,
    ) -> Self {
        let latency = metrics.call_latency();
        let forbidden = Seldom::default();
        Self { limiter, metrics, latency, bounds, style, timeout, forbidden, tracer: None }
    }

    /// The same, with what records calls.
    pub fn with_tracer(self, tracer: Option<Tracer>) -> Self {
        Self { tracer, ..self }
    }

    /// What records calls, where spans are wanted.
    pub(super) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.as_ref()
    }

    /// What decides.
    pub fn limiter(&self) -> &Limiter<S> {
        &self.limiter
    }

    /// Answers a message of `RateLimitRequest` within the time that its caller has, or else within the service's own, if it is
    /// of a domain that this one may ask for: adds one of `RateLimitResponse` to `answer`, and says what it says.
    /// `recording`: of a call that is traced.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT for what no proxy sends, INTERNAL for what is no message, UNAVAILABLE where nobody decided.
    pub async fn answer(
        &self,
        message: &[u8],
        time: Option<Duration>,
        rights: &Rights,
        mut recording: Option<&mut Recording>,
        answer: &mut (impl BufMut + Send),
    ) -> Result<Answered, Status> {
        let now = Instant::now();
        let deadline = now.checked_add(time.unwrap_or(self.timeout)).unwrap_or(now);
        let told = recording.as_mut().map(|recording| recording.told());
        let answered = self.answer_by(message, deadline, rights, told, answer).await;
        let length = now.elapsed();
        self.latency.record(length);
        if let Some((trace, span)) = recording.map(|recording| recording.ids()) {
            self.latency.remember(length, trace, span);
        }
        answered
    }

    async fn answer_by(
        &self,
        message: &[u8],
        deadline: Instant,
        rights: &Rights,
        mut told: Option<&mut Told>,
        answer: &mut (impl BufMut + Send),
    ) -> Result<Answered, Status> {
        let request = request::read(message, &self.bounds).map_err(|unreadable| self.refusal(message, &unreadable))?;
        if let Some(told) = &mut told {
            request.domain.clone_into(&mut told.domain);
        }
        if !rights.include(request.domain) {
            return Err(self.forbidden(request.domain, rights));
        }
        let snapshot = self.limiter.snapshot();
        let decision = self
            .limiter
            .decide_timed(&snapshot, &request, deadline, told.as_mut().map(|told| &mut told.store_time))
            .await
            .map_err(|undecided| self.unavailable(&undecided))?;
        if let Some(told) = told {
            let path = |status: &limiter::Status<'_>| status.rule().map_or("", |rule| rule.path()).to_owned();
            told.rules = decision.statuses().iter().map(path).collect();
            told.is_over_limit = Some(decision.is_over_limit());
        }
        response::write(&decision, &self.style, answer);
        if self.style.dynamic_metadata {
            let message = RateLimitRequest::decode(message).map_err(|error| Status::internal(error.to_string()))?;
            response::write_metadata(&metadata::of(&message, &decision), answer);
        }
        Ok(if decision.is_over_limit() { Answered::OverLimit } else { Answered::Ok })
    }

    fn forbidden(&self, domain: &str, rights: &Rights) -> Status {
        self.metrics.guard.forbidden.inc();
        if let Some(times) = self.forbidden.times() {
            warn!(domain, client = %rights, times, "--allow: a client asked for a domain that is not its own");
        }
        Status::permission_denied(format!("domain {domain:?} is not one that this client may ask for"))
    }

    fn refusal(&self, message: &[u8], unreadable: &Unreadable) -> Status {
        // tonic reads all of a message before its content is looked at, and says in prost's words what is wrong with it. A long
        // one is not read twice: its messages and lists take many times its bytes.
        let read = (message.len() <= MAX_READ_TWICE).then(|| RateLimitRequest::decode(message));
        if let Some(Err(error)) = read {
            return malformed(&error);
        }
        match unreadable {
            Unreadable::Invalid(invalid) => {
                self.metrics.invalid_request();
                Status::invalid_argument(invalid.to_string())
            }
            Unreadable::Malformed(_) | Unreadable::CutShort | Unreadable::Domain => malformed(unreadable),
        }
    }

    /// One exhaustive match from the limiter's errors to the protocol's codes.
    fn unavailable(&self, undecided: &Undecided) -> Status {
        match (undecided, self.metrics.stats()) {
            (Undecided::NoPolicy, Some(stats)) => stats.service.service_error.add(1),
            (Undecided::Store(_), Some(stats)) => stats.service.redis_error.add(1),
            (Undecided::NoPolicy | Undecided::Store(_), None) => {}
        }
        Status::unavailable(undecided.to_string())
    }
}

/// The status of bytes that are no message.
fn malformed(error: &(impl ToString + ?Sized)) -> Status {
    Status::internal(error.to_string())
}

/// Reads `grpc-timeout`, the time that the caller waits, less a margin for the way: a quarter of it, at most 5 ms.
pub(super) fn budget(timeout: &[u8]) -> Option<Duration> {
    /// The longest that is waited for, whatever the caller would bear.
    const LONGEST: Duration = Duration::from_secs(60);
    let text = std::str::from_utf8(timeout).ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let ns: u64 = match unit {
        "H" => 3_600_000_000_000,
        "M" => 60_000_000_000,
        "S" => 1_000_000_000,
        "m" => 1_000_000,
        "u" => 1_000,
        "n" => 1,
        _ => return None,
    };
    // The protocol has at most eight digits.
    let whole = Duration::from_nanos(digits.parse::<u32>().map(u64::from).ok()?.saturating_mul(ns)).min(LONGEST);
    Some(whole.saturating_sub(whole.div_f64(4.0).min(Duration::from_millis(5))))
}

/// Bytes of a message that is read again to say what is wrong with it.
const MAX_READ_TWICE: usize = 4 << 10;

/// Whether an answer's error is about the request: no later one of the same content will be decided.
pub fn is_callers_fault(status: &Status) -> bool {
    status.code() == Code::InvalidArgument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_time_is_read_in_every_unit() {
        let cases = [
            ("90000000n", Some(85_000)),
            ("20000u", Some(15_000)),
            ("500m", Some(495_000)),
            ("8m", Some(6_000)),
            ("1S", Some(995_000)),
            ("1H", Some(59_995_000)),
            ("0n", Some(0)),
            ("10", None),
            ("m", None),
            ("-5m", None),
            ("5x", None),
        ];
        for (text, us) in cases {
            assert_eq!(budget(text.as_bytes()), us.map(Duration::from_micros), "{text}");
        }
    }
}
