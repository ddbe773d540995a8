//! A counter of a fixed window with several proxies.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::super::bucket::BucketStep;
use super::super::share::WantTable;
use super::super::stream::QuotaStream;
use super::super::terms::{
    Assignment, BucketTerms, BucketUsage, ChargedLoan, LentTerms, WantResult,
};
use super::super::{QuotaOptions, REPORT_INTERVAL};
use super::envoy::Proxy;
use crate::algorithm::Receipt;
use crate::algorithm::lease::Lease;
use crate::algorithm::time::{Micros, Timestamp};

/// Time between two turns of all parts.
const TICK: Duration = Duration::from_millis(50);
const ID: &[u8] = b"bucket";
const COUNTER: u64 = 1;

/// A message on its way to a proxy.
#[derive(Debug)]
struct Flight {
    arrives_at: Instant,
    sent: u32,
    /// `None` is a PING alone.
    action: Option<Action>,
}

#[derive(Debug)]
enum Action {
    Assign(Assignment),
    Abandon,
}

/// A proxy with its stream.
struct Link {
    proxy: Proxy,
    stream: QuotaStream<()>,
    sent: u32,
    flights: VecDeque<Flight>,
    /// Acknowledgements and reports on their way back, in order.
    backwards: VecDeque<(Instant, Backward)>,
    drops_next: bool,
}

enum Backward {
    Acknowledged(u32),
    Report(BucketUsage),
}

/// A counter of a fixed window, and proxies.
pub(super) struct ProxyWorld {
    limit: u64,
    period: Duration,
    size: u32,
    links: Vec<Link>,
    wants: WantTable,
    begun: Option<Instant>,
    /// Time of the store's clock at the beginning.
    offset: Duration,
    /// Charged and admitted hits by window.
    charged: BTreeMap<u64, u64>,
    admitted: BTreeMap<u64, u64>,
    delay: Duration,
    is_failing: bool,
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
            wants: WantTable::default(),
            begun: None,
            offset: Duration::ZERO,
            charged: BTreeMap::new(),
            admitted: BTreeMap::new(),
            delay: Duration::from_millis(20),
            is_failing: false,
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
        self.wants.remove(COUNTER, u64::try_from(number).unwrap());
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

    fn store_now(&self, now: Instant) -> Duration {
        self.offset + now.saturating_duration_since(self.begun.unwrap_or(now))
    }

    fn window(&self, now: Instant) -> u64 {
        u64::try_from(self.store_now(now).as_millis() / self.period.as_millis()).unwrap()
    }

    fn turn(&mut self, number: usize, now: Instant) {
        if self.links[number].proxy.is_dead {
            return;
        }
        self.deliver(number, now);
        let allowed = self.links[number].proxy.decide(now);
        *self.admitted.entry(self.window(now)).or_default() += allowed;
        self.report(number, now);
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
            return self.reconnect(number, now);
        }
        while let Some((_, message)) =
            self.links[number].backwards.pop_front_if(|(at, _)| *at <= now)
        {
            self.receive(number, message, now);
        }
        if self.links[number].stream.end(now).is_some() {
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

    /// Ends a stream and begins another one: the proxy keeps what it has.
    fn reconnect(&mut self, number: usize, now: Instant) {
        let link = &mut self.links[number];
        link.stream = QuotaStream::new(QuotaOptions::default(), now);
        link.flights.clear();
        link.backwards.clear();
        link.sent = 0;
    }

    fn deliver(&mut self, number: usize, now: Instant) {
        let delay = self.delay;
        let link = &mut self.links[number];
        while let Some(flight) = link.flights.pop_front_if(|flight| flight.arrives_at <= now) {
            match &flight.action {
                Some(Action::Assign(assignment)) => link.proxy.apply(assignment, now),
                Some(Action::Abandon) => {
                    link.proxy = Proxy { waiting: link.proxy.waiting, ..Proxy::default() };
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

    fn receive(&mut self, number: usize, message: Backward, now: Instant) {
        let terms = BucketTerms::Lent(LentTerms {
            lease: Lease { hits: self.size, ttl: Micros::from_secs(15) },
            at_once: u32::try_from(self.limit).unwrap(),
            generation: COUNTER,
            on_failure: None,
        });
        let stream = &mut self.links[number].stream;
        let usage = match message {
            Backward::Acknowledged(sent) => return stream.on_acknowledged(sent, false),
            Backward::Report(usage) => usage,
        };
        stream.on_report(now);
        let covered = stream.covered();
        let options = stream.options();
        let place = stream.find(ID).unwrap_or_else(|| stream.open(ID, terms, ()));
        let slot = stream.get_mut(place).unwrap();
        let reported = slot.bucket.report(usage, covered, now, &options);
        let want = slot.bucket.want();
        let awaits_ping = slot.bucket.awaits_ping(covered, now);
        self.wants.set(COUNTER, u64::try_from(number).unwrap(), want);
        *self.charged.entry(self.window(now)).or_default() += reported.afterwards;
        for receipt in reported.returns {
            self.take_back(receipt);
        }
        if awaits_ping {
            self.links[number].stream.request_ping(now);
        }
        self.advance(number, place, now);
    }

    fn take_back(&mut self, receipt: Receipt) {
        let millis = u128::from(receipt.at.as_micros() / 1_000);
        let window = u64::try_from(millis / self.period.as_millis()).unwrap();
        *self.charged.entry(window).or_default() -= receipt.hits;
    }

    fn advance(&mut self, number: usize, place: usize, now: Instant) {
        let options = QuotaOptions::default();
        let slot = self.links[number].stream.get_mut(place).unwrap();
        match slot.bucket.step(now, &options) {
            BucketStep::Nothing => self.links[number].stream.schedule(place),
            BucketStep::Assign(assignment) => self.send(number, place, Some(assignment), now),
            BucketStep::Abandon => self.send(number, place, None, now),
            BucketStep::Want(hits) => {
                let result = self.lend(number, hits.into(), now);
                let slot = self.links[number].stream.get_mut(place).unwrap();
                let (step, unsent) = slot.bucket.wanted_result(result, now, &options);
                unsent.into_iter().for_each(|receipt| self.take_back(receipt));
                match step {
                    BucketStep::Assign(assignment) => {
                        self.send(number, place, Some(assignment), now)
                    }
                    BucketStep::Nothing | BucketStep::Want(_) | BucketStep::Abandon => {
                        self.links[number].stream.schedule(place);
                    }
                }
            }
        }
    }

    fn lend(&mut self, number: usize, wanted: u64, now: Instant) -> WantResult {
        if self.is_failing {
            return WantResult::Failed;
        }
        let window = self.window(now);
        let store_now = self.store_now(now);
        let rest = self.period * u32::try_from(window + 1).unwrap() - store_now;
        let rest = Micros::new(u64::try_from(rest.as_micros()).unwrap());
        let charged = self.charged.entry(window).or_default();
        let remaining = self.limit.saturating_sub(*charged);
        let share = self.wants.share(COUNTER, u64::try_from(number).unwrap(), wanted, remaining);
        if share == 0 {
            return WantResult::Denied((remaining == 0).then_some(rest));
        }
        *charged += share;
        let at = Timestamp::from_micros(u64::try_from(store_now.as_micros()).unwrap());
        let receipt = Receipt { at, hits: share, of_grant: false };
        let window_rest = Some(rest);
        WantResult::Charged(ChargedLoan { receipt, asked_at: now, charged_at: now, window_rest })
    }

    fn send(&mut self, number: usize, place: usize, assignment: Option<Assignment>, now: Instant) {
        let link = &mut self.links[number];
        if std::mem::take(&mut link.drops_next) {
            link.stream.get_mut(place).unwrap().bucket.postpone(now);
            link.stream.schedule(place);
            if let Some(Assignment::Loan(loan, _)) = assignment {
                self.take_back(loan.receipt);
            }
            return;
        }
        link.sent += 1;
        link.stream.on_sent(link.sent, now);
        match assignment {
            Some(assignment) => {
                let slot = link.stream.get_mut(place).unwrap();
                slot.bucket.sent(assignment, now, &QuotaOptions::default());
                link.stream.schedule(place);
            }
            None => drop(link.stream.remove(place)),
        }
        let action = assignment.map_or(Action::Abandon, Action::Assign);
        self.fly(number, Some(action), now);
    }

    fn fly(&mut self, number: usize, action: Option<Action>, now: Instant) {
        let delay = self.delay;
        let link = &mut self.links[number];
        let arrives_at = link.flights.back().map_or(now, |flight| flight.arrives_at);
        let arrives_at = arrives_at.max(now + delay);
        link.flights.push_back(Flight { arrives_at, sent: link.sent, action });
    }
}
