//! Measurement of a case: rounds with a turn of each server, and the median of the rounds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::case::{Case, Figure, Place};
use super::load::{Answers, Load, Pace, Requests};
use super::round_trip;
use super::servers::{Running, Store, used_by};
use tollgate_testkit::usage::{Usage, resident_bytes, system_calls};
use tollgate_testkit::web::Web;

/// Digits of the numbers in requests.
pub(crate) const WIDTH: usize = 8;
/// Number of requests for the system call count: each is sent once, in a closed loop.
const COUNTED: usize = 20_000;
/// Number of keys from which on each has a counter before the measurement. Fewer are soon used.
const FILLED_FROM: usize = 1_000_000;
/// Duration of the bare script measurement.
const ROUND_TRIPS: Duration = Duration::from_millis(500);

/// The number and length of a measurement's rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// Length of each server's turn in a round.
    pub(crate) time: Duration,
    /// Set if each case is also measured at half of its throughput, in an open loop.
    pub(crate) is_open: bool,
}

/// The measurements of a case.
pub(crate) struct Measured {
    pub(crate) figures: Vec<(Figure, f64)>,
    pub(crate) subject: Turn,
    pub(crate) baseline: Turn,
    /// Both servers at half of the subject's throughput, in an open loop, the subject first.
    pub(crate) at_half: Option<[Turn; 2]>,
    /// Median latency of a bare call of the subject's script.
    pub(crate) script: Option<Duration>,
    /// Failed calls of both servers.
    pub(crate) failed: u64,
}

/// The measurements of a server: of one round, or the medians of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) per_second: f64,
    /// CPU in us per response.
    pub(crate) cpu: f64,
    pub(crate) waits: f64,
    pub(crate) median: Duration,
    pub(crate) p99: Duration,
    /// 999 of 1,000 responses.
    pub(crate) p999: Duration,
    pub(crate) redis_cpu: f64,
    pub(crate) redis_commands: f64,
}

/// Both running servers of a case.
struct Stage {
    case: Case,
    store: Store,
    redis: Vec<u32>,
    subject: Running,
    baseline: Running,
    requests: Arc<Requests>,
}

/// Measures a case. `peer` is the binary of envoyproxy/ratelimit, if that is the baseline.
pub(crate) async fn measure(case: Case, effort: Effort, peer: Option<&Path>) -> Measured {
    let stage = Stage::set(case, peer).await;
    if case.keys >= FILLED_FROM {
        stage.load(&stage.subject).run_all();
    }
    let script = match (case.target(Figure::Median), stage.store.redis().as_slice()) {
        (Some(_), [redis]) => round_trip::of_script(redis, || stage.run_some(), ROUND_TRIPS),
        _ => None,
    };
    let mut subjects = Vec::new();
    let mut baselines = Vec::new();
    let mut failed = 0;
    for _ in 0..effort.rounds {
        for (turns, server) in [(&mut baselines, &stage.baseline), (&mut subjects, &stage.subject)]
        {
            let (turn, answers) = stage.turn(server, Pace::Closed, effort.time).await;
            failed += answers.failed;
            turns.push(turn);
        }
    }
    let subject = Turn::median_of(&subjects);
    let baseline = Turn::median_of(&baselines);
    let ratio = |of: fn(&Turn) -> f64| {
        median(subjects.iter().zip(&baselines).map(|(one, other)| of(one) / of(other)))
    };
    let mut figures = vec![
        (Figure::Throughput, ratio(|turn| turn.per_second)),
        (Figure::Cpu, ratio(|turn| turn.cpu)),
        (Figure::Waits, subject.waits),
    ];
    if let Some(script) = script {
        let parts = (baseline.median + script).as_secs_f64();
        figures.push((Figure::Median, subject.median.as_secs_f64() / parts));
    }
    if case.place() != Place::Memory {
        figures.push((Figure::RedisCpu, subject.redis_cpu));
        figures.push((Figure::RedisCommands, subject.redis_commands));
    }
    let mut at_half = None;
    if case.target(Figure::P99AtHalf).is_some() || effort.is_open {
        let (turns, failed_calls) = stage.at_rate(subject.per_second / 2.0, effort).await;
        failed += failed_calls;
        figures.push((Figure::P99AtHalf, turns[0].p99.as_secs_f64() * 1e3));
        at_half = Some(turns);
    }
    if case.target(Figure::Memory).is_some() {
        let [own, other] =
            [&stage.subject, &stage.baseline].map(|server| resident_bytes(server.process) as f64);
        figures.push((Figure::Memory, (own - other) / 1e6));
    }
    if case.target(Figure::Series).is_some()
        && let Some(http) = stage.subject.http
    {
        let metrics = Web::new(http).get("/metrics").await.body;
        figures.push((
            Figure::Series,
            metrics.lines().filter(|line| !line.starts_with('#')).count() as f64,
        ));
    }
    if case.target(Figure::SystemCalls).is_some() {
        figures.extend(stage.system_calls().map(|calls| (Figure::SystemCalls, calls)));
    }
    Measured { figures, subject, baseline, at_half, script, failed }
}

impl Stage {
    async fn set(case: Case, peer: Option<&Path>) -> Self {
        let store = Store::start(case.place()).await;
        let subject = Running::start(case.subject, &store, peer);
        let baseline = Running::start(case.baseline, &store, peer);
        let requests = if case.ends.is_empty() {
            Requests::new("bench", &case.descriptors(), case.keys, WIDTH)
        } else {
            Requests::holds("bench", &case.descriptors(), case.ends, case.keys, WIDTH)
        };
        let requests = Arc::new(requests);
        let redis = store.processes().await;
        Self { case, store, redis, subject, baseline, requests }
    }

    fn load(&self, server: &Running) -> Load {
        Load {
            service: server.address,
            requests: Arc::clone(&self.requests),
            in_flight: self.case.in_flight,
        }
    }

    /// Measures one turn of a server.
    async fn turn(&self, server: &Running, pace: Pace, time: Duration) -> (Turn, Answers) {
        let commands = self.store.commands().await;
        let sample = || (Usage::of(server.process), used_by(&self.redis));
        let (answers, [(own, redis), (own_later, redis_later)]) =
            self.load(server).run(pace, time, sample);
        let commands = self.store.commands().await - commands;
        let own = own_later.since(own);
        let redis = redis_later.since(redis);
        let count = answers.count() as f64;
        let turn = Turn {
            per_second: answers.per_second(),
            cpu: own.cpu.as_secs_f64() * 1e6 / count,
            waits: own.waits as f64 / count,
            median: answers.latency.quantile(0.5),
            p99: answers.latency.quantile(0.99),
            p999: answers.latency.quantile(0.999),
            redis_cpu: redis.cpu.as_secs_f64() * 1e6 / count,
            redis_commands: commands as f64 / answers.count_of_all() as f64,
        };
        (turn, answers)
    }

    /// Measures both servers at a number of calls per second. Returns their medians, the subject's
    /// first, and the number of failed calls.
    async fn at_rate(&self, per_second: f64, effort: Effort) -> ([Turn; 2], u64) {
        let mut failed = 0;
        let mut turns = [Vec::new(), Vec::new()];
        for _ in 0..effort.rounds {
            for (turns, server) in turns.iter_mut().zip([&self.subject, &self.baseline]) {
                let (turn, answers) = self.turn(server, Pace::Open(per_second), effort.time).await;
                failed += answers.failed;
                turns.push(turn);
            }
        }
        (turns.map(|turns| Turn::median_of(&turns)), failed)
    }

    fn system_calls(&self) -> Option<f64> {
        let requests = Arc::new(Requests::new("bench", &self.case.descriptors(), COUNTED, WIDTH));
        let load = Load { requests, ..self.load(&self.subject) };
        let calls = system_calls(self.subject.process, || drop(load.run_all()))?;
        Some(calls as f64 / COUNTED as f64)
    }

    /// Sends a few requests.
    fn run_some(&self) {
        let requests = Arc::new(Requests::new("bench", &self.case.descriptors(), 10, WIDTH));
        Load { requests, ..self.load(&self.subject) }.run_all();
    }
}

impl Turn {
    fn median_of(turns: &[Self]) -> Self {
        let of = |read: fn(&Self) -> f64| median(turns.iter().map(read));
        let time = |read: fn(&Self) -> f64| Duration::from_secs_f64(of(read));
        Self {
            per_second: of(|turn| turn.per_second),
            cpu: of(|turn| turn.cpu),
            waits: of(|turn| turn.waits),
            median: time(|turn| turn.median.as_secs_f64()),
            p99: time(|turn| turn.p99.as_secs_f64()),
            p999: time(|turn| turn.p999.as_secs_f64()),
            redis_cpu: of(|turn| turn.redis_cpu),
            redis_commands: of(|turn| turn.redis_commands),
        }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
