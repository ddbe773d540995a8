//! Debug logs of requests: each descriptor with the rule that it matched, the limit and the
//! decision. They show an operator why something is not limited.
//!
//! A request only queues a record, at most `MAX_PER_SECOND` per second; a thread of its own
//! writes the lines, since standard error may block. The next line reports the number of omitted
//! requests.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tracing::{Level, debug, enabled};

use crate::descriptor::{Descriptor, KeyBuffer, Keyed, Request};
use crate::limiter::{Decision, Snapshot, Status, StatusKind, Undecided};
use crate::policy::Policy;
use crate::telemetry::journal::key::write_text;

/// Maximum number of requests logged per second.
const MAX_PER_SECOND: u32 = 100;
/// Maximum number of queued records.
const MAX_WAITING: usize = 128;
/// Maximum number of descriptors logged per request.
const MAX_DESCRIPTORS: usize = 16;

/// Queues requests to be logged.
#[derive(Debug)]
pub struct RequestLog {
    begun: Instant,
    /// The second that `logged` counts, since `begun`.
    second: AtomicU64,
    logged: AtomicU32,
    omitted: AtomicU64,
    queue: SyncSender<LoggedCall>,
}

/// A request to be logged.
#[derive(Debug)]
struct LoggedCall {
    domain: String,
    /// Overall decision.
    overall: String,
    descriptors: Vec<DescriptorRecord>,
    /// Number of descriptors beyond [`MAX_DESCRIPTORS`].
    more: usize,
    /// Number of requests omitted before this one.
    omitted: u64,
}

#[derive(Debug)]
struct DescriptorRecord {
    text: String,
    rule: String,
    limit: String,
    decision: &'static str,
    left: Option<u64>,
}

impl RequestLog {
    /// Starts the log thread if debug logs are enabled.
    ///
    /// # Errors
    /// If the thread cannot be spawned.
    pub fn begin() -> io::Result<Option<Self>> {
        if !enabled!(Level::DEBUG) {
            return Ok(None);
        }
        let (log, records) = Self::new();
        let thread = std::thread::Builder::new().name("request-log".to_owned());
        thread.spawn(move || records.into_iter().for_each(|record| record.write()))?;
        Ok(Some(log))
    }

    fn new() -> (Self, Receiver<LoggedCall>) {
        let (queue, records) = sync_channel(MAX_WAITING);
        let second = AtomicU64::new(0);
        let logged = AtomicU32::new(0);
        let omitted = AtomicU64::new(0);
        (Self { begun: Instant::now(), second, logged, omitted, queue }, records)
    }

    /// Logs a request, unless the limit per second is reached or the queue is full.
    pub(super) fn log(
        &self,
        snapshot: &Snapshot,
        request: &Request<'_>,
        decision: Result<&Decision<'_>, &Undecided>,
    ) {
        let Some(omitted) = self.permit(self.begun.elapsed()) else { return };
        if self
            .queue
            .try_send(LoggedCall { omitted, ..LoggedCall::of(snapshot, request, decision) })
            .is_err()
        {
            self.omitted.fetch_add(omitted + 1, Ordering::Relaxed);
        }
    }

    /// Returns the number of requests omitted since the last log, or `None` if the limit per second
    /// is reached.
    fn permit(&self, elapsed: Duration) -> Option<u64> {
        let second = elapsed.as_secs();
        // Threads that race at the turn of a second may log a few more or fewer.
        if self.second.swap(second, Ordering::Relaxed) != second {
            self.logged.store(0, Ordering::Relaxed);
        }
        if self.logged.fetch_add(1, Ordering::Relaxed) < MAX_PER_SECOND {
            return Some(self.omitted.swap(0, Ordering::Relaxed));
        }
        self.omitted.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl LoggedCall {
    fn of(
        snapshot: &Snapshot,
        request: &Request<'_>,
        decision: Result<&Decision<'_>, &Undecided>,
    ) -> Self {
        let policy = snapshot.as_deref().and_then(|live| live.policies().find(request.domain));
        let statuses = decision.map(Decision::statuses).unwrap_or_default();
        let logged = request.descriptors.iter().take(MAX_DESCRIPTORS).enumerate();
        let overall = match decision {
            Ok(decision) if decision.is_over_limit() => "OVER_LIMIT".to_owned(),
            Ok(_) => "OK".to_owned(),
            Err(undecided) => format!("undecided: {undecided}"),
        };
        Self {
            domain: request.domain.to_owned(),
            overall,
            descriptors: logged
                .map(|(number, one)| DescriptorRecord::of(policy, one, statuses.get(number)))
                .collect(),
            more: request.descriptors.len().saturating_sub(MAX_DESCRIPTORS),
            omitted: 0,
        }
    }

    fn write(&self) {
        let Self { domain, overall, descriptors, more, omitted } = self;
        for (number, descriptor) in descriptors.iter().enumerate() {
            let DescriptorRecord { text, rule, limit, decision, left } = descriptor;
            let is_first = number == 0;
            let omitted = (is_first && *omitted > 0).then_some(omitted);
            let more = (is_first && *more > 0).then_some(more);
            debug!(
                domain,
                descriptor = text,
                rule,
                limit,
                decision,
                left,
                request = overall,
                more_descriptors = more,
                omitted_requests = omitted,
                "request"
            );
        }
    }
}

impl DescriptorRecord {
    fn of(
        policy: Option<&Policy>,
        descriptor: &Descriptor<'_>,
        status: Option<&Status<'_>>,
    ) -> Self {
        let rule =
            policy.and_then(|policy| policy.find(&descriptor.entries, &mut KeyBuffer::default()));
        let keyed = policy.and_then(|policy| match rule {
            Some(rule) => policy.keyed_for(rule),
            // Without a rule, it is unknown which values identify callers.
            None => policy.keyed_for_overrides(),
        });
        let keyed = keyed.or_else(|| status.and_then(Status::keyed));
        let mut text = String::new();
        Keyed::show(keyed, &descriptor.entries, |entries| write_text(entries, &mut text));
        let mut limit = String::new();
        if let Some(applied) = status.and_then(Status::limit) {
            // Writing to a `String` cannot fail.
            let _ = write!(limit, "{applied}");
        }
        Self {
            text,
            rule: rule.map_or_else(String::new, |rule| rule.path().to_owned()),
            limit,
            decision: match (status.map(Status::kind), policy, rule) {
                (None, ..) => "undecided",
                (Some(StatusKind::NoLimit), None, _) => "no limit: no policy for this domain",
                (Some(StatusKind::NoLimit), Some(_), None) => "no limit: no rule matches",
                (Some(StatusKind::NoLimit), Some(_), Some(_)) => {
                    "no limit: the rule has no limit or is replaced"
                }
                (Some(StatusKind::Unlimited), ..) => "unlimited",
                (Some(StatusKind::Allowed), ..) => "OK",
                (Some(StatusKind::Denied), ..) => "OVER_LIMIT",
                (Some(StatusKind::ShadowDenied), ..) => "OK: over limit in shadow mode",
                (Some(StatusKind::PresumedAllowed), ..) => "OK: not evaluated, store failed",
                (Some(StatusKind::PresumedDenied), ..) => "OVER_LIMIT: not evaluated, store failed",
            },
            left: status.and_then(Status::left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_requests_a_second_are_logged_and_the_rest_is_counted() {
        let (log, _records) = RequestLog::new();
        let permits = |at: u64, count: u32| {
            (0..count).filter_map(|_| log.permit(Duration::from_millis(at))).collect::<Vec<u64>>()
        };
        assert_eq!(permits(0, MAX_PER_SECOND + 7), vec![0; 100]);
        assert_eq!(permits(999, 3), [0; 0]);
        assert_eq!(permits(1_000, 2), [10, 0]);
    }

    #[test]
    fn entries_beyond_the_queue_are_counted() {
        let (log, records) = RequestLog::new();
        let in_force = crate::limiter::InForce::new(crate::telemetry::metrics::Metrics::new());
        let snapshot = in_force.snapshot();
        let entries = crate::descriptor::entries("user=ann");
        let descriptor = Descriptor {
            entries: entries.into(),
            hits: crate::algorithm::judge::Hits::Charge(1),
            hold: None,
            limit: None,
        };
        let request = Request { domain: "edge", descriptors: [descriptor].into_iter().collect() };
        for _ in 0..MAX_WAITING + 3 {
            log.logged.store(0, Ordering::Relaxed);
            log.log(&snapshot, &request, Err(&Undecided::NoPolicy));
        }
        assert_eq!(records.try_iter().count(), MAX_WAITING);
        log.logged.store(0, Ordering::Relaxed);
        log.log(&snapshot, &request, Err(&Undecided::NoPolicy));
        let record = records.try_recv().unwrap();
        assert_eq!((record.omitted, &*record.overall), (3, "undecided: no policy is loaded yet"));
        assert_eq!(record.descriptors[0].text, "user=ann");
    }
}
