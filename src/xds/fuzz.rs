//! Fuzz target for responses of a control plane, run by cargo-fuzz, and for some seconds by the
//! tests below.
//!
//! Part of the crate, for tests and fuzzing only, because the parser of responses is private.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a target that panics has found something"
)]

use prost::Message;
use prost_types::Any;

use super::delta::Delta;
use super::resource::TYPE_URL;
use super::sotw::StateOfTheWorld;
use super::{Update, XdsProtocol};
use crate::grpc::proto::envoy::config::core::v3::Node;
use crate::grpc::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource,
};
use crate::policy::{CompileOptions, PolicyDialect, load};

/// Reads responses, each preceded by its length. The first byte selects the variant of the
/// protocol, and whether the parts are whole responses, or configurations to be put into responses.
pub fn run(bytes: &[u8]) {
    count_applied(bytes);
}

/// Returns the number of responses that were applied.
fn count_applied(bytes: &[u8]) -> usize {
    let [variant, rest @ ..] = bytes else { return 0 };
    let mut delta = Delta::new(Node::default());
    let mut state = StateOfTheWorld::new(Node::default());
    let mut applied = 0;
    for part in parts(rest) {
        applied += match variant % 4 {
            0 => take(&mut state, DiscoveryResponse::decode(part).ok()),
            1 => take(&mut delta, DeltaDiscoveryResponse::decode(part).ok()),
            2 => take(&mut state, Some(whole(part))),
            _ => take(&mut delta, Some(change(part))),
        };
    }
    delta.open();
    state.open();
    applied
}

fn parts(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let [high, low, rest @ ..] = bytes {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (part, after) = rest.split_at(length);
        parts.push(part);
        bytes = after;
    }
    parts
}

/// Handles a response, if there is one. Returns 1 if it was applied.
fn take<P: XdsProtocol>(protocol: &mut P, response: Option<P::Response>) -> usize {
    let Some(response) = response else { return 0 };
    let mut applied = 0;
    let mut apply = |update: Update| {
        let options = CompileOptions {
            merge_domains: true,
            dialect: PolicyDialect::Envoyproxy,
            ..CompileOptions::default()
        };
        let sources = update.map_err(|error| error.to_string())?;
        load(&sources, &options).map_err(|report| report.to_string())?;
        applied = 1;
        Ok::<_, String>(())
    };
    let _ = protocol.take(response, &mut apply);
    applied
}

fn whole(config: &[u8]) -> DiscoveryResponse {
    DiscoveryResponse {
        resources: vec![envelope(config)],
        type_url: TYPE_URL.to_owned(),
        ..DiscoveryResponse::default()
    }
}

/// Builds a change. The first byte names the resource that is set, its successor the one that is
/// removed.
fn change(bytes: &[u8]) -> DeltaDiscoveryResponse {
    let (name, config) = bytes.split_at(bytes.len().min(1));
    let removed = name.iter().map(|name| name.wrapping_add(1).to_string());
    let name = name.first().map(u8::to_string).unwrap_or_default();
    let resource = Resource { name, resource: Some(envelope(config)), ..Resource::default() };
    DeltaDiscoveryResponse {
        resources: vec![resource],
        removed_resources: removed.collect(),
        type_url: TYPE_URL.to_owned(),
        ..DeltaDiscoveryResponse::default()
    }
}

fn envelope(config: &[u8]) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.to_vec() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// Returns the seeds in `fuzz/seeds/xds`.
    fn seeds() -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/xds");
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn any_responses_are_applied_or_refused(
            seed in prop::sample::select(seeds()),
            variant in any::<u8>(),
            changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..6),
        ) {
            let mut bytes = seed;
            bytes[0] = variant;
            for (at, byte) in changes {
                *at.get_mut(&mut bytes) = byte;
            }
            run(&bytes);
        }
    }

    #[test]
    fn every_seed_is_applied() {
        for seed in seeds() {
            assert!(count_applied(&seed) > 0, "{}", String::from_utf8_lossy(&seed));
        }
    }
}
