//! Proxies that hold hits by RLQS. Their streams are those of the service, without a socket: the
//! messages of both directions keep their order, and are delayed or lost with the stream.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tollgate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use tollgate::grpc::proto::quota::{BucketId, RateLimitQuotaUsageReports};
use tollgate::http2::Delivery;

use super::plan::Plan;
use super::plan_proxies::{PlannedRequest, ProxyPlan};
use super::process::{SimProcess, value_of};
use super::proxy::{ProxyDecision, SimProxy};
use super::run::RunningWorld;
use super::server::fleet::Moment;

/// Interval of the reports of all buckets.
const REPORTS: Duration = Duration::from_secs(5);
/// Time after the last request for which reports go on: all loans have ended by then.
const REPORTED_FOR: Duration = Duration::from_secs(32);
/// Number of a proxy among those that can be stopped: after all holders.
const FIRST_STOPPED: usize = 2_000;
/// Bytes that a stream accepts at once.
const ROOM: usize = 1 << 20;

/// A proxy with its stream.
#[derive(Default)]
pub struct ProxyLink {
    state: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    proxy: SimProxy,
    /// Number of streams that it has opened.
    opened: usize,
    stream: Option<ProxyStream>,
    /// Streams that the proxy has given up, of which the service does not know.
    lost: Vec<ProxyStream>,
}

/// The proxy's end of a stream.
struct ProxyStream {
    number: usize,
    messages: UnboundedSender<(Moment, ToService)>,
    /// Arrival of the last message.
    arrival: Moment,
    delivery: Delivery,
    cut: CancellationToken,
}

/// A message to the service.
pub(super) enum ToService {
    Report(RateLimitQuotaUsageReports),
    Acknowledgement(u32),
}

/// A message to the proxy.
pub(super) enum ToProxy {
    /// Actions, each with the number of its loan.
    Response(Vec<(BucketAction, Option<usize>)>),
    Ping(u32),
    Ended,
}

/// The service's end of a stream.
pub(super) struct ServiceEnd {
    pub(super) proxy: usize,
    pub(super) process: Arc<SimProcess>,
    pub(super) process_number: usize,
    pub(super) worker: usize,
    pub(super) messages: UnboundedReceiver<(Moment, ToService)>,
    pub(super) to_proxy: UnboundedSender<(Moment, ToProxy)>,
    pub(super) delivery: Delivery,
    pub(super) cut: CancellationToken,
}

/// Returns the ID of the bucket of a counter.
pub(super) fn bucket_of(plan: &Plan, counter: usize) -> BucketId {
    let pair = (format!("r{}", plan.counters[counter]), value_of(counter));
    BucketId { bucket: [pair].into() }
}

impl ProxyStream {
    fn send(&mut self, at: Moment, message: ToService) {
        self.arrival = self.arrival.max(at);
        let _ = self.messages.send((self.arrival, message));
    }
}

fn proxies_of(world: &RunningWorld) -> &ProxyPlan {
    world.plan.proxies.as_ref().unwrap()
}

impl RunningWorld {
    /// Runs the proxies of the world, until all that they have has ended.
    pub(super) async fn run_proxies(self: Arc<Self>, begun: Moment) {
        let Some(proxies) = self.plan.proxies.clone() else { return };
        let mut running = tokio::task::JoinSet::new();
        for proxy in 0..proxies.count {
            let of_proxy = proxies.requests.iter().filter(|one| one.proxy == proxy);
            running.spawn(Arc::clone(&self).request_all(begun, of_proxy.copied().collect()));
            running.spawn(Arc::clone(&self).report_all(proxy, begun));
        }
        while let Some(ended) = running.join_next().await {
            ended.unwrap();
        }
    }

    async fn request_all(self: Arc<Self>, begun: Moment, requests: Vec<PlannedRequest>) {
        for PlannedRequest { at, proxy, counter } in requests {
            self.shared.sleep_until(begun + at).await;
            self.shared.running(FIRST_STOPPED + proxy).await;
            let now = self.shared.now();
            let mut state = self.proxies[proxy].state.lock();
            let decision = state.proxy.decide(counter, || bucket_of(&self.plan, counter), now);
            let mut chronicle = self.shared.chronicle.lock();
            chronicle.note(now, &format!("proxy {proxy}: c{counter} {decision:?}"));
            chronicle.loans.note_request(counter, decision, now);
            drop(chronicle);
            self.shared.fleet.lock().count(match decision {
                ProxyDecision::First => "proxy first",
                ProxyDecision::Denied => "proxy denied",
                ProxyDecision::Allowed => "proxy allowed",
                ProxyDecision::Lent(_) => "proxy lent",
            });
            if decision == ProxyDecision::First {
                self.report(proxy, &mut state, Some(counter));
            }
        }
    }

    async fn report_all(self: Arc<Self>, proxy: usize, begun: Moment) {
        let until = begun + self.plan.end + REPORTED_FOR.as_micros() as u64;
        while self.shared.now() < until {
            sleep(REPORTS).await;
            self.shared.running(FIRST_STOPPED + proxy).await;
            self.report(proxy, &mut self.proxies[proxy].state.lock(), None);
        }
        let mut state = self.proxies[proxy].state.lock();
        let streams: Vec<ProxyStream> = std::mem::take(&mut state.lost);
        streams.into_iter().chain(state.stream.take()).for_each(|stream| stream.cut.cancel());
    }

    /// Sends the report of a bucket, or of all, on a stream that is opened if there is none.
    fn report(self: &Arc<Self>, proxy: usize, state: &mut LinkState, of: Option<usize>) {
        let Some(report) = state.proxy.report(of) else { return };
        if state.stream.is_none() {
            state.stream = self.open_stream(proxy, state.opened);
            state.opened += usize::from(state.stream.is_some());
        }
        if let Some(stream) = &mut state.stream {
            stream.send(self.arrival(), ToService::Report(report));
        }
    }

    /// Opens a stream to a process; returns `None` if it has crashed.
    fn open_stream(self: &Arc<Self>, proxy: usize, number: usize) -> Option<ProxyStream> {
        let process_number = self.shared.random().below(self.plan.processes);
        let worker = self.shared.random().below(self.plan.workers);
        let process = self.processes.lock()[process_number].0.clone()?;
        let (messages, receiver) = unbounded_channel();
        let (to_proxy, arriving) = unbounded_channel();
        let delivery = Delivery::new();
        delivery.set_room(ROOM);
        let cut = CancellationToken::new();
        tokio::spawn(Arc::clone(self).serve_stream(ServiceEnd {
            proxy,
            process,
            process_number,
            worker,
            messages: receiver,
            to_proxy,
            delivery: delivery.clone(),
            cut: cut.clone(),
        }));
        tokio::spawn(Arc::clone(self).read_stream(proxy, number, arriving));
        self.shared.fleet.lock().count("stream opened");
        Some(ProxyStream { number, messages, arrival: 0, delivery, cut })
    }

    /// Lets a proxy read what arrives on a stream.
    async fn read_stream(
        self: Arc<Self>,
        proxy: usize,
        number: usize,
        mut arriving: UnboundedReceiver<(Moment, ToProxy)>,
    ) {
        while let Some((at, message)) = arriving.recv().await {
            self.shared.sleep_until(at).await;
            self.shared.running(FIRST_STOPPED + proxy).await;
            let now = self.shared.now();
            let mut state = self.proxies[proxy].state.lock();
            let LinkState { proxy: client, stream, .. } = &mut *state;
            let Some(open) = stream.as_mut().filter(|open| open.number == number) else { return };
            match message {
                ToProxy::Response(actions) => {
                    actions.iter().for_each(|(action, loan)| client.apply(action, *loan, now));
                }
                ToProxy::Ping(number) => {
                    open.send(self.arrival(), ToService::Acknowledgement(number));
                }
                ToProxy::Ended => *stream = None,
            }
        }
    }

    /// Returns the arrival of a message that is sent now.
    pub(super) fn arrival(&self) -> Moment {
        let ProxyPlan { late, late_ms, .. } = *proxies_of(self);
        let is_late = self.shared.now() < self.plan.end && self.shared.random().percent(late);
        let most_ms = if is_late { late_ms } else { self.shared.most_delay_ms };
        self.shared.now() + 1_000 * self.shared.random().below(most_ms + 1) as u64
    }

    /// Loses all that a proxy has, with its stream.
    pub(super) fn end_proxy(&self, proxy: usize) {
        self.cut_stream(proxy);
        self.proxies[proxy].state.lock().proxy = SimProxy::default();
    }

    /// Ends the stream of a proxy; both sides know.
    pub(super) fn cut_stream(&self, proxy: usize) {
        if let Some(stream) = self.proxies[proxy].state.lock().stream.take() {
            stream.cut.cancel();
        }
    }

    /// Lets a proxy give up its stream, of which the service hears nothing more.
    pub(super) fn lose_stream(&self, proxy: usize) {
        let mut state = self.proxies[proxy].state.lock();
        let lost = state.stream.take();
        state.lost.extend(lost);
    }

    /// Lets the stream of a proxy accept nothing for a time.
    pub(super) fn block_stream(self: &Arc<Self>, proxy: usize, us: u64) {
        let state = self.proxies[proxy].state.lock();
        let Some(delivery) = state.stream.as_ref().map(|stream| stream.delivery.clone()) else {
            return;
        };
        delivery.set_room(0);
        tokio::spawn(async move {
            sleep(Duration::from_micros(us)).await;
            delivery.set_room(ROOM);
        });
    }

    /// Stops a proxy until a moment.
    pub(super) fn stop_proxy(&self, proxy: usize, until: Moment) {
        self.shared.stop(FIRST_STOPPED + proxy, until);
    }
}
