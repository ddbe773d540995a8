use std::time::Duration;

use tollgate_lease::holder::{Exchanger, LeaseAnswer, WantAnswer};

use super::*;

/// Returns a table without a service that answers its wants.
fn table() -> Leases {
    Leases::new(Replicas::new("127.0.0.1:1").unwrap())
}

fn user(name: &str) -> Descriptor {
    Descriptor::new("user", name)
}

/// Requests one hit, and returns `true` if it is admitted.
fn decide(leases: &Leases, descriptors: &[Descriptor]) -> bool {
    leases.decide("shop", descriptors, 1).is_some()
}

/// Lends a block of 10 hits for a descriptor, and empty ones for others that want some.
fn lend(leases: &Leases, descriptor: &Descriptor) {
    let mut exchanger = Exchanger::new();
    let mut has_lent = false;
    while !has_lent {
        decide(leases, std::slice::from_ref(descriptor));
        exchanger.collect(&leases.table.leases, clock::now());
        let Some(exchange) = exchanger.begin(clock::now()) else { continue };
        let answers = exchange.wants.iter().map(|want| {
            let is_it = want.key().descriptor == *descriptor;
            has_lent |= is_it;
            let answer = WantAnswer::Loan {
                hits: if is_it { 10 } else { 0 },
                receipt: Vec::new(),
                usable_for: Duration::from_secs(60),
                counter: None,
            };
            LeaseAnswer { generation: 0, answer }
        });
        let answers = answers.collect();
        exchanger.finish(exchange, answers, clock::now());
    }
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
        user(&"x".repeat(MAX_KEY_BYTES)),
        (0..64).map(|_| ("", "")).collect(),
    ] {
        for _ in 0..8 {
            assert!(!decide(&leases, &[user("bob"), refused.clone()]));
        }
    }
    assert!(!leases.table.leases.has_wants());
    for _ in 0..8 {
        decide(&leases, &[Descriptor::new("tollgate.settle", "").and("path", "x".repeat(900))]);
    }
    assert!(leases.table.leases.has_wants());
}

#[test]
fn outside_of_a_runtime_nothing_is_exchanged_and_nothing_fails() {
    let leases = table();
    for _ in 0..16 {
        assert!(!decide(&leases, &[user("ann")]));
    }
    let task = leases.task.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(task.is_some());
}
