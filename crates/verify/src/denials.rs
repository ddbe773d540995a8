//! Denials that no order of the calls explains.

use tollgate_core::printable::counted;

use crate::bound::CounterModel;
use crate::charge::TimedCharge;
use crate::counted::{Place, PossibleCharge, SortedCharges};
use crate::history::{CallAction, ObservedCall};

/// A denied call, with the places in which it may have been judged.
struct Denial<'a> {
    call: &'a ObservedCall,
    /// Places in which the limit can have been reached.
    explained: Vec<Place>,
    /// The others.
    open: Vec<Place>,
}

impl<'a> Denial<'a> {
    fn new(model: &CounterModel, call: &'a ObservedCall, skew: u64) -> Self {
        let bounds = model.bounds.iter().enumerate();
        // Nothing explains that a request about a hold that was reserved before is denied.
        let bounds = bounds.filter(|_| call.action.is_charge());
        let open = bounds.flat_map(|(bound, of)| {
            of.windows(call, skew).map(move |window| Place { bound, window })
        });
        Self { call, explained: Vec::new(), open: open.collect() }
    }

    /// Moves the places that are explained, and returns `true` if there are any.
    fn explain(&mut self, model: &CounterModel, charges: &SortedCharges<'_>, skew: u64) -> bool {
        let before = self.explained.len();
        let explained = self.open.extract_if(.., |place| {
            let bound = model.bounds.get(place.bound);
            bound.is_some_and(|bound| bound.can_deny(self.call, *place, charges, skew))
        });
        self.explained.extend(explained);
        self.explained.len() > before
    }
}

/// Returns the denials for which the limit cannot have been reached, with the reason in words.
///
/// A denied call may have charged its hits, which explain later denials of the same window. But
/// the first denial of a window needs hits that were not denied: hence the least fixed point, over
/// denials and windows.
pub(crate) fn unexplained<'a>(
    model: &CounterModel,
    calls: &'a [ObservedCall],
    charges: &[TimedCharge<'_>],
    skew: u64,
) -> Vec<(&'a ObservedCall, String)> {
    let mut denials: Vec<Denial<'a>> = calls
        .iter()
        .filter(|call| call.is_denied())
        .map(|call| Denial::new(model, call, skew))
        .collect();
    let not_denied = charges.iter().filter(|charge| !charge.call.is_denied());
    let sorted = loop {
        let denied = denials.iter().filter(|one| model.charges_denied && !one.explained.is_empty());
        let denied = denied.map(|one| PossibleCharge::at(one.call, one.explained.clone()));
        let charged = not_denied.clone().copied().map(PossibleCharge::anywhere).chain(denied);
        let sorted = SortedCharges::new(std::iter::empty(), charged);
        let explained = denials.iter_mut().filter_map(|denial| {
            let has_open = !denial.open.is_empty();
            (has_open && denial.explain(model, &sorted, skew)).then_some(())
        });
        if explained.count() == 0 || !model.charges_denied {
            break sorted;
        }
    };
    let open = denials.into_iter().filter(|denial| denial.explained.is_empty());
    let with_reason = open.map(|denial| {
        let used = model.bounds.iter().enumerate().map(|(index, bound)| {
            let used = bound.most_used(index, denial.call, &sorted, skew);
            format!("at most {used} of {} were used", bound.at_once())
        });
        let used = used.collect::<Vec<_>>().join(" and ");
        let denied = match (denial.call.action, denial.call.hits) {
            (CallAction::Repeat { .. }, _) => "repeated reserve denied".to_owned(),
            (CallAction::Extend { .. }, _) => "extension of a hold denied".to_owned(),
            (CallAction::End { .. } | CallAction::EndAgain { .. }, _) => {
                "end of a hold denied".to_owned()
            }
            (_, 0) => "peek denied".to_owned(),
            (_, hits) => format!("{} denied", counted(hits, "hit")),
        };
        (denial.call, format!("{denied}, though {used}"))
    });
    with_reason.collect()
}
