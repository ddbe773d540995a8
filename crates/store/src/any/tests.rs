use tollgate_core::algorithm::hold::{Hold, HoldAction, HoldRequest, OnSettle};
use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::share::Share;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::{Charge, Limit, OnStoreError};

use super::*;
use crate::clock::instant;
use crate::fallback::OwnShare;
use crate::redis::RedisUrl;
use crate::tests::{self, NOW, SteppedMemory, fixed, memory_at};

type Any = AnyStore<Arc<ManualClock>>;

fn redis(url: &str) -> RedisOptions {
    RedisOptions::at(RedisUrl::parse(url).unwrap().unwrap())
}

fn located(options: RedisOptions) -> StoreLocation {
    StoreLocation::Redis(Box::new(options))
}

fn memory() -> SteppedMemory {
    memory_at(NOW).0
}

fn limit() -> Limit {
    let hold = Hold { ttl: Micros::from_secs(600), on_settle: OnSettle::Release };
    fixed(&[(100, 3_600)], Charge::Admitted, OnStoreError::Local).with_hold(hold)
}

fn check<'a>(limit: &'a Limit, recorded: &'a [Vec<u8>]) -> Check<'a> {
    Check { recorded, ..tests::check(b"a counter of some rule", limit) }
}

#[test]
fn a_cluster_has_more_connections_and_servers_for_a_second_have_their_own() {
    let [server, cluster] = ["redis://a:6379", "redis-cluster://a:6379"].map(redis);
    let both = RedisOptions { per_second: Some(Box::new(server.clone())), ..cluster.clone() };
    let connections = [server, cluster, both].map(|options| located(options).connections());
    assert_eq!(connections, [8, 64, 72]);
    assert_eq!(StoreLocation::Memory.connections(), 0);
}

#[test]
fn a_location_with_a_prefix_is_of_the_same_servers() {
    let given = RedisOptions { prefix: b"a".to_vec(), ..redis("redis://a:6379") };
    let StoreLocation::Redis(found) = located(given.clone()).with_prefix(b"b".to_vec()) else {
        panic!("another location")
    };
    assert_eq!((found.prefix.as_slice(), found.url), (b"b".as_slice(), given.url));
    let memory = StoreLocation::Memory.with_prefix(b"b".to_vec());
    assert!(matches!(memory, StoreLocation::Memory));
    assert!(Any::connect(&memory, None, &Arc::default()).is_none());
}

#[tokio::test]
async fn decisions_are_those_of_the_store_in_memory() {
    let memory = memory();
    let any = Any::Memory(Arc::clone(&memory));
    let limit = limit();
    let one = check(&limit, &[]);
    let left = || async {
        let peek = Check { hits: Hits::Peek(0), ..one };
        memory.decide(&[peek], Prior::Open, instant()).await[0].unwrap().report.remaining
    };
    any.decide(&[one], Prior::Open, instant()).await[0].unwrap();
    assert_eq!(left().await, 99);
    let fallback = Fallback::new(self::memory(), OwnShare::new(Share::NONE), Arc::default());
    any.decide_or_leave(&[one], Prior::Open, instant(), &fallback).await[0].unwrap();
    assert_eq!(left().await, 98);
    let lent = any.lend(&Check { hits: Hits::Charge(8), ..one }, instant()).await.unwrap();
    assert_eq!(left().await, 90);
    let receipt = Receipt { hits: 4, ..lent.receipt.unwrap() };
    any.take_back(&one, receipt, instant()).await.unwrap();
    assert_eq!(left().await, 94);
    let returned =
        LoanReturn { unused: receipt, number: [7; 16], usable_for: Micros::from_secs(1) };
    assert_eq!(any.return_loan(&one, returned, instant()).await, Ok(Returned::Accepted));
    assert_eq!(left().await, 98);
    any.amend(&one, Amendment::Reset, instant()).await.unwrap();
    assert_eq!(left().await, 100);
    assert_eq!(any.certain_denials(), CertainDenials::All);
}

#[tokio::test]
async fn answers_to_operators_are_those_of_the_store_in_memory() {
    let memory = memory();
    let any = Any::Memory(Arc::clone(&memory));
    let limit = limit();
    let recorded = [b"user=ann".to_vec()];
    let reserve = HoldRequest { id: b"r", action: HoldAction::Reserve, ttl: None };
    let one = Check { hold: Some(&reserve), ..check(&limit, &recorded) };
    memory.decide(&[one], Prior::Open, instant()).await[0].unwrap();
    assert_eq!((any.is_shared(), any.state()), (false, BackendState::Connected));
    assert_eq!(any.servers(), ServerList::InProcess);
    assert_eq!(any.tallies(&one.key).await.unwrap()[0].charged, 1);
    assert_eq!(any.open_holds(&one.key, NOW).await.unwrap().holds.len(), 1);
    let mut part = any.scan(None).await.unwrap();
    assert_eq!(any.time_at(&part.at).await, Ok(NOW));
    let mut keys = part.keys;
    while let Some(next) = part.next {
        part = any.scan(Some(next)).await.unwrap();
        keys.append(&mut part.keys);
    }
    assert_eq!(keys.len(), 1);
    assert_eq!((any.clear().await, memory.len()), (Ok(()), 1));
    // What is of servers, or shared by processes.
    assert_eq!((any.check_up().await, any.server_reports().await), (CheckUp::default(), vec![]));
    let unsupported = Some(BackendError::NotSupported);
    assert_eq!(any.examine().await.err(), unsupported);
    assert_eq!(any.publish_denials("p", 1, "text").await.err(), unsupported);
    assert_eq!(any.fetch_denials(&[1]).await.err(), unsupported);
    assert_eq!(any.heartbeat("p").await.err(), unsupported);
    assert_eq!(any.announce("p", &ReplicaInfo::default()).await.err(), unsupported);
    assert_eq!(any.replicas().await.err(), unsupported);
}

#[tokio::test]
async fn a_store_at_a_location_is_that_of_its_servers() {
    let location = located(redis("redis+unix:///no/socket/redis.sock"));
    let any = Any::connect(&location, None, &Arc::default()).unwrap();
    assert!(any.is_shared());
    assert_eq!(any.state(), BackendState::NotConnected(None));
    let ServerList::Listed(servers) = any.servers() else { panic!("no servers") };
    assert_eq!(servers.len(), 1);
    assert!(any.clear().await.is_err());
    let slow = located(RedisOptions {
        per_second: Some(Box::new(redis("redis+unix:///no/other.sock"))),
        ..redis("redis+unix:///no/socket/redis.sock")
    });
    let any = Any::connect(&slow, None, &Arc::default()).unwrap();
    assert_eq!(any.certain_denials(), CertainDenials::AllButPerSecond);
}
