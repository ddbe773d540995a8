//! The task that borrows and returns blocks, with one exchange at a time.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tollgate_lease::holder::{self, Exchanger, INTERVAL, LeasedCounter, LoanExchange, clock};

use super::{LeaseTable, LeasedKey};
use crate::call::unary;
use crate::connection::Replicas;
use crate::decision::duration;
use crate::generated::tollgate::v1::lease_answer::Answer;
use crate::generated::tollgate::v1::{
    CounterReport, ExchangeRequest, ExchangeResponse, LeaseAnswer, LeaseReturn, LeaseWant,
};

const EXCHANGE: &str = "/tollgate.v1.LeaseService/Exchange";
/// Bound of an exchange. A block that comes late is usable for less time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The state of the task.
#[derive(Debug)]
pub(super) struct ExchangeTask {
    connection: Replicas,
    table: Arc<LeaseTable>,
    closed: mpsc::Receiver<oneshot::Sender<()>>,
    exchanger: Exchanger<LeasedKey>,
}

impl ExchangeTask {
    pub(super) fn new(
        connection: Replicas,
        table: Arc<LeaseTable>,
        closed: mpsc::Receiver<oneshot::Sender<()>>,
    ) -> Self {
        Self { connection, table, closed, exchanger: Exchanger::new() }
    }

    /// Exchanges blocks until the client is closed or dropped; then it returns all.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                done = self.closed.recv() => {
                    while let Some(exchange) = self.exchanger.begin_end(clock::now()) {
                        self.call(exchange).await;
                    }
                    if let Some(done) = done {
                        // The caller may have stopped to wait.
                        let _ = done.send(());
                    }
                    return;
                }
                () = due(&self.table, self.exchanger.is_idle(), &mut ticks) => {}
            }
            self.exchanger.collect(&self.table.leases, clock::now());
            while let Some(exchange) = self.exchanger.begin(clock::now()) {
                self.call(exchange).await;
            }
        }
    }

    /// Makes one exchange, which is never repeated: what a lost one may have lent counts until it
    /// expires.
    async fn call(&mut self, exchange: LoanExchange<LeasedKey>) {
        let request = request(&exchange);
        let response = unary::<_, ExchangeResponse>(&self.connection, EXCHANGE, request, TIMEOUT);
        let answers = match response.await {
            Ok(response) => response.answers,
            Err(_) => {
                self.table.lost.fetch_add(1, Relaxed);
                Vec::new()
            }
        };
        let answers: Vec<_> = answers.into_iter().map(answer).collect();
        for answer in &answers {
            if let holder::WantAnswer::Loan { hits, .. } = answer.answer {
                self.table.lent.fetch_add(hits.into(), Relaxed);
            }
        }
        self.exchanger.finish(exchange, answers, clock::now());
    }
}

/// Waits until an exchange may be needed, at least the interval after the last one.
async fn due(table: &LeaseTable, is_idle: bool, ticks: &mut Interval) {
    if is_idle {
        table.wanted.notified().await;
    }
    ticks.tick().await;
}

fn request(exchange: &LoanExchange<LeasedKey>) -> ExchangeRequest {
    let wants = exchange.wants.iter().map(|want| LeaseWant {
        descriptor: Some(want.key().descriptor.message()),
        hits: want.hits,
    });
    let returns = exchange.returns.iter().map(|back| LeaseReturn {
        descriptor: Some(back.key().descriptor.message()),
        receipt: back.receipt.clone(),
        unused: back.unused,
        used: back.used,
    });
    ExchangeRequest {
        domain: exchange.domain().to_owned(),
        wants: wants.collect(),
        returns: returns.collect(),
    }
}

fn answer(of_wire: LeaseAnswer) -> holder::LeaseAnswer {
    let answer = match of_wire.answer {
        Some(Answer::Loan(loan)) => holder::WantAnswer::Loan {
            hits: loan.hits,
            receipt: loan.receipt,
            usable_for: duration(loan.usable_for.as_ref()),
            counter: loan.counter.as_ref().map(counter),
        },
        // The service denies requests, with the time to wait.
        Some(Answer::Denial(denial)) => holder::WantAnswer::Denial {
            valid_for: duration(denial.valid_for.as_ref()),
            counter: denial.counter.as_ref().map(counter),
        },
        Some(Answer::NotLeasable(_)) => holder::WantAnswer::NotLeasable,
        Some(Answer::AskEachRequest(_)) | None => holder::WantAnswer::AskEachRequest,
    };
    holder::LeaseAnswer { generation: of_wire.generation, answer }
}

fn counter(report: &CounterReport) -> LeasedCounter {
    LeasedCounter {
        limit: report.limit,
        period: duration(report.period.as_ref()),
        remaining: report.remaining,
        reset_after: duration(report.reset_after.as_ref()),
    }
}
