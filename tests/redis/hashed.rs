//! `hash_values`: identifying values cannot be read outside of the process, and can be found with
//! the key.

use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, limit, request};
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const HASHED: &str = "unit: year, requests_per_unit: 5, hash_values: true, record: [user]";
/// The value that must not be readable anywhere.
const MARKER: &str = "ann@marker.example";

#[tokio::test]
async fn hashed_values_are_not_in_redis_logs_or_pages() {
    let redis = Redis::start().await;
    let folder = Policies::none();
    let policies = Policies::of(&policy(&[("mail", HASHED)]));
    let key = key_in(&folder, "one");
    let mut monitor = TcpStream::connect(redis.address).await.unwrap();
    monitor.write_all(b"MONITOR\r\n").await.unwrap();
    let flags = ["--hash-key-file", &key, "--log", "trace", "--statsd", "udp://127.0.0.1:9"];
    let (mut service, client) = serve(&policies, &redis.url(), &flags).await;
    send_all(&client).await;
    // A call that cannot be decided, and is therefore reported.
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let _ = client.decide(request(vec![descriptor(&[("mail", MARKER)])])).await;
    let shown = pages(&service).await;
    redis.command(&["ECHO", "the-end"]).await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("the-end") {
        let read = tokio::time::timeout(TEST_TIMEOUT, monitor.read_buf(&mut seen))
            .await
            .expect("Redis reports commands");
        assert!(read.unwrap() > 0);
    }
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.to_lowercase().contains("evalsha") && seen.contains("hash-"), "{seen}");
    service.terminate();
    let log = service.process.final_log();
    for (where_, text) in [("Redis", &*seen), ("the log", &log), ("the pages", &shown)] {
        assert!(!text.contains("marker"), "in {where_}: {text}");
        assert!(!text.contains("secret-"), "in {where_}: {text}");
    }
}

#[tokio::test]
async fn hashed_values_are_not_exposed_by_candidates_that_do_not_hash() {
    let redis = Redis::start().await;
    let folder = Policies::none();
    // In force, and named as the limit that another one of the request replaces.
    let rule = |key: &str, more: &str, limit: &str| {
        format!("  - key: {key}\n    rate_limit: {{ {more}{limit} }}\n")
    };
    let head = "domain: test\ndescriptors:\n";
    let one = "name: mails, ";
    let rules = rule("mail", one, HASHED) + &rule("user", "replaces: [{ name: mails }], ", HASHED);
    let policies = Policies::of(&format!("{head}{rules}"));
    let plain = "unit: year, requests_per_unit: 2";
    folder.write(
        "tried.yaml",
        &format!("{head}{}{}", rule("mail", "", plain), rule("user", "", plain)),
    );
    let tried = folder.file("tried.yaml").to_str().unwrap().to_owned();
    let key = key_in(&folder, "one");
    let flags = ["--hash-key-file", &key, "--candidate-policy", &tried];
    let (service, client) = serve(&policies, &redis.url(), &flags).await;
    client.decide(request(vec![descriptor(&[("mail", MARKER)])])).await.unwrap();
    send_all(&client).await;
    let metrics = Web::new(service.http).get("/metrics").await.body;
    assert!(
        metrics.lines().any(|line| line.contains("candidate") && line.contains("denied")),
        "{metrics}"
    );
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*"]).await.unwrap();
    let keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    assert!(keys.len() > 4 && !keys.iter().any(|key| key.contains("marker")), "{keys:?}");
}

#[tokio::test]
async fn with_the_key_a_counter_and_a_user_are_found_by_value() {
    let redis = Redis::start().await;
    let folder = Policies::none();
    let policies = Policies::of(&policy(&[("mail", HASHED)]));
    let key = key_in(&folder, "one");
    let (_service, client) = serve(&policies, &redis.url(), &["--hash-key-file", &key]).await;
    send_all(&client).await;
    let policy = policies.file("policy.yaml");
    let who = |key: &str, only: &str| {
        let arguments = [
            "inspect",
            "--policy",
            policy.to_str().unwrap(),
            "--store",
            &redis.url(),
            "--hash-key-file",
            key,
        ];
        let output =
            output([&arguments[..], &["--only", only, "test", &format!("mail={MARKER}")]].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let other = key_in(&folder, "two");
    let of_marker = format!("user={MARKER}");
    for (key, user, code) in [
        (&key, of_marker.as_str(), 0),
        // Not recorded.
        (&key, "user=bob", 1),
        // By another key.
        (&other, &of_marker, 1),
    ] {
        // A busy machine may not connect in the time of the command.
        let found = async || who(key, user);
        let is_found = |(found, text): &(Option<i32>, String)| {
            *found == Some(code) && text.contains("user=hash-") == (code == 0)
        };
        becomes(user, TEST_TIMEOUT, found, is_found).await;
    }
}

#[tokio::test]
async fn a_counter_is_inspected_and_granted_by_value_without_exposing_it() {
    let redis = Redis::start().await;
    let folder = Policies::none();
    let policies = Policies::of(&policy(&[("mail", HASHED)]));
    let key = key_in(&folder, "one");
    let (mut service, client) = serve(&policies, &redis.url(), &["--hash-key-file", &key]).await;
    send_all(&client).await;
    let admin = format!("http://{}", service.admin);
    let run = |words: &[&str]| {
        let output = output([words, &["--admin", &admin]].concat());
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let mail = format!("mail={MARKER}");
    let (code, text) = run(&["inspect", "test", &mail]);
    assert!(
        code == Some(1) && text.contains("mail=hash-") && text.contains("used by   user=hash-"),
        "{text}"
    );
    assert!(text.contains("denials   once at"), "{text}");
    let (code, text) = run(&["grant", "2", "--for", "1h", "test", &mail]);
    assert!(code == Some(0) && text.contains("mail=hash-") && !text.contains("marker"), "{text}");
    assert_eq!(
        client.decide(request(vec![descriptor(&[("mail", MARKER)])])).await.unwrap().overall_code(),
        Code::Ok
    );
    let (_, denials) = run(&["denials", "--key", "mail="]);
    assert!(denials.contains("with the original values, not their hashes"), "{denials}");
    let hash = denials.split_whitespace().find(|word| word.starts_with("mail=hash-")).unwrap();
    let (code, text) = run(&["reset", "test", hash]);
    assert!(code == Some(2) && text.contains("use the original value"), "{text}");
    service.terminate();
    let log = service.process.final_log();
    assert!(log.contains("counter mail=hash-") && !log.contains("marker"), "{log}");
}

#[tokio::test]
async fn replicas_with_one_key_share_counters_and_another_key_starts_new_ones() {
    let redis = Redis::start().await;
    let folder = Policies::none();
    let policies = Policies::of(&policy(&[("mail", HASHED)]));
    let mut codes = Vec::new();
    for name in ["one", "one", "two"] {
        let (_service, client) =
            serve(&policies, &redis.url(), &["--hash-key-file", &key_in(&folder, name)]).await;
        let mut all = descriptor(&[("mail", MARKER)]);
        all.hits_addend = Some(5);
        codes.push(client.decide(request(vec![all])).await.unwrap().overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::OverLimit, Code::Ok]);
}

#[test]
fn startup_without_a_key_shows_what_to_do_and_hides_a_short_one() {
    let policies = Policies::of(&policy(&[("mail", HASHED)]));
    let serve = |flags: &[&str]| {
        let output =
            output([&["serve", "--policy", policies.path().to_str().unwrap()], flags].concat());
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (started, text) = serve(&[]);
    assert!(
        !started && text.contains("requires a hash key") && text.contains("--hash-key-file"),
        "{text}"
    );
    policies.write("key", "short-secret");
    let short = policies.file("key");
    for flags in [["--hash-key-file", short.to_str().unwrap()], ["--hash-key", "short-secret"]] {
        let (started, text) = serve(&flags);
        assert!(
            !started && text.contains("at least 16 bytes") && !text.contains("short-secret"),
            "{text}"
        );
    }
}

/// Sends the marker wherever a request can contain a value.
async fn send_all(client: &Client) {
    let mut overridden = descriptor(&[("mail", MARKER)]);
    overridden.limit = limit(100, 1);
    let mail = descriptor(&[("mail", MARKER)]);
    for _ in 0..6 {
        let all = vec![mail.clone(), overridden.clone(), descriptor(&[("user", MARKER)])];
        client.decide(request(all)).await.unwrap();
    }
}

/// Returns everything that HTTP exposes.
async fn pages(service: &Tollgate) -> String {
    let mut shown = Web::new(service.http).get("/metrics").await.body;
    let admin = Web::new(service.admin);
    for line in admin.get("/").await.body.lines() {
        shown += &admin.get(line.split(':').next().unwrap()).await.body;
    }
    for path in ["denials", "top", "rules", "policies"] {
        let page = admin.get(&format!("/api/v1/{path}")).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        shown += &page.body;
    }
    assert!(
        shown.contains(r#""key":"mail=hash-"#) && shown.contains(r#""recorded":["user=hash-"#),
        "{shown}"
    );
    shown
}

fn key_in(folder: &Policies, name: &str) -> String {
    folder.write(name, &format!("secret-{name}-of-sixteen-bytes\n"));
    Path::new(&folder.file(name)).to_str().unwrap().to_owned()
}
