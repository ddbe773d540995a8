//! Differences between the mappings of HTTP requests of two policy sets.

use std::collections::BTreeMap;

use super::{Change, Detail};
use crate::PolicySet;

/// Returns a change for each mapping that is new, gone, or not the same.
pub(super) fn changes(old: &PolicySet, new: &PolicySet) -> Vec<Change> {
    let old = texts(old);
    let new = texts(new);
    let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| change(old.get(name), new.get(name))).collect()
}

/// Returns the domain and the text of each mapping, by name.
fn texts(set: &PolicySet) -> BTreeMap<&str, (&str, String)> {
    let mappings = set.mappings().iter().map(|mapping| {
        let text = mapping.to_string().trim_end().replace("\n  ", "; ");
        (mapping.name(), (mapping.domain(), text))
    });
    mappings.collect()
}

fn change(old: Option<&(&str, String)>, new: Option<&(&str, String)>) -> Option<Change> {
    let (domain, _) = new.or(old)?;
    let [old, new] = [old, new].map(|mapping| mapping.map(|(_, text)| text.clone()));
    let detail = Detail { what: "requests", old, new };
    let is_change = detail.old != detail.new;
    is_change.then(|| Change::changed(domain, "", "those of HTTP requests", detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CompileOptions, Source, diff, load};

    fn set(mappings: &str) -> PolicySet {
        let text = format!("domain: shop\nrequests: [{mappings}]\n");
        let source = Source { name: "shop.yaml".to_owned(), text };
        let loaded = load(&[source], &CompileOptions::default());
        loaded.unwrap_or_else(|report| panic!("{report}")).policies
    }

    fn mapping(name: &str, header: &str) -> String {
        format!(
            "{{ name: {name}, descriptors: [{{ entries: {{ user: {{ header: {header} }} }} }}] }}"
        )
    }

    #[test]
    fn new_changed_and_removed_mappings_are_differences() {
        let old = set(&[mapping("a", "x-user"), mapping("b", "x-user")].join(", "));
        let new = set(&[mapping("a", "x-account"), mapping("c", "x-user")].join(", "));
        let text = diff::text_of(&diff::diff(&old, &new), usize::MAX);
        insta::assert_snapshot!(text, @r#"
        ~ shop: the domain changed
            descriptors     those of HTTP requests
            requests        "a" to domain "shop", trusted hops: 0, undecided: error; hits: 1, "user" from header "x-user" -> "a" to domain "shop", trusted hops: 0, undecided: error; hits: 1, "user" from header "x-account"
        ~ shop: the domain changed
            descriptors     those of HTTP requests
            requests        removed: "b" to domain "shop", trusted hops: 0, undecided: error; hits: 1, "user" from header "x-user"
        ~ shop: the domain changed
            descriptors     those of HTTP requests
            requests        "c" to domain "shop", trusted hops: 0, undecided: error; hits: 1, "user" from header "x-user"
        3 changed; existing counters restarted: 0
        "#);
        assert!(diff::diff(&old, &old).is_empty());
    }
}
