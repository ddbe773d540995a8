use super::*;
use crate::grpc::proto::ratelimit::config::ratelimit::v3::RateLimitReplace;
use crate::policy::{self, CompileOptions, Imposes, PolicySet, load};

const ROOM: usize = 1 << 20;

fn limit(unit: RateLimitUnit, requests_per_unit: u32) -> Option<RateLimitPolicy> {
    Some(RateLimitPolicy { unit: unit.into(), requests_per_unit, ..RateLimitPolicy::default() })
}

fn rule(key: &str, value: &str) -> RateLimitDescriptor {
    RateLimitDescriptor { key: key.into(), value: value.into(), ..RateLimitDescriptor::default() }
}

fn config(descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig {
        name: "ns/gateway/http".into(),
        domain: "ns/gateway/http".into(),
        descriptors,
    }
}

fn loaded(config: &RateLimitConfig) -> Result<PolicySet, policy::ProblemReport> {
    load(&[source(config, ROOM).unwrap()], &CompileOptions::default()).map(|loaded| loaded.policies)
}

#[test]
fn a_configuration_of_envoy_gateway_is_read_like_a_file() {
    let route = "httproute/ns/app/rule/0/match/0/*";
    let address = RateLimitDescriptor {
        rate_limit: limit(RateLimitUnit::Hour, 3),
        ..rule("masked_remote_address", "0.0.0.0/0")
    };
    let header = RateLimitDescriptor {
        descriptors: vec![address],
        ..rule("rule-0-match-0", "rule-0-match-0")
    };
    let whole = RateLimitDescriptor {
        rate_limit: limit(RateLimitUnit::Week, 21),
        shadow_mode: true,
        ..rule("rule-1-match--1", "rule-1-match--1")
    };
    let route = RateLimitDescriptor { descriptors: vec![header, whole], ..rule(route, route) };
    let source = source(&config(vec![route]), ROOM).unwrap();
    assert_eq!(source.name, "ns/gateway/http");
    insta::assert_snapshot!(source.text, @r#"
    domain: "ns/gateway/http"
    descriptors:
      - key: "httproute/ns/app/rule/0/match/0/*"
        value: "httproute/ns/app/rule/0/match/0/*"
        descriptors:
          - key: "rule-0-match-0"
            value: "rule-0-match-0"
            descriptors:
              - key: "masked_remote_address"
                value: "0.0.0.0/0"
                rate_limit:
                  unit: hour
                  requests_per_unit: 3
          - key: "rule-1-match--1"
            value: "rule-1-match--1"
            shadow_mode: true
            rate_limit:
              unit: week
              requests_per_unit: 21
    "#);
    assert_eq!(load(&[source], &CompileOptions::default()).unwrap().policies.rules().count(), 4);
}

#[test]
fn every_text_comes_through_as_it_is() {
    for text in [
        "yes",
        "~",
        "10",
        "1e3",
        "a: b # c",
        "\"\\",
        "*",
        "\n\t\0\u{7f}\u{85}\u{2028}\u{feff}",
        "ä€𝄞",
        " ",
        "- x",
    ] {
        let name = text.to_owned();
        let limit = limit(RateLimitUnit::Day, 1).map(|limit| RateLimitPolicy { name, ..limit });
        let config = config(vec![RateLimitDescriptor { rate_limit: limit, ..rule(text, text) }]);
        let policies = loaded(&config).unwrap_or_else(|report| panic!("{report}"));
        let rule = policies.rules().next().unwrap();
        assert_eq!((rule.step(), rule.name()), (format!("{text}={text}"), Some(text)));
    }
}

#[test]
fn the_whole_of_a_limit_and_the_metadata_come_through() {
    let replaces = vec![RateLimitReplace { name: "other".into() }];
    let limit = Some(RateLimitPolicy {
        name: "mine".into(),
        replaces,
        ..limit(RateLimitUnit::Minute, 5).unwrap()
    });
    let number = |number: f64| Value::from(number);
    let inner = Struct {
        fields: [("burst".to_owned(), number(20.0)), ("algorithm".to_owned(), Value::from("gcra"))]
            .into(),
    };
    let options = Struct {
        fields: [("rate_limit".to_owned(), Value::from(Kind::StructValue(inner)))].into(),
    };
    let fields = [
        ("tollgate".to_owned(), Value::from(Kind::StructValue(options))),
        ("list".to_owned(), Value::from(vec![number(1.5), Value::from("yes"), Value::from(true)])),
    ];
    let metadata = Some(Struct { fields: fields.into() });
    let descriptor = RateLimitDescriptor {
        rate_limit: limit,
        quota_mode: true,
        detailed_metric: true,
        metadata,
        ..rule("k", "")
    };
    let policies = loaded(&config(vec![descriptor])).unwrap_or_else(|report| panic!("{report}"));
    let rule = policies.rules().next().unwrap();
    assert_eq!((rule.name(), rule.algorithm(), rule.replaces().len()), (Some("mine"), "gcra", 1));
    assert!(rule.quota_mode() && rule.detailed_metric() && !rule.shadow_mode());
    assert_eq!(rule.metadata().unwrap().to_string(), r#"{"list":[1.5,"yes",true]}"#);
}

#[test]
fn an_unlimited_rule_has_no_unit_and_one_with_a_unit_is_refused() {
    let unlimited = |unit: RateLimitUnit| {
        let limit =
            RateLimitPolicy { unlimited: true, unit: unit.into(), ..RateLimitPolicy::default() };
        loaded(&config(vec![RateLimitDescriptor { rate_limit: Some(limit), ..rule("k", "") }]))
    };
    let set = unlimited(RateLimitUnit::Unknown).unwrap();
    assert_eq!(set.rules().next().unwrap().imposes(), &Imposes::Unlimited);
    let report = unlimited(RateLimitUnit::Day).unwrap_err().to_string();
    assert!(report.contains("`unit` and `unlimited: true` cannot be combined"), "{report}");
}

#[test]
fn an_invalid_configuration_is_reported_at_its_position() {
    let unknown = RateLimitPolicy { unit: 99, requests_per_unit: 1, ..RateLimitPolicy::default() };
    let none = limit(RateLimitUnit::Unknown, 1);
    let broken = [
        RateLimitDescriptor { rate_limit: Some(unknown), ..rule("a", "") },
        RateLimitDescriptor { rate_limit: none, ..rule("b", "") },
        rule("", ""),
    ];
    let report = loaded(&config(broken.into())).unwrap_err().to_string();
    for part in [
        "ns/gateway/http:5:13",
        "invalid unit `99`",
        "invalid unit `unknown`",
        "`key` must not be empty",
    ] {
        assert!(report.contains(part), "{part}\n{report}");
    }
}

#[test]
fn a_text_that_is_too_long_is_none() {
    let deep = (0..90).fold(rule("k", ""), |below, _| RateLimitDescriptor {
        descriptors: vec![below],
        ..rule("k", "")
    });
    let wide = config(vec![deep; 100]);
    assert!(source(&wide, 1_000).is_none());
    assert!(source(&wide, ROOM * 10).is_some());
}
