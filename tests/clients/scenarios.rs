//! Scenarios that each program runs, and their expected results.

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Language, results};
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::Tollgate;
use crate::support::tollgate::serve_at;
use crate::support::web::Web;

/// Longer than any test.
const NEVER: &str = "1h";
/// A limit of one connection, so that [`had_one_connection`] detects a second one.
const ONE_CONNECTION: [&str; 2] = ["--max-connections", "1"];
/// The default of `--max-message`.
const MAX_MESSAGE: usize = 4 << 20;

pub(super) async fn a_call_is_admitted_until_its_limit_is_reached(client: Language) {
    let service = serve(&[]);
    assert_eq!(client.run(&target(&service), &["hit", "ann", "3"]), ["OK", "OK", "OVER_LIMIT"]);
}

pub(super) async fn a_compressed_call_is_answered_as_any_other(client: Language) {
    let service = serve(&[]);
    assert_eq!(client.run(&target(&service), &["gzip", "ann", "3"]), ["OK", "OK", "OVER_LIMIT"]);
}

pub(super) async fn a_compressed_message_is_bounded_by_its_size_before_compression(
    client: Language,
) {
    let service = serve(&["--max-message", "20000"]);
    assert_eq!(client.run(&target(&service), &["gzip-sized", "20000"]), ["OK"]);
    assert_eq!(client.run(&target(&service), &["gzip-sized", "20001"]), ["RESOURCE_EXHAUSTED"]);
}

pub(super) async fn a_call_over_a_unix_socket_is_answered_as_any_other(client: Language) {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("tollgate.sock");
    let _service = serve_at(&socket);
    let results = client.run(&format!("unix:{}", socket.display()), &["hit", "ann", "6"]);
    assert_eq!(results, ["OK", "OK", "OK", "OK", "OK", "OVER_LIMIT"]);
}

pub(super) async fn a_call_ends_at_its_deadline_and_its_connection_is_kept(client: Language) {
    let service = serve(&[&["--message-timeout", NEVER], &ONE_CONNECTION[..]].concat());
    assert_eq!(client.run(&target(&service), &["deadline"]), ["OK", "DEADLINE_EXCEEDED", "OK"]);
    had_one_connection(&service).await;
}

pub(super) async fn a_cancelled_call_ends_and_its_connection_is_kept(client: Language) {
    let service = serve(&[&["--message-timeout", NEVER], &ONE_CONNECTION[..]].concat());
    assert_eq!(client.run(&target(&service), &["cancel"]), ["OK", "OK", "CANCELLED", "OK"]);
    had_one_connection(&service).await;
}

pub(super) async fn health_is_serving(client: Language) {
    let service = serve(&[]);
    assert_eq!(client.run(&target(&service), &["check"]), ["SERVING"]);
}

pub(super) async fn a_watch_of_health_sees_the_drain_and_its_end(client: Language) {
    let mut service = serve(&["--drain-delay", "200ms", "--drain-timeout", NEVER]);
    let mut client = client.start(&target(&service), &["watch"]);
    client.wait_for_line("that it is healthy", |line| (line == "result SERVING").then_some(()));
    service.process.signal(Signal::TERM);
    assert_eq!(results(&client.final_log()), ["SERVING", "NOT_SERVING", "end"]);
    assert_eq!(service.process.wait_for_end().code(), Some(0));
}

pub(super) async fn reflection_lists_the_service(client: Language) {
    let service = serve(&[]);
    let results = client.run(&target(&service), &["services"]);
    assert_eq!(results.len(), 1, "{results:?}");
    let names: Vec<&str> = results[0].split(' ').collect();
    assert!(names.contains(&"envoy.service.ratelimit.v3.RateLimitService"), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
}

pub(super) async fn a_message_of_maximum_size_is_answered_and_a_larger_one_is_refused(
    client: Language,
) {
    let small = 20_000;
    for (service, size) in [(serve(&["--max-message", "20000"]), small), (serve(&[]), MAX_MESSAGE)]
    {
        assert_eq!(client.run(&target(&service), &["sized", &size.to_string()]), ["OK"]);
        assert_eq!(
            client.run(&target(&service), &["sized", &(size + 1).to_string()]),
            ["OUT_OF_RANGE"]
        );
    }
}

pub(super) async fn ten_thousand_calls_on_one_connection_are_answered(client: Language) {
    let service = serve(&ONE_CONNECTION);
    assert_eq!(client.run(&target(&service), &["many", "10000"]), ["OK 10000"]);
    had_one_connection(&service).await;
}

pub(super) async fn no_call_fails_while_connections_grow_old(client: Language) {
    let service = serve(&["--max-connection-age", "100ms"]);
    let results = client.run(&target(&service), &["load", "1500"]);
    assert!(results.len() == 1 && results[0].starts_with("OK "), "{results:?}");
}

/// Asserts that no second connection was opened to a service with the bound of [`ONE_CONNECTION`].
async fn had_one_connection(service: &Tollgate) {
    for kind in ["full", "evicted"] {
        let metric = format!("tollgate_grpc_connections_cut_total{{kind=\"{kind}\"}}");
        assert_eq!(Web::new(service.http).metric(&metric).await, 0, "{kind}");
    }
}

/// Serves 2 per day for each user; other keys have no limit.
fn serve(flags: &[&str]) -> Tollgate {
    Tollgate::serve_with(Policies::of(&daily("user", 2)).path(), flags)
}

fn target(service: &Tollgate) -> String {
    service.grpc.to_string()
}
