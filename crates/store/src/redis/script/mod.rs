//! The scripts that run in Redis: decisions, and changes of single counters by operators or to take
//! charges back. Each is composed of the files of `lua/` that a call's algorithms need.
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

use tollgate_core::algorithm::{Algorithm, Limit};

const BEGIN: &str = include_str!("lua/begin.lua");
const MULTIPLY_DIVIDE: &str = include_str!("lua/multiply_divide.lua");
const LEDGER: &str = include_str!("lua/ledger.lua");
const FIXED_WINDOW: &str = include_str!("lua/fixed_window.lua");
const BESIDE: &str = include_str!("lua/beside.lua");
const MARKS: &str = include_str!("lua/marks.lua");
const HOLD_CHECKS: &str = include_str!("lua/holds.lua");
const HOLD_CHANGES: &str = include_str!("lua/hold_changes.lua");
const REPLY: &str = include_str!("lua/reply.lua");
const IN_TURN: &str = include_str!("lua/in_turn.lua");
const SEVERAL: &str = include_str!("lua/several.lua");
const DECIDE: &str = include_str!("lua/decide.lua");
const AMEND: &str = include_str!("lua/amend.lua");

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
/// Numbers of a set of scripts: those of the algorithms, and of the parts that only some requests
/// need. A part that a script has costs each of its calls, even if no request of the call needs it.
const NUMBERS: usize = 9;

/// The number of the operations on holds, after those of all algorithms.
const HOLDS: u8 = 7;
/// The number of requests of several checks.
const SEVERAL_CHECKS: u8 = 8;
/// The number of requests whose checks name a counter twice.
const REPEATS: u8 = 9;
const _: () = assert!(ALGORITHMS.len() < HOLDS as usize, "the number of holds is an algorithm's");
const _: () = assert!(REPEATS as usize <= NUMBERS, "a set of scripts has too few bits");

/// Scripts of one kind, by their sets of numbers.
type ScriptSets = [OnceLock<Script>; 1 << NUMBERS];
static DECIDING: ScriptSets = [const { OnceLock::new() }; _];
static AMENDING: ScriptSets = [const { OnceLock::new() }; _];

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
    /// A bit for each number, the lowest for number 1.
    set: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScriptKind {
    #[default]
    Decide,
    Amend,
}

impl ScriptNeeds {
    /// The decision of requests.
    pub(super) const DECIDE: Self = Self { kind: ScriptKind::Decide, set: 0 };
    /// The change of counters by operators, and to take charges back.
    pub(super) const AMEND: Self = Self { kind: ScriptKind::Amend, set: 0 };

    /// Returns the needs of a call with the needs of both; `None` if no script covers both.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        (self.kind == other.kind).then_some(Self { set: self.set | other.set, ..self })
    }

    /// Adds the algorithm with this number.
    pub(super) fn add(&mut self, number: u8) {
        self.set |= bit(number);
    }

    /// Adds the operations on holds.
    pub(super) fn add_holds(&mut self) {
        self.add(HOLDS);
    }

    /// Adds requests of several checks.
    pub(super) fn add_several(&mut self) {
        self.add(SEVERAL_CHECKS);
    }

    /// Adds requests whose checks name a counter twice.
    pub(super) fn add_repeats(&mut self) {
        self.add(REPEATS);
    }

    /// Returns `true` for the decision of requests.
    pub(super) fn decides(self) -> bool {
        self.kind == ScriptKind::Decide
    }

    /// Returns the script with these algorithms, composed on first use.
    pub(super) fn script(self) -> &'static Script {
        static NONE: OnceLock<Script> = OnceLock::new();
        let scripts = match self.kind {
            ScriptKind::Decide => &DECIDING,
            ScriptKind::Amend => &AMENDING,
        };
        scripts.get(usize::from(self.set)).unwrap_or(&NONE).get_or_init(|| {
            let files = self.files();
            let text = format!("{}{}", self.title(&files), fold::fold(&files.concat()));
            Script::of(text)
        })
    }

    /// Returns a comment with the names of a script's files, for those who find it in a log.
    fn title(self, files: &[&'static str]) -> String {
        let kind = match self.kind {
            ScriptKind::Decide => "decide",
            ScriptKind::Amend => "amend",
        };
        let names: Vec<&str> = files.iter().filter_map(|file| name_of(file)).collect();
        format!("-- tollgate {kind}: {}\n", names.join(", "))
    }

    /// Returns the files of the script, each after those that it depends on.
    fn files(self) -> Vec<&'static str> {
        let mut files = vec![BEGIN];
        let needed = (1..).zip(ALGORITHMS).filter(|(number, _)| self.has(*number));
        for (_, (file, before)) in needed {
            for file in before.iter().copied().chain([file]) {
                if !files.contains(&file) {
                    files.push(file);
                }
            }
        }
        files.push(BESIDE);
        let has_holds = self.has(HOLDS);
        files.extend((has_holds && self.has(GCRA)).then_some(MARKS));
        files.extend([HOLD_CHECKS, HOLD_CHANGES].into_iter().filter(|_| has_holds));
        files.push(REPLY);
        files.extend(self.has(REPEATS).then_some(IN_TURN));
        files.extend(self.has(SEVERAL_CHECKS).then_some(SEVERAL));
        files.push(match self.kind {
            ScriptKind::Decide => DECIDE,
            ScriptKind::Amend => AMEND,
        });
        files
    }

    fn has(self, number: u8) -> bool {
        self.set & bit(number) != 0
    }
}

impl Script {
    fn of(text: String) -> Self {
        let sha = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { text, sha }
    }
}

/// Returns the name of a file, with which its first comment begins.
fn name_of(file: &'static str) -> Option<&'static str> {
    let (name, _) = file.strip_prefix("-- ")?.split_once([':', ','])?;
    (!name.contains(' ')).then_some(name)
}

/// Returns the bit of a number in a set.
const fn bit(number: u8) -> u16 {
    1 << number.saturating_sub(1)
}

/// Returns the scripts to load on connect: those for counters of one algorithm, with and without
/// holds, and for decisions of one check and of several. They do not depend on what the process has
/// done before.
pub(super) fn scripts_to_load() -> impl Iterator<Item = &'static Script> {
    let several = bit(SEVERAL_CHECKS);
    let kinds = [(ScriptKind::Decide, 0), (ScriptKind::Decide, several), (ScriptKind::Amend, 0)];
    let algorithms = (1..).map(bit).take(ALGORITHMS.len());
    let sets = algorithms.flat_map(|algorithm| [algorithm, algorithm | bit(HOLDS)]);
    sets.flat_map(move |set| kinds.map(|(kind, parts)| ScriptNeeds { kind, set: set | parts }))
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
        let judges = |set| ScriptNeeds { kind: ScriptKind::Decide, set };
        let amends = |set| ScriptNeeds { kind: ScriptKind::Amend, set };
        assert_eq!(judges(1).and(judges(2)), Some(judges(3)));
        assert_eq!(amends(2).and(amends(1)), Some(amends(3)));
        assert!(judges(1).and(amends(2)).is_none());
        assert!(amends(2).and(judges(1)).is_none());
    }

    #[test]
    fn a_script_has_the_files_that_it_needs_once_and_no_other() {
        let kinds = [ScriptKind::Decide, ScriptKind::Amend];
        for (set, kind) in (0..1 << NUMBERS).flat_map(|set| kinds.map(|kind| (set, kind))) {
            let files = ScriptNeeds { kind, set }.files();
            let has = |number: u8| set & bit(number) != 0;
            let count = |file: &str| files.iter().filter(|other| **other == file).count();
            for (number, (file, _)) in (1..).zip(ALGORITHMS) {
                let is_needed = has(number) || file == FIXED_WINDOW && has(ONE_FIXED_WINDOW);
                assert_eq!(count(file), usize::from(is_needed), "{number} in {set:b}");
            }
            assert_eq!(count(LEDGER), usize::from(has(2) || has(3)));
            assert_eq!(count(MULTIPLY_DIVIDE), usize::from(has(2) || has(GCRA)));
            assert_eq!(count(MARKS), usize::from(has(HOLDS) && has(GCRA)));
            assert_eq!(count(BESIDE), 1);
            assert_eq!(count(HOLD_CHECKS), usize::from(has(HOLDS)));
            assert_eq!(count(SEVERAL), usize::from(has(SEVERAL_CHECKS)));
            assert_eq!(count(IN_TURN), usize::from(has(REPEATS)));
        }
    }
}
