//! The scripts that run in Redis: one for what is frequent, and those that judge and amend, composed of the files of `lua/` that a
//! call's algorithms need.

use std::sync::OnceLock;

use sha1::{Digest, Sha1};

use crate::algorithm::Algorithm;

const PRELUDE: &str = include_str!("lua/prelude.lua");
const LEDGER: &str = include_str!("lua/ledger.lua");
const FIXED_WINDOW: &str = include_str!("lua/fixed_window.lua");
const SLIDING_WINDOW: &str = include_str!("lua/sliding_window.lua");
const SLIDING_LOG: &str = include_str!("lua/sliding_log.lua");
const GCRA: &str = include_str!("lua/gcra.lua");
const COUNTER: &str = include_str!("lua/counter.lua");
const DECIDE: &str = include_str!("lua/decide.lua");
const AMEND: &str = include_str!("lua/amend.lua");
const STRAIGHT: &str = include_str!("lua/straight.lua");

/// A script: its text, and the name under which a server that has it runs it.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) text: String,
    pub(super) sha: String,
}

/// Which algorithms a call needs and what for, or the script for what is frequent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs(u8);

impl Needs {
    /// The script for what is frequent.
    pub(super) const STRAIGHT: Self = Self(1 << 4);
    /// To amend counters, not to judge by them.
    pub(super) const AMEND: Self = Self(1 << 5);

    /// What a call needs that needs both; `None` where no script has both.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        let kind = |needs: Self| needs.0 & (Self::STRAIGHT.0 | Self::AMEND.0);
        (kind(self) == kind(other)).then_some(Self(self.0 | other.0))
    }

    pub(super) fn add(&mut self, algorithm: &Algorithm) {
        self.0 |= 1 << number_of(algorithm).saturating_sub(1);
    }

    /// The script with these algorithms, composed when it is first asked for.
    pub(super) fn script(self) -> &'static Script {
        static SCRIPTS: [OnceLock<Script>; 48] = [const { OnceLock::new() }; 48];
        let [first, ..] = &SCRIPTS;
        SCRIPTS.get(usize::from(self.0)).unwrap_or(first).get_or_init(|| self.compose())
    }

    fn compose(self) -> Script {
        let has = |number: u8| self.0 & (1 << number) != 0;
        let parts = [
            (!has(4), PRELUDE),
            (has(1) || has(2), LEDGER),
            (has(0), FIXED_WINDOW),
            (has(1), SLIDING_WINDOW),
            (has(2), SLIDING_LOG),
            (has(3), GCRA),
            (!has(4), COUNTER),
            (!has(4) && !has(5), DECIDE),
            (has(5), AMEND),
            (has(4), STRAIGHT),
        ];
        let text: String = parts.into_iter().filter(|(needed, _)| *needed).map(|(_, part)| part).collect();
        let sha = Sha1::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Script { text, sha }
    }
}

/// The number under which the scripts know an algorithm.
pub(super) fn number_of(algorithm: &Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow(_) => 1,
        Algorithm::SlidingWindow(_) => 2,
        Algorithm::SlidingLog(_) => 3,
        Algorithm::Gcra(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_amends_goes_in_no_call_with_what_judges() {
        let (judges, amends) = (Needs(1), Needs(Needs::AMEND.0 | 2));
        assert_eq!(judges.and(Needs(2)), Some(Needs(3)));
        assert_eq!(amends.and(Needs(Needs::AMEND.0 | 1)), Some(Needs(Needs::AMEND.0 | 3)));
        assert_eq!((judges.and(amends), amends.and(Needs::STRAIGHT), Needs::STRAIGHT.and(judges)), (None, None, None));
        let all = Needs(Needs::AMEND.0 | 15).script();
        assert!(all.text.ends_with(AMEND) && !all.text.contains(DECIDE), "the last of all scripts there are");
    }
}
