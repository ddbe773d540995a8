use proptest::prelude::*;
use prost::Message as _;

use super::super::proto::rate_limit_descriptor::Entry as EntryMessage;
use super::*;

const OPERATIONS: [&str; 3] = ["tollgate.reserve", "tollgate.commit", "tollgate.settle"];
const BOUNDS: RequestBounds = RequestBounds { descriptors: 4, entries: 3, all_entries: 8 };

fn of<'a>(
    number: usize,
    one: &'a RateLimitDescriptor,
    message: &RateLimitRequest,
) -> Result<Descriptor<'a>, InvalidRequest> {
    let found = one.entries.len();
    let allowed = BOUNDS.entries;
    if found > allowed {
        return Err(InvalidRequest::Entries { descriptor: number, found, allowed });
    }
    let hits = match one.hits_addend {
        Some(found) => {
            u32::try_from(found).map_err(|_| InvalidRequest::Hits { descriptor: number, found })?
        }
        None => message.hits_addend.max(1),
    };
    Ok(Descriptor {
        entries: one
            .entries
            .iter()
            .map(|entry| Entry { key: &entry.key, value: &entry.value })
            .collect(),
        hits: match (hits, one.is_negative_hits) {
            (hits, true) => Hits::Refund(hits),
            (0, false) => Hits::Peek(0),
            (hits, false) => Hits::Charge(hits),
        },
        hold: None,
        limit: one.limit.as_ref().map(|limit| wanted_limit(number, limit)).transpose()?,
    })
}

/// Returns the expected result of [`read`], from prost's decoding; `None` if prost cannot
/// decode it.
fn expected(bytes: &[u8]) -> Option<String> {
    let message = RateLimitRequest::decode(bytes).ok()?;
    let found = message.descriptors.len();
    let read: Result<Request<'_>, _> = match &message {
        message if message.domain.is_empty() => Err(InvalidRequest::NoDomain),
        _ if found == 0 => Err(InvalidRequest::NoDescriptors),
        _ if found > BOUNDS.descriptors => {
            Err(InvalidRequest::Descriptors { found, allowed: BOUNDS.descriptors })
        }
        message => {
            let mut entries = 0usize;
            let within_bounds = |(number, one)| {
                let descriptor = of(number, one, message)?;
                entries = entries.saturating_add(descriptor.entries.len());
                let found = entries;
                let allowed = BOUNDS.all_entries;
                let beyond = InvalidRequest::AllEntries { descriptor: number, found, allowed };
                if found > allowed { Err(beyond) } else { Ok(descriptor) }
            };
            let descriptors: Result<_, _> =
                message.descriptors.iter().enumerate().map(within_bounds).collect();
            descriptors.map(|descriptors| Request { domain: &message.domain, descriptors })
        }
    };
    Some(format!("{:?}", read.map_err(RequestError::from)))
}

fn entries() -> impl Strategy<Value = EntryMessage> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..4);
    (bytes(), bytes())
        .prop_map(|(key, value)| EntryMessage { key: key.into(), value: value.into() })
}

fn limits() -> impl Strategy<Value = RateLimitOverride> {
    (any::<u32>(), -1i32..9, prop::option::of(0u32..3)).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
            requests_per_unit,
            unit,
            unit_multiplier,
        },
    )
}

fn descriptors() -> impl Strategy<Value = RateLimitDescriptor> {
    let hits = prop::option::of(prop_oneof![0u64..3, any::<u64>()]);
    let parts =
        (prop::collection::vec(entries(), 0..5), prop::option::of(limits()), hits, any::<bool>());
    parts.prop_map(|(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
        entries,
        limit,
        hits_addend,
        is_negative_hits,
    })
}

fn requests() -> impl Strategy<Value = RateLimitRequest> {
    let parts = ("[a-zé]{0,3}", prop::collection::vec(descriptors(), 0..6), 0u32..3);
    parts.prop_map(|(domain, descriptors, hits_addend)| RateLimitRequest {
        domain,
        descriptors,
        hits_addend,
    })
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    requests().prop_map(|request| request.encode_to_vec())
}

proptest! {
    #[test]
    fn a_request_reads_as_prost_reads_it(message in messages()) {
        prop_assert_eq!(format!("{:?}", read(&message, &BOUNDS)), expected(&message).unwrap());
    }

    #[test]
    fn a_decoded_message_gives_the_request_or_the_error_of_an_encoded_one(
        mut message in requests(),
        operation in prop::option::of(prop::sample::select(&OPERATIONS)),
    ) {
        let last = message.descriptors.first_mut().and_then(|first| first.entries.last_mut());
        if let Some((last, key)) = last.zip(operation) {
            last.key = key.into();
        }
        let encoded = message.encode_to_vec();
        let found = of_message(&message, &BOUNDS).map_err(RequestError::from);
        prop_assert_eq!(found, read(&encoded, &BOUNDS));
    }

    /// Concatenated messages decode as one with the fields of both. Covers duplicate fields,
    /// other wire types and truncated messages.
    #[test]
    fn what_is_no_usual_message_reads_as_prost_reads_it(
        mut message in messages(),
        more in messages(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        length in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        message.extend(more);
        if !message.is_empty() {
            changes.iter().for_each(|(at, byte)| *at.get_mut(&mut message) = *byte);
            message.truncate(if is_cut { length.index(message.len()) } else { message.len() });
        }
        let found = read(&message, &BOUNDS);
        let expected = expected(&message);
        match expected {
            Some(expected) => prop_assert_eq!(format!("{found:?}"), expected),
            // If there are several errors, the two may report different ones.
            None => prop_assert!(found.is_err(), "{:?}", found),
        }
    }
}
