//! Arbitrary bytes from users, clients and the service.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::{CONFIG, FakeRequest, World, advance, denial, loan};
use crate::config::Config;
use crate::exchange::CallResult;
use crate::filter::descriptors;
use crate::wire::{Answer, ExchangeResponse, LeaseAnswer, frame, unframe};

/// Bytes that replace those from a place on.
type Splice = (Index, usize, Vec<u8>);

fn splices() -> impl Strategy<Value = Vec<Splice>> {
    vec((any::<Index>(), 0..8_usize, vec(any::<u8>(), 0..4)), 0..4)
}

/// Returns the bytes after the splices.
fn spliced(bytes: &[u8], splices: &[Splice]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (place, removed, added) in splices {
        let start = place.index(bytes.len() + 1);
        let end = bytes.len().min(start + removed);
        bytes.splice(start..end, added.iter().copied());
    }
    bytes
}

/// Sends so many requests of a tenant, and returns how many were admitted here.
fn admitted(world: &World, tenant: &str, count: usize) -> u64 {
    (0..count).filter(|_| world.is_decided(tenant)).count() as u64
}

fn hits(response: &ExchangeResponse) -> u64 {
    let lent = |answer: &LeaseAnswer| match &answer.answer {
        Some(Answer::Loan(loan)) => u64::from(loan.hits),
        _ => 0,
    };
    response.answers.iter().map(lent).sum()
}

proptest! {
    #[test]
    fn a_configuration_is_read_or_refused_with_a_reason(splices in splices()) {
        if let Err(error) = Config::read(&spliced(CONFIG.as_bytes(), &splices)) {
            let text = error.to_string();
            prop_assert!(text.starts_with("filter_config") || text.starts_with("the conf"), "{text}");
        }
    }

    #[test]
    fn an_answer_of_any_bytes_admits_no_more_than_it_lends(
        answers in vec((0..3_u8, 0..40_u32, -10..2_000_i32), 0..4),
        splices in splices(),
        status in prop_oneof![Just(b"200".to_vec()), vec(any::<u8>(), 0..4)],
        wait in 0..100_u64,
    ) {
        let answers = answers.into_iter().map(|(kind, hits, ms)| match kind {
            0 => denial(ms),
            _ => loan(hits, ms),
        });
        let body = frame(&ExchangeResponse { answers: answers.collect() });
        let body = spliced(&body, &splices);
        let lent = unframe::<ExchangeResponse>(&body).map_or(0, |response| hits(&response));
        let lent = if status == b"200" { lent } else { 0 };
        let mut world = World::new();
        world.demand("ann", 8);
        prop_assert_eq!(world.exchange().unwrap().wants.len(), 1);
        world.reply(CallResult::Response { status, grpc_status: None, body });
        let mut sum = admitted(&world, "ann", 50);
        advance(wait);
        sum += admitted(&world, "ann", 50);
        prop_assert!(sum <= lent, "{sum} admitted, {lent} lent");
        prop_assert_eq!(admitted(&world, "bob", 1), 0, "nothing was lent to this key");
    }

    #[test]
    fn the_entries_of_a_descriptor_are_the_values_of_the_request(
        value in vec(any::<u8>(), 0..1_200),
        path in proptest::option::of(vec(any::<u8>(), 0..40)),
    ) {
        let config = Config::read(CONFIG.as_bytes()).unwrap();
        let mut request = FakeRequest::default();
        request.headers.insert("x-tenant".to_owned(), vec![value.clone()]);
        request.headers.extend(path.clone().map(|path| ("x-path".to_owned(), vec![path])));
        let mut expected = vec![(b"tenant".to_vec(), value)];
        expected.extend(path.map(|path| (b"path".to_vec(), path)));
        let found = descriptors(&config.rate_limits, &request).unwrap();
        prop_assert_eq!(found.len(), expected.len());
        for (descriptor, expected) in found.iter().zip(&expected) {
            let entries = descriptor.message().entries;
            let entries: Vec<_> = entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
            prop_assert_eq!(entries, std::slice::from_ref(expected));
        }
    }
}
