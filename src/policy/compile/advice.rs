//! Limits that can work and are probably not meant.

use super::limit::Terms;
use crate::algorithm::Charge;
use crate::policy::document::written;
use crate::policy::report::Finding;
use crate::policy::rule::Imposes;

/// Words, between separators, by which a key or a name says that its hits are a cost which is known afterwards. In the plural:
/// `token` is as often the key of a login.
const COSTS: [&str; 6] = ["tokens", "cost", "costs", "credits", "bytes", "spend"];

/// Warns of what can be seen from one rule.
pub(super) fn give(rule: &written::Rule, terms: &Terms, report: &mut dyn FnMut(Finding)) {
    if let Some(name) = rule.limit.as_ref().and_then(|limit| limit.name.as_ref())
        && name.value.contains(['"', '\\'])
    {
        let warning = Finding::warning(name.span, "a quote or backslash in the name of a limit");
        report(warning.note("proxies put the name between quotes in a header, as it is"));
    }
    let key = &rule.key.value;
    if let Some(written) = rule.limit.as_ref().filter(|_| looks_postpaid(&terms.imposes, key, terms.name.as_deref())) {
        let warning = Finding::warning(written.span, "this looks paid afterwards, and is charged only when admitted");
        let why = "a peek nearly always passes, and a later charge that does not fit is lost";
        let way = "where the cost is known only when the response is done, write `charge: afterwards`";
        report(warning.note(why).note(way));
    }
}

/// Whether a limit looks as if its hits became known afterwards, while it is charged only when they are admitted.
pub(in crate::policy) fn looks_postpaid(imposes: &Imposes, key: &str, name: Option<&str>) -> bool {
    match imposes {
        Imposes::Limit(limit) => limit.charge_mode() == Charge::Admitted && !limit.is_ban() && is_cost(key, name),
        Imposes::Nothing | Imposes::Unlimited => false,
    }
}

fn is_cost(key: &str, name: Option<&str>) -> bool {
    let texts = [Some(key), name];
    let words = texts.into_iter().flatten().flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()));
    let mut words = words.map(str::to_lowercase);
    words.any(|word| COSTS.contains(&word.as_str()))
}
