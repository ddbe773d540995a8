//! The buckets of one proxy: looked up by their IDs, and due at their times; acknowledgements; and
//! the ends of the stream.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::bucket::QuotaBucket;
use super::terms::BucketTerms;
use super::{QuotaOptions, REPORT_INTERVAL, after};

/// Time without a report after which a proxy with buckets is gone: two intervals, and some delay.
const SILENCE: Duration = REPORT_INTERVAL.saturating_mul(2).saturating_add(Duration::from_secs(2));
/// Entries of the queue of due times beyond twice the buckets at which outdated ones are removed.
const MIN_QUEUE: usize = 64;

/// Reason why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The proxy has sent no report for two intervals.
    Silent,
    /// The proxy has not acknowledged an assignment within the guard.
    Unacknowledged,
}

/// The buckets of a proxy. `H` is kept with each bucket, such as the memory that it holds.
#[derive(Debug)]
pub struct QuotaStream<H> {
    options: QuotaOptions,
    by_id: HashMap<Box<[u8]>, usize>,
    entries: Vec<Option<BucketEntry<H>>>,
    free: Vec<usize>,
    /// Instants at which buckets are due, at most one that counts for each; others are skipped.
    due: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Responses and PINGs that are not handled as acknowledged, oldest first.
    unacknowledged: VecDeque<SentPing>,
    covered: Option<Instant>,
    /// The same from the next message on, while a message is arriving.
    covered_next: Option<Instant>,
    /// Instant of the PING whose acknowledgement settles the loans that were replaced by the latest
    /// response.
    ping_at: Option<Instant>,
    reported_at: Instant,
}

/// A PING, alone or after a response.
#[derive(Clone, Copy, Debug)]
struct SentPing {
    number: u32,
    sent_at: Instant,
    /// Instant at which the acknowledgement arrived; it is handled later.
    acknowledged_at: Option<Instant>,
}

/// A bucket with its ID.
#[derive(Debug)]
pub struct BucketEntry<H> {
    /// The canonical encoding of the ID.
    pub id: Box<[u8]>,
    /// The bucket.
    pub bucket: QuotaBucket,
    /// Kept with the bucket.
    pub held: H,
    /// Instant of the entry in the queue that counts.
    queued: Option<Instant>,
}

impl<H> QuotaStream<H> {
    /// Creates a stream without buckets.
    pub fn new(options: QuotaOptions, now: Instant) -> Self {
        Self {
            options,
            by_id: HashMap::new(),
            entries: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            unacknowledged: VecDeque::new(),
            covered: None,
            covered_next: None,
            ping_at: None,
            reported_at: now,
        }
    }

    /// Returns the options.
    pub fn options(&self) -> QuotaOptions {
        self.options
    }

    /// Returns the number of buckets.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns `true` if there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the place of a bucket.
    pub fn find(&self, id: &[u8]) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// Adds a bucket, and returns its place.
    pub fn open(&mut self, id: &[u8], terms: BucketTerms, held: H) -> usize {
        let entry =
            BucketEntry { id: id.into(), bucket: QuotaBucket::new(terms), held, queued: None };
        let place = self.free.pop().unwrap_or(self.entries.len());
        self.by_id.insert(id.into(), place);
        match self.entries.get_mut(place) {
            Some(free) => *free = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        place
    }

    /// Returns a bucket.
    pub fn get_mut(&mut self, place: usize) -> Option<&mut BucketEntry<H>> {
        self.entries.get_mut(place)?.as_mut()
    }

    /// Returns a bucket.
    pub fn get(&self, place: usize) -> Option<&BucketEntry<H>> {
        self.entries.get(place)?.as_ref()
    }

    /// Returns the places of all buckets, in their order: that of a simulation is the same in each
    /// run.
    pub fn places(&self) -> Vec<usize> {
        let places = self.entries.iter().enumerate();
        places.filter_map(|(place, entry)| entry.as_ref().map(|_| place)).collect()
    }

    /// Removes a bucket.
    pub fn remove(&mut self, place: usize) -> Option<BucketEntry<H>> {
        let removed = self.entries.get_mut(place)?.take()?;
        self.by_id.remove(&removed.id);
        self.free.push(place);
        Some(removed)
    }

    /// Queues a bucket for the instant at which it is due.
    pub fn schedule(&mut self, place: usize) {
        let Some(entry) = self.get_mut(place) else { return };
        let Some(due) = entry.bucket.due() else { return };
        if entry.queued.replace(due) == Some(due) {
            return;
        }
        self.due.push(Reverse((due, place)));
        if self.due.len() > 2 * self.by_id.len() + MIN_QUEUE {
            let mut queue = std::mem::take(&mut self.due).into_vec();
            queue.retain(|Reverse((at, place))| {
                self.get(*place).is_some_and(|entry| entry.queued == Some(*at))
            });
            queue.sort_unstable();
            queue.dedup();
            self.due = queue.into();
        }
    }

    /// Takes the buckets that are due.
    pub fn take_due(&mut self, now: Instant) -> Vec<usize> {
        let mut places = Vec::new();
        while self.due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((at, place))) = self.due.pop() else { break };
            let Some(entry) = self.get_mut(place).filter(|entry| entry.queued == Some(at)) else {
                continue;
            };
            entry.queued = None;
            if entry.bucket.due() == Some(at) {
                places.push(place);
            }
        }
        places
    }

    /// Returns the instant of the next event without a message of the proxy.
    pub fn next_time(&self) -> Option<Instant> {
        let due = self.due.peek().map(|Reverse((at, _))| *at);
        let silent = (!self.is_empty()).then(|| after(self.reported_at, SILENCE));
        let waiting = self.unacknowledged.iter().find(|ping| ping.acknowledged_at.is_none());
        let overdue = waiting.map(|ping| after(ping.sent_at, self.options.guard));
        [due, silent, overdue, self.ping_at].into_iter().flatten().min()
    }

    /// Records that a message of the proxy has arrived.
    pub fn on_report(&mut self, now: Instant) {
        self.reported_at = now;
    }

    /// Records that all reports of a message are handled. `is_arriving` is set if a part of the
    /// next one has arrived.
    pub fn on_reported(&mut self, is_arriving: bool) {
        if !is_arriving {
            self.covered = self.covered_next;
        }
    }

    /// Records that a response was sent, whose acknowledgement has this number.
    pub fn on_sent(&mut self, number: u32, now: Instant) {
        self.on_ping(number, now);
        self.ping_at = Some(after(now, self.options.guard));
    }

    /// Requests a PING now, without a response.
    pub fn request_ping(&mut self, now: Instant) {
        self.ping_at = Some(now);
    }

    /// Returns `true` once a PING is due, without a response: the report that follows its
    /// acknowledgement settles loans sooner.
    pub fn is_ping_due(&self, now: Instant) -> bool {
        self.ping_at.is_some_and(|at| at <= now)
    }

    /// Records that a PING was sent.
    pub fn on_ping(&mut self, number: u32, now: Instant) {
        self.unacknowledged.push_back(SentPing { number, sent_at: now, acknowledged_at: None });
        self.ping_at = None;
    }

    /// Records the instant at which an acknowledgement arrived, which may be long before it is
    /// handled.
    pub fn on_acknowledgement(&mut self, number: u32, at: Instant) {
        let pings = self.unacknowledged.iter_mut().take_while(|ping| ping.number <= number);
        pings.for_each(|ping| ping.acknowledged_at = ping.acknowledged_at.or(Some(at)));
    }

    /// Records that the proxy has read all responses up to a number. `is_arriving` is set while a
    /// part of a message has arrived: the proxy may have written it before it read the PING.
    pub fn on_acknowledged(&mut self, number: u32, is_arriving: bool) {
        while let Some(ping) = self.unacknowledged.pop_front_if(|ping| ping.number <= number) {
            self.covered_next = Some(ping.sent_at);
        }
        if !is_arriving {
            self.covered = self.covered_next;
        }
    }

    /// Returns the instant before which all admitted hits are in the reports that arrive from now
    /// on: the proxy has answered a PING that was sent then, and writes in order.
    pub fn covered(&self) -> Option<Instant> {
        self.covered
    }

    /// Returns the reason why the stream has to end.
    pub fn end(&self, now: Instant) -> Option<StreamEnd> {
        if self.is_acknowledged_late(now) {
            return Some(StreamEnd::Unacknowledged);
        }
        let is_silent = after(self.reported_at, SILENCE) <= now;
        (!self.is_empty() && is_silent).then_some(StreamEnd::Silent)
    }

    /// Returns `true` if an acknowledgement arrived later than the guard allows, or has not arrived
    /// by then: the proxy may hold the hits of that response for longer than they are counted.
    pub fn is_acknowledged_late(&self, now: Instant) -> bool {
        self.unacknowledged.iter().any(|ping| {
            let answered = ping.acknowledged_at.unwrap_or(now);
            after(ping.sent_at, self.options.guard) <= answered
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_found_and_their_places_are_used_again() {
        let now = Instant::now();
        let mut stream = QuotaStream::new(QuotaOptions::default(), now);
        let first = stream.open(b"a", BucketTerms::Open, ());
        let second = stream.open(b"b", BucketTerms::Open, ());
        assert_eq!((stream.find(b"a"), stream.find(b"b")), (Some(first), Some(second)));
        assert_eq!((stream.places(), stream.len()), (vec![first, second], 2));
        stream.remove(first).unwrap();
        assert_eq!((stream.find(b"a"), stream.places()), (None, vec![second]));
        assert!(stream.get(first).is_none());
        assert_eq!(stream.get(second).map(|entry| &*entry.id), Some(&b"b"[..]));
        assert_eq!(stream.open(b"c", BucketTerms::Open, ()), first);
    }

    #[test]
    fn a_bucket_is_queued_once_however_often_it_is_scheduled() {
        let now = Instant::now();
        let at = |seconds| after(now, Duration::from_secs(seconds));
        let mut stream = QuotaStream::<()>::new(QuotaOptions::default(), now);
        let places: Vec<_> = (0..1_000u32)
            .map(|number| stream.open(&number.to_be_bytes(), BucketTerms::Open, ()))
            .collect();
        let [closed, open] = [BucketTerms::Closed, BucketTerms::Open];
        for (second, terms) in [(1, closed), (2, open), (1, closed), (2, open)] {
            for place in &places {
                let bucket = &mut stream.get_mut(*place).unwrap().bucket;
                bucket.set_terms(terms, true, at(second));
                (0..20).for_each(|_| stream.schedule(*place));
            }
            assert!(stream.due.len() <= 2_000 + MIN_QUEUE);
        }
        assert!(stream.take_due(at(1)).is_empty());
        let mut due = stream.take_due(at(2));
        due.sort_unstable();
        assert_eq!(due, places);
        assert_eq!((stream.take_due(at(9)), stream.due.len()), (Vec::new(), 0));
        // Queued again at the same instant, by a step that has changed nothing.
        stream.schedule(places[0]);
        assert_eq!(stream.take_due(at(2)), [places[0]]);
    }

    #[test]
    fn the_queue_of_three_buckets_keeps_at_most_70_instants() {
        let now = Instant::now();
        let mut stream = QuotaStream::<()>::new(QuotaOptions::default(), now);
        let places = [b"a", b"b", b"c"].map(|id| stream.open(id, BucketTerms::Open, ()));
        let mut lengths = Vec::new();
        for second in 1..=200 {
            let at = after(now, Duration::from_secs(second));
            let terms = if second % 2 == 0 { BucketTerms::Open } else { BucketTerms::Closed };
            for place in places {
                stream.get_mut(place).unwrap().bucket.set_terms(terms, true, at);
                stream.schedule(place);
                lengths.push(stream.due.len());
            }
        }
        assert_eq!(lengths.into_iter().max(), Some(2 * places.len() + MIN_QUEUE));
    }

    #[test]
    fn a_response_without_an_acknowledgement_ends_the_stream() {
        let now = Instant::now();
        let options = QuotaOptions { returns: false, ..QuotaOptions::default() };
        let mut stream = QuotaStream::<()>::new(options, now);
        assert_eq!(stream.options(), options);
        stream.on_sent(1, now);
        assert!(!stream.is_ping_due(now) && stream.is_ping_due(after(now, options.guard)));
        let second = after(now, Duration::from_secs(1));
        stream.request_ping(second);
        assert!(stream.is_ping_due(second));
        stream.on_ping(2, second);
        stream.on_acknowledged(1, false);
        assert_eq!(stream.covered(), Some(now));
        let late = after(now, Duration::from_millis(2_999));
        assert_eq!(stream.end(late), None);
        let late = after(now, Duration::from_secs(3));
        assert_eq!(
            (stream.next_time(), stream.end(late)),
            (Some(late), Some(StreamEnd::Unacknowledged))
        );
    }

    #[test]
    fn an_acknowledgement_counts_from_when_it_arrived() {
        let now = Instant::now();
        let at = |millis| after(now, Duration::from_millis(millis));
        for (arrived, is_late) in [(1_999, false), (2_000, true), (4_150, true)] {
            let mut stream = QuotaStream::<()>::new(QuotaOptions::default(), now);
            stream.on_sent(1, now);
            stream.on_acknowledgement(1, at(arrived));
            // Handled later: the stream waited for the store.
            assert_eq!(stream.is_acknowledged_late(at(5_000)), is_late, "after {arrived} ms");
            assert_eq!(stream.end(at(5_000)), is_late.then_some(StreamEnd::Unacknowledged));
        }
    }

    #[test]
    fn a_message_that_arrives_during_an_acknowledgement_may_have_been_written_before_it() {
        let now = Instant::now();
        let mut stream = QuotaStream::<()>::new(QuotaOptions::default(), now);
        stream.on_sent(1, now);
        stream.on_acknowledgement(1, after(now, Duration::from_secs(1)));
        stream.on_acknowledged(1, true);
        assert_eq!(stream.covered(), None);
        stream.on_reported(true);
        assert_eq!(stream.covered(), None, "a part of the next one has arrived, too");
        stream.on_reported(false);
        assert_eq!(stream.covered(), Some(now));
    }

    #[test]
    fn a_proxy_with_buckets_that_is_silent_for_two_intervals_is_gone() {
        let now = Instant::now();
        let mut stream = QuotaStream::new(QuotaOptions::default(), now);
        let later = after(now, SILENCE);
        assert_eq!((stream.end(later), stream.next_time()), (None, None));
        stream.open(b"a", BucketTerms::Open, ());
        assert_eq!(stream.end(later), Some(StreamEnd::Silent));
        stream.on_report(now);
        stream.on_report(later);
        assert_eq!(stream.end(later), None);
    }
}
