//! Open-loop load: clients that call at a steady rate regardless of responses, and the results of
//! their calls.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::task::JoinSet;
use tollgate::grpc::proto::RateLimitRequest;
use tollgate::grpc::proto::rate_limit_response::Code;
use tonic::Status;

use super::TEST_TIMEOUT;
use super::rls::Client;

/// Interval of the check for calls that are due.
const TICK: Duration = Duration::from_millis(2);
/// Resolution of outages: an interval is bad if more than one of its calls, and more than a quarter
/// of them, fail.
const STRETCH: Duration = Duration::from_millis(50);

/// The calls of a load: requests of each group in turn.
#[derive(Clone, Default)]
pub struct Traffic {
    /// Total calls per second.
    pub rate: u32,
    /// Requests per group, sent in turn.
    pub groups: Vec<Vec<RateLimitRequest>>,
    /// Timeout of a call, if the caller sets one.
    pub timeout: Option<Duration>,
}

/// Delay of a tick above which the machine is considered to have been busy elsewhere.
const LATE: Duration = Duration::from_millis(10);
/// Minimum delay of a tick that counts as a stall of the machine. Calls around it are discarded,
/// since they reveal nothing about the service.
const STALL: Duration = Duration::from_millis(250);
/// Time without a failed call after which an outage is considered to be over.
pub const CALM: Duration = Duration::from_secs(2);

/// Serializes loads: two on this machine would measure each other.
static ALONE: LazyLock<Arc<tokio::sync::Mutex<()>>> = LazyLock::new(Arc::default);

/// A running load on a thread of its own, so that a blocking test does not delay it.
pub struct Load {
    begun: Instant,
    ended: Arc<AtomicBool>,
    calls: Arc<Mutex<Vec<Call>>>,
    callers: JoinHandle<Calls>,
    alone: Option<OwnedMutexGuard<()>>,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Admitted,
    OverLimit,
    Unavailable,
    /// Any other status, including the client's own timeout.
    Other,
}

/// A call; times are relative to the start of the load.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub group: usize,
    pub at: Duration,
    pub took: Duration,
    pub outcome: Outcome,
}

/// A subset of the calls of a load.
#[derive(Clone)]
pub struct Calls {
    calls: Vec<Call>,
    /// Intervals in which this process was due to run and did not.
    late: Arc<Vec<(Duration, Duration)>>,
}

/// Statistics of calls.
pub struct Summary {
    pub calls: usize,
    pub admitted: usize,
    pub errors: usize,
    /// Start of the first and end of the last bad interval.
    pub outage: Option<(Duration, Duration)>,
    pub median: Duration,
    pub p90: Duration,
    pub p99: Duration,
    pub p999: Duration,
    pub longest: Duration,
}

/// Waits until no other test runs a load, and blocks others from starting one. Must not be called
/// from an async context.
pub fn alone() -> OwnedMutexGuard<()> {
    Arc::clone(&ALONE).blocking_lock_owned()
}

/// Async variant of [`alone`].
pub async fn no_other_load() -> OwnedMutexGuard<()> {
    Arc::clone(&ALONE).lock_owned().await
}

impl Load {
    /// Starts a load once no other test runs one.
    pub async fn start(service: SocketAddr, traffic: Traffic) -> Self {
        let alone = Arc::clone(&ALONE).lock_owned().await;
        Self { alone: Some(alone), ..Self::with_another(service, traffic) }
    }

    /// Starts a load while another load of the same test is running.
    pub fn with_another(service: SocketAddr, traffic: Traffic) -> Self {
        let begun = Instant::now();
        let ended = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&ended);
        let calls = Arc::<Mutex<Vec<Call>>>::default();
        let made = Arc::clone(&calls);
        let callers = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(call_until(service, traffic, begun, &is_over, &made))
        });
        Self { begun, ended, calls, callers, alone: None }
    }

    /// Returns the time since the start.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Keeps the load running for `for_ms` milliseconds, and returns the time since its start.
    pub async fn go_on(&self, for_ms: u64) -> Duration {
        tokio::time::sleep(Duration::from_millis(for_ms)).await;
        self.now()
    }

    /// Keeps the load running until no call of `group` has failed for a while, but no longer than
    /// [`TEST_TIMEOUT`], and returns the time since its start.
    pub async fn until_calm(&self, group: usize) -> Duration {
        let begun = self.now();
        let is_calm = |now: Duration| {
            let calls = self.calls.lock().unwrap();
            let of_group = calls.iter().filter(|call| call.group == group);
            let mut recent = of_group.filter(|call| call.at + call.took + CALM >= now).peekable();
            recent.peek().is_some() && !recent.any(Call::is_error)
        };
        while self.now() < begun + CALM || !is_calm(self.now()) {
            if self.now() > begun + TEST_TIMEOUT {
                break;
            }
            tokio::time::sleep(TICK).await;
        }
        self.now()
    }

    /// Stops the load and waits for pending calls.
    pub fn finish(self) -> Calls {
        self.ended.store(true, Ordering::Relaxed);
        let calls = self.callers.join().unwrap();
        drop(self.alone);
        calls
    }
}

async fn call_until(
    service: SocketAddr,
    traffic: Traffic,
    begun: Instant,
    is_over: &AtomicBool,
    calls: &Arc<Mutex<Vec<Call>>>,
) -> Calls {
    // One for each worker of the service, on a machine with two cores.
    let clients = [Client::connect(service).await, Client::connect(service).await];
    let mut under_way = JoinSet::new();
    let first = Instant::now();
    let mut sent = 0usize;
    let mut looked = begun.elapsed();
    let mut late = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let before = std::mem::replace(&mut looked, begun.elapsed());
        if looked - before > LATE {
            late.push((before, looked));
        }
        let due =
            usize::try_from(first.elapsed().as_micros() * u128::from(traffic.rate) / 1_000_000)
                .unwrap();
        // Skip calls that a stalled machine has missed: a burst after a stall is not a steady load.
        sent = sent.max(due.saturating_sub(20));
        while sent < due {
            let group = sent % traffic.groups.len();
            let requests = &traffic.groups[group];
            let request = requests[(sent / traffic.groups.len()) % requests.len()].clone();
            let client = clients[sent % clients.len()].clone();
            let calls = Arc::clone(calls);
            let timeout = traffic.timeout;
            under_way.spawn(async move {
                let sent = Instant::now();
                let outcome = match client.decide_within(request, timeout).await {
                    Ok(answer) if answer.overall_code() == Code::Ok => Outcome::Admitted,
                    Ok(_) => Outcome::OverLimit,
                    Err(status) => of_status(&status),
                };
                let call = Call { group, at: sent - begun, took: sent.elapsed(), outcome };
                calls.lock().unwrap().push(call);
            });
            sent += 1;
        }
        while under_way.try_join_next().is_some() {}
        tokio::time::sleep(TICK).await;
    }
    under_way.join_all().await;
    let mut calls = std::mem::take(&mut *calls.lock().unwrap());
    let is_clear = |call: &Call| {
        let mut stalls = late.iter().filter(|(from, to)| *to - *from > STALL);
        stalls.all(|(from, to)| call.at + call.took < *from || call.at > *to + STALL)
    };
    calls.retain(is_clear);
    Calls { calls, late: Arc::new(late) }
}

fn of_status(status: &Status) -> Outcome {
    if status.code() == tonic::Code::Unavailable { Outcome::Unavailable } else { Outcome::Other }
}

impl Calls {
    /// Returns the calls of a group.
    pub fn of(&self, group: usize) -> Self {
        self.filter(|call| call.group == group)
    }

    /// Returns the calls that began between `from` and `to`.
    pub fn between(&self, from: Duration, to: Duration) -> Self {
        self.filter(|call| (from..to).contains(&call.at))
    }

    /// Returns the calls that began at `from` or later.
    pub fn since(&self, from: Duration) -> Self {
        self.between(from, Duration::MAX)
    }

    /// Returns the number of calls with this result.
    pub fn count(&self, outcome: Outcome) -> usize {
        self.calls.iter().filter(|call| call.outcome == outcome).count()
    }

    /// Returns the start of the last call.
    pub fn last(&self) -> Duration {
        self.calls.iter().map(|call| call.at).max().unwrap_or_default()
    }

    fn filter(&self, is_wanted: impl Fn(&Call) -> bool) -> Self {
        let calls = self.calls.iter().copied().filter(is_wanted).collect();
        Self { calls, late: Arc::clone(&self.late) }
    }

    /// Returns the calls that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.is_error())
    }

    /// Returns the time from one instant to another, without the time for which this process was
    /// due to run and did not: that of a machine that is not busy.
    pub fn undisturbed(&self, from: Duration, to: Duration) -> Duration {
        let lost =
            |(begin, end): &(Duration, Duration)| (*end).min(to).saturating_sub((*begin).max(from));
        to.saturating_sub(from).saturating_sub(self.late.iter().map(lost).sum())
    }

    /// Computes the statistics of the calls.
    pub fn summary(&self) -> Summary {
        let mut times: Vec<Duration> = self.calls.iter().map(|call| call.took).collect();
        times.sort();
        let quantile = |thousandths: usize| {
            times
                .get((times.len() * thousandths / 1000).min(times.len().saturating_sub(1)))
                .copied()
                .unwrap_or_default()
        };
        Summary {
            calls: self.calls.len(),
            admitted: self.count(Outcome::Admitted),
            errors: self.count(Outcome::Unavailable) + self.count(Outcome::Other),
            outage: self.outage(),
            median: quantile(500),
            p90: quantile(900),
            p99: quantile(990),
            p999: quantile(999),
            longest: quantile(1000),
        }
    }

    fn outage(&self) -> Option<(Duration, Duration)> {
        let stretch = |at: Duration| usize::try_from(at.as_millis() / STRETCH.as_millis()).unwrap();
        let end = self.calls.iter().map(|call| stretch(call.at)).max()?;
        let mut counts = vec![(0usize, 0usize); end + 1];
        for call in &self.calls {
            let (calls, errors) = &mut counts[stretch(call.at)];
            *calls += 1;
            *errors += usize::from(call.is_error());
        }
        let is_bad = |(calls, errors): &(usize, usize)| *errors > 1 && *errors * 4 > *calls;
        let first = counts.iter().position(is_bad)?;
        let last = counts.iter().rposition(is_bad)?;
        let at = |stretch: usize| STRETCH * u32::try_from(stretch).unwrap();
        Some((at(first), at(last + 1)))
    }
}

impl Call {
    fn is_error(&self) -> bool {
        matches!(self.outcome, Outcome::Unavailable | Outcome::Other)
    }
}

impl Summary {
    /// Returns the percentage of failed calls.
    pub fn percent_failed(&self) -> f64 {
        100.0 * f64::from(u32::try_from(self.errors).unwrap())
            / f64::from(u32::try_from(self.calls.max(1)).unwrap())
    }

    /// Returns the end of the outage; 0 if there was none.
    pub fn over_at(&self) -> Duration {
        self.outage.map(|(_, last)| last).unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, admitted, errors, median, p99, p999, longest, .. } = self;
        write!(
            f,
            "{calls} calls, {admitted} admitted, {errors} errors ({:.2} %)",
            self.percent_failed()
        )?;
        if let Some((first, last)) = self.outage {
            write!(f, " in {:?} from {first:?} to {last:?}", last - first)?;
        }
        write!(f, "; median {median:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, longest {longest:.1?}")
    }
}
