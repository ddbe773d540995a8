//! Spans of traced calls: sampling, attributes, and the queue to the exporter.
//!
//! Without a trace, a call costs one header lookup. Exporting spans is left to the receiver.

mod context;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::mpsc;

pub use self::context::Parent;
use crate::span_export::SpanMetrics;

/// Maximum number of queued spans; more are dropped and counted.
const MAX_WAITING: usize = 4096;
/// Maximum length of `tracestate` in bytes, which is passed on unchanged; a longer one is dropped.
const MAX_STATE: usize = 512;

/// The selection of calls to sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// `true` to sample a call that has a parent if and only if its parent is sampled.
    pub by_parent: bool,
    /// Fraction of all other calls to sample, from 0 to 1.
    pub share: f64,
}

/// A recorder of spans. Clones share the queue.
#[derive(Clone)]
pub struct Tracer {
    sampler: Sampler,
    queue: mpsc::Sender<CallSpan>,
    metrics: Arc<SpanMetrics>,
}

/// The span of a completed call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallSpan {
    /// Trace ID.
    pub trace: [u8; 16],
    /// Span ID of the caller; `None` if the trace starts here.
    pub parent: Option<[u8; 8]>,
    /// ID of this span.
    pub id: [u8; 8],
    /// `tracestate` of the caller; empty without one.
    pub state: String,
    /// Start time.
    pub begun: SystemTime,
    /// Duration of the call.
    pub length: Duration,
    /// Attributes of the call.
    pub attributes: SpanAttributes,
}

/// The attributes of a call's span.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanAttributes {
    /// Domain of the request.
    pub domain: String,
    /// Path of the matched rule per descriptor; an empty string if none matched.
    pub rules: Vec<String>,
    /// `true` if the response is OVER_LIMIT; `None` without a response.
    pub is_over_limit: Option<bool>,
    /// Time spent waiting for the store; `None` if it was not called.
    pub store_time: Option<Duration>,
    /// gRPC status code of the call; `None` if the caller canceled it.
    pub status: Option<i32>,
}

/// A sampled call in progress; dropping it sends its span.
pub struct Recording {
    tracer: Tracer,
    since: Instant,
    span: CallSpan,
}

impl Sampler {
    fn samples(self, parent: Option<&Parent>) -> bool {
        if self.by_parent
            && let Some(parent) = parent
        {
            return parent.is_sampled;
        }
        self.share > 0.0 && f64::from(drawn(parent)) / f64::from(u32::MAX) <= self.share
    }
}

/// Draws a number: by trace ID, if there is one, which selects all calls of a trace or none.
fn drawn(parent: Option<&Parent>) -> u32 {
    let of_trace = parent.and_then(|parent| parent.trace.last_chunk().copied());
    of_trace.map_or_else(rand::random, u32::from_be_bytes)
}

impl Tracer {
    /// Creates a tracer with `sampler`, and the receiver of its spans.
    pub fn new(sampler: Sampler, metrics: Arc<SpanMetrics>) -> (Self, mpsc::Receiver<CallSpan>) {
        let (queue, spans) = mpsc::channel(MAX_WAITING);
        (Self { sampler, queue, metrics }, spans)
    }

    /// Starts recording a call with these headers, if it is sampled.
    pub fn begin<'h>(&self, header: impl Fn(&str) -> Option<&'h [u8]>) -> Option<Box<Recording>> {
        let parent = header("traceparent").and_then(Parent::read);
        if !self.sampler.samples(parent.as_ref()) {
            return None;
        }
        let state =
            header("tracestate").filter(|state| parent.is_some() && state.len() <= MAX_STATE);
        let span = CallSpan {
            trace: parent.map_or_else(rand::random, |parent| parent.trace),
            parent: parent.map(|parent| parent.span),
            id: rand::random(),
            state: state
                .and_then(|state| std::str::from_utf8(state).ok())
                .unwrap_or_default()
                .to_owned(),
            begun: SystemTime::now(),
            length: Duration::ZERO,
            attributes: SpanAttributes::default(),
        };
        Some(Box::new(Recording { tracer: self.clone(), since: Instant::now(), span }))
    }
}

impl Recording {
    /// Returns the IDs of the trace and of the call's span.
    pub fn ids(&self) -> ([u8; 16], [u8; 8]) {
        (self.span.trace, self.span.id)
    }

    /// Returns the attributes to fill in.
    pub fn attributes_mut(&mut self) -> &mut SpanAttributes {
        &mut self.span.attributes
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let attributes = std::mem::take(&mut self.span.attributes);
        let state = std::mem::take(&mut self.span.state);
        let span = CallSpan { length: self.since.elapsed(), attributes, state, ..self.span };
        if self.tracer.queue.try_send(span).is_err() {
            self.tracer.metrics.dropped.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn begins(sampler: Sampler, parent: Option<&str>) -> bool {
        let (tracer, _spans) = Tracer::new(sampler, Arc::default());
        let parent = parent.map(str::as_bytes);
        tracer.begin(|name| parent.filter(|_| name == "traceparent")).is_some()
    }

    #[test]
    fn a_call_is_recorded_as_its_caller_is_and_without_one_by_the_share() {
        let unsampled = SAMPLED.replace("-01", "-00");
        for (by_parent, share, parent, is_recorded) in [
            (true, 0.0, Some(SAMPLED), true),
            (true, 0.0, Some(&*unsampled), false),
            (true, 1.0, Some(&*unsampled), false),
            (true, 0.0, None, false),
            (true, 1.0, None, true),
            (true, 0.0, Some("nonsense"), false),
            (false, 0.0, Some(SAMPLED), false),
            (false, 1.0, Some(&*unsampled), true),
        ] {
            assert_eq!(
                begins(Sampler { by_parent, share }, parent),
                is_recorded,
                "{by_parent} {share} {parent:?}"
            );
        }
    }

    #[test]
    fn a_span_has_the_callers_trace_and_is_sent_at_the_end() {
        let (tracer, mut spans) =
            Tracer::new(Sampler { by_parent: true, share: 0.0 }, Arc::default());
        let header =
            |name: &str| Some(if name == "traceparent" { SAMPLED.as_bytes() } else { b"a=b" });
        let mut recording = tracer.begin(header).unwrap();
        recording.attributes_mut().domain = "edge".to_owned();
        spans.try_recv().unwrap_err();
        drop(recording);
        let span = spans.try_recv().unwrap();
        assert_eq!((span.trace[0], span.parent.unwrap()[0], &*span.state), (0x0a, 0xb7, "a=b"));
        assert_eq!((&*span.attributes.domain, span.attributes.status), ("edge", None));
        assert_ne!(span.id, [0; 8]);
    }

    #[test]
    fn spans_beyond_the_queue_are_dropped_and_counted() {
        let metrics = Arc::<SpanMetrics>::default();
        let (tracer, spans) =
            Tracer::new(Sampler { by_parent: true, share: 1.0 }, Arc::clone(&metrics));
        for _ in 0..MAX_WAITING + 3 {
            drop(tracer.begin(|_| None));
        }
        assert_eq!((spans.len(), metrics.dropped.get()), (MAX_WAITING, 3));
    }
}
