//! Access to Redis: users, certificates, sockets, databases, prefixes, and warnings about settings
//! that break a promise.

use redis::Value;

use super::amend::inspect;
use super::{calm, connected, is_ready, policy, serve, start};
use crate::support::policy::Policies;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::tls::{Clients, Tls};
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{Client, descriptor};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes, eventually};

/// The user that the README recommends.
const APP: &str = "user app on >first ~* +@all";

#[tokio::test]
async fn a_user_and_password_in_the_url_are_used() {
    let redis = guarded(APP).await;
    let url = format!("redis://app:first@{}", redis.address);
    works_at(&url, &[]).await;
}

#[tokio::test]
async fn a_user_by_flag_and_a_password_from_a_file_are_used() {
    let redis = guarded(APP).await;
    let files = Policies::none();
    files.write("password", "first\n");
    let password = files.file("password");
    let flags = ["--redis-user", "app", "--redis-password-file", password.to_str().unwrap()];
    works_at(&format!("redis://{}", redis.address), &flags).await;
}

#[tokio::test]
async fn a_password_file_is_read_again_when_the_connection_is_lost() {
    let redis = guarded(APP).await;
    let files = Policies::none();
    let policies = yearly();
    files.write("password", "first");
    let password = files.file("password");
    let flags = ["--redis-user", "app", "--redis-password-file", password.to_str().unwrap()];
    let (_service, client) = serve(&policies, &format!("redis://{}", redis.address), &flags).await;
    assert!(client.hit("user", "ann").await);
    files.write("password", "second");
    redis.command(&["ACL", "SETUSER", "app", "resetpass", ">second"]).await;
    redis.command(&["CLIENT", "KILL", "USER", "app"]).await;
    let hit = || async { hit_or_fail(&client).await };
    becomes("it is authorized again", TEST_TIMEOUT, hit, Option::is_some).await;
}

#[tokio::test]
async fn a_missing_password_file_is_logged_once_for_all_connections() {
    let redis = guarded(APP).await;
    let files = Policies::none();
    let policies = yearly();
    let password = files.file("password");
    let flags = ["--redis-user", "app", "--redis-password-file", password.to_str().unwrap()];
    let url = format!("redis://{}", redis.address);
    let service = start(&policies, &url, &[&flags[..], &["--workers", "4"]].concat());
    wait_for_log(&service, "Redis unreachable");
    files.write("password", "first");
    let (service, _client) = connected(service).await;
    let is_of_file = |line: &&String| line.contains("No such file");
    let log = service.process.log();
    assert_eq!(log.iter().filter(is_of_file).count(), 1, "{log:#?}");
}

#[tokio::test]
async fn a_wrong_password_makes_it_unready_with_the_reason() {
    let redis = Redis::start_as(Setup { password: Some("right"), ..Setup::default() }).await;
    refused(&format!("redis://:wrong@{}", redis.address), &[], "Password authentication failed")
        .await;
}

#[tokio::test]
async fn a_server_may_show_the_trusted_certificate_itself() {
    let tls = Tls::of_itself();
    let other = Tls::of_itself();
    let lines = vec!["bind 127.0.0.1 127.0.0.2".to_owned()];
    let redis = Redis::start_as(Setup { tls: Some(tls.clone()), lines, ..Setup::default() }).await;
    let [authority, untrusted] =
        [&tls, &other].map(|tls| tls.authority().to_str().unwrap().to_owned());
    let elsewhere = redis.url().replace("127.0.0.1", "127.0.0.2");
    works_at(&redis.url(), &["--redis-ca", &authority]).await;
    refused(&redis.url(), &["--redis-ca", &untrusted], "certificate").await;
    refused(&elsewhere, &["--redis-ca", &authority], "certificate").await;
    works_at(
        &elsewhere,
        &["--redis-ca", &authority, "--redis-any-hostname", "--redis-prefix", "b:"],
    )
    .await;
}

#[tokio::test]
async fn a_certificate_for_another_host_is_accepted_if_configured() {
    let tls = Tls::new(Clients::Anyone);
    let lines = vec!["bind 127.0.0.1 127.0.0.2".to_owned()];
    let redis = Redis::start_as(Setup { tls: Some(tls.clone()), lines, ..Setup::default() }).await;
    let elsewhere = redis.url().replace("127.0.0.1", "127.0.0.2");
    let authority = tls.authority();
    let trusting = ["--redis-ca", authority.to_str().unwrap()];
    refused(&elsewhere, &trusting, "certificate").await;
    works_at(&elsewhere, &[&trusting[..], &["--redis-any-hostname"]].concat()).await;
    let untrusted = Tls::new(Clients::Anyone);
    let wrong = ["--redis-ca", untrusted.authority().to_str().unwrap(), "--redis-any-hostname"]
        .map(str::to_owned);
    refused(&elsewhere, &wrong.each_ref().map(String::as_str), "certificate").await;
}

#[tokio::test]
async fn certificates_of_servers_and_clients_are_checked() {
    let other = Tls::new(Clients::Anyone);
    for clients in [Clients::Anyone, Clients::Certified] {
        let tls = Tls::new(clients);
        let redis = Redis::start_as(Setup { tls: Some(tls.clone()), ..Setup::default() }).await;
        let [other, authority] = [other.authority(), tls.authority()];
        let (certificate, key) = tls.client();
        let [other, authority, certificate, key] =
            [&other, &authority, &certificate, &key].map(|path| path.to_str().unwrap());
        let own = ["--redis-ca", authority, "--redis-cert", certificate, "--redis-key", key];
        refused(&redis.url(), &[], "certificate").await;
        refused(&redis.url(), &["--redis-ca", other], "certificate").await;
        if clients == Clients::Certified {
            refused(&redis.url(), &own[..2], "Redis unreachable").await;
            works_at(&redis.url(), &own).await;
        } else {
            works_at(&redis.url(), &own[..2]).await;
        }
    }
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls() {
    let tls = Tls::new(Clients::Anyone);
    let setup = Setup { tls: Some(tls.clone()), ..Setup::default() };
    let cluster = Cluster::start_as(Layout { setup, ..calm() }).await;
    let url = cluster.url().replace("redis-cluster", "rediss-cluster");
    works_at(&url, &["--redis-ca", tls.authority().to_str().unwrap()]).await;
}

#[tokio::test]
async fn a_unix_socket_is_used() {
    let redis = Redis::start().await;
    works_at(&format!("redis+unix://{}", redis.socket().display()), &[]).await;
    assert_ne!(redis.command(&["DBSIZE"]).await, Value::Int(0));
}

#[tokio::test]
async fn counters_are_in_the_database_that_the_url_names() {
    let redis = Redis::start().await;
    works_at(&format!("{}/3", redis.url()), &[]).await;
    assert!(redis.info("keyspace").await.keys().all(|database| database == "db3"));
}

#[tokio::test]
async fn keys_begin_with_the_prefix_and_differ_from_those_without() {
    let redis = Redis::start().await;
    works_at(&redis.url(), &[]).await;
    works_at(&redis.url(), &["--redis-prefix", "staging:"]).await;
    let script = "local count = 0
        for _, key in ipairs(redis.call('KEYS', '*')) do
          count = count + (string.sub(key, 1, 8) == 'staging:' and 1 or 0)
        end
        return count";
    assert_eq!(redis.command(&["EVAL", script, "0"]).await, Value::Int(1));
    assert_eq!(redis.command(&["DBSIZE"]).await, Value::Int(2));
}

#[tokio::test]
async fn a_server_that_evicts_logs_a_warning() {
    let redis = Redis::start_with(&["maxmemory 100mb", "maxmemory-policy allkeys-lru"]).await;
    let policies = yearly();
    let (service, _client) = serve(&policies, &redis.url(), &[]).await;
    wait_for_log(&service, "maxmemory-policy allkeys-lru");
}

#[tokio::test]
async fn a_server_that_does_not_evict_logs_no_warning() {
    let redis = Redis::start().await;
    let policies = yearly();
    let (service, _client) = serve(&policies, &redis.url(), &[]).await;
    wait_for_log(&service, "store connected");
    assert_eq!(service.process.log().iter().find(|line| line.contains("WARN")), None);
}

#[tokio::test]
async fn a_cluster_that_requires_full_coverage_logs_a_warning() {
    for (needs_all_slots, is_warned_of) in [(true, true), (false, false)] {
        let layout = Layout { needs_all_slots, ..calm() };
        let cluster = Cluster::start_as(layout).await;
        let policies = yearly();
        let (service, _client) = serve(&policies, &cluster.url(), &[]).await;
        wait_for_log(&service, "store connected");
        let warns = service
            .process
            .log()
            .iter()
            .any(|line| line.contains("cluster-require-full-coverage yes"));
        assert_eq!(warns, is_warned_of);
    }
}

#[tokio::test]
async fn a_user_without_script_rights_logs_an_error() {
    let redis = Redis::start_with(&["user app on >first ~* +@all -@scripting"]).await;
    let policies = yearly();
    let service = start(&policies, &format!("redis://app:first@{}", redis.address), &[]);
    wait_for_log(&service, "ACL SETUSER app +evalsha +eval");
}

#[tokio::test]
async fn a_user_who_may_not_read_the_configuration_is_sufficient() {
    let may = "+evalsha +eval +ping +select +client +time +get +set +del";
    let redis = Redis::start_with(&[&format!("user app on >first ~* -@all {may}")]).await;
    works_at(&format!("redis://app:first@{}", redis.address), &[]).await;
}

#[tokio::test]
async fn a_user_with_the_documented_rights_is_refused_nothing() {
    let docs = include_str!("../../docs/deploying.md");
    let (_, table) = docs.split_once("## Redis").unwrap();
    let (table, _) = table.split_once("## Kubernetes").unwrap();
    let of_row =
        |line: &str| Some(line.strip_suffix("` |")?.rsplit_once('`')?.1.replace("\\|", "|"));
    let may = table.lines().filter_map(of_row).collect::<Vec<_>>().join(" ");
    let redis = Redis::start_with(&[&format!("user app on >first ~* -@all {may}")]).await;
    let store = format!("redis://app:first@{}", redis.address);
    let hold = "requests_per_unit: 9, unit: year, hold: { ttl: 1m }";
    let policies =
        Policies::of(&policy(&[("user", "requests_per_unit: 0, unit: year"), ("tokens", hold)]));
    let tollgate =
        Tollgate::serve_with(policies.path(), &["--store", &store, "--store-timeout", "15s"]);
    let web = Web::new(tollgate.http);
    becomes(
        "the service is ready",
        TEST_TIMEOUT,
        || web.get("/readyz"),
        |reply| reply.status == 200,
    )
    .await;
    let client = Client::connect(tollgate.grpc).await;
    client.hit("user", "ann").await;
    for operation in ["tollgate.reserve", "tollgate.commit", "tollgate.settle"] {
        client.status(descriptor(&[("tokens", "a"), (operation, "id")])).await;
    }
    assert!(inspect(&tollgate, "tokens=a").await["held_unknown"].is_null());
    let keys = async || redis.query::<Vec<String>>(&["KEYS", "tollgate:*"]).await.unwrap();
    let are_both = |keys: &Vec<String>| {
        ["tollgate:replica", "tollgate:denials"]
            .iter()
            .all(|prefix| keys.iter().any(|key| key.starts_with(prefix)))
    };
    becomes("its name and the denial are published", TEST_TIMEOUT, keys, are_both).await;
    assert_eq!(redis.command(&["ACL", "LOG"]).await, Value::Array(Vec::new()));
}

fn yearly() -> Policies {
    Policies::of(&policy(&[(
        "user",
        "algorithm: sliding_window, requests_per_unit: 1, unit: year",
    )]))
}

/// Starts a server with one more user, and with a password for the default user.
async fn guarded(user: &str) -> Redis {
    Redis::start_as(Setup {
        lines: vec![user.to_owned()],
        password: Some("admin"),
        ..Setup::default()
    })
    .await
}

/// Asserts that limits are kept in the store at this URL.
async fn works_at(store: &str, flags: &[&str]) {
    let policies = yearly();
    let (_service, client) = serve(&policies, store, flags).await;
    assert!(client.hit("user", "ann").await);
    assert!(!client.hit("user", "ann").await);
}

/// Asserts that the store at this URL cannot be used: the log has the reason, the service is not
/// ready and decides no request.
async fn refused(store: &str, flags: &[&str], reason: &str) {
    let policies = yearly();
    let service = start(&policies, store, flags);
    wait_for_log(&service, reason);
    assert!(!is_ready(&service).await);
    assert_eq!(hit_or_fail(&Client::connect(service.grpc).await).await, None);
}

/// Returns `true` if a hit was admitted, and `None` if there is no decision.
async fn hit_or_fail(client: &Client) -> Option<bool> {
    use crate::support::rls::request;
    use tollgate::grpc::proto::rate_limit_response::Code;
    let answer = client.decide(request(vec![descriptor(&[("user", "ann")])])).await;
    Some(answer.ok()?.overall_code() == Code::Ok)
}

fn wait_for_log(service: &Tollgate, what: &str) {
    let log = || service.process.log();
    eventually(what, TEST_TIMEOUT, || log().iter().any(|line| line.contains(what)).then_some(()));
}
