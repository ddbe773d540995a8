use std::net::Ipv4Addr;

use super::*;
use crate::connection::ConnectionLoad;
use crate::observer::NoObserver;

const BOUNDS: ConnectionBounds =
    ConnectionBounds { total: 4, per_address: None, leaving: MAX_LEAVING };

fn registry(bounds: ConnectionBounds, places: usize) -> Arc<Registry> {
    // A quarter is reserved for calls.
    let budget = Arc::new(Budget::new((places * CONNECTION_COST).div_ceil(3) * 4));
    Registry::new(bounds, budget, Arc::new(NoObserver))
}

fn address(last: u8) -> Option<SocketAddr> {
    Some((Ipv4Addr::new(10, 0, 0, last), 1000 + u16::from(last)).into())
}

fn load(is_busy: bool, last_stream: u32, held: usize) -> ConnectionLoad {
    ConnectionLoad { is_busy, last_stream, held }
}

fn is_evicted(registration: &Registration) -> bool {
    registration.shared.index.load(Ordering::Relaxed) == LEAVING
}

/// Returns the time this many milliseconds after the registry was created.
fn at(registry: &Registry, millis: u64) -> Instant {
    registry.begun + Duration::from_millis(millis)
}

#[test]
fn the_connection_that_is_idle_longest_gives_way() {
    let registry = registry(BOUNDS, 100);
    let open: Vec<_> = (1..=4).map(|last| registry.register(address(last)).unwrap()).collect();
    for (number, millis) in [400, 200, 100, 300].into_iter().enumerate() {
        open[number].usage().record(load(false, 1, 0), at(&registry, millis));
    }
    let fifth = registry.register(address(5)).unwrap();
    assert_eq!(open.iter().map(is_evicted).collect::<Vec<_>>(), [false, false, true, false]);
    // The eviction has freed the slot already: closing the connection frees none.
    drop(open);
    assert!(!is_evicted(&fifth));
    let state = registry.state.lock();
    assert_eq!((state.open.len(), state.leaving.len(), state.by_network.len()), (1, 0, 1));
    drop(state);
}

#[test]
fn an_evicted_client_that_stays_is_cut_for_the_next_eviction() {
    use futures_util::FutureExt as _;
    let registry = registry(ConnectionBounds { leaving: 2, ..BOUNDS }, 100);
    let all: Vec<_> =
        (1..=8).map(|last| registry.register(address(last)).expect("it has a place")).collect();
    let is_cut = |registration: &Registration| registration.cut().now_or_never().is_some();
    assert_eq!(all.iter().filter(|one| is_evicted(one)).count(), 4);
    assert_eq!(all.iter().filter(|one| is_cut(one)).count(), 2);
    let gone = || {
        let state = registry.state.lock();
        (state.leaving.len(), state.closing)
    };
    assert_eq!(gone(), (2, 2));
    drop(all);
    assert_eq!(gone(), (0, 0));
}

#[test]
fn those_of_the_address_that_has_most_give_way_first() {
    let registry = registry(BOUNDS, 100);
    let lone = registry.register(address(1)).unwrap();
    lone.usage().record(load(false, 1, 0), at(&registry, 0));
    let many: Vec<_> = (0..3).map(|_| registry.register(address(2)).unwrap()).collect();
    many.iter().for_each(|one| one.usage().record(load(false, 1, 0), at(&registry, 500)));
    let newcomer = registry.register(address(3)).unwrap();
    assert!(!is_evicted(&lone) && !is_evicted(&newcomer));
    assert_eq!(many.iter().filter(|one| is_evicted(one)).count(), 1);
}

#[test]
fn addresses_of_one_network_of_ipv6_count_together() {
    let registry = registry(ConnectionBounds { per_address: Some(1), ..BOUNDS }, 100);
    let of = |text: &str| Some(text.parse().unwrap());
    let first = registry.register(of("[2001:db8::1]:1")).unwrap();
    first.usage().record(load(true, 1, 0), at(&registry, 0));
    assert!(registry.register(of("[2001:db8::2]:1")).is_none());
    assert!(registry.register(of("[2001:db8:0:1::2]:1")).is_some());
    assert!(registry.register(of("[::ffff:10.0.0.1]:1")).is_some());
    let same = registry.register(of("10.0.0.1:1")).unwrap();
    assert!(!is_evicted(&same), "an idle one of the same address gave way");
}

#[test]
fn an_address_with_too_many_connections_costs_no_other_one_its_own() {
    let registry = registry(ConnectionBounds { per_address: Some(2), ..BOUNDS }, 100);
    let [other, first, second] = [1, 2, 2].map(|last| registry.register(address(last)).unwrap());
    for (number, one) in [&other, &first, &second].into_iter().enumerate() {
        one.usage().record(load(false, 1, 0), at(&registry, 100 * (number as u64 + 1)));
    }
    let third = registry.register(address(2)).unwrap();
    assert_eq!([&other, &first, &second, &third].map(is_evicted), [false, true, false, false]);
}

#[test]
fn a_connection_with_calls_does_not_give_way() {
    let registry = registry(ConnectionBounds { total: 1, ..BOUNDS }, 100);
    let only = registry.register(None).unwrap();
    let mut usage = only.usage();
    usage.record(load(true, 1, 0), at(&registry, 0));
    assert!(registry.register(None).is_none());
    assert!(!is_evicted(&only));
    usage.record(load(false, 1, 0), at(&registry, 1));
    assert!(registry.register(None).is_some());
    assert!(is_evicted(&only));
}

#[test]
fn a_connection_with_calls_gives_way_to_one_of_a_network_that_has_fewer() {
    let registry = registry(ConnectionBounds { total: 3, ..BOUNDS }, 100);
    let open: Vec<_> = [1, 1, 2].map(|last| registry.register(address(last)).unwrap()).into();
    open.iter().for_each(|one| one.usage().record(load(true, 1, 0), at(&registry, 0)));
    assert!(registry.register(address(1)).is_none() && registry.register(address(2)).is_none());
    let newcomer = registry.register(address(3)).unwrap();
    newcomer.usage().record(load(true, 1, 0), at(&registry, 0));
    assert_eq!(open.iter().filter(|one| is_evicted(one)).count(), 1);
    assert!(!is_evicted(&open[2]) && registry.register(address(4)).is_none(), "all have one");
}

#[test]
fn calls_between_two_turns_are_use_and_pings_are_not() {
    let registry = registry(BOUNDS, 100);
    let open = registry.register(None).unwrap();
    let mut usage = open.usage();
    let idle_since = || open.shared.idle_since.load(Ordering::Relaxed);
    usage.record(load(false, 1, 0), at(&registry, 100));
    usage.record(load(false, 1, 0), at(&registry, 200));
    assert_eq!(idle_since(), 100);
    usage.record(load(false, 3, 0), at(&registry, 300));
    assert_eq!(idle_since(), 300);
    usage.record(load(true, 5, 0), at(&registry, 400));
    usage.record(load(false, 5, 0), at(&registry, 500));
    assert_eq!(idle_since(), 500);
}

#[test]
fn connections_are_charged_to_the_budget_and_leave_calls_their_part() {
    let registry = registry(ConnectionBounds { total: 100, ..BOUNDS }, 3);
    let open: Vec<_> = (0..3).map(|_| registry.register(None).unwrap()).collect();
    open.iter().for_each(|one| one.usage().record(load(true, 1, 0), at(&registry, 0)));
    assert!(registry.register(None).is_none());
    assert!(registry.budget.hold(CONNECTION_COST).is_ok(), "for calls");
    open[1].usage().record(load(false, 1, 0), at(&registry, 0));
    let next = registry.register(None);
    assert!(next.is_some() && is_evicted(&open[1]));
    drop((open, next));
    assert_eq!(registry.budget.used(), 0);
}

#[test]
fn for_lack_of_memory_idle_connections_go_and_then_those_that_hold_most() {
    let registry = registry(ConnectionBounds { total: 100, ..BOUNDS }, 100);
    let open: Vec<_> = (0..20).map(|_| registry.register(None).unwrap()).collect();
    for (one, held) in open.iter().zip([5_000, 20_000, 30_000]) {
        one.usage().record(load(true, 1, held), at(&registry, 0));
    }
    let gone = || open.iter().filter(|one| is_evicted(one)).count();
    // A connection that was just opened is spared, and all are while there is memory.
    registry.relieve_once(at(&registry, 0));
    assert_eq!(gone(), 0);
    let held = registry.budget.hold(registry.budget.max() * 3 / 4).unwrap();
    registry.relieve_once(at(&registry, 0));
    assert!(gone() == 1 && is_evicted(&open[2]));
    let later = at(&registry, 60_000);
    registry.relieve_once(later);
    assert_eq!(gone(), 1 + RELIEVED_AT_ONCE);
    registry.relieve_once(later);
    assert_eq!(gone(), 18);
    registry.relieve_once(later);
    registry.relieve_once(later);
    assert!(
        is_evicted(&open[1]) && !is_evicted(&open[0]),
        "one that holds what clients usually hold is let be"
    );
    drop(held);
}

#[test]
fn evicted_clients_that_do_not_close_though_they_are_cut_keep_others_out() {
    let registry = registry(ConnectionBounds { total: 1, per_address: None, leaving: 1 }, 100);
    // One that is open, one that leaves, and as many that are cut as may be.
    let mut all: Vec<_> = (0..18).map(|_| registry.register(None).expect("a place")).collect();
    assert!(registry.register(None).is_none());
    drop(all.remove(0));
    assert!(registry.register(None).is_some());
    drop(all);
    assert_eq!(registry.state.lock().closing, 0);
}

#[test]
fn a_search_goes_on_behind_the_last_one() {
    let bounds = ConnectionBounds { total: 1_500, per_address: None, leaving: MAX_LEAVING };
    let registry = registry(bounds, 2_000);
    let all: Vec<_> = (0..1_500).map(|_| registry.register(None).unwrap()).collect();
    for (number, one) in all.iter().enumerate() {
        let millis = if [1_023, 1_024, 1_400].contains(&number) { 100 } else { 200 };
        one.usage().record(load(false, 1, 0), at(&registry, millis));
    }
    let mut newer = Vec::new();
    for expected in [1_023, 1_400] {
        newer.push(registry.register(None).unwrap());
        newer[newer.len() - 1].usage().record(load(true, 1, 0), at(&registry, 300));
        let gone: Vec<_> = (0..all.len()).filter(|number| is_evicted(&all[*number])).collect();
        assert_eq!(gone.last(), Some(&expected), "{gone:?}");
    }
    assert!(!is_evicted(&all[1_024]), "the latest of equal ones goes first");
}

#[test]
fn an_idle_connection_is_spared_for_a_second() {
    let registry = registry(BOUNDS, 100);
    let open = registry.register(None).unwrap();
    open.usage().record(load(false, 1, 0), at(&registry, 500));
    registry.relieve_once(at(&registry, 1_499));
    assert!(!is_evicted(&open));
    registry.relieve_once(at(&registry, 1_500));
    assert!(is_evicted(&open));
}

#[test]
fn a_connection_is_heavy_that_holds_more_than_a_256th_of_the_budget() {
    let registry = registry(BOUNDS, 100);
    let open = registry.register(None).unwrap();
    let most = registry.budget.max() / 256;
    let _held = registry.budget.hold(registry.budget.max() * 3 / 4).unwrap();
    for (held, is_heavy) in [(most, false), (most + 1, true)] {
        open.usage().record(load(true, 1, held), at(&registry, 0));
        registry.relieve_once(at(&registry, 0));
        assert_eq!(is_evicted(&open), is_heavy, "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_go_when_the_budget_is_exceeded_and_again_after_a_pause() {
    let registry = registry(ConnectionBounds { total: 100, ..BOUNDS }, 100);
    let open: Vec<_> = (0..40).map(|_| registry.register(None).unwrap()).collect();
    let relieved = Arc::clone(&registry);
    let relief = tokio::spawn(async move { relieved.relieve().await });
    for (pause, is_exceeded, expected) in [
        (Duration::from_millis(RELIEVED_AFTER), false, 0),
        (Duration::ZERO, true, RELIEVED_AT_ONCE),
        (RELIEF_PAUSE - Duration::from_millis(1), true, RELIEVED_AT_ONCE),
        (Duration::from_millis(1), false, 2 * RELIEVED_AT_ONCE),
        (RELIEF_PAUSE, false, 2 * RELIEVED_AT_ONCE),
    ] {
        assert!(!is_exceeded || registry.budget.hold(registry.budget.max()).is_err());
        tokio::time::advance(pause).await;
        tokio::task::yield_now().await;
        assert_eq!(open.iter().filter(|one| is_evicted(one)).count(), expected, "{pause:?}");
    }
    relief.abort();
}

#[test]
fn a_registration_is_shown_without_its_registry() {
    let registration = registry(BOUNDS, 100).register(address(1)).unwrap();
    let shown = format!("{registration:?}");
    assert!(
        shown.starts_with("Registration(ConnectionState {") && shown.ends_with(" })"),
        "{shown}"
    );
}
