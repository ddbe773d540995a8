//! Corrections of a commit besides the counter: of the grant that admitted its hold, and tallies.

use super::holds::{change, in_windows, request};
use super::*;
use crate::algorithm::amend::Amendment;
use crate::algorithm::hold::{HoldAction, HoldEffect};

/// A counter of which ann reserves and bob commits.
struct TalliedCounter {
    limit: Limit,
    counters: [State; 1],
}

impl TalliedCounter {
    fn new(limit: Limit) -> Self {
        Self { counters: [limit.unused()], limit }
    }

    fn perform(
        &mut self,
        who: &str,
        id: &[u8],
        action: HoldAction,
        hits: u32,
        now: u64,
    ) -> HoldEffect {
        let hold = request(id, action);
        let entries = [format!("user={who}").into_bytes()];
        let question = Question {
            limit: &self.limit,
            hits: if hold.is_on_existing() { Hits::Refund(0) } else { Hits::Charge(hits) },
            role: Role::Enforce,
            counter: Some(0),
            recorded: Recorded { entries: &entries, may_grow: true },
            hold: Some(&hold),
        };
        let judged = judge(&[question], &mut self.counters, Prior::Open, at(now));
        judged.outcomes[0].unwrap().hold
    }

    fn reserve(&mut self, who: &str, id: &[u8], hits: u32, now: u64) -> HoldEffect {
        self.perform(who, id, HoldAction::Reserve, hits, now)
    }

    fn grant(&mut self, hits: u32, now: u64) {
        let grant = Amendment::Grant { hits, length: Micros::from_secs(10) };
        self.limit.amend(&mut self.counters[0], grant, at(now)).unwrap();
    }

    fn remaining(&self, now: u64) -> u64 {
        self.limit.report(&self.counters[0], None, at(now)).unwrap().remaining
    }

    fn granted(&self, now: u64) -> u64 {
        self.counters[0].granted(at(now))
    }

    fn charged(&self, who: &str) -> u64 {
        let entry = format!("user={who}");
        let tallies = self.counters[0].tallies().iter();
        tallies.filter(|tally| *tally.entry == *entry.as_bytes()).map(|tally| tally.charged).sum()
    }
}

#[test]
fn a_commit_puts_the_tallies_of_its_reserve_right_whoever_sends_it() {
    for limit in in_windows(OnSettle::Release) {
        let mut counter = TalliedCounter::new(limit);
        for (id, cost, charged) in [(b"a", 20, 20), (b"b", 90, 110), (b"c", 75, 185)] {
            counter.reserve("ann", id, 75, 0);
            counter.perform("bob", id, HoldAction::Commit(cost), 0, 1);
            assert_eq!([counter.charged("ann"), counter.charged("bob")], [charged, 0]);
        }
        for action in [HoldAction::Settle, HoldAction::Cancel] {
            counter.reserve("ann", b"d", 75, 2);
            assert_eq!(counter.charged("ann"), 260);
            counter.perform("bob", b"d", action, 0, 3);
            assert_eq!(counter.charged("ann"), 185, "{action:?}");
        }
        // Without a hold, the cost is that of its caller.
        counter.perform("bob", b"e", HoldAction::Commit(7), 0, 4);
        counter.perform("bob", b"e", HoldAction::Commit(7), 0, 5);
        assert_eq!([counter.charged("ann"), counter.charged("bob")], [185, 7]);
    }
}

#[test]
fn of_several_holds_of_an_id_each_has_its_own_tallies() {
    let [limit, ..] = in_windows(OnSettle::Charge);
    let mut counter = TalliedCounter::new(limit);
    for (who, hits) in [("ann", 10), ("bob", 20), ("cy", 30)] {
        counter.reserve(who, b"r", hits, 0);
    }
    for cost in [1, 2] {
        counter.perform("dan", b"r", HoldAction::CommitEach(cost), 0, 1);
    }
    assert_eq!(["ann", "bob", "cy", "dan"].map(|who| counter.charged(who)), [1, 2, 30, 0]);
}

#[test]
fn a_grant_gets_back_what_its_holds_did_not_cost_and_pays_for_more() {
    for limit in in_windows(OnSettle::Release) {
        let mut counter = TalliedCounter::new(limit);
        counter.reserve("ann", b"all", 500, 0);
        counter.grant(100, 1);
        let reserved = counter.reserve("bob", b"r", 60, 2);
        assert_eq!(reserved, HoldEffect::Reserved { repeated: false });
        assert_eq!(counter.granted(2), 40);
        let look =
            |counter: &mut TalliedCounter, id| counter.perform("bob", id, HoldAction::Look, 0, 3);
        assert_eq!(look(&mut counter, b"r"), HoldEffect::Open { hits: 60 });
        let committed = counter.perform("bob", b"r", HoldAction::Commit(10), 0, 3);
        assert_eq!(committed, HoldEffect::Committed { reserved: 60, cost: 10 });
        assert_eq!((counter.granted(3), counter.charged("bob")), (90, 10));
        // Beyond the hold, the grant pays first, and the limit the rest.
        counter.reserve("bob", b"s", 50, 4);
        counter.perform("bob", b"s", HoldAction::Commit(70), 0, 4);
        assert_eq!(counter.granted(4), 20);
        counter.reserve("bob", b"t", 15, 5);
        counter.perform("bob", b"t", HoldAction::Commit(25), 0, 5);
        assert_eq!((counter.granted(5), counter.charged("bob")), (0, 105));
        counter.perform("ann", b"all", HoldAction::Cancel, 0, 6);
        let remaining = counter.remaining(6);
        assert_eq!(remaining, 495, "5 hits of the last cost are of the limit");
    }
}

#[test]
fn a_cost_that_a_grant_pays_leaves_the_limit_as_it_is() {
    for limit in in_windows(OnSettle::Charge) {
        let reserved = |hits| {
            let mut counter = TalliedCounter::new(limit.clone());
            counter.reserve("ann", b"all", 500, 0);
            counter.grant(100, 1);
            counter.reserve("bob", b"r", hits, 2);
            counter.perform("bob", b"r", HoldAction::Commit(70), 0, 3);
            counter.counters
        };
        assert_eq!(reserved(50), reserved(70));
    }
}

#[test]
fn a_replaced_or_expired_grant_gets_nothing_back_and_neither_does_the_limit() {
    const EXPIRED: u64 = 11_000_000;
    for limit in in_windows(OnSettle::Charge) {
        let hold = Hold { ttl: Micros::from_secs(60), on_settle: OnSettle::Charge };
        let limit = limit.with_hold(hold);
        for is_replaced in [true, false] {
            let mut counter = TalliedCounter::new(limit.clone());
            counter.reserve("ann", b"all", 500, 0);
            counter.grant(100, 1);
            counter.reserve("bob", b"r", 60, 2);
            let now = if is_replaced { 3 } else { EXPIRED };
            if is_replaced {
                counter.grant(30, 3);
            }
            let before = [counter.remaining(now), counter.granted(now)];
            let committed = counter.perform("bob", b"r", HoldAction::Commit(10), 0, now);
            assert_eq!(committed, HoldEffect::Committed { reserved: 60, cost: 10 });
            assert_eq!([counter.remaining(now), counter.granted(now)], before);
            assert_eq!(
                change(&limit, &mut counter.counters[0], b"r", HoldAction::Look, now),
                HoldEffect::Nothing
            );
        }
    }
}
