//! Callers that ask at a steady rate, whatever they are answered, and what they saw.

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

use super::rls::Client;

/// How often it is looked which calls are due.
const TICK: Duration = Duration::from_millis(2);
/// What outages are measured in: a stretch of time is bad where more than one call in it fails, and more than a quarter.
const STRETCH: Duration = Duration::from_millis(50);

/// What to ask: a request of each group in turn.
#[derive(Clone, Default)]
pub(crate) struct Questions {
    /// Calls a second, in all.
    pub(crate) rate: u32,
    /// Requests of which each is asked in its turn, by group.
    pub(crate) groups: Vec<Vec<RateLimitRequest>>,
    /// How long the caller waits, where it says so.
    pub(crate) timeout: Option<Duration>,
}

/// A look that comes so much later was kept waiting by the machine: calls around it say nothing of the service.
const STALL: Duration = Duration::from_millis(250);

/// One load at a time: two on this machine would be measuring each other.
static ALONE: LazyLock<Arc<tokio::sync::Mutex<()>>> = LazyLock::new(Arc::default);

/// Callers at work, on a thread of their own: what a test does meanwhile does not hold them up.
pub(crate) struct Load {
    begun: Instant,
    ended: Arc<AtomicBool>,
    callers: JoinHandle<Calls>,
    alone: Option<OwnedMutexGuard<()>>,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Admitted,
    OverLimit,
    Unavailable,
    /// Any other status; a caller that waited no longer is one.
    Other,
}

/// One call; times are counted from the beginning of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) group: usize,
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    pub(crate) said: Said,
}

/// Some of the calls of a load.
#[derive(Clone)]
pub(crate) struct Calls {
    calls: Vec<Call>,
    /// How long the machine stood still in all; calls around that are left out.
    pub(crate) stalled: Duration,
}

/// What they come to.
pub(crate) struct Summary {
    pub(crate) calls: usize,
    pub(crate) admitted: usize,
    pub(crate) errors: usize,
    /// From the first bad stretch of time to the last.
    pub(crate) outage: Option<(Duration, Duration)>,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    pub(crate) p999: Duration,
    pub(crate) longest: Duration,
}

/// Waits until no other test has a load under way, and keeps others from beginning one. Not to be called where tasks run.
pub(crate) fn alone() -> OwnedMutexGuard<()> {
    Arc::clone(&ALONE).blocking_lock_owned()
}

impl Load {
    /// Begins to ask when no other test does.
    pub(crate) async fn start(service: SocketAddr, questions: Questions) -> Self {
        let alone = Arc::clone(&ALONE).lock_owned().await;
        Self { alone: Some(alone), ..Self::beside_another(service, questions) }
    }

    /// Begins to ask while another load of the same test is under way.
    pub(crate) fn beside_another(service: SocketAddr, questions: Questions) -> Self {
        let (begun, ended) = (Instant::now(), Arc::<AtomicBool>::default());
        let is_over = Arc::clone(&ended);
        let callers = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(call_until(service, questions, begun, &is_over))
        });
        Self { begun, ended, callers, alone: None }
    }

    /// Time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Lets it go on for a while, and says what time it is then.
    pub(crate) async fn go_on(&self, for_ms: u64) -> Duration {
        tokio::time::sleep(Duration::from_millis(for_ms)).await;
        self.now()
    }

    /// Asks no more, and waits for the answers.
    pub(crate) fn finish(self) -> Calls {
        self.ended.store(true, Ordering::Relaxed);
        let calls = self.callers.join().unwrap();
        drop(self.alone);
        calls
    }
}

async fn call_until(service: SocketAddr, questions: Questions, begun: Instant, is_over: &AtomicBool) -> Calls {
    // One for each worker of the service, on this machine's two cores.
    let clients = [Client::connect(service).await, Client::connect(service).await];
    let (calls, mut under_way) = (Arc::<Mutex<Vec<Call>>>::default(), JoinSet::new());
    let (first, mut sent) = (Instant::now(), 0usize);
    let (mut looked, mut stalls) = (begun.elapsed(), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let before = std::mem::replace(&mut looked, begun.elapsed());
        if looked - before > STALL {
            stalls.push((before, looked));
        }
        let due = usize::try_from(first.elapsed().as_micros() * u128::from(questions.rate) / 1_000_000).unwrap();
        // Those that a stalled machine has missed are left out: a flood after a stall is no steady load.
        sent = sent.max(due.saturating_sub(20));
        while sent < due {
            let group = sent % questions.groups.len();
            let requests = &questions.groups[group];
            let request = requests[(sent / questions.groups.len()) % requests.len()].clone();
            let (client, calls) = (clients[sent % clients.len()].clone(), Arc::clone(&calls));
            let timeout = questions.timeout;
            under_way.spawn(async move {
                let sent = Instant::now();
                let said = match client.ask_within(request, timeout).await {
                    Ok(answer) if answer.overall_code() == Code::Ok => Said::Admitted,
                    Ok(_) => Said::OverLimit,
                    Err(status) => of_status(&status),
                };
                let call = Call { group, at: sent - begun, took: sent.elapsed(), said };
                calls.lock().unwrap().push(call);
            });
            sent += 1;
        }
        while under_way.try_join_next().is_some() {}
        tokio::time::sleep(TICK).await;
    }
    under_way.join_all().await;
    let mut calls = std::mem::take(&mut *calls.lock().unwrap());
    let is_clear = |call: &Call| stalls.iter().all(|(from, to)| call.at + call.took < *from || call.at > *to + STALL);
    calls.retain(is_clear);
    Calls { calls, stalled: stalls.iter().map(|(from, to)| *to - *from).sum() }
}

fn of_status(status: &Status) -> Said {
    if status.code() == tonic::Code::Unavailable { Said::Unavailable } else { Said::Other }
}

impl Calls {
    /// Those of a group.
    pub(crate) fn of(&self, group: usize) -> Self {
        self.filter(|call| call.group == group)
    }

    /// Those that began in a time.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> Self {
        self.filter(|call| (from..to).contains(&call.at))
    }

    /// Those that began at an instant or later.
    pub(crate) fn since(&self, from: Duration) -> Self {
        self.between(from, Duration::MAX)
    }

    /// How many were answered so.
    pub(crate) fn count(&self, said: Said) -> usize {
        self.calls.iter().filter(|call| call.said == said).count()
    }

    /// When the last of them began.
    pub(crate) fn last(&self) -> Duration {
        self.calls.iter().map(|call| call.at).max().unwrap_or_default()
    }

    fn filter(&self, is_wanted: impl Fn(&Call) -> bool) -> Self {
        Self { calls: self.calls.iter().copied().filter(is_wanted).collect(), ..*self }
    }

    /// What they come to.
    pub(crate) fn summary(&self) -> Summary {
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
            admitted: self.count(Said::Admitted),
            errors: self.count(Said::Unavailable) + self.count(Said::Other),
            outage: self.outage(),
            median: quantile(500),
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
        let (first, last) = (counts.iter().position(is_bad)?, counts.iter().rposition(is_bad)?);
        let at = |stretch: usize| STRETCH * u32::try_from(stretch).unwrap();
        Some((at(first), at(last + 1)))
    }
}

impl Call {
    fn is_error(&self) -> bool {
        matches!(self.said, Said::Unavailable | Said::Other)
    }
}

impl Summary {
    /// How many of a hundred calls failed.
    pub(crate) fn percent_failed(&self) -> f64 {
        100.0 * f64::from(u32::try_from(self.errors).unwrap()) / f64::from(u32::try_from(self.calls.max(1)).unwrap())
    }

    /// When the outage was over, at the latest; at the beginning where there was none.
    pub(crate) fn over_at(&self) -> Duration {
        self.outage.map(|(_, last)| last).unwrap_or_default()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, admitted, errors, median, p99, p999, longest, .. } = self;
        write!(f, "{calls} calls, {admitted} admitted, {errors} errors ({:.2} %)", self.percent_failed())?;
        if let Some((first, last)) = self.outage {
            write!(f, " in {:?} from {first:?} to {last:?}", last - first)?;
        }
        write!(f, "; median {median:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}, longest {longest:.1?}")
    }
}
