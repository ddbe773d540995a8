//! Replicas whose clocks differ from their masters': detected before a failover, and the effect of
//! a failover to one.

use std::time::{Duration, Instant};

use super::{calm, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Setup;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::flavor::Flavor;
use crate::support::redis::pair::Pair;
use crate::support::redis::tls::{Clients, Tls};
use crate::support::rls::{Client, descriptor};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Prefix of each series of the metric.
const OFFSET: &str = "tollgate_store_replica_clock_offset_seconds{";

#[tokio::test]
async fn the_clock_of_a_replica_is_exposed_with_its_masters_and_removed_with_it() {
    let of_flavor = |flavor: Flavor| async move {
        let own = Setup { flavor, ..Setup::default() };
        let pair = Pair::start_as(own.clone(), Setup { clock_offset: -90, ..own }).await;
        let (service, _client) = serve(&policies(), &pair.url(), &[]).await;
        let offsets = || offsets(&service);
        let exposed = becomes(&format!("{flavor:?} reports"), TEST_TIMEOUT, offsets, |offsets| {
            offsets.len() == 1
        })
        .await;
        let (labels, offset) = &exposed[0];
        let expected =
            format!("node=\"{}\",replica=\"{}\"}}", pair.name.address, pair.servers[1].address);
        assert!(*labels == expected && (-91.0..-89.0).contains(offset), "{exposed:?}");
        pair.servers[1].kill();
        becomes("its series is removed", TEST_TIMEOUT, offsets, Vec::is_empty).await;
        is_not_logged(&service, &pair.servers[1].address.to_string());
    };
    futures_util::future::join_all(Flavor::ALL.map(of_flavor)).await;
}

#[tokio::test]
async fn replicas_are_polled_over_tls_with_the_masters_password() {
    let tls = Tls::new(Clients::Certified);
    let own = Setup { tls: Some(tls.clone()), password: Some("secret"), ..Setup::default() };
    let pair = Pair::start_as(own.clone(), own).await;
    let authority = tls.authority();
    let (certificate, key) = tls.client();
    let [authority, certificate, key] =
        [&authority, &certificate, &key].map(|path| path.to_str().unwrap());
    let flags = ["--redis-ca", authority, "--redis-cert", certificate, "--redis-key", key];
    let (service, _client) = serve(&policies(), &pair.servers[0].url(), &flags).await;
    let exposed =
        becomes("it is exposed", TEST_TIMEOUT, || offsets(&service), |offsets| offsets.len() == 1)
            .await;
    assert!(exposed[0].1.abs() < 0.5, "{exposed:?}");
}

#[tokio::test]
async fn each_master_of_a_cluster_has_its_replica() {
    let cluster = Cluster::start_as(Layout { replicas: 1, ..calm() }).await;
    let (service, _client) = serve(&policies(), &cluster.url(), &[]).await;
    let exposed = becomes(
        "all are exposed",
        TEST_TIMEOUT,
        || offsets(&service),
        |offsets| offsets.len() == 3,
    )
    .await;
    assert!(exposed.iter().all(|(_, offset)| offset.abs() < 0.5), "{exposed:?}");
}

#[tokio::test]
async fn an_unreachable_replica_has_no_series_and_logs_nothing() {
    let lines =
        vec!["replica-announce-ip 127.0.0.1".to_owned(), "replica-announce-port 1".to_owned()];
    let pair = Pair::start_as(Setup::default(), Setup { lines, ..Setup::default() }).await;
    let (service, _client) = serve(&policies(), &pair.url(), &[]).await;
    let web = Web::new(service.http);
    let is_exposed = |metrics: &String| metrics.contains("tollgate_store_clock_offset_seconds{");
    let metrics = || async { web.get("/metrics").await.body };
    becomes("the master is exposed", TEST_TIMEOUT, metrics, is_exposed).await;
    assert_eq!(offsets(&service).await, []);
    is_not_logged(&service, "127.0.0.1:1\"");
}

/// A counter used at a master, whose replica has a clock that is behind and has taken over.
struct FailedOver {
    client: Client,
    written: Instant,
    _parts: (Pair, Policies, Tollgate),
}

impl FailedOver {
    /// Takes the only hit of a second, and fails over to a replica with this clock.
    async fn to(clock_offset: i32) -> Self {
        let pair =
            Pair::start_as(Setup::default(), Setup { clock_offset, ..Setup::default() }).await;
        let limit = "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 1";
        let policies = Policies::of(&policy(&[("user", limit)]));
        let (service, client) =
            serve(&policies, &pair.url(), &["--exact-durations", "--deny-cache-max", "0s"]).await;
        assert!(client.hit("user", "ann").await);
        let written = Instant::now();
        let in_step = || async { pair.servers[1].command(&["DBSIZE"]).await };
        let one = redis::Value::Int(1);
        becomes("the hit is replicated", TEST_TIMEOUT, in_step, |size| *size == one).await;
        pair.promote(1).await;
        pair.lead_to(1);
        let decided =
            || client.decide(crate::support::rls::request(vec![descriptor(&[("user", "bob")])]));
        becomes("another counter is decided", TEST_TIMEOUT, decided, |answer| answer.is_ok())
            .await
            .unwrap();
        Self { client, written, _parts: (pair, policies, service) }
    }
}

/// As `docs/promise.md` documents.
#[tokio::test]
async fn at_a_replica_whose_clock_is_behind_the_time_of_used_counters_stands_still() {
    let failed_over = FailedOver::to(-3_600).await;
    let status = failed_over.client.status(descriptor(&[("user", "ann")])).await;
    let reset = status.duration_until_reset.unwrap();
    assert_eq!(
        (status.limit_remaining, reset.seconds, reset.nanos),
        (0, 1, 0),
        "reckoned from the counter's instant"
    );
}

#[tokio::test]
async fn a_replica_whose_clock_is_behind_stops_used_counters_until_it_has_caught_up() {
    const BEHIND: Duration = Duration::from_secs(4);
    let FailedOver { client, written, _parts } = FailedOver::to(-4).await;
    let admitted = || client.hit("user", "ann");
    becomes("it is admitted", TEST_TIMEOUT, admitted, |is_admitted| *is_admitted).await;
    let stood = written.elapsed();
    eprintln!(
        "fault: failover to a replica {BEHIND:?} behind, a limit of 1 a second: admitted again after {stood:.1?}"
    );
    // A second, and as long as the clock was behind.
    assert!(stood >= BEHIND + Duration::from_millis(900), "{stood:?}");
}

fn policies() -> Policies {
    Policies::of(&policy(&[("user", "requests_per_unit: 1000, unit: day")]))
}

fn is_not_logged(service: &Tollgate, address: &str) {
    let log = service.process.log();
    assert!(!log.iter().any(|line| line.contains(address)), "{address} in {log:#?}");
}

/// Returns the exposed series: labels and values.
async fn offsets(service: &Tollgate) -> Vec<(String, f64)> {
    let metrics = Web::new(service.http).get("/metrics").await.body;
    let series = metrics.lines().filter_map(|line| line.strip_prefix(OFFSET)?.rsplit_once(' '));
    series.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}
