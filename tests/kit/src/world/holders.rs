//! Holders of loans outside of the processes: they admit hits from blocks of `LeaseService`, and
//! return the unused ones. Their keys, blocks and exchanges are those of `lease::holder`; the calls
//! reach a process by a network of its own, which loses, delays and repeats messages.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::{self, ExchangeRequest, LeaseReturn, LeaseWant};
use tollgate::lease::holder::{
    Exchanger, HeldLeases, HeldReturn, INTERVAL, LeaseAnswer, LeaseKey, LoanExchange, LookKind,
    WantAnswer,
};

use super::loans::{Delivered, ReturnRecord, SentExchange};
use super::plan_loans::{HolderAction, LoanPlan, PlannedUse};
use super::process::descriptor_of;
use super::run::RunningWorld;
use super::server::fleet::Moment;

/// Time for which a holder waits for an answer.
const TIMEOUT: Duration = Duration::from_millis(150);
/// Time after the last fault after which a holder has returned all blocks.
const RETURNED_WITHIN: Duration = Duration::from_millis(1_500);
/// Number of a holder among those that can be stopped: after all processes.
const FIRST_STOPPED: usize = 1_000;

/// A counter, as the key of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct HeldCounter(usize);

impl LeaseKey for HeldCounter {
    fn domain(&self) -> &str {
        "world"
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// Keys whose hashes are those of each run.
type WorldLeases = HeldLeases<HeldCounter, BuildHasherDefault<DefaultHasher>>;

/// A holder.
pub struct SimHolder {
    state: Mutex<HolderState>,
}

impl SimHolder {
    /// Creates a holder that begins at an instant of its clock.
    pub fn new(now: Instant) -> Self {
        Self { state: Mutex::new(HolderState::new(0, now)) }
    }
}

struct HolderState {
    /// Number of times that it has begun anew.
    begins: usize,
    leases: WorldLeases,
    exchanger: Exchanger<HeldCounter>,
    /// The loan of each block, by its counter and the instant at which it arrived.
    loans: BTreeMap<(usize, Instant), usize>,
    by_receipt: BTreeMap<Vec<u8>, usize>,
    is_asking: bool,
    asked: Option<Moment>,
}

impl HolderState {
    fn new(begins: usize, now: Instant) -> Self {
        Self {
            begins,
            leases: WorldLeases::with_hasher(now, BuildHasherDefault::default()),
            exchanger: Exchanger::new(),
            loans: BTreeMap::new(),
            by_receipt: BTreeMap::new(),
            is_asking: false,
            asked: None,
        }
    }

    /// Returns the record of a return, which names a counter.
    fn record(&self, back: &HeldReturn<HeldCounter>, counter: usize) -> ReturnRecord {
        let HeldReturn { receipt, unused, used, .. } = back;
        let loan = self.by_receipt[receipt];
        ReturnRecord { loan, counter, receipt: receipt.clone(), unused: *unused, used: *used }
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
            while self.shared.now() + INTERVAL.as_micros() as u64 <= begun + one.at {
                sleep(INTERVAL).await;
                self.look(holder).await;
            }
            self.shared.sleep_until(begun + one.at).await;
            self.look(holder).await;
            self.use_block(holder, &one);
        }
        let until = self.plan.end + RETURNED_WITHIN.as_micros() as u64;
        while self.shared.now() < begun + until {
            sleep(INTERVAL).await;
            if self.shared.now() > begun + self.plan.end {
                self.return_all(holder);
            } else {
                self.look(holder).await;
            }
        }
    }

    /// Begins an exchange, if it is time for one and there is anything to ask or return.
    async fn look(self: &Arc<Self>, holder: usize) {
        self.shared.running(FIRST_STOPPED + holder).await;
        let at = self.shared.now();
        let now = self.holder_clock(holder);
        let mut state = self.holders[holder].state.lock();
        let next = state.asked.map_or(0, |asked| asked + INTERVAL.as_micros() as u64);
        if state.is_asking || at < next {
            return;
        }
        let HolderState { leases, exchanger, .. } = &mut *state;
        exchanger.collect(leases, now);
        let Some(exchange) = exchanger.begin(now) else { return };
        state.is_asking = true;
        state.asked = Some(at);
        self.send(holder, &state, exchange);
    }

    /// Returns all blocks, as at the end of a process, and begins anew.
    fn return_all(self: &Arc<Self>, holder: usize) {
        let now = self.holder_clock(holder);
        let mut state = self.holders[holder].state.lock();
        while let Some(exchange) = state.exchanger.begin_end(now) {
            self.send(holder, &state, exchange);
        }
        *state = HolderState::new(state.begins + 1, now);
    }

    /// Sends an exchange.
    fn send(
        self: &Arc<Self>,
        holder: usize,
        state: &HolderState,
        exchange: LoanExchange<HeldCounter>,
    ) {
        let wants: Vec<usize> = exchange.wants.iter().map(|want| want.key().0).collect();
        let mut returns = Vec::new();
        for back in &exchange.returns {
            let counter = back.key().0;
            // A client with a mistake names another counter, too.
            let other = (counter + 1) % self.plan.counters.len();
            if other != counter && self.is_message(loans_of(self).fates.misdirected) {
                returns.push(state.record(back, other));
            }
            returns.push(state.record(back, counter));
        }
        let want = |(counter, hits): (&usize, u32)| LeaseWant {
            descriptor: Some(descriptor_of(&self.plan, *counter)),
            hits,
        };
        let back = |back: &ReturnRecord| LeaseReturn {
            descriptor: Some(descriptor_of(&self.plan, back.counter)),
            receipt: back.receipt.clone(),
            unused: back.unused,
            used: back.used,
        };
        let hits = exchange.wants.iter().map(|want| want.hits);
        let request = ExchangeRequest {
            domain: "world".to_owned(),
            wants: wants.iter().zip(hits).map(want).collect(),
            returns: returns.iter().map(back).collect(),
        };
        let sent = SentExchange { holder, sent: self.shared.now(), request, wants, returns };
        tokio::spawn(Arc::clone(self).exchange(state.begins, sent, exchange));
    }

    /// Returns the instant of a holder's clock, which also counts the time while it is stopped.
    fn holder_clock(&self, holder: usize) -> Instant {
        let rate = loans_of(self).rates[holder];
        let passed = self.shared.now();
        let gained = i64::try_from(passed).unwrap() * rate / 1_000_000;
        self.shared.begun.into_std() + Duration::from_micros(passed.saturating_add_signed(gained))
    }

    fn use_block(self: &Arc<Self>, holder: usize, one: &PlannedUse) {
        let hits = match one.action {
            HolderAction::Return => return self.return_all(holder),
            HolderAction::Take(hits) | HolderAction::TakeAndPutBack(hits) => hits,
        };
        let now = self.holder_clock(holder);
        let state = self.holders[holder].state.lock();
        let counter = HeldCounter(one.counter);
        let look = state.leases.take(&counter, || counter, hits, now);
        let LookKind::Taken(taken, _) = look.kind else { return };
        if matches!(one.action, HolderAction::TakeAndPutBack(_)) {
            return taken.put_back();
        }
        let loan = state.loans[&(one.counter, taken.block().unwrap().received())];
        let at = self.shared.now();
        let mut chronicle = self.shared.chronicle.lock();
        chronicle.note(at, &format!("holder {holder}: {hits} of loan {loan} admitted"));
        chronicle.loans.loans[loan].admitted.push((at, hits.into()));
        drop(chronicle);
        self.shared.fleet.lock().count("loan used");
    }

    /// Loses all that a holder has.
    pub(super) fn end_holder(&self, holder: usize) {
        let now = self.holder_clock(holder);
        let mut state = self.holders[holder].state.lock();
        *state = HolderState::new(state.begins + 1, now);
    }

    /// Stops a holder until a moment.
    pub(super) fn stop_holder(&self, holder: usize, until: Moment) {
        self.shared.stop(FIRST_STOPPED + holder, until);
    }

    /// Sends a call, and accepts its answer unless the holder has begun anew or waits no more.
    async fn exchange(
        self: Arc<Self>,
        begins: usize,
        call: SentExchange,
        exchange: LoanExchange<HeldCounter>,
    ) {
        let (answers, mut answered) = mpsc::unbounded_channel();
        let is_repeated = self.is_message(loans_of(&self).fates.repeated);
        for _ in 0..1 + usize::from(is_repeated) {
            tokio::spawn(Arc::clone(&self).deliver(call.clone(), answers.clone()));
        }
        if is_repeated {
            self.shared.fleet.lock().count("exchange repeated");
        }
        drop(answers);
        let waiting = timeout(TIMEOUT, answered.recv());
        let answer = self.shared.while_running(FIRST_STOPPED + call.holder, waiting).await;
        let received = self.holder_clock(call.holder);
        let mut state = self.holders[call.holder].state.lock();
        if state.begins != begins {
            return;
        }
        state.is_asking = false;
        let delivered = answer.ok().flatten().unwrap_or_default();
        if delivered.is_empty() && !call.wants.is_empty() {
            self.shared.fleet.lock().count("exchange lost");
        }
        for (counter, (answer, loan)) in call.wants.iter().zip(&delivered) {
            let Some(loan) = loan else { continue };
            if let Some(Answer::Loan(found)) = &answer.answer {
                state.loans.insert((*counter, received), *loan);
                state.by_receipt.insert(found.receipt.clone(), *loan);
            }
        }
        let answers = delivered.into_iter().map(|(answer, _)| held_answer(answer)).collect();
        state.exchanger.finish(exchange, answers, received);
    }

    /// Delivers a call to a process, and its answer to the holder, unless one of them is lost.
    async fn deliver(
        self: Arc<Self>,
        mut call: SentExchange,
        answers: mpsc::UnboundedSender<Delivered>,
    ) {
        let fates = loans_of(&self).fates;
        let number = self.shared.random().below(self.plan.processes);
        let worker = self.shared.random().below(self.plan.workers);
        sleep(self.delay(self.is_message(fates.late))).await;
        if self.is_message(fates.lost_requests) {
            return;
        }
        let Some(process) = self.processes.lock()[number].0.clone() else { return };
        let begun = self.shared.now();
        let request = std::mem::take(&mut call.request);
        let wanted: Vec<u32> = request.wants.iter().map(|want| want.hits).collect();
        let asked = call.wants.iter().zip(wanted).map(|(counter, hits)| (*counter, hits.into()));
        let asked = self.shared.chronicle.lock().loans.ask(begun, asked);
        let ended = process.exchange(worker, request, TIMEOUT).await;
        let delivered = self.note_exchange(number, (begun, asked), &call, ended);
        let has_crashed = self.crashed.lock().iter().any(|one| Arc::ptr_eq(one, &process));
        let Some(delivered) = delivered.filter(|_| !has_crashed) else { return };
        sleep(self.delay(self.is_message(fates.late))).await;
        if !self.is_message(fates.lost_replies) {
            let _ = answers.send(delivered);
        }
    }

    /// Draws whether a message has a fate, until faults end.
    fn is_message(&self, percent: usize) -> bool {
        self.shared.now() < self.plan.end && { self.shared.random().percent(percent) }
    }

    fn delay(&self, is_late: bool) -> Duration {
        let most = if is_late { loans_of(self).fates.late_ms } else { self.shared.most_delay_ms };
        Duration::from_millis(self.shared.random().below(most + 1) as u64)
    }
}

/// Returns an answer as `lease::holder` takes it.
fn held_answer(answer: lease::LeaseAnswer) -> LeaseAnswer {
    let time = |time: Option<prost_types::Duration>| time.unwrap().try_into().unwrap();
    let generation = answer.generation;
    let answer = match answer.answer {
        Some(Answer::Loan(loan)) => WantAnswer::Loan {
            hits: loan.hits,
            usable_for: time(loan.usable_for),
            receipt: loan.receipt,
            counter: None,
        },
        Some(Answer::Denial(denial)) => {
            WantAnswer::Denial { valid_for: time(denial.valid_for), counter: None }
        }
        Some(Answer::NotLeasable(_)) => WantAnswer::NotLeasable,
        Some(Answer::AskEachRequest(_)) | None => WantAnswer::AskEachRequest,
    };
    LeaseAnswer { generation, answer }
}
