//! Matching of descriptors.

use std::time::Duration;

use proptest::prelude::*;

use super::super::MatchedBy;
use super::{cpu_time, entries, hit, load_all, path, policies};

#[test]
fn exact_goes_before_wildcards_in_written_order_before_the_key_alone() {
    let text = "domain: d
descriptors:
- {key: k}
- {key: k, value: ab*}
- {key: k, value: a*}
- {key: k, value: abc}
";
    let set = policies(text);
    let hits = ["abc", "abd", "a", "x", ""].map(|value| path(&set, &[("k", value)]).unwrap());
    assert_eq!(hits, ["k=abc", "k=ab*", "k=a*", "k", "k"]);
    assert_eq!(
        path(&set, &[("k", "a*")]).unwrap(),
        "k=a*",
        "the text of a pattern is an exact hit of its rule"
    );
}

#[test]
fn the_whole_depth_must_match_and_there_is_no_way_back() {
    let text = "domain: d
descriptors:
- {key: k, value: v, descriptors: [{key: a}]}
- {key: k, descriptors: [{key: b}]}
";
    let set = policies(text);
    assert_eq!(path(&set, &[("k", "v"), ("a", "1")]).unwrap(), "k=v > a");
    assert_eq!(path(&set, &[("k", "v"), ("b", "1")]), None);
    assert_eq!(path(&set, &[("k", "w"), ("b", "1")]).unwrap(), "k > b");
    assert_eq!(path(&set, &[("k", "w"), ("b", "1"), ("c", "1")]), None);
    assert_eq!(path(&set, &[]), None);
    assert!(set.find("elsewhere").is_none());
}

#[test]
fn a_counter_is_per_value_that_its_path_leaves_open() {
    let text = "domain: d\ndescriptors:\n- {key: plan, value: free, descriptors: [{key: user}]}\n- {key: x*, value: v}\n";
    let set = policies(text);
    let key = |plan, user| hit(&set, &[("plan", plan), ("user", user)]).unwrap().1;
    assert_ne!(key("free", "1"), key("free", "2"));
    assert_ne!(hit(&set, &[("x1", "v")]), hit(&set, &[("x2", "v")]));
}

#[test]
fn a_trace_has_every_step() {
    let set = policies(
        "domain: d\ndescriptors:\n- {key: k, value: a*}\n- {key: k, value: b*}\n- {key: k}\n",
    );
    let policy = set.find("d").unwrap();
    let taken = |value| {
        let steps = policy.trace(&entries(&[("k", value), ("x", "y")]));
        assert_eq!(steps.len(), 2);
        assert!(steps[1].taken.is_none());
        (steps[0].siblings, steps[0].wildcards.len(), steps[0].taken.map(|(taken, _)| taken))
    };
    assert_eq!(taken("a1"), (3, 1, Some(MatchedBy::Wildcard)));
    assert_eq!(taken("b1"), (3, 2, Some(MatchedBy::Wildcard)));
    assert_eq!(taken("b*"), (3, 0, Some(MatchedBy::Exact)));
    assert_eq!(taken("c"), (3, 2, Some(MatchedBy::KeyAlone)));
}

#[test]
fn a_value_that_makes_wildcards_go_back_and_forth_does_not() {
    let set = policies("domain: d\ndescriptors:\n- {key: k, value: '*a*a*a*a*a*a*a*a*a*a*b'}\n");
    let long = "a".repeat(60_000);
    let begun = cpu_time();
    assert_eq!(path(&set, &[("k", &long)]), None);
    assert!(cpu_time() - begun < Duration::from_secs(1));
}

/// Returns the CPU time to match a value of 60 KB with this many patterns, each of which it begins
/// to match again and again.
fn time_of_patterns(count: usize) -> Duration {
    let rules: String =
        (0..count).map(|n| format!("- {{key: k, value: '*word{n:04}*'}}\n")).collect();
    let set = policies(&format!("domain: d\ndescriptors:\n{rules}"));
    let value = "wor ".repeat(15_000);
    let time = |_| {
        let begun = cpu_time();
        assert_eq!(path(&set, &[("k", &value)]), None);
        cpu_time().saturating_sub(begun)
    };
    (0..5).map(time).min().unwrap()
}

#[test]
fn a_thousand_patterns_cost_about_as_much_as_twenty() {
    let few = time_of_patterns(20);
    let many = time_of_patterns(1_000);
    assert!(many < 5 * few, "20 patterns take {few:?}, 1,000 take {many:?}");
}

#[test]
fn ten_thousand_siblings_cost_a_look_up() {
    let rules: String = (0..10_000).map(|n| format!("- {{key: k, value: v{n}}}\n")).collect();
    let begun = cpu_time();
    let set = policies(&format!("domain: d\ndescriptors:\n{rules}"));
    let compiling = cpu_time() - begun;
    assert!(compiling < Duration::from_secs(10), "compiled in {compiling:?}");
    let begun = cpu_time();
    for n in 0..10_000 {
        assert_eq!(path(&set, &[("k", &format!("v{n}"))]), Some(format!("k=v{n}")));
    }
    // Comparing each with each would take 100 million comparisons.
    let matching = cpu_time() - begun;
    assert!(matching < Duration::from_secs(5), "matched in {matching:?}");
}

/// A rule of the reference implementation.
#[derive(Clone, Debug)]
struct Plain {
    key: String,
    value: String,
    children: Vec<Plain>,
}

/// Matches by definition: `*` is any text, one letter at a time.
fn stands_for(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, _) => text.is_empty(),
        (Some((b'*', rest)), _) => {
            stands_for(rest, text)
                || text.split_first().is_some_and(|(_, t)| stands_for(pattern, t))
        }
        (Some((p, rest)), Some((t, text))) => p == t && stands_for(rest, text),
        (Some(_), None) => false,
    }
}

fn reference(rules: &[Plain], pairs: &[(String, String)]) -> Option<String> {
    let ((key, value), rest) = pairs.split_first()?;
    let wild = |rule: &&Plain| rule.key.contains('*') || rule.value.contains('*');
    let fits = |rule: &&Plain| {
        let any = rule.value.is_empty();
        stands_for(rule.key.as_bytes(), key.as_bytes())
            && (any || stands_for(rule.value.as_bytes(), value.as_bytes()))
    };
    let exact =
        rules.iter().find(|rule| rule.key == *key && rule.value == *value && !value.is_empty());
    let rule = exact
        .or_else(|| rules.iter().filter(wild).find(fits))
        .or_else(|| rules.iter().find(|rule| rule.key == *key && rule.value.is_empty()))?;
    let step = if rule.value.is_empty() {
        rule.key.clone()
    } else {
        format!("{}={}", rule.key, rule.value)
    };
    if rest.is_empty() {
        Some(step)
    } else {
        Some(format!("{step} > {}", reference(&rule.children, rest)?))
    }
}

fn written(rules: &[Plain]) -> String {
    let rule = |rule: &Plain| {
        format!(
            "{{key: '{}', value: '{}', descriptors: [{}]}}",
            rule.key,
            rule.value,
            written(&rule.children)
        )
    };
    rules.iter().map(rule).collect::<Vec<_>>().join(", ")
}

fn rules() -> impl Strategy<Value = Vec<Plain>> {
    let one = |children: BoxedStrategy<Vec<Plain>>| {
        ("[ab*]{1,2}", "[ab*]{0,3}", children).prop_map(|(key, value, children)| Plain {
            key,
            value,
            children,
        })
    };
    let some = move |count, children| {
        proptest::collection::vec(one(children), count).prop_map(|mut rules| {
            let mut seen = std::collections::HashSet::new();
            rules.retain(|rule: &Plain| seen.insert((rule.key.clone(), rule.value.clone())));
            rules
        })
    };
    let below = some(0..6, some(0..6, Just(Vec::new()).boxed()).boxed()).boxed();
    // Few wildcards are tried one after the other, many at once.
    prop_oneof![some(0..6, below.clone()), some(9..20, below)]
}

proptest! {
    #[test]
    fn the_matcher_is_the_definition(rules in rules(), pairs in proptest::collection::vec(("[ab*]{1,2}", "[ab*]{0,4}"), 1..4)) {
        let set = load_all(&[&format!("domain: d\ndescriptors: [{}]\n", written(&rules))]).unwrap().policies;
        let borrowed: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = reference(&rules, &pairs);
        prop_assert_eq!(path(&set, &borrowed), expected.clone());
        let steps = set.find("d").unwrap().trace(&entries(&borrowed));
        let last = steps.last().filter(|_| steps.len() == pairs.len()).and_then(|step| step.taken);
        prop_assert_eq!(last.map(|(_, rule)| rule.path().to_owned()), expected);
    }
}
