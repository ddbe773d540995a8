//! The steps of holders, of messages and of the service.

use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::algorithm::{Limit, Receipt};

use super::super::START;
use super::state::{Asking, HeldBlock, Loan, LoanAnswer, LoansState, ReturnMessage};
use super::{BLOCK, Flaw, Loans, REPLICAS, RETURN_TIME, TROUBLED, TTL};

/// A step. Messages are given by their index; one that `stays` is delivered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Asks for a block. Only the exchange of the untroubled holder is with a replica, at once.
    Ask {
        holder: usize,
        replica: usize,
    },
    /// A replica charges a block, and answers.
    Lend {
        want: usize,
        replica: usize,
        stays: bool,
    },
    Receive {
        answer: usize,
        stays: bool,
    },
    /// The deadline of the troubled holder's call passes.
    GiveUp,
    /// The holder admits a hit.
    Take {
        holder: usize,
        block: usize,
    },
    /// The holder returns a block, at its end or earlier.
    End {
        holder: usize,
        block: usize,
    },
    /// A replica accepts or refuses a return.
    Accept {
        message: usize,
        replica: usize,
        stays: bool,
    },
    /// Hits that are not handed over are taken back.
    TakeExcess {
        loan: usize,
    },
    /// A request that the service decides.
    Direct {
        replica: usize,
    },
    /// A replica loads the new version of the policy.
    Reload {
        replica: usize,
    },
    /// Time passes; the clock of the troubled holder may lose some.
    Tick {
        loses_us: u8,
    },
}

impl Loans {
    pub(super) fn at(&self, instant: usize) -> Timestamp {
        Timestamp::from_micros(START + self.instants()[instant])
    }

    fn charge(&self, state: &mut LoansState, version: usize, hits: u8) -> bool {
        let limit = &self.limits[version];
        let now = self.at(state.instant);
        let counter = &mut state.counters[self.counter(version)].0;
        let fits = limit.allows(counter, hits.into(), now).unwrap();
        if fits {
            limit.charge(counter, hits.into(), now).unwrap();
        }
        fits
    }

    /// Returns the microseconds for which hits charged now may be admitted.
    fn usable_us(&self, limit: &Limit, instant: usize) -> u64 {
        let ttl = Micros::new(TTL);
        let at = self.at(instant);
        let longest = limit.longest_loan(ttl).get();
        match self.flaw {
            Some(Flaw::OutlivesWindow) => longest - 1,
            Some(Flaw::HasNoMargin) => {
                let ends = limit.windows_end_after(at);
                ends.map_or(longest, |(first, _)| first.get().min(longest))
            }
            _ => limit.loan_time(ttl, at).get(),
        }
    }

    fn take_back(&self, state: &mut LoansState, version: usize, loan: Loan, hits: u8) {
        let limit = &self.limits[version];
        let now = self.at(state.instant);
        let counter = &mut state.counters[self.counter(version)].0;
        if self.flaw == Some(Flaw::ReturnsAreRefunds) {
            limit.refund(counter, hits.into(), now).unwrap();
            return;
        }
        let receipt = Receipt { at: self.at(loan.charged), hits: hits.into(), of_grant: false };
        limit.take_back(counter, receipt, now).unwrap();
    }
}

impl LoansState {
    pub(super) fn steps_of_holders(&self, model: &Loans, steps: &mut Vec<Step>) {
        for (number, holder) in self.holders.iter().enumerate() {
            if holder.asking.is_none() && holder.asks < model.scope.asks[number] {
                let replicas = self.replicas().take(if number == TROUBLED { 1 } else { REPLICAS });
                steps.extend(replicas.map(|replica| Step::Ask { holder: number, replica }));
            }
            let clock = self.clock(model, number);
            let ignores_end = model.flaw == Some(Flaw::UsesAfterEnd);
            for (block, held) in holder.blocks.iter().enumerate() {
                if held.left > 0 && (clock < held.end || ignores_end) {
                    steps.push(Step::Take { holder: number, block });
                }
                steps.push(Step::End { holder: number, block });
            }
            if number == TROUBLED && model.scope.gives_up {
                steps.extend(holder.asking.map(|_| Step::GiveUp));
            }
        }
    }

    pub(super) fn steps_of_messages(&self, model: &Loans, steps: &mut Vec<Step>) {
        let copies =
            [false, true].into_iter().take(1 + usize::from(self.copies < model.scope.copies));
        for stays in copies {
            for replica in self.replicas() {
                let wants = 0..self.wants.len();
                steps.extend(wants.map(|want| Step::Lend { want, replica, stays }));
                let returns = 0..self.returns.len();
                steps.extend(returns.map(|message| Step::Accept { message, replica, stays }));
            }
            steps.extend((0..self.answers.len()).map(|answer| Step::Receive { answer, stays }));
        }
        let excess = self.loans.iter().enumerate().filter(|(_, loan)| loan.is_excess_under_way);
        steps.extend(excess.map(|(loan, _)| Step::TakeExcess { loan }));
    }

    pub(super) fn take_step(&mut self, model: &Loans, step: Step) -> Option<()> {
        match step {
            Step::Ask { holder, replica } => self.ask(model, holder, replica),
            Step::Lend { want, replica, stays } => {
                let number = take(&mut self.wants, want, stays);
                self.copies += u8::from(stays);
                let answer = self.lend(model, number, replica);
                insert(&mut self.answers, answer, |answer| (answer.number, answer.loan));
            }
            Step::Receive { answer, stays } => {
                let answer = take(&mut self.answers, answer, stays);
                self.copies += u8::from(stays);
                self.receive(model, TROUBLED, answer);
            }
            Step::GiveUp => self.holders[TROUBLED].asking = None,
            Step::Take { holder, block } => {
                let held = &mut self.holders[holder].blocks[block];
                held.left -= 1;
                let loan = &mut self.loans[held.loan];
                loan.admitted += 1;
                self.admitted[loan.counter][self.instant] += 1;
                if held.left == 0 && model.flaw.is_none() {
                    // Its return has nothing to give back.
                    self.holders[holder].blocks.remove(block);
                }
            }
            Step::End { holder, block } => self.end(model, holder, block),
            Step::Accept { message, replica, stays } => {
                let message = take(&mut self.returns, message, stays);
                self.copies += u8::from(stays);
                self.accept(model, message, replica);
            }
            Step::TakeExcess { loan } => {
                let found = self.loans[loan];
                model.take_back(self, found.version, found, found.excess);
                self.loans[loan] = Loan { excess: 0, is_excess_under_way: false, ..found };
            }
            Step::Direct { replica } => {
                let version = self.versions[replica];
                model.charge(self, version, 1).then_some(())?;
                self.direct[model.counter(version)][self.instant] += 1;
                self.admitted[model.counter(version)][self.instant] += 1;
            }
            Step::Reload { replica } => self.versions[replica] += 1,
            Step::Tick { loses_us } => self.tick(model, loses_us),
        }
        Some(())
    }

    fn ask(&mut self, model: &Loans, holder: usize, replica: usize) {
        let sent = self.clock(model, holder);
        let asking = &mut self.holders[holder];
        let number = asking.asks;
        asking.asks += 1;
        asking.asking = Some(Asking { number, sent });
        if holder == TROUBLED {
            self.wants.push(number);
        } else {
            let answer = self.lend(model, number, replica);
            self.receive(model, holder, answer);
        }
    }

    /// A replica's answer to a request.
    fn lend(&mut self, model: &Loans, number: u8, replica: usize) -> LoanAnswer {
        let version = self.versions[replica];
        let none = LoanAnswer { number, version, loan: None };
        let is_charged = model.charge(self, version, BLOCK);
        if !is_charged && model.flaw != Some(Flaw::LendsUncharged) {
            return none;
        }
        let usable_us = model.usable_us(&model.limits[version], self.instant);
        let hits = match usable_us {
            0 => 0,
            _ => BLOCK - u8::from(model.scope.cuts),
        };
        let excess = if is_charged { BLOCK - hits } else { 0 };
        self.loans.push(Loan {
            charged: self.instant,
            counter: model.counter(version),
            version,
            usable_us,
            hits,
            excess,
            is_excess_under_way: excess > 0,
            is_charged,
            admitted: 0,
            given_back: 0,
            is_opened: false,
            is_lost: false,
            kept_until: None,
        });
        LoanAnswer { loan: (hits > 0).then_some(self.loans.len() - 1), ..none }
    }

    fn receive(&mut self, model: &Loans, holder: usize, answer: LoanAnswer) {
        let clock = self.clock(model, holder);
        let found = &mut self.holders[holder];
        let awaited = found.asking.filter(|asking| asking.number == answer.number);
        let opens_twice = model.flaw == Some(Flaw::OpensTwice);
        if awaited.is_none() && !opens_twice {
            if let Some(loan) = answer.loan.filter(|loan| !self.loans[*loan].is_opened) {
                self.loans[loan].is_lost = true;
            }
            return;
        }
        if awaited.is_some() {
            found.asking = None;
        }
        let is_other = found.heard != answer.version;
        found.heard = answer.version;
        if is_other && model.flaw != Some(Flaw::ForgetsGeneration) {
            while !self.holders[holder].blocks.is_empty() {
                self.end(model, holder, 0);
            }
        }
        let Some(loan) = answer.loan else { return };
        let sent = awaited.filter(|_| model.flaw != Some(Flaw::MeasuresFromAnswer));
        let end = sent.map_or(clock, |asking| asking.sent) + self.loans[loan].usable_us;
        let block = HeldBlock { loan, left: self.loans[loan].hits, end };
        self.loans[loan].is_opened = true;
        insert(&mut self.holders[holder].blocks, block, |block| block.loan);
    }

    /// Returns a block's unused hits.
    fn end(&mut self, model: &Loans, holder: usize, block: usize) {
        let block = self.holders[holder].blocks.remove(block);
        let loan = self.loans[block.loan];
        let unused = match model.flaw {
            Some(Flaw::NeverReturns) => 0,
            Some(Flaw::AdmitsReturned) if loan.admitted > 0 => block.left + 1,
            Some(Flaw::CutsOnlyAnswer) => BLOCK - loan.admitted,
            _ => block.left,
        };
        if unused == 0 {
            return;
        }
        let message = ReturnMessage { loan: block.loan, unused };
        if holder == TROUBLED {
            insert(&mut self.returns, message, |message| (message.loan, message.unused));
        } else {
            self.accept(model, message, REPLICAS - 1);
        }
    }

    /// A replica accepts a return once, unless it is late or of another counter.
    fn accept(&mut self, model: &Loans, message: ReturnMessage, replica: usize) {
        let loan = self.loans[message.loan];
        let version = self.versions[replica];
        let is_other = model.counter(version) != loan.counter;
        let [charged, now] = [loan.charged, self.instant].map(|at| model.instants()[at]);
        let kept_for = loan.usable_us + RETURN_TIME;
        let is_known = loan.kept_until.is_some_and(|until| now < until);
        if is_other && model.flaw != Some(Flaw::IgnoresDigest) || now >= charged + kept_for {
            self.loans[message.loan].is_lost = true;
            return;
        }
        if is_known && model.flaw != Some(Flaw::ReturnsTwice) {
            return;
        }
        let forgets = model.flaw == Some(Flaw::ForgetsNumbers);
        let kept_until = if forgets { charged + 1 } else { now + kept_for };
        model.take_back(self, version, loan, message.unused);
        let found = &mut self.loans[message.loan];
        found.kept_until = Some(kept_until);
        found.given_back += message.unused;
    }

    fn tick(&mut self, model: &Loans, loses_us: u8) {
        self.instant += 1;
        self.lost_us += loses_us;
        if model.in_fixed_windows {
            return;
        }
        let now = model.instants()[self.instant];
        let is_current = |loan: &Loan| {
            let longest = model.limits[loan.version].longest_loan(Micros::new(TTL));
            now < model.instants()[loan.charged] + longest.get()
        };
        let held = self.holders.iter().flat_map(|holder| &holder.blocks);
        let held = held.map(|block| (self.loans[block.loan], block.left));
        let on_way = self.answers.iter().filter_map(|answer| answer.loan);
        let on_way = on_way.map(|loan| self.loans[loan]).filter(|loan| !loan.is_opened);
        let all = held.chain(on_way.map(|loan| (loan, loan.hits)));
        let lent = all.filter(|(loan, _)| is_current(loan)).map(|(_, hits)| hits).sum();
        self.lent_before[self.instant] = lent;
    }
}

/// Takes a message, or a copy of it if it stays.
fn take<T: Clone>(messages: &mut Vec<T>, index: usize, stays: bool) -> T {
    if stays { messages[index].clone() } else { messages.remove(index) }
}

/// Inserts into a sorted list: messages have no order.
fn insert<T, K: Ord>(list: &mut Vec<T>, new: T, key: impl Fn(&T) -> K) {
    let index = list.partition_point(|one| key(one) <= key(&new));
    list.insert(index, new);
}
