use std::sync::PoisonError;

use super::*;

/// Returns a table without a service that answers its wants.
fn table() -> Leases {
    Leases::new(Replicas::new("127.0.0.1:1").unwrap())
}

fn user(name: &str) -> Descriptor {
    Descriptor::new("user", name)
}

fn entries(leases: &Leases) -> usize {
    leases.entries.iter().filter(|entry| entry.load().is_some()).count()
}

/// Requests one hit, and returns `true` if it is admitted.
fn decide(leases: &Leases, descriptors: &[Descriptor]) -> bool {
    leases.decide("shop", descriptors, 1).is_some()
}

/// Lends a block of 10 hits for a descriptor.
fn lend(leases: &Leases, descriptor: &Descriptor) {
    let key = leases.key("shop", descriptor, 0);
    let usable_for = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let loan = crate::generated::tollgate::v1::Loan { hits: 10, usable_for, ..Default::default() };
    let now = Moment::now();
    key.as_ref().unwrap().lent(LentBlock::new(loan, now, now.monotonic));
}

#[test]
fn a_request_takes_hits_of_all_descriptors_or_of_none() {
    let leases = table();
    lend(&leases, &user("ann"));
    let both = [user("ann"), user("bob")];
    assert!(!decide(&leases, &both));
    assert!(leases.decide("shop", &both[..1], 10).is_some(), "the hit was put back");
    lend(&leases, &user("bob"));
    assert!(!decide(&leases, &both), "there is none for ann");
    lend(&leases, &user("ann"));
    let decision = leases.decide("shop", &both, 10).unwrap();
    assert_eq!((decision.allowed, decision.statuses.len()), (true, 2));
    assert_eq!(leases.stats().decided, 2);
}

#[test]
fn a_request_without_hits_or_with_a_descriptor_twice_is_not_decided() {
    let leases = table();
    lend(&leases, &user("ann"));
    assert!(leases.decide("shop", &[user("ann")], 0).is_none());
    assert!(!decide(&leases, &[user("ann"), user("ann")]));
    assert!(!decide(&leases, &[]));
    let many: Vec<_> = (0..=DESCRIPTORS).map(|number| user(&number.to_string())).collect();
    many.iter().for_each(|descriptor| lend(&leases, descriptor));
    assert!(!decide(&leases, &many) && decide(&leases, &many[1..]));
}

#[test]
fn keys_differ_by_domain_and_by_the_ends_of_their_texts() {
    let leases = table();
    lend(&leases, &Descriptor::new("ab", "c"));
    for other in
        [Descriptor::new("a", "bc"), Descriptor::new("ab", "c").and("", ""), Descriptor::default()]
    {
        assert!(!decide(&leases, &[other]));
    }
    assert!(leases.decide("shops", &[Descriptor::new("ab", "c")], 1).is_none());
    assert!(decide(&leases, &[Descriptor::new("ab", "c")]));
}

#[test]
fn descriptors_that_an_exchange_may_not_have_are_not_in_the_table() {
    let leases = table();
    for refused in [
        user("ann").and("tollgate.reserve", "id"),
        user("ann").and("tollgate.commit", "id"),
        Descriptor::new("tollgate.settle", "id"),
        user(&"x".repeat(KEY_BYTES)),
        (0..64).map(|_| ("", "")).collect(),
    ] {
        decide(&leases, &[user("bob"), refused]);
    }
    assert_eq!(entries(&leases), 0);
    decide(&leases, &[Descriptor::new("tollgate.settle", "").and("path", "x".repeat(900))]);
    assert_eq!(entries(&leases), 1);
}

#[test]
fn an_entry_goes_to_another_key_unless_it_has_a_block_or_more_demand() {
    let leases = table();
    lend(&leases, &user("held"));
    let hot = user("hot");
    for _ in 0..5 {
        decide(&leases, std::slice::from_ref(&hot));
    }
    // As many others as replace each key that is not kept.
    for number in 0..3 * ENTRIES {
        decide(&leases, &[user(&number.to_string())]);
    }
    assert!(entries(&leases) <= ENTRIES);
    let is_there = |descriptor: &Descriptor| {
        let found = leases.entries.iter().map(ArcSwapOption::load);
        found.into_iter().any(|key| key.as_ref().is_some_and(|key| key.descriptor == *descriptor))
    };
    assert!(is_there(&user("held")));
    let last = user(&(3 * ENTRIES - 1).to_string());
    assert!(is_there(&last), "a key that was requested once is replaced");
}

#[test]
fn outside_of_a_runtime_nothing_is_exchanged_and_nothing_fails() {
    let leases = table();
    for _ in 0..2 * key::HOT {
        assert!(!decide(&leases, &[user("ann")]));
    }
    let exchanger = leases.exchanger.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(exchanger.is_some());
}
