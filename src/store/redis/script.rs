//! The scripts that run in Redis: one for what is frequent, and those that judge and amend, composed of the files of `lua/` that a
//! call's algorithms need.

use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use crate::algorithm::Algorithm;

const PRELUDE: &str = include_str!("lua/prelude.lua");
const LEDGER: &str = include_str!("lua/ledger.lua");
const COUNTER: &str = include_str!("lua/counter.lua");
const DECIDE: &str = include_str!("lua/decide.lua");
const AMEND: &str = include_str!("lua/amend.lua");
const STRAIGHT: &str = include_str!("lua/straight.lua");

/// The algorithms, in the order of their numbers, which begin with 1; with what each needs before it.
const ALGORITHMS: [(&str, Option<&str>); 4] = [
    (include_str!("lua/fixed_window.lua"), None),
    (include_str!("lua/sliding_window.lua"), Some(LEDGER)),
    (include_str!("lua/sliding_log.lua"), Some(LEDGER)),
    (include_str!("lua/gcra.lua"), None),
];

/// The tag of a value is 16 and twice the number of its algorithm, 1 more where it is wide; from 32 on it says that tallies follow.
const MOST_ALGORITHMS: usize = 7;
const _: () = assert!(ALGORITHMS.len() <= MOST_ALGORITHMS, "an eighth algorithm's values would read as tallied");

/// A script: its text, and the name under which a server that has it runs it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

/// Which script a call needs, and which algorithms in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    kind: Kind,
    /// A bit for each, the lowest for number 1.
    algorithms: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Decide,
    Amend,
    Straight,
}

impl Needs {
    /// The script for what is frequent, which has its algorithms written into it.
    pub(super) const STRAIGHT: Self = Self { kind: Kind::Straight, algorithms: 0 };
    /// To amend counters, not to judge by them.
    pub(super) const AMEND: Self = Self { kind: Kind::Amend, algorithms: 0 };

    /// What a call needs that needs both; `None` where no script has both.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        (self.kind == other.kind).then_some(Self { algorithms: self.algorithms | other.algorithms, ..self })
    }

    pub(super) fn add(&mut self, algorithm: &Algorithm) {
        self.algorithms |= 1 << number_of(algorithm).saturating_sub(1);
    }

    /// The script with these algorithms, composed when it is first asked for.
    pub(super) fn script(self) -> &'static Script {
        const SETS: usize = 1 << MOST_ALGORITHMS;
        static DECIDING: [OnceLock<Script>; SETS] = [const { OnceLock::new() }; SETS];
        static AMENDING: [OnceLock<Script>; SETS] = [const { OnceLock::new() }; SETS];
        static STRAIGHT: OnceLock<Script> = OnceLock::new();
        let of_set = |scripts: &'static [OnceLock<Script>]| scripts.get(usize::from(self.algorithms));
        let script = match self.kind {
            Kind::Decide => of_set(&DECIDING),
            Kind::Amend => of_set(&AMENDING),
            Kind::Straight => Some(&STRAIGHT),
        };
        script.unwrap_or(&STRAIGHT).get_or_init(|| self.compose())
    }

    fn compose(self) -> Script {
        let last = match self.kind {
            Kind::Decide => DECIDE,
            Kind::Amend => AMEND,
            Kind::Straight => return Script::of(STRAIGHT.to_owned()),
        };
        let has = |number: &usize| self.algorithms & (1 << number) != 0;
        let algorithms = || ALGORITHMS.iter().enumerate().filter(|(number, _)| has(number)).map(|(_, parts)| parts);
        let ledger = algorithms().find_map(|(_, before)| *before);
        let texts = algorithms().map(|(text, _)| *text);
        Script::of([PRELUDE].into_iter().chain(ledger).chain(texts).chain([COUNTER, last]).collect())
    }
}

impl Script {
    fn of(text: String) -> Self {
        let sha = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha }
    }
}

/// The number under which the scripts know an algorithm.
pub(super) fn number_of(algorithm: &Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow(_) => number::<1>(),
        Algorithm::SlidingWindow(_) => number::<2>(),
        Algorithm::SlidingLog(_) => number::<3>(),
        Algorithm::Gcra(_) => number::<4>(),
    }
}

/// A number of one of [`ALGORITHMS`]; another one does not compile.
const fn number<const NUMBER: u8>() -> u8 {
    const { assert!(NUMBER > 0 && NUMBER as usize <= ALGORITHMS.len(), "the number is that of no script") };
    NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_amends_goes_in_no_call_with_what_judges() {
        let judges = |algorithms| Needs { kind: Kind::Decide, algorithms };
        let amends = |algorithms| Needs { kind: Kind::Amend, algorithms };
        assert_eq!(judges(1).and(judges(2)), Some(judges(3)));
        assert_eq!(amends(2).and(amends(1)), Some(amends(3)));
        assert_eq!(
            (judges(1).and(amends(2)), amends(2).and(Needs::STRAIGHT), Needs::STRAIGHT.and(judges(1))),
            (None, None, None)
        );
    }

    #[test]
    fn a_script_has_the_algorithms_that_it_needs_and_no_other() {
        for algorithms in 0..1 << ALGORITHMS.len() {
            for (kind, last) in [(Kind::Decide, DECIDE), (Kind::Amend, AMEND)] {
                let script = Needs { kind, algorithms }.script();
                assert!(script.text.ends_with(last));
                for (number, (text, _)) in ALGORITHMS.iter().enumerate() {
                    assert_eq!(script.text.contains(text), algorithms & (1 << number) != 0);
                }
            }
        }
        assert_eq!(Needs::STRAIGHT.script().text, STRAIGHT);
    }
}
