//! Decisions of requests.

use super::{FakeRequest, World, advance, denial, loan};
use crate::config::RateLimits;
use crate::filter::Verdict;
use crate::host::Stat;

#[test]
fn a_request_without_a_block_goes_on_untouched() {
    let world = World::new();
    let (verdict, request) = world.send(FakeRequest::of("ann"));
    assert_eq!(verdict, Verdict::Continue(None));
    assert!(!request.is_marked && request.response.is_none());
    assert_eq!(request.counts, [Stat::PassedOn]);
}

#[test]
fn a_block_admits_its_hits_with_headers_until_its_end() {
    let mut world = World::new();
    world.lend("ann", 3, 100);
    let (verdict, request) = world.send(FakeRequest::of("ann"));
    assert!(request.is_marked && request.response.is_none());
    assert_eq!(request.counts, [Stat::Decided]);
    let Verdict::Continue(Some(limits)) = verdict else { panic!("no headers") };
    let values = limits.pairs().map(|(_, value)| value);
    assert_eq!(values, ["1000, 1000;w=60", "502", "30"], "two hits remain in hand");
    assert!(!world.is_decided("bob"));
    advance(99);
    assert!(world.is_decided("ann"));
    advance(1);
    assert!(!world.is_decided("ann"), "a hit remains, and its time has passed");
}

#[test]
fn an_empty_block_admits_nothing() {
    let mut world = World::new();
    world.lend("ann", 4, 100);
    let decided = (0..6).filter(|_| world.is_decided("ann")).count();
    assert_eq!(decided, 4);
}

#[test]
fn a_request_that_cannot_be_marked_is_passed_on_and_costs_nothing() {
    let mut world = World::new();
    world.lend("ann", 1, 100);
    let refusing = FakeRequest { refuses_mark: true, ..FakeRequest::of("ann") };
    assert_eq!(world.send(refusing).1.counts, [Stat::PassedOn]);
    assert!(world.is_decided("ann"));
}

#[test]
fn several_descriptors_are_admitted_from_all_blocks_or_passed_on() {
    let mut world = World::new();
    let both = || FakeRequest::with(&[("x-tenant", "ann"), ("x-path", "/")]);
    world.lend("ann", 2, 100);
    assert!(!world.send(both()).1.is_marked, "the path has no block");
    for _ in 0..7 {
        world.send(both());
    }
    world.exchange();
    world.answer(vec![loan(1, 100)]);
    assert!(world.send(both()).1.is_marked);
    assert!(!world.send(both()).1.is_marked, "the path has no hit left");
    let decided = (0..4).filter(|_| world.is_decided("ann")).count();
    assert_eq!(decided, 1, "the other hit of the tenant was put back");
}

#[test]
fn a_denial_is_answered_until_it_ends() {
    let mut world = World::new();
    world.demand("ann", 8);
    world.exchange();
    world.answer(vec![denial(100)]);
    let (verdict, request) = world.send(FakeRequest::of("ann"));
    assert_eq!(verdict, Verdict::Answered);
    assert_eq!(request.counts, [Stat::OverLimit]);
    let (status, headers, details) = request.response.unwrap();
    assert_eq!((status, details.as_str()), (429, "request_rate_limited"));
    let headers: Vec<_> = headers.iter().map(|(name, value)| [name.as_str(), value]).collect();
    let expected = [
        ["x-envoy-ratelimited", "true"],
        ["x-ratelimit-limit", "1000, 1000;w=60"],
        ["x-ratelimit-remaining", "0"],
        ["x-ratelimit-reset", "30"],
        ["retry-after", "30"],
    ];
    assert_eq!(headers, expected);
    let (_, request) = world.send(FakeRequest::with(&[("x-tenant", "ann"), ("x-path", "/")]));
    assert!(request.response.is_none(), "the service charges the other descriptor");
    advance(100);
    assert_eq!(world.send(FakeRequest::of("ann")).0, Verdict::Continue(None));
}

#[test]
fn hits_in_hand_are_admitted_although_the_service_denies() {
    let mut world = World::new();
    world.lend("ann", 4, 1_000);
    world.demand("ann", 3);
    world.exchange();
    world.answer(vec![denial(100)]);
    assert!(world.is_decided("ann"));
    assert_eq!(world.send(FakeRequest::of("ann")).0, Verdict::Answered);
}

#[test]
fn requests_without_a_route_or_descriptors_are_not_counted() {
    let world = World::new();
    let lost = FakeRequest { cluster: None, ..FakeRequest::of("ann") };
    for request in [lost, FakeRequest::with(&[])] {
        let (verdict, request) = world.send(request);
        assert_eq!((verdict, request.counts.len()), (Verdict::Continue(None), 0));
    }
}

#[test]
fn a_request_that_names_a_counter_twice_is_passed_on() {
    let config = super::CONFIG.replace("x-path", "x-tenant").replace("\"path\"", "\"tenant\"");
    let world = World::with(&config);
    for _ in 0..20 {
        assert_eq!(world.send(FakeRequest::of("ann")).1.counts, [Stat::PassedOn]);
    }
    assert!(!world.filter.driver().leases().has_wants());
}

#[test]
fn a_route_has_descriptors_of_its_own() {
    let mut world = World::new();
    world.lend("ann", 4, 100);
    let none = RateLimits::read(b"{}").unwrap();
    let other = r#"{"rate_limits": [{"actions": [{"destination_cluster": {}}]}]}"#;
    let other = RateLimits::read(other.as_bytes()).unwrap();
    for (limits, counts) in [(&none, [].as_slice()), (&other, &[Stat::PassedOn])] {
        let mut request = FakeRequest::of("ann");
        let verdict = world.filter.decide(&mut request, Some(limits));
        assert_eq!((verdict, request.counts.as_slice()), (Verdict::Continue(None), counts));
    }
}
