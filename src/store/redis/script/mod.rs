//! The scripts that run in Redis: the fast path, the general script for all that it passes on, and
//! amendments. Each is composed of the files of `lua/` that a call's algorithms need.
//!
//! | file | purpose |
//! |---|---|
//! | `encode`, `decode` | encoding of requests to the scripts, decoding of their replies |
//! | `fold` | the text of a script, with its constants replaced |
//! | `key`, `slot` | names of keys, and the slot of a key |
//!
//! The scripts for usual decisions are loaded on connect (`server/preload`); any other is sent as
//! text when a server refuses its digest.

pub(super) mod decode;
pub(super) mod encode;
mod fold;
pub(super) mod key;
pub(super) mod slot;

use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use crate::algorithm::{Algorithm, Limit};

const BEGIN: &str = include_str!("lua/begin.lua");
const MULTIPLY_DIVIDE: &str = include_str!("lua/multiply_divide.lua");
const LEDGER: &str = include_str!("lua/ledger.lua");
const FIXED_WINDOW: &str = include_str!("lua/fixed_window.lua");
const BESIDE: &str = include_str!("lua/beside.lua");
const MARKS: &str = include_str!("lua/marks.lua");
const COUNTER: &str = include_str!("lua/counter.lua");
const HOLD_SCRIPT: &str = include_str!("lua/holds.lua");
const DECIDE: &str = include_str!("lua/decide.lua");
const AMEND: &str = include_str!("lua/amend.lua");
const FAST_HOLDS: &str = include_str!("lua/fast/holds.lua");
const FAST_DECIDE: &str = include_str!("lua/fast/decide.lua");

/// The algorithms in the order of their numbers, which begin with 1, and the files that each
/// depends on.
const ALGORITHMS: [(&str, &[&str]); 6] = [
    (FIXED_WINDOW, &[]),
    (include_str!("lua/sliding_window.lua"), &[MULTIPLY_DIVIDE, LEDGER]),
    (include_str!("lua/sliding_log.lua"), &[LEDGER]),
    (include_str!("lua/gcra.lua"), &[MULTIPLY_DIVIDE]),
    (include_str!("lua/one_fixed_window.lua"), &[FIXED_WINDOW]),
    (include_str!("lua/concurrency.lua"), &[]),
];

// The tag of a value is 16 plus twice the number of its algorithm, plus 1 if it is wide; 32 is
// added if tallies follow, so that an eighth algorithm's values would read as tallied.
/// Numbers of a set of scripts: those of the algorithms, and [`HOLDS`].
const NUMBERS: usize = 7;

/// The number of the operations on holds, after those of all algorithms.
const HOLDS: u8 = 7;
/// The bit of holds in a set.
const HOLDS_BIT: u8 = 1 << (HOLDS - 1);
const _: () = assert!(ALGORITHMS.len() < HOLDS as usize, "the number of holds is an algorithm's");
const _: () = assert!(HOLDS as usize <= NUMBERS, "a set of scripts has too few bits");

/// Scripts of one kind, by their sets of numbers.
type ScriptSets = [OnceLock<Script>; 1 << NUMBERS];
static DECIDING: ScriptSets = [const { OnceLock::new() }; _];
static AMENDING: ScriptSets = [const { OnceLock::new() }; _];
static FAST: ScriptSets = [const { OnceLock::new() }; _];

/// The number of the algorithm whose counters have marks if their limits keep holds.
const GCRA: u8 = number::<4>();

/// The number of a limit with one fixed window and no calendar, the most frequent kind.
pub(super) const ONE_FIXED_WINDOW: u8 = number::<5>();

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
        scripts.get(usize::from(self.algorithms)).unwrap_or(&NONE).get_or_init(|| {
            let files = self.files();
            let text = format!("{}{}", self.title(&files), fold::fold(&files.concat()));
            Script::of(text)
        })
    }

    /// Returns a comment with the names of a script's files, for those who find it in a log.
    fn title(self, files: &[&'static str]) -> String {
        let kind = match self.kind {
            ScriptKind::Decide => "general",
            ScriptKind::Amend => "amend",
            ScriptKind::Fast => "fast",
        };
        let name_of = |file: &&'static str| {
            let (name, _) = file.strip_prefix("-- ")?.split_once([':', ','])?;
            (!name.contains(' ')).then_some(name)
        };
        let names: Vec<&str> = files.iter().filter_map(name_of).collect();
        format!("-- tollgate {kind}: {}\n", names.join(", "))
    }

    /// Returns the files of the script, each after those that it depends on.
    fn files(self) -> Vec<&'static str> {
        let mut files = vec![BEGIN];
        let add = |files: &mut Vec<_>, file| {
            if !files.contains(&file) {
                files.push(file);
            }
        };
        for (number, (file, before)) in (1..).zip(ALGORITHMS) {
            if self.has(number) {
                before.iter().for_each(|file| add(&mut files, *file));
                add(&mut files, file);
            }
        }
        files.push(BESIDE);
        let has_holds = self.has(HOLDS);
        files.extend((has_holds && self.has(GCRA)).then_some(MARKS));
        let (counter, holds, last) = match self.kind {
            ScriptKind::Decide => (Some(COUNTER), HOLD_SCRIPT, DECIDE),
            ScriptKind::Amend => (Some(COUNTER), HOLD_SCRIPT, AMEND),
            ScriptKind::Fast => (None, FAST_HOLDS, FAST_DECIDE),
        };
        files.extend(counter.into_iter().chain(has_holds.then_some(holds)).chain([last]));
        files
    }

    fn has(self, number: u8) -> bool {
        self.algorithms & (1 << number.saturating_sub(1)) != 0
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
    [ScriptKind::Fast, ScriptKind::Decide]
        .into_iter()
        .flat_map(|kind| (0..ALGORITHMS.len()).map(move |number| (kind, 1 << number)))
        .flat_map(|(kind, algorithm)| {
            [algorithm, algorithm | HOLDS_BIT].map(|algorithms| ScriptNeeds { kind, algorithms })
        })
        .map(ScriptNeeds::script)
}

/// Returns the number of a limit's algorithm in the scripts.
pub(super) fn number_of(limit: &Limit) -> u8 {
    match (limit.algorithm(), limit.windows()) {
        (Algorithm::FixedWindow(_), [window]) if window.calendar().is_none() => ONE_FIXED_WINDOW,
        (Algorithm::FixedWindow(_), _) => number::<1>(),
        (Algorithm::SlidingWindow(_), _) => number::<2>(),
        (Algorithm::SlidingLog(_), _) => number::<3>(),
        (Algorithm::Gcra(_), _) => GCRA,
        (Algorithm::Concurrency(_), _) => number::<6>(),
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
    fn a_script_has_the_files_that_it_needs_once_and_no_other() {
        let kinds = [ScriptKind::Decide, ScriptKind::Amend, ScriptKind::Fast];
        for (algorithms, kind) in (0..1 << NUMBERS).flat_map(|set| kinds.map(|kind| (set, kind))) {
            let files = ScriptNeeds { kind, algorithms }.files();
            let has = |number: u8| algorithms & (1 << (number - 1)) != 0;
            let count = |file: &str| files.iter().filter(|other| **other == file).count();
            for (number, (file, _)) in (1..).zip(ALGORITHMS) {
                let is_needed = has(number) || file == FIXED_WINDOW && has(ONE_FIXED_WINDOW);
                assert_eq!(count(file), usize::from(is_needed), "{number} in {algorithms:b}");
            }
            assert_eq!(count(LEDGER), usize::from(has(2) || has(3)));
            assert_eq!(count(MULTIPLY_DIVIDE), usize::from(has(2) || has(GCRA)));
            assert_eq!(count(MARKS), usize::from(has(HOLDS) && has(GCRA)));
            let is_fast = kind == ScriptKind::Fast;
            assert_eq!(count(BESIDE), 1);
            assert_eq!(count(FAST_HOLDS), usize::from(has(HOLDS) && is_fast));
            assert_eq!(count(HOLD_SCRIPT), usize::from(has(HOLDS) && !is_fast));
        }
    }
}
