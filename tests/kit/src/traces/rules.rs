//! Random rules of policies, with limits of every kind.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::policy::{self, Source};

/// The option of a limit that records.
pub const RECORD: &str = ", record: [who, k0]";

/// A rule's limit as written, and the other options of the rule.
#[derive(Clone, Debug)]
pub struct RandomRule {
    pub limit: String,
    pub mode: &'static str,
}

impl RandomRule {
    /// Returns the rule without recording.
    pub fn without_record(self) -> Self {
        Self { limit: self.limit.replace(RECORD, ""), ..self }
    }
}

pub fn text_of(rules: &[RandomRule], in_one_slot: bool) -> String {
    let atomicity = if in_one_slot { "domain" } else { "limit" };
    let rule = |(number, RandomRule { limit, mode }): (usize, &RandomRule)| {
        format!("  - key: k{number}\n    rate_limit: {{ {limit} }}\n{mode}")
    };
    let rules: String = rules.iter().enumerate().map(rule).collect();
    format!("domain: test\natomicity: {atomicity}\ndescriptors:\n{rules}")
}

fn is_valid(rule: &RandomRule) -> bool {
    let text = text_of(std::slice::from_ref(rule), false);
    policy::load(&[Source { name: "policy".to_owned(), text }], &policy::CompileOptions::default())
        .is_ok()
}

pub fn policies() -> impl Strategy<Value = Vec<RandomRule>> {
    let of_all = || prop::collection::vec(rules(), 3..10);
    // If nearly every request had a limit that records, the others would not be tested.
    prop_oneof![
        of_all(),
        of_all().prop_map(|rules| rules.into_iter().map(RandomRule::without_record).collect())
    ]
}

pub fn rules() -> impl Strategy<Value = RandomRule> {
    let limits = prop_oneof![
        fixed_windows(),
        calendars(),
        sliding_windows(),
        weighted_windows(),
        logs(),
        rates()
    ];
    finished(limits).prop_filter("a limit that cannot work", is_valid)
}

/// Generates one rule with two amounts.
pub fn changing_rules() -> impl Strategy<Value = (RandomRule, RandomRule)> {
    let limits = prop_oneof![
        fixed_windows(),
        sliding_windows(),
        weighted_windows(),
        logs(),
        rates(),
        rates()
    ];
    let changed = (finished(limits), amounts(), amounts()).prop_map(|(rule, from, to)| {
        // All windows get the same two amounts; a configured burst stays.
        let with =
            |amount: u32| RandomRule { limit: with_amount(&rule.limit, amount), ..rule.clone() };
        (with(from), with(to))
    });
    changed.prop_filter("a limit that cannot work", |(from, to)| is_valid(from) && is_valid(to))
}

fn with_amount(limit: &str, amount: u32) -> String {
    let mut parts = limit.split("requests_per_unit: ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        format!("{text}requests_per_unit: {amount}{rest}")
    })
}

/// Extends limits with options that every algorithm has.
fn finished(limits: impl Strategy<Value = String>) -> impl Strategy<Value = RandomRule> {
    let charges = select(vec![
        "",
        ", charge: admitted",
        ", charge: blamed",
        ", charge: always",
        ", charge: afterwards",
    ]);
    let inherits = select(vec!["", "", ", override: inherit"]);
    let records = select(vec!["", "", RECORD]);
    let modes = select(vec![
        "",
        "",
        "",
        "    shadow_mode: true\n",
        "    quota_mode: true\n",
        "    quota_mode: true\n    shadow_mode: true\n",
    ]);
    (limits, charges, inherits, records, modes).prop_map(
        |(limit, charge, inherit, record, mode)| {
            // Options that do not apply are left out.
            let whole = RandomRule { limit: format!("{limit}{charge}{inherit}{record}"), mode };
            if is_valid(&whole) {
                whole
            } else {
                RandomRule { limit: format!("{limit}{record}"), mode }
            }
        },
    )
}

fn amounts() -> impl Strategy<Value = u32> {
    prop_oneof![
        12 => 1u32..12,
        4 => select(vec![60, 997, 10_000, 999_983, 300_000]),
        1 => select(vec![0, u32::MAX]),
        1 => any::<u32>(),
    ]
}

fn periods() -> impl Strategy<Value = &'static str> {
    select(vec![
        "1ms", "7ms", "250ms", "997ms", "second", "7s", "15s", "minute", "2m", "hour", "day",
        "week", "month", "year", "3650d",
    ])
}

fn windows() -> impl Strategy<Value = String> {
    prop::collection::vec((amounts(), periods()), 1..4).prop_map(|windows| {
        let window = |(amount, unit): &(u32, &str)| {
            format!("{{ requests_per_unit: {amount}, unit: {unit} }}")
        };
        format!("windows: [{}]", windows.iter().map(window).collect::<Vec<_>>().join(", "))
    })
}

/// Generates one window, which may inherit an override's.
fn window() -> impl Strategy<Value = String> {
    (amounts(), periods())
        .prop_map(|(amount, unit)| format!("requests_per_unit: {amount}, unit: {unit}"))
}

fn fixed_windows() -> impl Strategy<Value = String> {
    prop_oneof![windows(), window()]
}

fn calendars() -> impl Strategy<Value = String> {
    let zones = vec![
        "UTC",
        "Europe/Berlin",
        "America/St_Johns",
        "Pacific/Apia",
        "Asia/Kathmandu",
        "Africa/Cairo",
    ];
    (amounts(), select(vec!["day", "week", "month", "year"]), select(zones)).prop_map(
        |(amount, unit, zone)| {
            format!("requests_per_unit: {amount}, unit: {unit}, calendar: true, time_zone: {zone}")
        },
    )
}

fn sliding_windows() -> impl Strategy<Value = String> {
    (prop_oneof![windows(), window()], select(vec![1, 2, 7, 10, 60, 1_000])).prop_map(
        |(windows, buckets)| {
            let coarse = if windows.contains("unit: 1ms") || windows.contains("unit: 7ms") {
                buckets.min(10)
            } else {
                buckets
            };
            format!("algorithm: sliding_window, {windows}, buckets: {coarse}")
        },
    )
}

fn weighted_windows() -> impl Strategy<Value = String> {
    (prop_oneof![windows(), window()], select(vec![1, 2, 4, 10, 50])).prop_map(
        |(windows, buckets)| {
            format!("algorithm: sliding_window, {windows}, buckets: {buckets}, estimate: weighted")
        },
    )
}

fn logs() -> impl Strategy<Value = String> {
    let amounts = || prop_oneof![8 => 1u32..12, 1 => select(vec![997, 10_000])];
    prop::collection::vec((amounts(), periods()), 1..4).prop_map(|windows| {
        let window = |(amount, unit): &(u32, &str)| {
            format!("{{ requests_per_unit: {amount}, unit: {unit} }}")
        };
        let windows: Vec<_> = windows.iter().map(window).collect();
        format!("algorithm: sliding_log, windows: [{}]", windows.join(", "))
    })
}

fn rates() -> impl Strategy<Value = String> {
    let bursts = prop::option::of(prop_oneof![1u32..20, select(vec![997, 300_000])]);
    let debts = prop::option::of(select(vec![0, 1, 3, 1_000]));
    let words = select(vec!["gcra", "token_bucket"]);
    (words, window(), bursts, debts).prop_map(|(algorithm, window, burst, debt)| {
        let burst = burst.map(|burst| format!(", burst: {burst}")).unwrap_or_default();
        let debt = debt.map(|debt| format!(", max_debt: {debt}")).unwrap_or_default();
        format!("algorithm: {algorithm}, {window}{burst}{debt}")
    })
}
