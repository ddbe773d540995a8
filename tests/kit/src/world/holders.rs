//! Holders of loans outside of the processes: they admit hits from blocks of `LeaseService`, and
//! return the unused ones. The blocks are the real ones; the exchange reaches a process by a
//! network of its own, which loses, delays and repeats messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::{ExchangeRequest, LeaseReturn, LeaseWant};
use tollgate::lease::Block;

use super::loans::{Delivered, ReturnRecord};
use super::plan_loans::{HolderAction, LoanPlan, PlannedUse};
use super::process::descriptor_of;
use super::run::RunningWorld;
use super::server::fleet::Moment;

/// Time for which a holder waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(150);
/// Time between two looks at blocks that have ended.
const LOOK: Duration = Duration::from_millis(20);
/// Time after the last fault after which a holder has returned all blocks.
const RETURNED_WITHIN: Duration = Duration::from_millis(1_500);
/// Number of a holder among those that can be stopped: after all processes.
const FIRST_STOPPED: usize = 1_000;
/// Fewest hits that are wanted, and most wants and returns of a call.
const LEAST: u32 = 3;
const MOST_ITEMS: usize = 24;

/// A holder.
#[derive(Default)]
pub struct SimHolder {
    state: Mutex<HolderState>,
}

#[derive(Default)]
struct HolderState {
    /// Number of times that it has died.
    deaths: usize,
    blocks: Vec<HeldBlock>,
    /// Hits wanted of each counter since the last request for a block.
    demand: BTreeMap<usize, u32>,
    /// The moment before which no block of a counter is wanted.
    not_before: BTreeMap<usize, Moment>,
    generations: BTreeMap<usize, u64>,
    returns: Vec<ReturnRecord>,
    is_asking: bool,
}

struct HeldBlock {
    loan: usize,
    counter: usize,
    receipt: Vec<u8>,
    block: Block,
}

/// A call of the exchange: the counters of its wants, and its returns.
#[derive(Clone)]
struct Exchange {
    request: ExchangeRequest,
    wants: Vec<usize>,
    returns: Vec<ReturnRecord>,
}

impl HolderState {
    /// Ends blocks, and notes their returns.
    fn close(&mut self, is_ended: impl Fn(&HeldBlock) -> bool) {
        for held in self.blocks.extract_if(.., |held| is_ended(held)) {
            let unused = held.block.close().try_into().unwrap();
            let used = u32::try_from(held.block.hits()).unwrap() - unused;
            let HeldBlock { loan, counter, receipt, .. } = held;
            self.returns.push(ReturnRecord { loan, counter, receipt, unused, used });
        }
    }

    /// Returns the counters of which a block is wanted.
    fn wanted(&self, now: Instant, at: Moment) -> Vec<usize> {
        let is_wanted = |counter: usize| {
            let mut held = self.blocks.iter().filter(|held| held.counter == counter);
            held.all(|held| held.block.is_running_out(now))
                && self.not_before.get(&counter).is_none_or(|from| at >= *from)
        };
        let demand = self.demand.iter().filter(|(_, hits)| **hits >= LEAST);
        demand.map(|(counter, _)| *counter).filter(|counter| is_wanted(*counter)).collect()
    }

    /// Takes what the next call has; `None` if there is nothing to ask or to return.
    fn next_exchange(&mut self, world: &RunningWorld, now: Instant) -> Option<Exchange> {
        let most = loans_of(world).most_wanted;
        let mut wants = self.wanted(now, world.shared.now());
        wants.truncate(MOST_ITEMS);
        let count = self.returns.len().min(MOST_ITEMS);
        let returns: Vec<ReturnRecord> = self.returns.drain(..count).collect();
        if wants.is_empty() && returns.is_empty() {
            return None;
        }
        let want = |counter: &usize| LeaseWant {
            descriptor: Some(descriptor_of(&world.plan, *counter)),
            hits: self.demand.remove(counter).unwrap_or_default().min(most),
        };
        let back = |back: &ReturnRecord| LeaseReturn {
            descriptor: Some(descriptor_of(&world.plan, back.counter)),
            receipt: back.receipt.clone(),
            unused: back.unused,
            used: back.used,
        };
        let request = ExchangeRequest {
            domain: "world".to_owned(),
            wants: wants.iter().map(want).collect(),
            returns: returns.iter().map(back).collect(),
        };
        self.is_asking = true;
        Some(Exchange { request, wants, returns })
    }
}

fn loans_of(world: &RunningWorld) -> &LoanPlan {
    world.plan.loans.as_ref().unwrap()
}

impl RunningWorld {
    /// Runs the holders of the world until all is returned.
    pub(super) async fn hold(self: Arc<Self>, begun: Moment) {
        let Some(loans) = self.plan.loans.clone() else { return };
        let mut holding = tokio::task::JoinSet::new();
        for holder in 0..loans.rates.len() {
            let uses = loans.uses.iter().filter(|one| one.holder == holder).copied();
            holding.spawn(Arc::clone(&self).hold_as(holder, begun, uses.collect()));
        }
        while let Some(held) = holding.join_next().await {
            held.unwrap();
        }
    }

    async fn hold_as(self: Arc<Self>, holder: usize, begun: Moment, uses: Vec<PlannedUse>) {
        for one in uses {
            while self.shared.now() + LOOK.as_micros() as u64 <= begun + one.at {
                sleep(LOOK).await;
                self.look(holder).await;
            }
            self.shared.sleep_until(begun + one.at).await;
            self.look(holder).await;
            self.use_block(holder, &one);
        }
        let until = self.plan.end + RETURNED_WITHIN.as_micros() as u64;
        while self.shared.now() < begun + until {
            sleep(LOOK).await;
            if self.shared.now() > begun + self.plan.end {
                self.holders[holder].state.lock().close(|_| true);
            }
            self.look(holder).await;
        }
    }

    /// Ends blocks that have ended, and begins an exchange if there is anything to ask.
    async fn look(self: &Arc<Self>, holder: usize) {
        self.shared.while_running(FIRST_STOPPED + holder, std::future::ready(())).await;
        let now = self.holder_clock(holder);
        let mut state = self.holders[holder].state.lock();
        state.close(|held| now >= held.block.end());
        let is_over = self.shared.now() > self.plan.end;
        if is_over {
            state.demand.clear();
        }
        if state.is_asking {
            return;
        }
        if let Some(exchange) = state.next_exchange(self, now) {
            let deaths = state.deaths;
            tokio::spawn(Arc::clone(self).exchange(holder, deaths, exchange, now));
        }
    }

    /// Returns the instant of a holder's clock, which also counts the time while it is stopped.
    fn holder_clock(&self, holder: usize) -> Instant {
        let rate = loans_of(self).rates[holder];
        let passed = self.shared.now();
        let gained = i64::try_from(passed).unwrap() * rate / 1_000_000;
        self.shared.begun.into_std() + Duration::from_micros(passed.saturating_add_signed(gained))
    }

    fn use_block(&self, holder: usize, one: &PlannedUse) {
        let now = self.holder_clock(holder);
        let mut state = self.holders[holder].state.lock();
        let hits = match one.action {
            HolderAction::Return => {
                state.close(|held| held.counter == one.counter);
                return;
            }
            HolderAction::Take(hits) | HolderAction::TakeAndPutBack(hits) => hits,
        };
        *state.demand.entry(one.counter).or_default() += hits;
        let mut held = state.blocks.iter().filter(|held| held.counter == one.counter);
        let Some(held) = held.find(|held| held.block.take(hits.into(), now)) else { return };
        if matches!(one.action, HolderAction::TakeAndPutBack(_)) {
            assert!(held.block.put_back(hits.into()));
            return;
        }
        let at = self.shared.now();
        let mut chronicle = self.shared.chronicle.lock();
        chronicle.note(at, &format!("holder {holder}: {hits} of loan {} admitted", held.loan));
        chronicle.loans.loans[held.loan].admitted.push((at, hits.into()));
        drop(chronicle);
        self.shared.fleet.lock().count("loan used");
    }

    /// Loses all that a holder has.
    pub(super) fn end_holder(&self, holder: usize) {
        let mut state = self.holders[holder].state.lock();
        *state = HolderState { deaths: state.deaths + 1, ..HolderState::default() };
    }

    /// Stops a holder until a moment.
    pub(super) fn stop_holder(&self, holder: usize, until: Moment) {
        self.shared.stop(FIRST_STOPPED + holder, until);
    }

    /// Sends a call, and accepts its answer unless the holder has died or waits no more.
    async fn exchange(
        self: Arc<Self>,
        holder: usize,
        deaths: usize,
        exchange: Exchange,
        sent: Instant,
    ) {
        let (answers, mut answered) = mpsc::unbounded_channel();
        let fates = loans_of(&self).fates;
        let has_faults = self.shared.now() < self.plan.end;
        let is_repeated = has_faults && self.shared.random().percent(fates.repeated);
        for _ in 0..1 + usize::from(is_repeated) {
            tokio::spawn(Arc::clone(&self).deliver(holder, exchange.clone(), answers.clone()));
        }
        if is_repeated {
            self.shared.fleet.lock().count("exchange repeated");
        }
        drop(answers);
        let waiting = timeout(TIMEOUT, answered.recv());
        let answer = self.shared.while_running(FIRST_STOPPED + holder, waiting).await;
        let received = self.holder_clock(holder);
        let mut state = self.holders[holder].state.lock();
        if state.deaths != deaths {
            return;
        }
        state.is_asking = false;
        let Ok(Some(delivered)) = answer else {
            self.shared.fleet.lock().count("exchange lost");
            return;
        };
        for (counter, (answer, loan)) in exchange.wants.iter().zip(delivered) {
            let known = state.generations.insert(*counter, answer.generation);
            if known.is_some_and(|known| known != answer.generation) {
                state.close(|held| held.counter == *counter);
            }
            let pause = 1_000 * self.shared.random().below(300) as u64;
            match (answer.answer, loan) {
                (Some(Answer::Loan(found)), Some(loan)) => {
                    let usable_for = found.usable_for.unwrap().try_into().unwrap();
                    let block = Block::lent(found.hits, sent..received, usable_for);
                    let receipt = found.receipt;
                    state.blocks.push(HeldBlock { loan, counter: *counter, receipt, block });
                }
                _ => drop(state.not_before.insert(*counter, self.shared.now() + pause)),
            }
        }
    }

    /// Delivers a call to a process, and its answer to the holder, unless one of them is lost.
    async fn deliver(
        self: Arc<Self>,
        holder: usize,
        exchange: Exchange,
        answers: mpsc::UnboundedSender<Delivered>,
    ) {
        let fates = loans_of(&self).fates;
        let percent = |percent| {
            self.shared.now() < self.plan.end && { self.shared.random().percent(percent) }
        };
        let number = self.shared.random().below(self.plan.processes);
        let worker = self.shared.random().below(self.plan.workers);
        sleep(self.delay(percent(fates.late))).await;
        if percent(fates.lost_requests) {
            return;
        }
        let Some(process) = self.processes.lock()[number].0.clone() else { return };
        let begun = self.shared.now();
        let Exchange { request, wants, returns } = exchange;
        let wanted: Vec<u32> = request.wants.iter().map(|want| want.hits).collect();
        let asked = wants.iter().zip(wanted).map(|(counter, hits)| (*counter, hits.into()));
        let asked = self.shared.chronicle.lock().loans.ask(begun, asked);
        let ended = process.exchange(worker, request, TIMEOUT).await;
        let delivered = self.note_exchange(holder, number, (begun, asked), &returns, ended);
        let has_crashed = self.crashed.lock().iter().any(|one| Arc::ptr_eq(one, &process));
        let Some(delivered) = delivered.filter(|_| !has_crashed) else { return };
        sleep(self.delay(percent(fates.late))).await;
        if !percent(fates.lost_replies) {
            let _ = answers.send(delivered);
        }
    }

    fn delay(&self, is_late: bool) -> Duration {
        let most = if is_late { loans_of(self).fates.late_ms } else { self.shared.most_delay_ms };
        Duration::from_millis(self.shared.random().below(most + 1) as u64)
    }
}
