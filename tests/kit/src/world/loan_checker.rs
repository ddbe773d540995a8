//! The promises of loans: when they end, which hits they are made of, and for what they come back.

use super::claims::CounterHistory;
use super::loans::{Borrower, LoanRecord};
use super::rules::Counting;
use super::run::Report;
use super::server::fleet::{BASE_US, Moment};

/// Divisor of the period that bounds the time of a loan in a rolling period.
const ROLLING_LOANS: u64 = 20;
/// Time by which the clocks of two servers differ at most, see `Fleet::clock`, and its rounding.
const CLOCKS_US: u64 = 2_000;

/// Adds the promises of loans that the history of all counters breaks.
pub fn check_returns(report: &Report, broken: &mut Vec<String>) {
    let loans = &report.chronicle.loans;
    if let Some(loan) = loans.returned_elsewhere.first() {
        broken.push(format!("returned: loan {loan} was accepted for another counter"));
    }
}

/// Adds the promises of loans that the history of a counter breaks.
pub fn check(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    for loan in history.loans() {
        ends_in_time(history, loan, broken);
        ends_in_time_at_proxy(history, loan, broken);
        is_charged_by_its_call(history, loan, broken);
    }
    denies_what_does_not_fit(history, broken);
}

/// A holder admits hits of a loan for its time only, measured from when it sent the call, and not
/// after the window in which they were charged.
fn ends_in_time(history: &CounterHistory<'_>, loan: &LoanRecord, broken: &mut Vec<String>) {
    let Some((last, _)) = loan.admitted.last() else { return };
    let Borrower::Holder { sent, charged_at } = loan.borrower else { return };
    let longest = longest_us(history);
    if *last > sent + longest {
        broken.push(format!(
            "late: a hit admitted at {last} us of a loan requested at {sent} us for {longest} us at most"
        ));
    }
    let is_fixed = history.rule().counting == Counting::Fixed && history.shapes() == 1;
    let window = |us: u64| us / history.rule().period_us;
    if is_fixed
        && !history.rule().is_calendar
        && history.clocks_agree()
        && window(BASE_US + last) > window(charged_at.as_micros())
    {
        broken.push(format!(
            "late: a hit admitted at {last} us of a loan in an earlier window, charged at {} us",
            loan.charged.start
        ));
    }
}

/// A proxy admits hits of a loan for its time and the guard only, and not after the window in which
/// it was sent.
fn ends_in_time_at_proxy(
    history: &CounterHistory<'_>,
    loan: &LoanRecord,
    broken: &mut Vec<String>,
) {
    let Some((last, _)) = loan.admitted.last() else { return };
    let Borrower::Proxy = loan.borrower else { return };
    let sent = loan.charged.end;
    if *last > sent + history.quota_us() {
        broken.push(format!("late: a hit admitted at {last} us of a loan sent at {sent} us"));
    }
    let is_fixed = history.rule().counting == Counting::Fixed && history.shapes() == 1;
    let window = |at: Moment| (BASE_US + at) / history.rule().period_us;
    if is_fixed
        && !history.rule().is_calendar
        && history.clocks_agree()
        && window(*last) > window(sent + CLOCKS_US)
    {
        broken.push(format!(
            "late: a hit admitted at {last} us of a loan in an earlier window, sent at {sent} us"
        ));
    }
}

fn longest_us(history: &CounterHistory<'_>) -> Moment {
    let rule = history.rule();
    let has_windows =
        history.report.versions().any(|version| rule.counting_of(version) == Counting::Fixed);
    let part = if has_windows { rule.period_us } else { rule.period_us / ROLLING_LOANS };
    rule.lease_us.unwrap_or_default().min(part)
}

/// A loan is of hits of the limit, charged during the call: never of those of a grant, which were
/// charged at its beginning.
fn is_charged_by_its_call(
    history: &CounterHistory<'_>,
    loan: &LoanRecord,
    broken: &mut Vec<String>,
) {
    let Borrower::Holder { charged_at, .. } = loan.borrower else { return };
    let at = charged_at.as_micros();
    let during = (BASE_US + loan.charged.start).saturating_sub(CLOCKS_US)
        ..=BASE_US + loan.charged.end + CLOCKS_US;
    if history.clocks_agree() && !during.contains(&at) {
        broken.push(format!(
            "lent: hits charged {} us before the call at {} us, such as those of a grant",
            (BASE_US + loan.charged.start).saturating_sub(at),
            loan.charged.start
        ));
    }
}

/// A process lets holders deny requests only while one hit does not fit.
fn denies_what_does_not_fit(history: &CounterHistory<'_>, broken: &mut Vec<String>) {
    let rule = history.rule();
    // As in `no_unjustified_denial`.
    if rule.quota_ttl_s.is_some() || (!rule.is_long() && !history.clocks_agree()) {
        return;
    }
    let denials = history.report.chronicle.loans.denials.iter();
    for (_, during) in denials.filter(|(counter, _)| *counter == history.counter) {
        let own = (during.start, usize::MAX);
        let counted = history.most_counted(during.start, during.end, own);
        if counted < history.limit_min() {
            broken.push(format!(
                "unjustified denial of a loan at {} us: {counted} hits counted at most, of {}",
                during.start,
                history.limit_min()
            ));
            return;
        }
    }
}
