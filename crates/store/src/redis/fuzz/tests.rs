//! Short runs of each target, on its seeds and on mutations of them.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

use super::{reply, resp};

/// Reads the seeds of a target, in `fuzz/seeds`.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Mutates a seed: changes some bytes, and may drop a part.
fn mutated(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let changes = prop::collection::vec((any::<Index>(), any::<u8>()), 0..6);
    let cut = prop::option::of((any::<Index>(), 0usize..20));
    (prop::sample::select(seeds(target)), changes, cut).prop_map(|(mut bytes, changes, cut)| {
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        if let Some((at, length)) = cut {
            let from = at.index(bytes.len());
            bytes.drain(from..(from + length).min(bytes.len()));
        }
        bytes
    })
}

#[test]
fn seeds_are_read() {
    seeds("redis_reply").iter().for_each(|seed| reply::run(seed));
    for seed in seeds("resp") {
        assert!(redis::parse_redis_value(&seed).is_ok(), "{}", String::from_utf8_lossy(&seed));
        resp::run(&seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_reply_of_a_script_is_refused_or_decoded(bytes in mutated("redis_reply")) {
        reply::run(&bytes);
    }

    #[test]
    fn any_reply_of_a_server_is_read_or_refused(bytes in mutated("resp")) {
        resp::run(&bytes);
    }
}
