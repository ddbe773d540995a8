//! Tests that the example policies impose the limits that they describe.

use std::path::{Path, PathBuf};

use tollgate_core::descriptor::KeyBuffer;

use super::super::source::files;
use super::super::{CompileOptions, Imposes, PolicySet, load};

fn examples() -> PolicySet {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/policies");
    let sources = files::read(&files::PolicyLocations {
        paths: vec![folder],
        ..files::PolicyLocations::default()
    })
    .unwrap();
    let loaded =
        load(&sources, &CompileOptions::default()).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    loaded.policies
}

/// Returns the effect on `domain key=value key=value`.
fn imposed(set: &PolicySet, descriptor: &str) -> String {
    let mut words = descriptor.split(' ');
    let domain = words.next().unwrap();
    let pairs: Vec<_> = words.map(|pair| pair.split_once('=').unwrap()).collect();
    let rule = set.find(domain).unwrap().find(&super::entries(&pairs), &mut KeyBuffer::default());
    match rule.map(|rule| rule.imposes()) {
        None => "no rule".to_owned(),
        Some(Imposes::Nothing) => "nothing".to_owned(),
        Some(Imposes::Unlimited) => "unlimited".to_owned(),
        Some(Imposes::Limit(limit)) => {
            let windows = limit
                .windows()
                .iter()
                .map(|window| format!("{}/{}", window.limit(), window.period()));
            windows.collect::<Vec<_>>().join(" ")
        }
    }
}

#[test]
fn every_example_loads_without_warnings_and_limits_as_described() {
    let set = examples();
    let cases = [
        ("gateway remote_address=10.0.0.1", "100/1m"),
        ("gateway remote_address=192.0.2.10", "unlimited"),
        ("api_keys api_key=k", "1000/1s 5000/10s 7000/15s"),
        ("tiers plan=free user=1", "100/1m"),
        ("tiers plan=premium user=1", "1000/1m"),
        ("tiers plan=new user=1", "100/1m"),
        ("login account=a", "5/15m"),
        ("login remote_address=10.0.0.1", "100/1h"),
        ("llm model=large tenant=t", "100000/1m"),
        ("llm model=small-2 tenant=t", "50000000/30d"),
        ("tenants tenant=mallory", "0/1s"),
        ("tenants tenant=acme", "unlimited"),
        ("tenants tenant=test-7", "50/1s"),
        ("tenants tenant=other route=export", "20/1h"),
    ];
    for (descriptor, expected) in cases {
        assert_eq!(imposed(&set, descriptor), expected, "{descriptor}");
    }
}
