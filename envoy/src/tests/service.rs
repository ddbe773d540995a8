//! Exchanges with the service.

use super::{CONFIG, Wakes, World, advance, ask_each_request, clock, denial, loan, not_leasable};
use crate::exchange::CallResult;
use crate::filter::Filter;
use crate::host::Stat;
use crate::wire::Entry;

#[test]
fn a_hot_key_wants_a_block_with_its_demand() {
    let mut world = World::new();
    world.demand("ann", 7);
    assert_eq!(world.exchange(), None, "it is not hot");
    world.demand("ann", 1);
    let call = world.exchange().unwrap();
    assert_eq!((call.domain.as_str(), call.wants.len(), call.returns.len()), ("shop", 1, 0));
    let entry = Entry { key: b"tenant".to_vec(), value: b"ann".to_vec() };
    assert_eq!(call.wants[0].descriptor.as_ref().unwrap().entries, [entry]);
    assert_eq!(call.wants[0].hits, 80, "ten times as many as in its first instant");
    let head: Vec<_> = world.main.heads[0].iter().map(|(k, v)| [k.as_str(), v]).collect();
    assert!(head.contains(&[":path", "/tollgate.v1.LeaseService/Exchange"]), "{head:?}");
    assert!(head.contains(&["content-type", "application/grpc"]));
    world.demand("ann", 9);
    assert_eq!(world.exchange(), None, "one exchange is under way");
}

#[test]
fn the_next_block_is_wanted_before_one_is_empty_or_over() {
    let mut world = World::new();
    world.lend("ann", 8, 100);
    world.demand("ann", 5);
    assert_eq!(world.exchange(), None);
    world.demand("ann", 1);
    let call = world.exchange().unwrap();
    assert_eq!((call.wants[0].hits, call.returns.len()), (140, 0));
    world.answer(vec![loan(20, 100)]);
    assert_eq!(world.main.stat(Stat::Blocks), 2);
    advance(74);
    world.demand("ann", 1);
    assert_eq!(world.exchange(), None);
    advance(1);
    world.demand("ann", 1);
    assert_eq!(world.exchange().unwrap().wants.len(), 1, "the last quarter of its time has begun");
}

#[test]
fn a_block_is_returned_once_with_what_was_used() {
    let mut world = World::new();
    world.lend("ann", 8, 100);
    world.demand("ann", 3);
    advance(99);
    assert_eq!(world.exchange(), None);
    advance(1);
    let call = world.exchange().unwrap();
    let back = &call.returns[0];
    assert_eq!(
        (back.unused, back.used, back.receipt.as_slice()),
        (5, 3, b"receipt of 8".as_slice())
    );
    assert_eq!(back.descriptor.as_ref().unwrap().entries[0].value, b"ann");
    world.answer(vec![]);
    assert_eq!((world.exchange(), world.main.stat(Stat::Blocks)), (None, 0));
}

#[test]
fn a_lost_exchange_is_counted_and_not_repeated() {
    let mut world = World::new();
    world.lend("ann", 8, 100);
    world.demand("ann", 7);
    advance(100);
    let call = world.exchange().unwrap();
    assert_eq!((call.wants[0].hits, call.returns[0].unused), (15, 1));
    world.reply(CallResult::Reset);
    assert_eq!(world.main.stat(Stat::ExchangeErrors), 1);
    assert_eq!(world.main.stat(Stat::UnknownHits), 16);
    assert_eq!(world.main.warnings.len(), 1);
    world.demand("ann", 9);
    assert_eq!(world.exchange(), None, "it waits for a window");
    advance(100);
    world.demand("ann", 9);
    let call = world.exchange().unwrap();
    assert_eq!((call.wants.len(), call.returns.len()), (1, 0));
}

#[test]
fn answers_that_are_none_are_errors() {
    let body = b"\0\0\0\0\0".to_vec();
    let response = |status: &str, grpc: Option<&str>, body: &[u8]| CallResult::Response {
        status: status.as_bytes().to_vec(),
        grpc_status: grpc.map(|code| code.as_bytes().to_vec()),
        body: body.to_vec(),
    };
    for (result, reason) in [
        (response("503", None, &body), "status 503"),
        (response("200", Some("7"), b""), "gRPC status 7"),
        (response("200", None, b""), "the response has no message"),
        (CallResult::Reset, "the call was reset"),
    ] {
        let mut world = World::new();
        world.demand("ann", 8);
        world.exchange();
        world.reply(result);
        let expected =
            format!("tollgate: no exchange with cluster tollgate for domain shop: {reason}");
        assert_eq!(world.main.warnings, [expected]);
    }
}

#[test]
fn a_call_that_cannot_be_made_is_an_error_and_the_next_one_is_made() {
    let mut world = World::new();
    world.main.refuses = Some("the cluster does not exist");
    world.demand("ann", 8);
    assert_eq!(world.exchange(), None);
    assert_eq!(world.main.stat(Stat::ExchangeErrors), 1);
    assert_eq!(world.main.warnings.len(), 1);
    world.main.refuses = None;
    advance(500);
    world.demand("ann", 8);
    assert!(world.exchange().is_some());
}

#[test]
fn the_late_answer_of_another_call_is_ignored() {
    let mut world = World::new();
    world.demand("ann", 8);
    world.exchange();
    world.filter.driver().on_response(7, CallResult::Reset, &mut world.main);
    assert_eq!(world.main.stat(Stat::ExchangeErrors), 0);
    world.answer(vec![loan(8, 100)]);
    assert!(world.is_decided("ann"));
}

#[test]
fn a_key_that_is_lent_nothing_waits() {
    for (answer, wait) in
        [(ask_each_request(), 500), (denial(300), 300), (denial(1), 50), (not_leasable(), 10_000)]
    {
        let mut world = World::new();
        world.demand("ann", 8);
        world.exchange();
        world.answer(vec![answer.clone()]);
        advance(wait - 1);
        world.demand("ann", 9);
        assert_eq!(world.exchange(), None, "{answer:?}");
        advance(1);
        world.demand("ann", 9);
        assert!(world.exchange().is_some(), "{answer:?}");
    }
}

#[test]
fn blocks_of_another_generation_are_returned_and_no_longer_used() {
    let mut world = World::new();
    world.lend("ann", 8, 1_000);
    world.demand("ann", 6);
    world.exchange();
    let mut changed = ask_each_request();
    changed.generation = 2;
    world.answer(vec![changed]);
    assert!(!world.is_decided("ann"));
    let call = world.exchange().unwrap();
    assert_eq!((call.returns[0].unused, call.returns[0].used), (2, 6));
}

#[test]
fn an_exchange_has_a_bound_and_the_rest_follows() {
    let mut world = World::new();
    for tenant in 0..300 {
        world.demand(&format!("tenant {tenant}"), 8);
    }
    assert_eq!(world.exchange().unwrap().wants.len(), 256);
    world.answer(vec![]);
    assert!(world.exchange().unwrap().wants.len() >= 40);
}

#[test]
fn idle_keys_are_forgotten() {
    let mut world = World::new();
    world.lend("ann", 8, 100);
    advance(10_100);
    world.exchange();
    world.answer(vec![]);
    assert_eq!(world.filter.driver().leases().count(), 1, "its block was just returned");
    advance(1_000);
    world.exchange();
    assert_eq!(world.filter.driver().leases().count(), 0);
}

#[test]
fn a_new_configuration_takes_over_the_blocks_and_the_exchanges() {
    let mut world = World::new();
    world.lend("ann", 16, 1_000);
    world.demand("ann", 12);
    assert!(world.exchange().is_some(), "this call is under way when its configuration ends");
    let next = Filter::start(CONFIG.as_bytes(), &world.registry, Wakes::default(), clock).unwrap();
    world.filter = next;
    assert!(world.is_decided("ann"));
    assert_eq!(world.exchange(), None, "the key waits for a window");
    assert_eq!(world.main.stat(Stat::ExchangeErrors), 1);
    assert_eq!(world.main.stat(Stat::UnknownHits), 200);
    advance(1_000);
    assert_eq!(world.exchange().unwrap().returns[0].used, 13);
}

#[test]
fn another_domain_has_blocks_of_its_own() {
    let mut world = World::new();
    world.lend("ann", 16, 1_000);
    let config = CONFIG.replace("shop", "depot");
    world.filter =
        Filter::start(config.as_bytes(), &world.registry, Wakes::default(), clock).unwrap();
    assert!(!world.is_decided("ann"));
}
