//! A counter of a fixed window with several proxies, and the faults of both sides.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::super::share::WantTable;
use super::super::stream::{QuotaStream, StreamEnd};
use super::super::terms::{Assignment, BucketUsage};
use super::super::{DEFAULT_GUARD, QuotaOptions, REPORT_INTERVAL};
use super::envoy::Proxy;

/// Time between two turns of all parts.
const TICK: Duration = Duration::from_millis(50);
pub(super) const COUNTER: u64 = 1;

/// A message on its way to a proxy.
#[derive(Debug)]
pub(super) struct Flight {
    sent_at: Instant,
    pub(super) arrives_at: Instant,
    /// Number of its PING; 0 once the stream has ended.
    sent: u32,
    /// `None` is a PING alone.
    action: Option<Action>,
}

#[derive(Debug)]
pub(super) enum Action {
    Assign(Assignment),
    Abandon,
}

/// A proxy with its stream.
pub(super) struct Link {
    proxy: Proxy,
    pub(super) stream: QuotaStream<()>,
    /// Number of the replica that serves the stream.
    replica: usize,
    pub(super) sent: u32,
    flights: VecDeque<Flight>,
    /// Acknowledgements and reports on their way back, in order.
    backwards: VecDeque<(Instant, Backward)>,
    pub(super) drops_next: bool,
}

pub(super) enum Backward {
    Acknowledged(u32),
    Report(BucketUsage),
}

/// A counter of a fixed window, and proxies.
pub(super) struct ProxyWorld {
    pub(super) limit: u64,
    pub(super) period: Duration,
    pub(super) size: u32,
    pub(super) links: Vec<Link>,
    /// The wants that each replica knows.
    wants: [WantTable; 2],
    begun: Option<Instant>,
    /// Time of the store's clock at the beginning.
    offset: Duration,
    /// Charged and admitted hits by window.
    pub(super) charged: BTreeMap<u64, u64>,
    admitted: BTreeMap<u64, u64>,
    delay: Duration,
    /// Time by which responses are delayed further.
    held_back: Duration,
    pub(super) is_failing: bool,
    /// Streams that the service ended, and hits of loans that arrived later than the guard.
    ends: Vec<StreamEnd>,
    late_hits: u64,
    /// Hits admitted beyond all loans, and hits given back.
    pub(super) afterwards: u64,
    pub(super) returned: u64,
    /// Instant until which the service handles nothing: it waits for its store.
    stalled_until: Instant,
    now: Instant,
}

impl ProxyWorld {
    pub(super) fn new(limit: u64, period: u64, size: u32) -> Self {
        Self {
            limit,
            period: Duration::from_secs(period),
            size,
            links: Vec::new(),
            wants: <[WantTable; 2]>::default(),
            begun: None,
            offset: Duration::ZERO,
            charged: BTreeMap::new(),
            admitted: BTreeMap::new(),
            delay: Duration::from_millis(20),
            held_back: Duration::ZERO,
            is_failing: false,
            ends: Vec::new(),
            late_hits: 0,
            afterwards: 0,
            returned: 0,
            stalled_until: Instant::now(),
            now: Instant::now(),
        }
    }

    pub(super) fn offset(&mut self, millis: u64) {
        self.offset = Duration::from_millis(millis);
    }

    /// Sets the time that messages in both directions take from now on.
    pub(super) fn delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Holds responses back by a time, while reports flow.
    pub(super) fn hold_back(&mut self, time: Duration) {
        self.held_back = time;
    }

    /// Lets a proxy do nothing for a time from an instant on. What arrives meanwhile waits.
    pub(super) fn suspend(&mut self, number: usize, from: Instant, time: Duration) {
        self.links[number].proxy.suspended_until = Some(from + time);
    }

    /// Lets a proxy allow all requests before its first assignment and after an expired one.
    pub(super) fn allow_without_assignment(&mut self, number: usize) {
        self.links[number].proxy.allows_without = true;
    }

    /// Connects a proxy to the other replica.
    pub(super) fn move_to_other_replica(&mut self, number: usize) {
        self.reconnect(number, self.now);
        self.links[number].replica ^= 1;
    }

    pub(super) fn ends(&self) -> &[StreamEnd] {
        &self.ends
    }

    /// Returns the hits of loans that arrived later than the guard.
    pub(super) fn late_hits(&self) -> u64 {
        self.late_hits
    }

    /// Returns the hits beyond the limit in each window, summed.
    pub(super) fn over(&self) -> u64 {
        self.admitted.values().map(|hits| hits.saturating_sub(self.limit)).sum()
    }

    pub(super) fn wants(&self, number: usize) -> &WantTable {
        &self.wants[self.links[number].replica]
    }

    pub(super) fn fail_store(&mut self, is_failing: bool) {
        self.is_failing = is_failing;
    }

    /// Lets the service handle nothing for a time from an instant on.
    pub(super) fn stall(&mut self, from: Instant, time: Duration) {
        self.stalled_until = from + time;
    }

    /// Returns all charged and all admitted hits.
    pub(super) fn sums(&self) -> (u64, u64) {
        (self.charged.values().sum(), self.admitted.values().sum())
    }

    /// Returns `true` if at least as many hits were charged as admitted, in each window.
    pub(super) fn has_charged_all(&self) -> bool {
        let charged = |window| self.charged.get(window).copied().unwrap_or_default();
        self.admitted.iter().all(|(window, hits)| *hits <= charged(window))
    }

    pub(super) fn connect(&mut self) -> usize {
        let stream = QuotaStream::new(QuotaOptions::default(), self.now);
        self.links.push(Link {
            proxy: Proxy::default(),
            stream,
            replica: 0,
            sent: 0,
            flights: VecDeque::new(),
            backwards: VecDeque::new(),
            drops_next: false,
        });
        self.links.len() - 1
    }

    pub(super) fn kill(&mut self, number: usize) {
        let link = &mut self.links[number];
        link.proxy.is_dead = true;
        link.stream.remove(0);
        self.wants(number).remove(COUNTER, u64::try_from(number).unwrap());
    }

    /// Lets the next response find no room.
    pub(super) fn drop_next_response(&mut self, number: usize) {
        self.links[number].drops_next = true;
    }

    pub(super) fn request(&mut self, number: usize, hits: u64) {
        self.links[number].proxy.waiting += hits;
    }

    pub(super) fn proxy(&self, number: usize) -> &Proxy {
        &self.links[number].proxy
    }

    pub(super) fn admitted_by_window(&self) -> Vec<u64> {
        self.admitted.values().copied().collect()
    }

    /// Runs from an instant on.
    pub(super) fn run(&mut self, from: Instant, time: Duration) {
        self.begun.get_or_insert(from);
        let mut now = from;
        while now < from + time {
            self.now = now;
            for number in 0..self.links.len() {
                self.turn(number, now);
            }
            now += TICK;
        }
    }

    pub(super) fn store_now(&self, now: Instant) -> Duration {
        self.offset + now.saturating_duration_since(self.begun.unwrap_or(now))
    }

    pub(super) fn window(&self, now: Instant) -> u64 {
        u64::try_from(self.store_now(now).as_millis() / self.period.as_millis()).unwrap()
    }

    fn turn(&mut self, number: usize, now: Instant) {
        if self.links[number].proxy.is_dead {
            return;
        }
        if self.links[number].proxy.suspended_until.is_none_or(|until| until <= now) {
            self.deliver(number, now);
            let allowed = self.links[number].proxy.decide(now);
            *self.admitted.entry(self.window(now)).or_default() += allowed;
            self.report(number, now);
        }
        if now < self.stalled_until {
            return;
        }
        let link = &mut self.links[number];
        for (at, message) in link.backwards.iter().filter(|(at, _)| *at <= now) {
            if let Backward::Acknowledged(sent) = message {
                link.stream.on_acknowledgement(*sent, *at);
            }
        }
        if link.stream.is_acknowledged_late(now) {
            self.ends.push(StreamEnd::Unacknowledged);
            return self.reconnect(number, now);
        }
        while let Some((_, message)) =
            self.links[number].backwards.pop_front_if(|(at, _)| *at <= now)
        {
            self.receive(number, message, now);
        }
        if let Some(end) = self.links[number].stream.end(now) {
            self.ends.push(end);
            return self.reconnect(number, now);
        }
        for place in self.links[number].stream.take_due(now) {
            self.advance(number, place, now);
        }
        let link = &mut self.links[number];
        if link.stream.is_ping_due(now) {
            link.sent += 1;
            link.stream.on_ping(link.sent, now);
            self.fly(number, None, now);
        }
    }

    /// Ends a stream and begins another one: the proxy keeps what it has, and gets the responses
    /// that are on their way.
    fn reconnect(&mut self, number: usize, now: Instant) {
        self.wants(number).remove(COUNTER, u64::try_from(number).unwrap());
        let link = &mut self.links[number];
        link.stream = QuotaStream::new(QuotaOptions::default(), now);
        link.flights.iter_mut().for_each(|flight| flight.sent = 0);
        link.backwards.clear();
        link.sent = 0;
    }

    fn deliver(&mut self, number: usize, now: Instant) {
        let delay = self.delay;
        let link = &mut self.links[number];
        while let Some(flight) = link.flights.pop_front_if(|flight| flight.arrives_at <= now) {
            match &flight.action {
                Some(Action::Assign(assignment)) => {
                    link.proxy.apply(assignment, now);
                    if let Assignment::Loan(loan, _) = assignment
                        && flight.sent_at + DEFAULT_GUARD <= now
                    {
                        self.late_hits += loan.receipt.hits;
                    }
                }
                Some(Action::Abandon) => {
                    link.proxy = Proxy {
                        waiting: link.proxy.waiting,
                        allows_without: link.proxy.allows_without,
                        ..Proxy::default()
                    };
                }
                None => {}
            }
            link.backwards.push_back((now + delay.min(TICK), Backward::Acknowledged(flight.sent)));
        }
    }

    fn report(&mut self, number: usize, now: Instant) {
        let delay = self.delay;
        let link = &mut self.links[number];
        let proxy = &mut link.proxy;
        let has_requests = proxy.usage != BucketUsage::default();
        let is_due = proxy.reports_at.is_some_and(|at| at <= now);
        if proxy.is_known && !is_due || !proxy.is_known && !has_requests {
            return;
        }
        proxy.is_known = true;
        proxy.reports_at = Some(now + REPORT_INTERVAL);
        let usage = std::mem::take(&mut proxy.usage);
        let at = link.backwards.back().map_or(now, |(at, _)| *at).max(now + delay);
        link.backwards.push_back((at, Backward::Report(usage)));
    }

    pub(super) fn fly(&mut self, number: usize, action: Option<Action>, now: Instant) {
        let delay = self.delay + self.held_back;
        let link = &mut self.links[number];
        let arrives_at = link.flights.back().map_or(now, |flight| flight.arrives_at);
        let arrives_at = arrives_at.max(now + delay);
        link.flights.push_back(Flight { sent_at: now, arrives_at, sent: link.sent, action });
    }
}
