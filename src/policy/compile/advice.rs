//! Limits that can work and are probably not meant.

use super::limit::Terms;
use crate::policy::document::written;
use crate::policy::report::Finding;

/// Warns of what can be seen from one rule.
pub(super) fn give(rule: &written::Rule, terms: &Terms, report: &mut dyn FnMut(Finding)) {
    if let Some(name) = rule.limit.as_ref().and_then(|limit| limit.name.as_ref())
        && name.value.contains(['"', '\\'])
    {
        let warning = Finding::warning(name.span, "a quote or backslash in the name of a limit");
        report(warning.note("proxies put the name between quotes in a header, as it is"));
    }
    let key = &rule.key.value;
    if let Some(written) = rule.limit.as_ref().filter(|_| terms.imposes.looks_postpaid(key, terms.name.as_deref())) {
        let warning = Finding::warning(written.span, "this looks paid afterwards, and is charged only when admitted");
        let why = "a peek nearly always passes, and a later charge that does not fit is lost";
        let way = "where the cost is known only when the response is done, write `charge: afterwards`";
        report(warning.note(why).note(way));
    }
}
