//! The methods that clients can call, and how the calls of each are read.

use super::fast_path::UnaryMethod;
use super::service::quotas;
use crate::http2::{MessageCall, Route, WholeCall};

/// Maximum size of a message to health or reflection, in bytes: names of services and types.
pub(super) const MAX_OTHER_MESSAGE: usize = 4 << 10;
/// Maximum size of a message to `LeaseService`, in bytes: 256 wants and 256 returns with
/// descriptors of 40 bytes.
pub(super) const MAX_LEASE_MESSAGE: usize = 64 << 10;
/// Maximum size of a message to `HoldService`, in bytes: descriptors as those of a proxy, of one
/// piece of work.
pub(super) const MAX_HOLD_MESSAGE: usize = 16 << 10;

/// Memory of a call of tonic's services in bytes, measured and rounded up: request, future and
/// body; for reflection also responses of 36 KB each, as messages and encoded.
pub(super) const SERVICE_COST: usize = 16 << 10;
const REFLECTION_COST: usize = 160 << 10;
/// Memory of a byte of a message as received and as decoded. An empty entry of `LeaseService` of 2
/// bytes takes 64; its items are charged when they are known, as are large requests of
/// `HoldService` for their descriptors.
const OF_HOLD: usize = 6;
const OF_LEASE: usize = 33;
const OF_OTHER: usize = 2;

/// Mode of reading the calls of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// Answered in place, see [`super::fast_path`].
    InPlace(UnaryMethod),
    /// One message of at most `max` bytes, each of which takes `byte_cost`.
    Whole { byte_cost: usize, max: usize },
    /// Messages of at most `max` bytes.
    Messages { cost: usize, max: usize },
}

const HOLD: Reading = Reading::Whole { byte_cost: OF_HOLD, max: MAX_HOLD_MESSAGE };
const LEASE: Reading = Reading::Whole { byte_cost: OF_LEASE, max: MAX_LEASE_MESSAGE };
const HEALTH: Reading = Reading::Whole { byte_cost: OF_OTHER, max: MAX_OTHER_MESSAGE };
const REFLECTION: Reading = Reading::Messages { cost: REFLECTION_COST, max: MAX_OTHER_MESSAGE };
const QUOTAS: Reading = Reading::Messages { cost: SERVICE_COST, max: usize::MAX };

/// All methods by their paths, the most frequent ones first.
const METHODS: [(&str, Reading); 12] = [
    (UnaryMethod::ShouldRateLimit.path(), Reading::InPlace(UnaryMethod::ShouldRateLimit)),
    (UnaryMethod::Check.path(), Reading::InPlace(UnaryMethod::Check)),
    ("/tollgate.v1.HoldService/Reserve", HOLD),
    ("/tollgate.v1.HoldService/Extend", HOLD),
    ("/tollgate.v1.HoldService/Commit", HOLD),
    ("/tollgate.v1.HoldService/Cancel", HOLD),
    ("/tollgate.v1.LeaseService/Exchange", LEASE),
    (quotas::PATH, QUOTAS),
    ("/grpc.health.v1.Health/Check", HEALTH),
    ("/grpc.health.v1.Health/Watch", HEALTH),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", REFLECTION),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECTION),
];

/// Returns the paths of all methods.
pub fn paths() -> impl Iterator<Item = &'static str> {
    METHODS.into_iter().map(|(path, _)| path)
}

/// Returns the route of the calls of a method, whose messages have at most `max_message` bytes;
/// `None` for an unknown one. `head` reads the headers of a call that is answered in place.
pub(super) fn route<H>(
    path: &[u8],
    max_message: usize,
    head: impl FnOnce(UnaryMethod) -> H,
) -> Option<Route<H>> {
    let (_, reading) = METHODS.iter().find(|(known, _)| path == known.as_bytes())?;
    Some(match *reading {
        Reading::InPlace(method) => Route::Unary { head: head(method), max_message },
        Reading::Whole { byte_cost, max } => Route::Whole(WholeCall {
            cost: SERVICE_COST,
            byte_cost,
            max_message: max.min(max_message),
        }),
        Reading::Messages { cost, max } => {
            Route::Messages(MessageCall { cost, max_message: max.min(max_message) })
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::grpc::proto::PROTOCOL;

    /// Returns the paths of the methods of a descriptor set, with the kind of each.
    fn methods_of(descriptors: &[u8]) -> Vec<(String, bool)> {
        let set = FileDescriptorSet::decode(descriptors).unwrap();
        let services = set.file.iter().flat_map(|file| {
            file.service.iter().map(|service| (file.package().to_owned(), service.clone()))
        });
        let methods = services.flat_map(|(package, service)| {
            let prefix = format!("/{package}.{}/", service.name());
            let path = move |name: &str| format!("{prefix}{name}");
            let method = move |method: &prost_types::MethodDescriptorProto| {
                (path(method.name()), method.client_streaming())
            };
            service.method.iter().map(method).collect::<Vec<_>>()
        });
        methods.collect()
    }

    #[test]
    fn the_methods_are_those_of_the_descriptors_and_read_as_they_say() {
        let described = [
            PROTOCOL,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        let described: BTreeSet<_> = described.into_iter().flat_map(methods_of).collect();
        let reads_messages = |reading| matches!(reading, Reading::Messages { .. });
        let known = METHODS.map(|(path, reading)| (path.to_owned(), reads_messages(reading)));
        assert_eq!(BTreeSet::from(known), described);
    }

    #[test]
    fn a_message_is_within_the_bound_of_its_method_and_of_all() {
        let whole = |path, max| match route(path, max, |_| ()) {
            Some(Route::Whole(call)) => call.max_message,
            other => panic!("{other:?}"),
        };
        assert_eq!(whole(b"/tollgate.v1.HoldService/Commit", 1 << 20), MAX_HOLD_MESSAGE);
        assert_eq!(whole(b"/tollgate.v1.HoldService/Commit", 100), 100);
        assert_eq!(route(b"/tollgate.v1.HoldService/Reserves", 100, |_| ()), None);
    }
}
