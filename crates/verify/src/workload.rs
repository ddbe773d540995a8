//! The requests of a run, and the history of their answers.

use std::cell::RefCell;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock::epoch_micros;
use crate::requests::SentAnswer;
use crate::run::{STILL_RUNNING, VerifyRun};
use crate::service::VerifiedService;

/// Interval at which the clock and the disturbances are checked.
const WATCH: Duration = Duration::from_millis(10);

/// The requests to send.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Time for which requests are sent.
    pub duration: Duration,
    /// Requests per second of all clients together.
    pub rate: u32,
    /// Deadline of a call.
    pub deadline: Duration,
    /// Command that disturbs the service.
    pub disturbance: Option<Disturbance>,
}

/// A command that runs while requests are sent.
#[derive(Clone, Debug)]
pub struct Disturbance {
    /// Command for `sh -c`.
    pub command: String,
    /// Time between its runs.
    pub every: Duration,
}

/// A client of the service, with the index of its target.
#[derive(Debug)]
pub struct VerifyClient<S> {
    /// Index of the target.
    pub target: usize,
    /// Its connection.
    pub service: S,
}

/// The time at which a client sends.
struct Turn {
    ticks: Interval,
    started: Instant,
    /// Time after others, in those seconds in which clients send one after another.
    phase: Duration,
}

impl Turn {
    async fn wait(&mut self) {
        self.ticks.tick().await;
        if self.started.elapsed().as_secs() % 2 == 1 {
            sleep(self.phase).await;
        }
    }
}

impl Workload {
    /// Sends requests until the time is over, or Ctrl-C is pressed. In every other second all
    /// clients send at once, otherwise one after another. Runs in a `LocalSet`.
    pub async fn drive<S: VerifiedService + 'static>(
        &self,
        clients: Vec<VerifyClient<S>>,
        run: &Rc<RefCell<VerifyRun>>,
    ) {
        let started = Instant::now();
        let count = u32::try_from(clients.len()).unwrap_or(u32::MAX).max(1);
        let pause = Duration::from_secs(1).mul_f64(f64::from(count) / f64::from(self.rate.max(1)));
        let over = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for (mut client, number) in clients.into_iter().zip(0_u32..) {
            let run = Rc::clone(run);
            let over = over.clone();
            let deadline = self.deadline;
            let phase = pause.mul_f64(f64::from(number) / f64::from(count));
            tasks.spawn_local(async move {
                let mut ticks = interval(pause.max(Duration::from_micros(1)));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                let mut turn = Turn { ticks, started, phase };
                // A client whose turn is far away does not delay the end; a call under way is
                // waited for.
                while over.run_until_cancelled(turn.wait()).await.is_some() {
                    client.send(deadline, &run).await;
                }
            });
        }
        let end = async {
            tokio::select! {
                () = sleep(self.duration) => {}
                Ok(()) = tokio::signal::ctrl_c() => run.borrow_mut().is_interrupted = true,
            }
            over.cancel();
        };
        tokio::join!(end, self.watch(started, &over, run));
        run.borrow_mut().seconds = started.elapsed().as_secs_f64();
        while tasks.join_next().await.is_some() {}
    }

    /// Runs the disturbances, and observes this process's own clock and pauses.
    async fn watch(&self, started: Instant, over: &CancellationToken, run: &RefCell<VerifyRun>) {
        let mut next = self.disturbance.as_ref().map_or(Duration::ZERO, |one| one.every);
        let mut running: Option<Child> = None;
        let mut last = Instant::now();
        while over.run_until_cancelled(sleep(WATCH)).await.is_some() {
            let pause = last.elapsed().saturating_sub(WATCH);
            last = Instant::now();
            let mut run = run.borrow_mut();
            run.paused = run.paused.max(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
            // Between two readings, so that a pause of this process is no step of the clock.
            let before = run.now();
            let clock = epoch_micros();
            let behind = before.saturating_sub(clock);
            let ahead = clock.saturating_sub(run.now());
            run.clock_moved = run.clock_moved.max(behind).max(ahead);
            let Some(Disturbance { command, every }) = &self.disturbance else { continue };
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
                next = started.elapsed() + *every;
            }
        }
        if running.is_some() {
            run.borrow_mut().disturbances.push(STILL_RUNNING.to_owned());
        }
    }
}

impl<S: VerifiedService> VerifyClient<S> {
    /// Sends the next request of a run, and records the answer.
    async fn send(&mut self, deadline: Duration, run: &RefCell<VerifyRun>) {
        let (sent, request) = run.borrow_mut().next();
        let began = Instant::now();
        let answer = timeout(deadline, self.service.decide(request, deadline)).await;
        let is_late = began.elapsed() >= deadline;
        let answer = match answer {
            Ok(Ok(decision)) => SentAnswer::Decided(decision),
            Ok(Err(error)) if !is_late => SentAnswer::Failed(error.to_string()),
            Ok(Err(_)) | Err(_) => SentAnswer::Late,
        };
        run.borrow_mut().record(self.target, &sent, &answer);
    }
}
