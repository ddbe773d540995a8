//! A limiter with an empty store, and the invariants of every decision.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use prost::Message as _;
use tollgate::algorithm::Charge;
use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::descriptor::Request;
use tollgate::grpc::headers::HeaderStyle;
use tollgate::grpc::proto::RateLimitResponse;
use tollgate::grpc::response::{self, AnswerStyle};
use tollgate::limiter::{Decision, InForce, Limiter, Modes, Status, StatusKind};
use tollgate::policy::PolicySet;
use tollgate::store::clock::{Clock as _, ManualClock};
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::telemetry::metrics::Metrics;

/// Store bounds low enough that some inputs reach them.
const BOUNDS: Bounds = Bounds { max_bytes: 1 << 16, domain_max_bytes: 1 << 15 };
/// Number of sweeps that visit every counter of a store.
const SWEEPS: usize = 16;

pub(super) struct Service {
    limiter: Limiter<Arc<MemoryStore<Arc<ManualClock>>>>,
    store: Arc<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
    /// The latest instant that the clock has reached.
    latest: Cell<Timestamp>,
}

impl Service {
    pub(super) fn new(policies: PolicySet) -> Self {
        let clock = Arc::<ManualClock>::default();
        let store = Arc::new(MemoryStore::new(BOUNDS, Arc::clone(&clock)));
        let in_force = InForce::new(Metrics::new());
        in_force.install(policies);
        let limiter = Limiter::new(in_force, Arc::clone(&store), Modes::default());
        Self { limiter, store, clock, latest: Cell::default() }
    }

    pub(super) fn set_time(&self, now: Timestamp) {
        self.clock.set(now);
        self.latest.set(now.max(self.latest.get()));
    }

    /// Shuts the service down, and asserts that at the end of time every counter has expired and
    /// all memory is released.
    pub(super) fn end(self) {
        self.set_time(Timestamp::from_micros(u64::MAX));
        (0..SWEEPS).for_each(|_| self.store.sweep());
        assert_eq!((self.store.len(), self.store.used_bytes()), (0, 0));
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Decides a request now. If the decision has a retry time, advances the clock and asserts that
    /// the time is exact.
    pub(super) fn decide(&self, request: &Request<'_>) {
        let Some(wait) = self.once(request, |decision| certain_wait(request, decision)).flatten()
        else {
            return;
        };
        let begun = self.now();
        if begun < self.latest.get() {
            // A clock that stepped back is read as the counter's last instant, from which the wait
            // counts.
            return;
        }
        for (later, expected) in
            [(wait - Micros::new(1), StatusKind::Denied), (wait, StatusKind::Allowed)]
        {
            self.set_time(begun + later);
            let found = self
                .once(request, |decision| decision.statuses().first().map(Status::kind))
                .flatten();
            let is_presumed = matches!(
                found,
                None | Some(StatusKind::PresumedAllowed | StatusKind::PresumedDenied)
            );
            assert!(
                is_presumed || found == Some(expected),
                "{request:?} at {begun:?} is to be retried after {wait}, and after {later} {found:?}"
            );
        }
    }

    /// Decides a request now, and returns the response message; `None` if there is no decision.
    pub(super) fn answer(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        self.once(request, |decision| {
            let mut answer = Vec::new();
            response::write(decision, &talkative(), response::Receiver::Proxy, &mut answer);
            answer
        })
    }

    /// Returns the result of `read` on the decision; `None` if the limiter fails.
    fn once<T>(&self, request: &Request<'_>, read: impl FnOnce(&Decision<'_>) -> T) -> Option<T> {
        let snapshot = self.limiter.snapshot();
        let decided = ready(self.limiter.decide(&snapshot, request, Instant::now()));
        assert!(self.store.used_bytes() <= BOUNDS.max_bytes, "{} bytes", self.store.used_bytes());
        let decision = decided.ok()?;
        assert_eq!(decision.statuses().len(), request.descriptors.len());
        assert!(!decision.is_over_limit() || decision.statuses().iter().any(Status::is_over_limit));
        decision.statuses().iter().for_each(no_more_than_the_limit_is_left);
        // A refund in the same request frees capacity after the denial was judged.
        let refunds =
            request.descriptors.iter().any(|descriptor| matches!(descriptor.hits, Hits::Refund(_)));
        let at_once =
            decision.statuses().iter().find(|status| status.retry_after() == Some(Micros::ZERO));
        assert!(refunds || at_once.is_none(), "denied, with no time to retry after: {at_once:?}");
        let mut answer = Vec::new();
        response::write(&decision, &talkative(), response::Receiver::Proxy, &mut answer);
        let answer = RateLimitResponse::decode(answer.as_slice()).expect("an answer is a message");
        assert_eq!(answer.statuses.len(), request.descriptors.len());
        // Names come from policies, and headers carry only printable ASCII.
        let is_carried = |value: &str| {
            value.len() <= 4096 && value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        assert!(
            answer.response_headers_to_add.iter().all(|header| is_carried(&header.value)),
            "{answer:?}"
        );
        Some(read(&decision))
    }
}

/// Returns the style with every header enabled.
fn talkative() -> AnswerStyle {
    let headers = HeaderStyle {
        legacy: Some(["limit", "remaining", "reset"].map(str::to_owned)),
        ietf: true,
    };
    AnswerStyle { headers, ..AnswerStyle::default() }
}

fn no_more_than_the_limit_is_left(status: &Status<'_>) {
    if let Some(applied) = status.limit()
        && let Some(remaining) = status.remaining()
    {
        let most = applied.limit.burst().unwrap_or(applied.amount);
        assert!(remaining <= most.into(), "{remaining} left of {most}");
    }
}

/// Returns the retry time if only time and this limit determine when the same request is admitted.
fn certain_wait(request: &Request<'_>, decision: &Decision<'_>) -> Option<Micros> {
    let [status] = decision.statuses() else { return None };
    let limit = status.limit()?.limit;
    let charges =
        request.descriptors.iter().all(|descriptor| matches!(descriptor.hits, Hits::Charge(_)));
    status.retry_after().filter(|_| charges && limit.charge_mode() == Charge::Admitted)
}

/// Polls a future that is always ready, and returns its value.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the memory store never waits"),
    }
}
