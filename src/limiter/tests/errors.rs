//! Store errors that limits meet: counted by rule, with their effect.

use super::*;
use crate::telemetry::metrics::{Effect, met};

const RULES: &str = "
  - {key: e, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: a, rate_limit: {unit: hour, requests_per_unit: 9, on_store_error: allow}}
  - {key: n, rate_limit: {unit: hour, requests_per_unit: 9, on_store_error: deny}}
  - {key: z, rate_limit: {unit: hour, requests_per_unit: 0}}
";

/// Returns a limiter whose store has no room.
fn full() -> LimiterFixture {
    bench_of(load(&format!("domain: d\ndescriptors:{RULES}")), Modes::default(), 64)
}

/// Returns the effects of store errors on rules, with their numbers.
fn effects(bench: &LimiterFixture) -> Vec<(String, Effect, u64)> {
    let mut all = Vec::new();
    bench.metrics.undecided(|_, rule, table| {
        all.extend(met(table).map(|(error, effect, count)| {
            assert_eq!(error, StoreError::NoRoom);
            (rule.to_owned(), effect, count)
        }));
    });
    all.sort();
    all
}

#[test]
fn each_limit_counts_the_effect_of_a_store_error_on_it() {
    let bench = full();
    bench.decide(&[take("a"), take("none"), take("n")]);
    bench.decide_in("d", &[take("e"), take("a")]).unwrap_err();
    // A certain denial decides the request: of the other limit it is presumed that it allows.
    bench.decide(&[take("e"), take("z")]);
    let row = |rule: &str, effect, count| (rule.to_owned(), effect, count);
    let expected = [
        row("a", Effect::Failed, 1),
        row("a", Effect::Allowed, 1),
        row("e", Effect::Failed, 1),
        row("e", Effect::Allowed, 1),
        row("n", Effect::Denied, 1),
    ];
    assert_eq!(effects(&bench), expected);
    let failed = ["a", "e", "n", "z"].map(|rule| bench.metrics.of_rule("d", rule).failed.get());
    assert_eq!(failed, [1, 1, 0, 0]);
}

#[test]
fn a_peek_and_a_request_without_errors_count_none() {
    let bench = full();
    bench.run("d", &[hits("e", Hits::Peek(1))], true).unwrap();
    bench.decide(&[take("z"), take("none")]);
    assert_eq!(effects(&bench), []);
}
