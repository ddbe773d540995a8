//! The requests of a run, and the history of their answers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::counters::CountersInUse;
use super::rules::VerifiedRule;
use super::{Verify, VerifyError};
use crate::algorithm::time::Micros;
use crate::grpc::client::{ClientError, ClientTls, RateLimitClient};
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use crate::grpc::units::UNITS;
use crate::verify::bound::CounterBound;
use crate::verify::history::{ObservedAnswer, ObservedCall};

/// Interval at which the clock and the disturbances are checked.
const WATCH: Duration = Duration::from_millis(10);

/// Result of a disturbance that was under way at the end of the run.
pub(super) const STILL_RUNNING: &str = "still running at the end";

/// The rules, the counters in use, and the calls so far.
pub(super) struct VerifyRun {
    pub(super) rules: Vec<VerifiedRule>,
    /// Why other rules are not checked.
    pub(super) skipped: Vec<String>,
    /// Differences between the policies and the limits that the targets report.
    pub(super) mismatches: Vec<String>,
    /// Rule and random value of each counter.
    pub(super) counters: Vec<(usize, u64)>,
    pub(super) calls: Vec<ObservedCall>,
    pub(super) disturbances: Vec<String>,
    /// Seconds for which requests were sent.
    pub(super) seconds: f64,
    /// `true` if Ctrl-C ended the run.
    pub(super) is_interrupted: bool,
    /// Most by which the clock moved against the monotonic clock, in microseconds.
    pub(super) clock_moved: u64,
    /// Longest time for which this process did not run, in microseconds.
    pub(super) paused: u64,
    /// Counters in use of each rule.
    in_use: Vec<CountersInUse>,
    started: Instant,
    epoch: u64,
}

impl VerifyRun {
    pub(super) fn new(rules: Vec<VerifiedRule>, skipped: Vec<String>) -> Self {
        Self {
            in_use: vec![CountersInUse::default(); rules.len()],
            rules,
            skipped,
            mismatches: Vec::new(),
            counters: Vec::new(),
            calls: Vec::new(),
            disturbances: Vec::new(),
            seconds: 0.0,
            is_interrupted: false,
            clock_moved: 0,
            paused: 0,
            started: Instant::now(),
            epoch: epoch_micros(),
        }
    }

    /// Returns the rule of a counter.
    pub(super) fn rule_of(&self, counter: usize) -> Option<&VerifiedRule> {
        self.rules.get(self.counters.get(counter)?.0)
    }

    /// Returns the calls of each counter, oldest first.
    pub(super) fn by_counter(&self) -> BTreeMap<usize, Vec<ObservedCall>> {
        let mut by_counter = BTreeMap::<usize, Vec<ObservedCall>>::new();
        for call in &self.calls {
            by_counter.entry(call.counter).or_default().push(call.clone());
        }
        by_counter
    }

    /// Returns the rules under which no call was denied.
    pub(super) fn never_reached(&self) -> Vec<String> {
        let denied = self.calls.iter().filter(|call| call.is_denied());
        let reached: Vec<usize> = denied
            .filter_map(|call| self.counters.get(call.counter).map(|counter| counter.0))
            .collect();
        let rules = self.rules.iter().enumerate();
        rules.filter(|(index, _)| !reached.contains(index)).map(|(_, rule)| rule.name()).collect()
    }

    /// Returns the rules whose limit was reached by counters that were not in use for long enough
    /// to show when their hits return, with that time.
    pub(super) fn unseen_returns(&self, skew: u64) -> Vec<(String, Micros)> {
        let never_reached = self.never_reached();
        let counters = self.by_counter();
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| !rule.model.is_leased);
        let unseen = rules.filter_map(|(index, rule)| {
            let is_of = |counter: &usize| self.counters.get(*counter).map(|of| of.0) == Some(index);
            let bounds = rule.model.bounds.iter().filter(|bound| {
                let mut calls = counters.iter().filter(|(counter, _)| is_of(counter));
                !calls.any(|(_, calls)| bound.shows_return(calls, skew))
            });
            let longest = bounds.map(CounterBound::return_time).max()?;
            Some((rule.name(), Micros::new(longest)))
        });
        unseen.filter(|(rule, _)| !never_reached.contains(rule)).collect()
    }

    /// Sends one request for each rule to each target.
    ///
    /// # Errors
    /// A target does not answer, or has no limit for a rule.
    async fn probe(
        &mut self,
        target: &str,
        client: &mut RateLimitClient,
        deadline: Duration,
    ) -> Result<(), VerifyError> {
        for rule in &self.rules {
            let request = rule.request(rand::random(), 1);
            let answer = client.should_rate_limit_within(request, deadline).await;
            let answer = answer.map_err(|error| VerifyError::NoDecision {
                target: target.to_owned(),
                error: error.to_string(),
            })?;
            let limit = limited(&answer).and_then(|status| status.current_limit.as_ref());
            let limit = limit.ok_or_else(|| VerifyError::NoLimit {
                target: target.to_owned(),
                rule: rule.name(),
            })?;
            let amount = limit.requests_per_unit;
            let period = reported_period(limit);
            let is_reported = |window: &&(u32, Micros)| {
                window.0 == amount && period.is_none_or(|period| period == window.1)
            };
            if rule.windows.iter().find(is_reported).is_none() {
                let windows = rule.windows.iter().map(|(amount, of)| format!("{amount} per {of}"));
                self.mismatches.push(format!(
                    "{target} reports a limit of {amount}{} for {}, the policy has {}",
                    period.map_or(String::new(), |period| format!(" per {period}")),
                    rule.name(),
                    windows.collect::<Vec<_>>().join(" and "),
                ));
            }
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        let passed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.epoch.saturating_add(passed)
    }

    /// Returns the counter, the hits and the request of the next call.
    fn next(&mut self) -> (usize, u64, RateLimitRequest) {
        let now = self.now();
        let index = rand::random_range(0..self.rules.len().max(1));
        let hits = match rand::random_range(0..16) {
            0 => 0,
            1..4 => 2,
            _ => 1,
        };
        let Some((rule, of_rule)) = self.rules.get(index).zip(self.in_use.get_mut(index)) else {
            return (0, hits, RateLimitRequest::default());
        };
        let counter = of_rule.next(&rule.model, now, self.counters.len());
        if counter == self.counters.len() {
            self.counters.push((index, rand::random()));
        }
        let value = self.counters.get(counter).map_or(0, |counter| counter.1);
        (counter, hits, rule.request(value, hits))
    }
}

impl Verify {
    /// Connects all clients, each to one target in turn.
    ///
    /// # Errors
    /// A target does not answer, or has no limit for a rule.
    pub(super) async fn connect(
        &self,
        tls: Option<&ClientTls>,
        run: &mut VerifyRun,
    ) -> Result<Vec<(usize, RateLimitClient)>, VerifyError> {
        for address in &self.targets {
            let mut client = RateLimitClient::connect(address, tls).await?;
            let deadline = Duration::from_millis(self.deadline);
            run.probe(address, &mut client, deadline).await?;
        }
        let mut clients = Vec::new();
        for (target, address) in self.targets.iter().enumerate().cycle() {
            if clients.len() >= self.clients() {
                break;
            }
            clients.push((target, RateLimitClient::connect(address, tls).await?));
        }
        Ok(clients)
    }

    /// Sends requests until the time is over, or Ctrl-C is pressed. In every other second all
    /// clients send at once, otherwise one after another.
    pub(super) async fn drive(
        &self,
        clients: Vec<(usize, RateLimitClient)>,
        run: &Rc<RefCell<VerifyRun>>,
    ) {
        let started = Instant::now();
        let count = clients.len();
        let pause = Duration::from_secs(1).mul_f64(number(count) / f64::from(self.rate.max(1)));
        let over = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for (index, (target, mut client)) in clients.into_iter().enumerate() {
            let run = Rc::clone(run);
            let over = over.clone();
            let deadline = Duration::from_millis(self.deadline);
            let phase = pause.mul_f64(number(index) / number(count.max(1)));
            tasks.spawn_local(async move {
                let mut ticks = tokio::time::interval(pause.max(Duration::from_micros(1)));
                ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
                let mut turn = async || {
                    ticks.tick().await;
                    if started.elapsed().as_secs() % 2 == 1 {
                        tokio::time::sleep(phase).await;
                    }
                };
                // A client whose turn is far away does not delay the end; a call under way is
                // waited for.
                while over.run_until_cancelled(turn()).await.is_some() {
                    send(target, &mut client, deadline, &run).await;
                }
            });
        }
        let end = async {
            let duration = tokio::time::sleep(Duration::from_secs(self.duration));
            tokio::select! {
                () = duration => {}
                Ok(()) = tokio::signal::ctrl_c() => run.borrow_mut().is_interrupted = true,
            }
            over.cancel();
        };
        tokio::join!(end, self.watch(started, &over, run));
        run.borrow_mut().seconds = started.elapsed().as_secs_f64();
        while tasks.join_next().await.is_some() {}
    }

    /// Runs the disturbances, and observes this process's own clock and pauses.
    async fn watch(
        &self,
        started: Instant,
        over: &CancellationToken,
        run: &Rc<RefCell<VerifyRun>>,
    ) {
        let every = Duration::from_secs(self.disturb_every);
        let mut next = every;
        let mut running: Option<Child> = None;
        let mut last = Instant::now();
        while over.run_until_cancelled(tokio::time::sleep(WATCH)).await.is_some() {
            let pause = last.elapsed().saturating_sub(WATCH);
            last = Instant::now();
            let mut run = run.borrow_mut();
            run.paused = run.paused.max(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
            run.clock_moved = run.clock_moved.max(epoch_micros().abs_diff(run.now()));
            let Some(command) = &self.disturb else { continue };
            if let Some(ended) = running.as_mut().and_then(|child| child.try_wait().transpose()) {
                run.disturbances.push(ended.map_or_else(|e| e.to_string(), |s| s.to_string()));
                running = None;
            }
            if running.is_none() && started.elapsed() >= next {
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null());
                // Ctrl-C ends the run, and not a command in the middle of its work.
                shell.process_group(0);
                match shell.spawn() {
                    Ok(child) => running = Some(child),
                    Err(error) => run.disturbances.push(error.to_string()),
                }
                next = started.elapsed().saturating_add(every);
            }
        }
        if running.is_some() {
            run.borrow_mut().disturbances.push(STILL_RUNNING.to_owned());
        }
    }

    fn clients(&self) -> usize {
        usize::try_from(self.clients).unwrap_or(usize::MAX)
    }
}

/// Sends the next request of a run, and records the answer.
async fn send(
    target: usize,
    client: &mut RateLimitClient,
    deadline: Duration,
    run: &RefCell<VerifyRun>,
) {
    let (counter, hits, request) = run.borrow_mut().next();
    let begin = run.borrow().now();
    let answer = client.should_rate_limit_within(request, deadline);
    let answer = tokio::time::timeout(deadline, answer).await;
    let end = run.borrow().now();
    let is_late = Duration::from_micros(end.saturating_sub(begin)) >= deadline;
    let answer = match answer {
        Ok(Ok(response)) => answer_of(&response),
        Ok(Err(error)) if !is_late => failed(&error),
        Ok(Err(_)) | Err(_) => ObservedAnswer::Late,
    };
    let call = ObservedCall { counter, target, hits, begin, end, answer };
    run.borrow_mut().calls.push(call);
}

fn answer_of(response: &RateLimitResponse) -> ObservedAnswer {
    // Without a limit in the status, the answer was given without the store, and admits as well.
    let status = limited(response);
    let remaining = status.map(|status| status.limit_remaining.into());
    let reset = status.and_then(|status| status.duration_until_reset.as_ref());
    let reset = reset.and_then(|reset| u64::try_from(reset.seconds).ok());
    if response.overall_code == i32::from(Code::OverLimit) {
        ObservedAnswer::Denied { remaining, reset }
    } else {
        ObservedAnswer::Admitted { remaining, reset }
    }
}

/// Returns the period of a reported limit; `None` if its unit is unknown.
fn reported_period(limit: &RateLimit) -> Option<Micros> {
    let unit = UNITS.iter().find(|(unit, _)| i32::from(*unit) == limit.unit);
    let multiplier = limit.unit_multiplier.unwrap_or(1).into();
    unit.map(|(_, seconds)| Micros::from_secs(seconds.saturating_mul(multiplier)))
}

fn failed(error: &ClientError) -> ObservedAnswer {
    ObservedAnswer::Failed { error: error.to_string() }
}

fn limited(response: &RateLimitResponse) -> Option<&DescriptorStatus> {
    response.statuses.first().filter(|status| status.current_limit.is_some())
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn epoch_micros() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()
}
