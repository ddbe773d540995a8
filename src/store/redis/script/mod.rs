//! The scripts that run in Redis: the fast path, the general script for all that it passes on, and
//! amendments. Each is composed of the files of `lua/` that a call's algorithms need.
//!
//! | file | purpose |
//! |---|---|
//! | `encode`, `decode` | encoding of requests to the scripts, decoding of their replies |
//! | `key`, `slot` | names of keys, and the slot of a key |
//!
//! The scripts for usual decisions are loaded on connect (`node/preload`); any other is sent as
//! text when a server refuses its digest.

pub(super) mod decode;
pub(super) mod encode;
pub(super) mod key;
pub(super) mod slot;

use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use crate::algorithm::{Algorithm, Limit};

const PRELUDE: &str = include_str!("lua/prelude.lua");
const MULTIPLY_DIVIDE: &str = include_str!("lua/multiply_divide.lua");
const LEDGER: &str = include_str!("lua/ledger.lua");
const COUNTER: &str = include_str!("lua/counter.lua");
const HOLD_SCRIPT: &str = include_str!("lua/holds.lua");
const DECIDE: &str = include_str!("lua/decide.lua");
const AMEND: &str = include_str!("lua/amend.lua");
const FAST_BEGIN: &str = include_str!("lua/fast/begin.lua");
const FAST_LEDGER: &str = include_str!("lua/fast/ledger.lua");
const FAST_MARKS: &str = include_str!("lua/fast/marks.lua");
const FAST_HOLDS: &str = include_str!("lua/fast/holds.lua");
const FAST_DECIDE: &str = include_str!("lua/fast/decide.lua");

/// The algorithms in the order of their numbers, which begin with 1, and the file that each depends
/// on.
const ALGORITHMS: [(&str, Option<&str>); 5] = [
    (include_str!("lua/fixed_window.lua"), None),
    (include_str!("lua/sliding_window.lua"), Some(LEDGER)),
    (include_str!("lua/sliding_log.lua"), Some(LEDGER)),
    (include_str!("lua/gcra.lua"), None),
    (include_str!("lua/concurrency.lua"), None),
];

/// The algorithms of the fast path in the order of [`fast_number_of`], and the files that each
/// depends on.
const FAST_ALGORITHMS: [(&str, &[&str]); 6] = [
    (include_str!("lua/fast/fixed_window.lua"), &[]),
    (include_str!("lua/fast/sliding_window.lua"), &[MULTIPLY_DIVIDE, FAST_LEDGER]),
    (include_str!("lua/fast/sliding_log.lua"), &[FAST_LEDGER]),
    (include_str!("lua/fast/gcra.lua"), &[MULTIPLY_DIVIDE]),
    (include_str!("lua/fast/one_fixed_window.lua"), &[]),
    (include_str!("lua/fast/concurrency.lua"), &[]),
];

// The tag of a value is 16 plus twice the number of its algorithm, plus 1 if it is wide; 32 is
// added if tallies follow, so that an eighth algorithm's values would read as tallied.
/// Numbers of a set of scripts: those of the algorithms, and [`HOLDS`].
const NUMBERS: usize = 7;

/// The number of the operations on holds, after those of all algorithms.
const HOLDS: u8 = 7;
/// Its bit in a set.
const HOLDS_BIT: u8 = 1 << (HOLDS - 1);
const _: () = assert!(ALGORITHMS.len() < HOLDS as usize, "the number of holds is an algorithm's");
const _: () =
    assert!(FAST_ALGORITHMS.len() < HOLDS as usize, "the number of holds is an algorithm's");
const _: () = assert!(HOLDS as usize <= NUMBERS, "a set of scripts has too few bits");

/// Scripts of one kind, by their sets of numbers.
type ScriptSets = [OnceLock<Script>; 1 << NUMBERS];
static DECIDING: ScriptSets = [const { OnceLock::new() }; _];
static AMENDING: ScriptSets = [const { OnceLock::new() }; _];
static FAST: ScriptSets = [const { OnceLock::new() }; _];

/// The number of the algorithm whose counters have marks if their limits keep holds.
const GCRA: u8 = number::<4>();

/// The number on the fast path of a limit with one fixed window and no calendar, the most frequent
/// kind.
pub(super) const ONE_FIXED_WINDOW: u8 = fast_number::<5>();

/// A script: its text, and the SHA-1 digest by which a server that has cached it runs it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

/// The script that a call needs, and the algorithms in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ScriptNeeds {
    kind: ScriptKind,
    /// A bit for each algorithm, the lowest for number 1.
    algorithms: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScriptKind {
    #[default]
    Decide,
    Amend,
    Fast,
}

impl ScriptNeeds {
    /// The fast path.
    pub(super) const FAST: Self = Self { kind: ScriptKind::Fast, algorithms: 0 };
    /// The amendment of counters.
    pub(super) const AMEND: Self = Self { kind: ScriptKind::Amend, algorithms: 0 };

    /// Returns the needs of a call with the needs of both; `None` if no script covers both.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        (self.kind == other.kind)
            .then_some(Self { algorithms: self.algorithms | other.algorithms, ..self })
    }

    /// Adds the algorithm with this number.
    pub(super) fn add(&mut self, number: u8) {
        self.algorithms |= 1 << number.saturating_sub(1);
    }

    /// Adds the operations on holds.
    pub(super) fn add_holds(&mut self) {
        self.add(HOLDS);
    }

    /// Returns `true` for the fast path.
    pub(super) fn is_fast(self) -> bool {
        self.kind == ScriptKind::Fast
    }

    /// Returns the script with these algorithms, composed on first use.
    pub(super) fn script(self) -> &'static Script {
        static NONE: OnceLock<Script> = OnceLock::new();
        let scripts = match self.kind {
            ScriptKind::Decide => &DECIDING,
            ScriptKind::Amend => &AMENDING,
            ScriptKind::Fast => &FAST,
        };
        scripts.get(usize::from(self.algorithms)).unwrap_or(&NONE).get_or_init(|| self.compose())
    }

    fn compose(self) -> Script {
        match self.kind {
            ScriptKind::Decide => self.compose_general(DECIDE),
            ScriptKind::Amend => self.compose_general(AMEND),
            ScriptKind::Fast => self.compose_fast(),
        }
    }

    fn has(self, number: usize) -> bool {
        self.algorithms & (1 << number) != 0
    }

    fn compose_general(self, last: &str) -> Script {
        let algorithms = || {
            ALGORITHMS
                .iter()
                .enumerate()
                .filter(|(number, _)| self.has(*number))
                .map(|(_, parts)| parts)
        };
        let ledger = algorithms().find_map(|(_, before)| *before);
        let texts = algorithms().map(|(text, _)| *text);
        Script::of(
            [PRELUDE, MULTIPLY_DIVIDE]
                .into_iter()
                .chain(ledger)
                .chain(texts)
                .chain([COUNTER])
                .chain(self.has(usize::from(HOLDS.saturating_sub(1))).then_some(HOLD_SCRIPT))
                .chain([last])
                .collect(),
        )
    }

    fn compose_fast(self) -> Script {
        let algorithms =
            || FAST_ALGORITHMS.iter().enumerate().filter(|(number, _)| self.has(*number));
        let has_holds = self.has(usize::from(HOLDS.saturating_sub(1)));
        let has_marks = has_holds && self.has(usize::from(GCRA.saturating_sub(1)));
        let needs = |part: &&str| algorithms().any(|(_, (_, before))| before.contains(part));
        let shared = [MULTIPLY_DIVIDE, FAST_LEDGER].into_iter().filter(needs);
        let texts = algorithms().map(|(_, (text, _))| *text);
        Script::of(
            [FAST_BEGIN]
                .into_iter()
                .chain(shared)
                .chain(texts)
                .chain(has_marks.then_some(FAST_MARKS))
                .chain(has_holds.then_some(FAST_HOLDS))
                .chain([FAST_DECIDE])
                .collect(),
        )
    }
}

impl Script {
    fn of(text: String) -> Self {
        let sha = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha }
    }
}

/// Returns the scripts to load on connect: those for decisions by one algorithm, with and without
/// holds. They do not depend on what the process has done before.
pub(super) fn scripts_to_load() -> impl Iterator<Item = &'static Script> {
    let kinds = [(ScriptKind::Fast, FAST_ALGORITHMS.len()), (ScriptKind::Decide, ALGORITHMS.len())];
    kinds
        .into_iter()
        .flat_map(|(kind, algorithms)| (0..algorithms).map(move |number| (kind, 1 << number)))
        .flat_map(|(kind, algorithm)| {
            [algorithm, algorithm | HOLDS_BIT].map(|algorithms| ScriptNeeds { kind, algorithms })
        })
        .map(ScriptNeeds::script)
}

/// Returns the number of an algorithm in the scripts.
pub(super) fn number_of(algorithm: &Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow(_) => number::<1>(),
        Algorithm::SlidingWindow(_) => number::<2>(),
        Algorithm::SlidingLog(_) => number::<3>(),
        Algorithm::Gcra(_) => GCRA,
        Algorithm::Concurrency(_) => number::<5>(),
    }
}

/// Returns the number of a limit's algorithm on the fast path.
pub(super) fn fast_number_of(limit: &Limit) -> u8 {
    match (limit.algorithm(), limit.windows()) {
        (Algorithm::FixedWindow(_), [window]) if window.calendar().is_none() => ONE_FIXED_WINDOW,
        (Algorithm::FixedWindow(_), _) => fast_number::<1>(),
        (Algorithm::SlidingWindow(_), _) => fast_number::<2>(),
        (Algorithm::SlidingLog(_), _) => fast_number::<3>(),
        (Algorithm::Gcra(_), _) => fast_number::<4>(),
        (Algorithm::Concurrency(_), _) => fast_number::<6>(),
    }
}

/// Returns the number of one of [`ALGORITHMS`]; any other fails to compile.
const fn number<const NUMBER: u8>() -> u8 {
    const {
        assert!(
            NUMBER > 0 && NUMBER as usize <= ALGORITHMS.len(),
            "the number is that of no script"
        )
    };
    NUMBER
}

/// Returns the number of one of [`FAST_ALGORITHMS`]; any other fails to compile.
const fn fast_number<const NUMBER: u8>() -> u8 {
    const {
        assert!(
            NUMBER > 0 && NUMBER as usize <= FAST_ALGORITHMS.len(),
            "the number is that of no script"
        )
    };
    NUMBER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amendments_and_decisions_are_never_in_one_call() {
        let judges = |algorithms| ScriptNeeds { kind: ScriptKind::Decide, algorithms };
        let amends = |algorithms| ScriptNeeds { kind: ScriptKind::Amend, algorithms };
        let fast = |algorithms| ScriptNeeds { kind: ScriptKind::Fast, algorithms };
        assert_eq!(judges(1).and(judges(2)), Some(judges(3)));
        assert_eq!(amends(2).and(amends(1)), Some(amends(3)));
        assert_eq!(fast(4).and(fast(1)), Some(fast(5)));
        let of_two_kinds = [(judges(1), amends(2)), (amends(2), fast(1)), (fast(1), judges(1))];
        assert!(of_two_kinds.into_iter().all(|(one, other)| one.and(other).is_none()));
    }

    #[test]
    fn a_script_has_the_algorithms_that_it_needs_and_no_other() {
        for algorithms in 0..1 << ALGORITHMS.len() {
            for (kind, last) in [(ScriptKind::Decide, DECIDE), (ScriptKind::Amend, AMEND)] {
                let script = ScriptNeeds { kind, algorithms }.script();
                assert!(script.text.ends_with(last));
                for (number, (text, _)) in ALGORITHMS.iter().enumerate() {
                    assert_eq!(script.text.contains(text), algorithms & (1 << number) != 0);
                }
            }
        }
        for algorithms in 0..1 << FAST_ALGORITHMS.len() {
            let script = ScriptNeeds { kind: ScriptKind::Fast, algorithms }.script();
            assert!(script.text.starts_with(FAST_BEGIN) && script.text.ends_with(FAST_DECIDE));
            let has = |number: usize| algorithms & (1 << number) != 0;
            for (number, (text, _)) in FAST_ALGORITHMS.iter().enumerate() {
                assert_eq!(script.text.contains(text), has(number));
            }
            assert_eq!(script.text.matches(FAST_LEDGER).count(), usize::from(has(1) || has(2)));
            assert_eq!(script.text.matches(MULTIPLY_DIVIDE).count(), usize::from(has(1) || has(3)));
        }
    }
}
