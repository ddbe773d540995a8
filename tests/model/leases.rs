//! Leases: processes charge blocks of hits in advance, admit requests from them alone, and give
//! back the remaining hits at their end.

use stateright::{Model, Property};
use tollgate::algorithm::fixed_window::FixedWindow;
use tollgate::algorithm::quota::Window;
use tollgate::algorithm::sliding_log::SlidingLog;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::{Algorithm, Charge, Limit, OnStoreError, Receipt};

use super::{ModelCounter, SECOND, at, breaks, holds_in_every_state};

/// The amount of the limit.
const AMOUNT: u64 = 3;
/// Hits of a block.
const BLOCK: u8 = 2;
/// Seconds for which a block is held.
const TTL: u8 = 1;
/// The period of the limit in seconds.
const PERIOD: u8 = 2;
/// Instants of the model: a period and the beginning of the next.
const INSTANTS: usize = 3;
const PROCESSES: usize = 2;
/// The process that crashes, loses calls, waits for the store, and has requests that other limits
/// may deny. The other one leases, admits and gives back, which keeps the model small.
const TROUBLED: usize = 0;

const NEVER_OVER: &str = "hits admitted in a window were charged in it, or were leased before";
const COUNTED: &str = "hits that are admitted or may be are charged while their window lasts";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Unused hits are given back twice.
    GivesBackTwice,
    /// The life of a block is measured from the reply and not from the request.
    MeasuresFromReply,
    /// Hits that a denied request puts back after the block's end are given back, and kept.
    PutsBackIntoClosed,
    /// The block's receipt is that of the time of its end.
    GivesBackAtItsEnd,
}

#[derive(Clone)]
struct Leases {
    limit: Limit,
    /// `true` if a block ends with its window.
    in_fixed_windows: bool,
    flaw: Option<Flaw>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LeasesState {
    second: u8,
    counter: ModelCounter,
    processes: [Process; PROCESSES],
    /// Hits admitted in each second.
    admitted: [u8; INSTANTS],
    /// Hits of blocks that were held at the beginning of each second.
    leased: [u8; INSTANTS],
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Process {
    asking: Option<Asking>,
    block: Option<ModelBlock>,
    /// A hit taken from the block by a request that is not decided yet, with the second of that.
    taken: Option<(ModelBlock, u8)>,
    /// Hits to give back, with the second of their charge.
    giving_back: Vec<(u8, u8)>,
    has_crashed: bool,
}

/// A request for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asking {
    sent: u8,
    /// Set once the store has judged it: the second of the charge, if it fits.
    judged: Option<Option<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ModelBlock {
    charged: u8,
    end: u8,
    left: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Asks for a block; the store charges it at once, unless the process is troubled.
    Ask(usize),
    /// The store charges the block, if it fits.
    Lend(usize),
    Receive(usize),
    /// Takes a hit from the block.
    Take(usize),
    /// The request of the taken hit is admitted.
    Admit(usize),
    /// The request of the taken hit is denied by another limit.
    PutBack(usize),
    /// Ends the block, at its end or at shutdown.
    End(usize),
    /// The store takes the oldest returned hits.
    GiveBack(usize),
    /// Hits that are given back are lost on the way.
    Lose(usize),
    Crash(usize),
    /// A request that the store decides.
    Direct,
    Tick,
}

impl Process {
    /// Returns the hits that it may still admit.
    fn leased(&self) -> u8 {
        let lent = self.asking.and_then(|asking| asking.judged.flatten());
        self.block.map_or(0, |block| block.left)
            + u8::from(self.taken.is_some())
            + lent.map_or(0, |_| BLOCK)
    }
}

impl Leases {
    /// Returns the first second in which a block may no longer be used.
    fn end_of(&self, asking: Asking, received: u8) -> u8 {
        let from = if self.flaw == Some(Flaw::MeasuresFromReply) { received } else { asking.sent };
        let by_ttl = from + TTL;
        // The time to the end of the window that the hits were charged in, from the request on.
        let charged = asking.judged.flatten().unwrap_or(asking.sent);
        let to_end = PERIOD - charged % PERIOD;
        if self.in_fixed_windows { by_ttl.min(from + to_end) } else { by_ttl }
    }

    /// Returns the used hits of the counter.
    fn used(&self, state: &LeasesState) -> u64 {
        AMOUNT - self.limit.report(&state.counter.0, None, at(state.second)).unwrap().remaining
    }

    /// Returns `true` if hits charged in one second still count in another.
    fn counts(&self, charged: u8, second: u8) -> bool {
        if self.in_fixed_windows {
            charged / PERIOD == second / PERIOD
        } else {
            second < charged + PERIOD
        }
    }

    fn end(&self, process: &mut Process, second: u8) {
        let Some(block) = process.block.take() else { return };
        let charged =
            if self.flaw == Some(Flaw::GivesBackAtItsEnd) { second } else { block.charged };
        let times = 1 + usize::from(self.flaw == Some(Flaw::GivesBackTwice));
        if block.left > 0 {
            process.giving_back.extend(std::iter::repeat_n((charged, block.left), times));
        }
    }

    fn put_back(&self, process: &mut Process, taken: ModelBlock) {
        if let Some(block) = &mut process.block
            && (block.charged, block.end) == (taken.charged, taken.end)
        {
            block.left += 1;
            return;
        }
        process.giving_back.push((taken.charged, 1));
        if self.flaw == Some(Flaw::PutsBackIntoClosed) {
            process.block = Some(ModelBlock { left: 1, ..taken });
        }
    }
}

impl Model for Leases {
    type State = LeasesState;
    type Action = Step;

    fn init_states(&self) -> Vec<LeasesState> {
        vec![LeasesState {
            second: 0,
            counter: ModelCounter(self.limit.unused()),
            processes: Default::default(),
            admitted: [0; INSTANTS],
            leased: [0; INSTANTS],
        }]
    }

    fn actions(&self, state: &LeasesState, steps: &mut Vec<Step>) {
        for (number, process) in state.processes.iter().enumerate() {
            if process.has_crashed {
                continue;
            }
            match process.asking {
                None if process.block.is_none() => steps.push(Step::Ask(number)),
                Some(Asking { judged: None, .. }) => steps.push(Step::Lend(number)),
                Some(Asking { judged: Some(_), .. }) if process.block.is_none() => {
                    steps.push(Step::Receive(number));
                }
                None | Some(_) => {}
            }
            if let Some(block) = process.block {
                if block.left > 0 && state.second < block.end && process.taken.is_none() {
                    steps.push(Step::Take(number));
                }
                steps.push(Step::End(number));
            }
            if process.taken.is_some() {
                steps.extend([Step::Admit(number), Step::PutBack(number)]);
            }
            if !process.giving_back.is_empty() {
                steps.push(Step::GiveBack(number));
                if number == TROUBLED {
                    steps.push(Step::Lose(number));
                }
            }
            if number == TROUBLED {
                steps.push(Step::Crash(number));
            }
        }
        steps.push(Step::Direct);
        if usize::from(state.second) + 1 < INSTANTS {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &LeasesState, step: Step) -> Option<LeasesState> {
        let mut next = last.clone();
        let second = next.second;
        let counter = &mut next.counter.0;
        let charge = |counter: &mut _, hits: u8| {
            let fits = self.limit.allows(counter, hits.into(), at(second)).unwrap();
            if fits {
                self.limit.charge(counter, hits.into(), at(second)).unwrap();
            }
            fits
        };
        match step {
            Step::Ask(number) => {
                let is_judged = number != TROUBLED;
                let judged = is_judged.then(|| charge(counter, BLOCK).then_some(second));
                next.processes[number].asking = Some(Asking { sent: second, judged });
            }
            Step::Lend(number) => {
                let fits = charge(counter, BLOCK);
                next.processes[number].asking.as_mut()?.judged = Some(fits.then_some(second));
            }
            Step::Receive(number) => {
                let process = &mut next.processes[number];
                let asking = process.asking.take()?;
                let end = self.end_of(asking, second);
                let charged = asking.judged.flatten();
                process.block = charged.map(|charged| ModelBlock { charged, end, left: BLOCK });
            }
            Step::Take(number) => {
                let process = &mut next.processes[number];
                let block = process.block.as_mut()?;
                block.left -= 1;
                process.taken = (number == TROUBLED).then_some((*block, second));
                next.admitted[usize::from(second)] += 1;
            }
            Step::Admit(number) => next.processes[number].taken = None,
            Step::PutBack(number) => {
                let (taken, then) = next.processes[number].taken.take()?;
                next.admitted[usize::from(then)] -= 1;
                self.put_back(&mut next.processes[number], taken);
            }
            Step::End(number) => self.end(&mut next.processes[number], second),
            Step::GiveBack(number) => {
                let (charged, hits) = next.processes[number].giving_back.remove(0);
                let receipt = Receipt { at: at(charged), hits: hits.into(), of_grant: false };
                self.limit.take_back(counter, receipt, at(second)).unwrap();
            }
            Step::Lose(number) => {
                next.processes[number].giving_back.remove(0);
            }
            Step::Crash(number) => {
                next.processes[number] = Process { has_crashed: true, ..Process::default() };
            }
            Step::Direct => {
                if !charge(counter, 1) {
                    return None;
                }
                next.admitted[usize::from(second)] += 1;
            }
            Step::Tick => {
                next.second += 1;
                if !self.in_fixed_windows {
                    next.leased[usize::from(next.second)] =
                        next.processes.iter().map(Process::leased).sum();
                }
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_OVER, |model: &Self, state: &LeasesState| {
                let period = usize::from(PERIOD);
                let most =
                    |from: usize| if model.in_fixed_windows { 0 } else { state.leased[from] };
                let step = if model.in_fixed_windows { period } else { 1 };
                (0..INSTANTS).step_by(step).all(|from| {
                    let admitted: u8 = state.admitted.iter().skip(from).take(period).sum();
                    u64::from(admitted) <= AMOUNT + u64::from(most(from))
                })
            }),
            Property::always(COUNTED, |model: &Self, state: &LeasesState| {
                let open = state.processes.iter().filter_map(|process| process.block);
                let open = open.filter(|block| {
                    model.counts(block.charged, state.second) && state.second < block.end
                });
                let open: u8 = open.map(|block| block.left).sum();
                model.used(state) >= u64::from(open)
            }),
            Property::sometimes("a block is used up", |_, state: &LeasesState| {
                state
                    .processes
                    .iter()
                    .filter_map(|process| process.block)
                    .any(|block| block.left == 0)
            }),
            Property::sometimes("the limit is used up", |_, state: &LeasesState| {
                u64::from(state.admitted.iter().take(2).sum::<u8>()) == AMOUNT
            }),
        ]
    }
}

fn models(flaw: Option<Flaw>) -> [Leases; 2] {
    let window = || vec![Window::new(3, Micros::new(u64::from(PERIOD) * SECOND)).unwrap()];
    let limit = |algorithm| Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
    let fixed = limit(Algorithm::FixedWindow(FixedWindow::new(window()).unwrap()));
    let log = limit(Algorithm::SlidingLog(SlidingLog::new(window()).unwrap()));
    [(fixed, true), (log, false)].map(|(limit, in_fixed_windows)| Leases {
        limit,
        in_fixed_windows,
        flaw,
    })
}

#[test]
fn processes_with_leases_never_pass_a_limit() {
    models(None).into_iter().for_each(holds_in_every_state);
}

#[test]
fn the_model_of_leases_finds_flaws() {
    let [fixed, log] = [0, 1];
    for (flaw, property, kind) in [
        (Flaw::GivesBackTwice, NEVER_OVER, fixed),
        (Flaw::GivesBackTwice, NEVER_OVER, log),
        (Flaw::MeasuresFromReply, NEVER_OVER, fixed),
        (Flaw::PutsBackIntoClosed, NEVER_OVER, fixed),
        (Flaw::GivesBackAtItsEnd, NEVER_OVER, fixed),
    ] {
        let model = models(Some(flaw))[kind].clone();
        breaks(property, flaw, model);
    }
}
