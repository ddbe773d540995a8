//! The frequent requests: one check that nobody else has a say in, in the language of `lua/straight.lua`.

use smallvec::SmallVec;
use tokio::time::Instant;

use super::RedisStore;
use super::key::key_of;
use super::plan::Group;
use super::question::Question;
use super::script::{Needs, number_of};
use crate::algorithm::Algorithm;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::judge::{Few, Hits, Outcome};
use crate::algorithm::quota::Window;
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Prior, Verdict, charges, combine};
use crate::store::{Check, StoreError};

/// What one may take of the server's time in microseconds, as measured.
const COST_US: u32 = 4;
/// What the backlog and the amount that it was reckoned with share in the short form of a gcra value.
const ROOM_BITS: u32 = 31;
/// The largest whole number that a script is exact for.
const MAX_EXACT: u64 = 1 << 53;

impl RedisStore {
    /// The outcome of a request's only check, where it is of a frequent kind and its server is there to be asked. `None`: it is
    /// not, or was passed on.
    pub(super) async fn decide_straight(
        &self,
        check: &Check<'_>,
        prior: Prior,
        deadline: Instant,
    ) -> Option<Result<Outcome, StoreError>> {
        if check.limit.is_ban() {
            return None;
        }
        let per_second = check.limit.is_of_a_second();
        let core = self.core_for(per_second);
        let (question, slot) = (Question::straight(&core.prefix, check, prior, core.given())?, core.slot(&check.key));
        if !self.has_begun() {
            let group = Group { per_second, slot, checks: Few::from_slice(&[0]) };
            Box::pin(self.begin(&[group], deadline)).await;
        }
        if core.is_down(slot) {
            return None;
        }
        let charges = u64::from(matches!(check.hits, Hits::Charge(_)));
        match core.ask_to_charge(slot, question, charges, deadline).await {
            Ok(said) => said.judged()?.pop().map(|answer| answer.outcome),
            Err(error) => Some(Err(error)),
        }
    }
}

impl Question {
    /// The question of a request that has only this check in all; `None` where it is none of the frequent ones.
    pub(super) fn straight(prefix: &[u8], check: &Check<'_>, prior: Prior, given: Option<Timestamp>) -> Option<Self> {
        let (hits, writes) = (check.hits.needs(check.limit.charge_mode())?, writes(check, prior));
        let keys = SmallVec::from_buf([key_of(prefix, &check.key)]);
        let text = SmallVec::from_slice(&[number_of(check.limit.algorithm()), writes]);
        let mut question = Self { cost_us: COST_US, checks: 1, ..Self::of(given, keys, text, Needs::STRAIGHT) };
        question.put(hits.into(), 4);
        match (check.limit.algorithm(), check.limit.windows()) {
            _ if !check.recorded.is_empty() => return None,
            (Algorithm::FixedWindow(_), [window]) if window.calendar().is_none() => {
                question.put(window.limit().into(), 4);
                question.put(window.period().get(), 7);
            }
            (Algorithm::Gcra(algorithm), [window]) => question.rate(algorithm, window, hits)?,
            (
                Algorithm::FixedWindow(_) | Algorithm::Gcra(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_),
                _,
            ) => return None,
        }
        Some(question)
    }

    /// Adds what the script needs to know of a rate; `None` where it has to reckon in fractions of a microsecond.
    fn rate(&mut self, algorithm: &Gcra, window: &Window, hits: u32) -> Option<()> {
        let constants = algorithm.constants();
        let length = window.limit().checked_ilog2()?.saturating_add(1);
        if constants.parts != 1 || length > ROOM_BITS {
            return None;
        }
        let bound = 1 << ROOM_BITS.saturating_sub(length);
        let head = (u64::from(length) << ROOM_BITS) | u64::from(window.limit()).saturating_mul(bound);
        self.put(algorithm.burst().into(), 4);
        self.put(constants.one.whole, 7);
        self.put(constants.one.whole.saturating_mul(hits.into()).min(MAX_EXACT), 7);
        self.put(constants.full.whole, 7);
        self.put(constants.deepest.whole, 7);
        self.put(head, 5);
        self.put(bound, 4);
        Some(())
    }
}

/// When the hits are written: 1 where they are allowed, 2 where they are denied, 3 in both cases.
fn writes(check: &Check<'_>, prior: Prior) -> u8 {
    let is_written = |verdict| {
        let overall = combine(prior, [(check.role, verdict)]);
        matches!(check.hits, Hits::Charge(_))
            && charges(check.limit.charge_mode(), verdict == Verdict::Allowed, overall)
    };
    u8::from(is_written(Verdict::Allowed)) | (u8::from(is_written(Verdict::Denied)) << 1)
}
