//! Statistics sent to StatsD.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use super::{known_requests, own_limit, serve};
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{Tollgate, output};
use crate::support::{TEST_TIMEOUT, eventually};

/// A StatsD server over UDP.
struct Udp(UdpSocket);

impl Udp {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    fn url(&self) -> String {
        format!("udp://{}", self.0.local_addr().unwrap())
    }

    /// Returns the lines received.
    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut packet = [0; 65_536];
        while let Ok(length) = self.0.recv(&mut packet) {
            lines
                .extend(std::str::from_utf8(&packet[..length]).unwrap().lines().map(str::to_owned));
        }
        lines
    }
}

/// Sums the counters in some lines by name.
fn counters(lines: &[String]) -> BTreeMap<String, u64> {
    let mut counters = BTreeMap::new();
    for (name, value) in lines.iter().filter_map(|line| line.strip_suffix("|c")?.split_once(':')) {
        *counters.entry(name.to_owned()).or_default() += value.parse::<u64>().unwrap();
    }
    counters
}

#[tokio::test(flavor = "multi_thread")]
async fn all_counts_are_sent_at_exit_at_the_latest() {
    let statsd = Udp::start();
    let mut serving = serve(&["--statsd", &statsd.url(), "--stats-interval", "1h"]).await;
    known_requests(&serving.client).await;
    own_limit(&serving.client, "10.0.0.1").await;
    assert_eq!(serving.service.terminate().code(), Some(0));
    let lines = statsd.lines();
    let counters: Vec<String> =
        counters(&lines).iter().map(|(name, count)| format!("{name} {count}")).collect();
    insta::assert_snapshot!(counters.join("\n"), @r"
    ratelimit.service.config_load_success 1
    ratelimit.service.rate_limit.elsewhere.domain_not_found 1
    ratelimit.service.rate_limit.test.own_10_0_0_1.total_hits 1
    ratelimit.service.rate_limit.test.own_10_0_0_1.within_limit 1
    ratelimit.service.rate_limit.test.plan_free.user.total_hits 1
    ratelimit.service.rate_limit.test.plan_free.user.within_limit 1
    ratelimit.service.rate_limit.test.user.near_limit 1
    ratelimit.service.rate_limit.test.user.over_limit 1
    ratelimit.service.rate_limit.test.user.total_hits 3
    ratelimit.service.rate_limit.test.user.within_limit 2
    ratelimit_server.ShouldRateLimit.total_requests 6
    ");
    let times = lines
        .iter()
        .filter(|line| line.starts_with("ratelimit_server.ShouldRateLimit.response_time:"));
    let ms = times.map(|line| {
        line.split_once(':').unwrap().1.strip_suffix("|ms").unwrap().parse::<f64>().unwrap()
    });
    let ms: Vec<f64> = ms.collect();
    assert!(ms.len() == 6 && ms.iter().all(|ms| (0.0..20_000.0).contains(ms)), "{ms:?}");
    assert!(lines.contains(&"ratelimit.localcache.hitCount:0|g".to_owned()), "{lines:#?}");
}

#[tokio::test]
async fn counters_are_sent_as_increments() {
    let statsd = Udp::start();
    let serving = serve(&["--statsd", &statsd.url(), "--stats-interval", "20ms"]).await;
    let name = "ratelimit.service.rate_limit.test.user.total_hits:1|c";
    for _ in 0..2 {
        serving.client.hit("user", "ann").await;
        eventually("the hit is sent", TEST_TIMEOUT, || {
            statsd.lines().iter().any(|line| line == name).then_some(())
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_part_of_a_plain_name_and_a_suffix_in_dogstatsd() {
    let tags = ["--stats-tag", "zone=b", "--stats-tag", "app=x", "--stats-interval", "1h"];
    let rewrite = [
        "--statsd-dialect",
        "dogstatsd",
        "--statsd-rewrite",
        r"^ratelimit\.service\.rate_limit\.([^.]*)\.(.*)\.(.*)$",
        "ratelimit.rate_limit.$3",
        "domain:$1,descriptor:$2",
    ];
    let plain = "ratelimit.service.rate_limit.test.user.total_hits.__app=x.__zone=b:1|c";
    let dog = "ratelimit.rate_limit.total_hits:1|c|#domain:test,descriptor:user,app:x,zone:b";
    for (more, expected) in [(&[][..], plain), (&rewrite[..], dog)] {
        let statsd = Udp::start();
        let mut serving = serve(&[&["--statsd", &statsd.url()], &tags[..], more].concat()).await;
        serving.client.hit("user", "ann").await;
        serving.service.terminate();
        let lines = statsd.lines();
        assert!(lines.iter().any(|line| line == expected), "{expected} is not in {lines:#?}");
    }
}

#[tokio::test]
async fn tags_and_rewrites_are_read_from_the_environment() {
    let statsd = Udp::start();
    let policies = Policies::of(super::POLICY);
    let mut command = crate::support::tollgate::command(["serve", "--policy"]);
    command.arg(policies.path()).args(crate::support::tollgate::quiet(&[]));
    command.env("TOLLGATE_STATSD", statsd.url()).env("TOLLGATE_STATSD_DIALECT", "dogstatsd");
    command.env("TOLLGATE_STATS_TAG", "zone=b,app=x").env("TOLLGATE_STATS_INTERVAL", "20ms");
    command.env("TOLLGATE_STATSD_REWRITE", "^none$\nx\n\n^(.*)_load_success$\n$1\nfine:yes");
    let _process = crate::support::process::Process::start("tollgate", &mut command);
    let line = "ratelimit.service.config:1|c|#fine:yes,app:x,zone:b";
    eventually("the rewritten line", TEST_TIMEOUT, || {
        statsd.lines().iter().any(|sent| sent == line).then_some(())
    });
}

#[tokio::test]
async fn a_late_or_restarted_server_receives_all_counts_and_is_logged_once() {
    let vacant = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = vacant.local_addr().unwrap();
    drop(vacant);
    let url = format!("tcp://{address}");
    let mut serving = serve(&["--statsd", &url, "--stats-interval", "20ms"]).await;
    assert!(serving.client.hit("user", "ann").await);
    serving.service.process.wait_for_line("that StatsD is unreachable", |line| {
        line.contains("StatsD unreachable").then_some(())
    });
    for hits in [1, 2] {
        let server = TcpListener::bind(address).unwrap();
        let stream = server.accept().unwrap().0;
        drop(server);
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let name = "ratelimit.service.rate_limit.test.user.total_hits:1|c";
        let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == name), "hit {hits} is sent");
        drop(lines);
        drop(stream);
        let complaints = || {
            serving.service.process.log().iter().filter(|line| line.contains("unreachable")).count()
        };
        eventually("the loss is logged", TEST_TIMEOUT, || (complaints() == hits + 1).then_some(()));
        serving.client.hit("user", "ann").await;
    }
    let complaints =
        serving.service.process.log().iter().filter(|line| line.contains("unreachable")).count();
    assert_eq!(complaints, 3, "one a loss, however many intervals it lasts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_server_delays_no_request() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", server.local_addr().unwrap());
    let mut serving = serve(&["--statsd", &url, "--stats-interval", "1ms"]).await;
    let (stream, _) = server.accept().unwrap();
    for _ in 0..200 {
        serving.client.hit("user", "ann").await;
    }
    assert_eq!(serving.service.terminate().code(), Some(0));
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut text = String::new();
    (&stream).read_to_string(&mut text).unwrap();
    assert!(text.ends_with('\n') && text.contains("total_hits"), "{text}");
}

#[test]
fn all_invalid_settings_are_reported_together() {
    let policies = Policies::of(&daily("user", 5));
    let wrong = [
        ("--statsd", "ftp://here:1"),
        ("--statsd-dialect", "cat"),
        ("--stats-interval", "0s"),
        ("--stats-tag", "zone"),
        ("--near-limit-ratio", "80%"),
        ("--stats-max-series", "many"),
        ("--stats-prometheus-listen", ":x"),
        ("--stats-prometheus-path", "metrics"),
    ];
    let flags = wrong.into_iter().flat_map(|(flag, value)| [flag, value]);
    let policy =
        ["serve", "--policy", policies.path().to_str().unwrap(), "--statsd-rewrite", "(", "a", "b"];
    let ended = output(policy.into_iter().chain(crate::support::tollgate::quiet(&[])).chain(flags));
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1));
    for flag in wrong.iter().map(|(flag, _)| *flag).chain(["--statsd-rewrite"]) {
        assert!(text.contains(&format!("{flag}: ")), "{flag} is not in\n{text}");
    }
}

#[test]
fn without_statistics_nothing_is_started() {
    let policies = Policies::of(&daily("user", 5));
    let service = Tollgate::serve(policies.path());
    let threads = std::fs::read_dir(format!("/proc/{}/task", service.process.id())).unwrap();
    let names =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).unwrap());
    assert!(!names.into_iter().any(|name| name.trim() == "statsd"));
}
