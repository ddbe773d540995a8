//! Expectations of a cell: the counter after hits were charged ahead, and after they were ended
//! with their cost.

use std::fmt::Debug;
use std::time::Duration;

use tollgate::algorithm::amend::{Amendment, CounterReading};
use tollgate::algorithm::time::Micros;

use super::ahead::{Abandoned, CellCaller, WARM};
use super::place::{Place, StoreKind};
use super::{AHEAD, Algorithm, Beside, Cell, Form, LIMIT};
use crate::rls::limit;

/// The part of the hits charged ahead that is used.
const COST: u32 = 12;
/// Amounts of an override, of a candidate and of a grant.
const OVERRIDE: u32 = 50;
const CANDIDATE: u32 = 5;
const GRANT: u32 = 40;
/// The amounts after two edits.
const EDITED: [u32; 2] = [1_100, 900];
/// The cost of a hold that is higher than its estimate.
const OVERRUN: u32 = 30;
/// The unit of overrides, as the protocol numbers it.
const YEAR: i32 = 6;

/// Returns what a cell does with a kind of store that is not expected of it.
pub(super) async fn findings(cell: Cell, kind: &StoreKind) -> Vec<String> {
    let place = Place::new(kind).await;
    place.install(&cell.whole_policy(LIMIT));
    let is_memory = *kind == StoreKind::Memory;
    let caller = CellCaller::new(&place, cell.form);
    let mut run = CellRun { cell, is_memory, caller, found: Vec::new() };
    run.perform(&place).await;
    run.found.into_iter().map(|found| format!("{cell:?} with {kind:?}: {found}")).collect()
}

/// A run of a cell.
struct CellRun<'p> {
    cell: Cell,
    is_memory: bool,
    caller: CellCaller<'p>,
    found: Vec<String>,
}

impl CellRun<'_> {
    async fn perform(&mut self, place: &Place) {
        match self.cell.beside {
            // A holder reports none of the entries.
            Beside::Record if self.cell.form.is_lent() => {
                self.expect_no_loan().await;
                self.fill(LIMIT).await;
            }
            Beside::Nothing | Beside::Record => self.as_alone().await,
            Beside::Candidate => {
                place.try_out(&self.cell.policy(CANDIDATE));
                self.as_alone().await;
                self.expect("judged", place.judged_by_candidate(), self.judged());
            }
            Beside::Grant => self.beside_a_grant().await,
            Beside::Reset => self.around_a_reset().await,
            Beside::Override => self.by_an_override().await,
            Beside::Shadow => self.in_shadow_mode().await,
            Beside::Quota => self.as_a_vote().await,
            Beside::Edit => self.around_an_edit(place).await,
            Beside::OtherPolicy => self.around_a_hit_of_others(place).await,
            Beside::Local => self.while_the_store_fails(place).await,
            Beside::PerSecond => {
                self.as_alone().await;
                // What has no period is at the main server.
                let is_main = self.cell.algorithm == Algorithm::Concurrency;
                let has_keys = place.keys().iter().map(|keys| *keys > 0).collect::<Vec<_>>();
                self.expect("servers with keys", has_keys, vec![is_main, !is_main]);
            }
        }
    }

    fn expect<T: Debug + PartialEq>(&mut self, what: &str, found: T, expected: T) {
        if found != expected {
            self.found.push(format!("{what}: {found:?}, expected {expected:?}"));
        }
    }

    async fn reading(&self) -> CounterReading {
        self.caller.place.amend(Amendment::Look).await
    }

    async fn used(&self) -> u64 {
        self.reading().await.windows[0].used
    }

    /// Expects hits that count besides those that a proxy has in hand. Of a rate some may have
    /// drained.
    async fn expect_used(&mut self, when: &str, expected: u32) {
        let in_hand = self.caller.place.outstanding().cast_signed();
        let used = self.used().await.cast_signed() - in_hand;
        let least = i64::from(expected);
        let is_right = used == least || self.cell.algorithm.is_rate() && used == least + 1;
        if !is_right {
            self.found.push(format!("used {when}: {used}, expected {expected}"));
        }
    }

    async fn grant_left(&self) -> u64 {
        self.reading().await.grant.map_or(0, |grant| grant.left)
    }

    /// Returns `true` if an end has no effect on what counts but that it releases all.
    fn is_permit(&self) -> bool {
        self.cell.algorithm == Algorithm::Concurrency && self.cell.form.is_hold()
    }

    /// Returns the hits that count of those charged ahead once they have ended.
    fn kept(&self) -> u32 {
        if self.is_permit() { 0 } else { COST }
    }

    /// Charges ahead, and expects that to be possible.
    async fn charge(&mut self) -> u32 {
        let ahead = self.caller.charge_ahead(AHEAD).await;
        let hits = ahead.clone().ok().flatten().unwrap_or_default();
        if hits < AHEAD.min(COST) {
            self.found.push(format!("ahead: {ahead:?}, expected {AHEAD}"));
        }
        hits
    }

    /// Expects that requests can take what is left, and no more.
    async fn fill(&mut self, amount: u32) -> u32 {
        let left = amount - u32::try_from(self.used().await).unwrap().min(amount);
        let is_admitted = self.caller.is_admitted(left.into()).await;
        self.expect("the rest is admitted", is_admitted, Ok(true));
        let is_admitted = self.caller.is_admitted(1).await;
        self.expect("one more is admitted", is_admitted, Ok(false));
        left
    }

    /// Expects that nothing is lent.
    async fn expect_no_loan(&mut self) {
        let ahead = self.caller.charge_ahead(AHEAD).await;
        self.expect("ahead", ahead, Ok(None));
        self.expect_used("ahead", 0).await;
    }

    async fn as_alone(&mut self) {
        let ahead = self.charge().await;
        let in_hand = u32::try_from(self.caller.place.outstanding()).unwrap();
        self.expect_used("ahead", ahead - in_hand).await;
        self.caller.end(ahead, COST).await;
        // The window of a second is over.
        let is_over = self.cell.beside == Beside::PerSecond
            && matches!(self.cell.form, Form::Process | Form::Proxy);
        let kept = if is_over { 0 } else { self.kept() };
        self.expect_used("at the end", kept).await;
        let of_holds =
            if self.cell.form.is_hold() { self.expect_other_ends(kept).await } else { 0 };
        let rest = of_holds + self.fill(LIMIT).await;
        if self.cell.beside == Beside::Record {
            // Refunds do not subtract.
            let stands = self.cell.form.is_plain() || self.is_permit();
            let of_ahead = if stands { ahead } else { COST };
            let tallied = self.caller.place.tallied().await;
            self.expect("tallied", tallied, (u64::from(of_ahead + rest), 1));
        }
    }

    /// Returns how often a candidate allows, denies, denies what was denied anyway, and does not
    /// decide, if the cell is as alone. It charges nothing that it denies.
    fn judged(&self) -> [u64; 4] {
        let form = self.cell.form;
        let extended = u64::from(form == Form::HoldJson);
        match form {
            // The rest is denied, and one more fits. What is lent is not judged.
            form if form.is_lent() => [1, 1, 0, 0],
            // Each hit by itself, the rest, and one more.
            Form::Process => {
                let denied = COST - CANDIDATE;
                [CANDIDATE.into(), u64::from(denied) + 1, 1, 0]
            }
            // Three reserves and the rest are denied; ends always count as allowed.
            _ if self.is_permit() => [4 + extended, 4, 0, 0],
            // Costs are charged, since no reserve was: nothing fits any more.
            form if form.is_hold() => [4 + extended, 5, 1, 0],
            // The charge and the rest are denied; the refund is not, and one more fits.
            _ => [2, 2, 0, 0],
        }
    }

    /// Ends holds with more than was charged ahead, and without a cost. Returns their hits that are
    /// tallied.
    async fn expect_other_ends(&mut self, mut kept: u32) -> u32 {
        let mut tallied = 0;
        if !self.is_permit() {
            let ahead = self.charge().await;
            self.caller.end(ahead, OVERRUN).await;
            kept += OVERRUN;
            tallied += OVERRUN;
            self.expect_used("after an overrun", kept).await;
        }
        for way in [Abandoned::Settled, Abandoned::Cancelled] {
            let ahead = self.charge().await;
            self.caller.abandon(way).await;
            let is_released = way == Abandoned::Cancelled || self.cell.form == Form::Hold;
            let stands = if is_released { 0 } else { ahead };
            tallied += if self.is_permit() { ahead } else { stands };
            kept += if self.is_permit() { 0 } else { stands };
            self.expect_used(&format!("by a hold that was {way:?}"), kept).await;
        }
        tallied
    }

    async fn beside_a_grant(&mut self) {
        let is_admitted = self.caller.is_admitted(LIMIT.into()).await;
        self.expect("the limit is admitted", is_admitted, Ok(true));
        let length = Micros::from_secs(3_600);
        self.caller.place.amend(Amendment::Grant { hits: GRANT, length }).await;
        let ahead = self.caller.charge_ahead(AHEAD).await;
        // What is taken back is so in the background.
        self.caller.place.wait(Duration::from_millis(1)).await;
        let used = self.used().await;
        self.expect("used ahead", used, LIMIT.into());
        match self.cell.form {
            form if form.is_lent() => {
                self.expect("ahead", ahead, Ok(None));
                let left = self.grant_left().await;
                self.expect("left of the grant", left, GRANT.into());
                return;
            }
            Form::Process => {}
            _ => self.expect("ahead", ahead, Ok(Some(AHEAD))),
        }
        self.caller.end(AHEAD, COST).await;
        let (used, left) = match self.cell.form {
            // A refund returns nothing to a grant.
            form if form.is_plain() => (LIMIT - (AHEAD - COST), GRANT - AHEAD),
            _ if self.is_permit() => (LIMIT, GRANT - AHEAD),
            _ => (LIMIT, GRANT - COST),
        };
        self.expect_used("at the end", used).await;
        let found = self.grant_left().await;
        self.expect("left of the grant at the end", found, left.into());
    }

    async fn around_a_reset(&mut self) {
        let ahead = self.charge().await;
        self.caller.place.amend(Amendment::Reset).await;
        let used = self.used().await;
        self.expect("used after the reset", used, 0);
        // Charges of the instant of the reset are taken for earlier ones.
        self.caller.place.wait(Duration::from_millis(1)).await;
        self.caller.end(ahead, COST).await;
        // The cost of an ID that is not known any more, and what a proxy has admitted since.
        let is_charged = self.cell.form.is_hold() || self.cell.form == Form::Proxy;
        let kept = if is_charged { self.kept() } else { 0 };
        self.expect_used("at the end", kept).await;
        self.fill(LIMIT).await;
    }

    async fn around_an_edit(&mut self, place: &Place) {
        let ahead = self.charge().await;
        EDITED.iter().for_each(|amount| place.install(&self.cell.whole_policy(*amount)));
        self.caller.end(ahead, COST).await;
        self.expect_used("at the end", self.kept()).await;
        self.fill(EDITED[1]).await;
    }

    async fn around_a_hit_of_others(&mut self, place: &Place) {
        let ahead = self.charge().await;
        place.install(&self.cell.without_form().whole_policy(LIMIT));
        let is_admitted = self.caller.is_admitted(1).await;
        self.expect("a hit is admitted", is_admitted, Ok(true));
        place.install(&self.cell.whole_policy(LIMIT));
        self.caller.end(ahead, COST).await;
        self.expect_used("at the end", 1 + self.kept()).await;
        self.fill(LIMIT).await;
    }

    async fn by_an_override(&mut self) {
        if self.cell.form == Form::Proxy || self.cell.form.is_of_gateway() {
            // A bucket has no limit of its own, nor has the descriptor of a mapping.
            return self.as_alone().await;
        }
        self.caller.limit = limit(OVERRIDE, YEAR);
        let ahead = self.caller.charge_ahead(AHEAD).await;
        if self.cell.form.is_of_client() {
            let is_refused = ahead.is_err_and(|error| error.contains("entries only"));
            return self.expect("a loan is refused", is_refused, true);
        }
        let expected = if self.cell.form == Form::Process { WARM } else { AHEAD };
        self.expect("ahead", ahead, Ok(Some(expected)));
        self.caller.end(AHEAD, COST).await;
        self.expect_used("at the end", self.kept()).await;
        self.fill(OVERRIDE).await;
        self.caller.limit = None;
        self.fill(LIMIT).await;
    }

    async fn in_shadow_mode(&mut self) {
        for hits in [LIMIT, 1] {
            let is_admitted = self.caller.is_admitted(hits.into()).await;
            self.expect("all is admitted", is_admitted, Ok(true));
        }
        self.expect_used("by the limit", LIMIT).await;
        let ahead = self.caller.charge_ahead(AHEAD).await;
        match self.cell.form {
            form if form.is_lent() => self.expect("ahead", ahead, Ok(None)),
            Form::Process => {}
            _ => self.expect("ahead", ahead, Ok(Some(AHEAD))),
        }
        self.expect_used("ahead", LIMIT).await;
        if self.cell.form == Form::Proxy {
            let is_admitted = self.caller.is_admitted_by_proxy();
            return self.expect("the proxy admits", is_admitted, true);
        }
        self.caller.end(AHEAD, COST).await;
        let used = match self.cell.form {
            form if form.is_plain() => LIMIT - (AHEAD - COST),
            // Nothing was charged, so the cost is.
            form if form.is_hold() => LIMIT + self.kept(),
            _ => LIMIT,
        };
        self.expect_used("at the end", used).await;
    }

    async fn as_a_vote(&mut self) {
        if self.cell.form.is_lent() {
            self.expect_no_loan().await;
        } else {
            let ahead = self.caller.charge_ahead(AHEAD).await;
            let expected = if self.cell.form == Form::Process { WARM } else { AHEAD };
            self.expect("ahead", ahead, Ok(Some(expected)));
            self.caller.end(AHEAD, COST).await;
            self.expect_used("at the end", self.kept()).await;
        }
        self.fill(LIMIT).await;
    }

    async fn while_the_store_fails(&mut self, place: &Place) {
        if self.is_memory {
            // It never fails.
            return self.as_alone().await;
        }
        let ahead = self.charge().await;
        let failure = place.fail();
        let is_admitted = self.caller.is_admitted(AHEAD.into()).await;
        self.expect("a request is admitted locally", is_admitted, Ok(true));
        let is_admitted = self.caller.is_admitted((LIMIT + 1).into()).await;
        self.expect("more than the limit is admitted locally", is_admitted, Ok(false));
        self.caller.end(ahead, COST).await;
        // A call under way fails, too.
        place.wait(Duration::from_millis(1)).await;
        place.recover(failure);
        // Nothing could be given back.
        let used = self.used().await;
        self.expect("used at the end", used, ahead.into());
        self.fill(LIMIT).await;
    }
}
