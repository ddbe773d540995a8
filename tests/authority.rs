//! Calls with an unusual or missing `:authority`: each is answered and counted like any other,
//! except if no header field may have its bytes.
//!
//! Envoy sends the name of its cluster if `authority` is not set, gRPC-C clients on a Unix socket
//! its path. The service bases no decision on the authority, so it is no reason to refuse a call
//! (RFC 9113, 8.3.1 permits its absence).

use tollgate::grpc::proto::rate_limit_response::Code;

use crate::support::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, Http2, fields, frame};
use crate::support::policy::{Policies, daily};
use crate::support::raw_headers::{RawHeaders, Writes};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// The headers that name the service.
type Authority<'a> = Vec<(&'a str, &'a [u8])>;

#[tokio::test]
async fn a_call_with_an_authority_of_a_uri_is_answered_and_counted() {
    let values: [&[u8]; 5] =
        [b"tollgate", b"127.0.0.1:8081", b"[::1]:8081", b"localhost", b"a.b.svc.cluster.local:1"];
    answered_and_counted(values.map(authority)).await;
}

#[tokio::test]
async fn a_call_with_the_name_of_an_envoy_cluster_as_authority_is_answered_and_counted() {
    let values: [&[u8]; 3] = [
        b"outbound|8081||ratelimit.default.svc.cluster.local",
        b"rate_limit_cluster",
        b"ratelimit/ratelimit/8081",
    ];
    answered_and_counted(values.map(authority)).await;
}

#[tokio::test]
async fn a_call_with_a_path_as_authority_is_answered_and_counted() {
    answered_and_counted(
        [&b"/run/tollgate.sock"[..], b"a/b", b"%2Frun%2Ftollgate.sock"].map(authority),
    )
    .await;
}

#[tokio::test]
async fn a_call_with_an_authority_that_is_no_uri_is_answered_and_counted() {
    let values: [&[u8]; 10] = [
        b"%",
        b"%zz",
        b"a b",
        b"a@b",
        b"[::1",
        b":",
        b"a:b:c",
        b"a:99999",
        b"\xff\xfe",
        b"\"<>\\^`{}",
    ];
    answered_and_counted(values.map(authority)).await;
}

#[tokio::test]
async fn a_call_with_control_bytes_in_its_authority_is_answered_and_counted() {
    answered_and_counted([&b"\x01"[..], b"a\tb", b"\x7f"].map(authority)).await;
}

/// RFC 9113, 8.2.1 makes such calls malformed: a proxy in front may understand them differently.
#[tokio::test]
async fn a_call_with_bytes_in_its_authority_that_no_field_may_have_is_reset_alone() {
    let service = Tollgate::serve(Policies::of(&daily("user", 1)).path());
    let message = request(vec![descriptor(&[("user", "ann")])]);
    let mut client = RawHeaders::connect(service.grpc).await;
    for value in [&b" a "[..], b"a\0b", b"a\rb", b"a\nb"] {
        for writes in [Writes::One, Writes::HeadersFirst] {
            let error = client.call(&authority(value), &message, writes).await.unwrap_err();
            let shown = value.escape_ascii();
            assert_eq!(error.reason(), Some(h2::Reason::PROTOCOL_ERROR), "{shown}: {error}");
        }
    }
    let (status, answer) =
        client.call(&authority(b"tollgate"), &message, Writes::One).await.unwrap();
    assert_eq!(status, "0");
    assert_eq!(answer.unwrap().overall_code(), Code::Ok, "nothing was charged before");
}

#[tokio::test]
async fn a_call_with_an_authority_of_8_kib_is_answered_and_counted() {
    answered_and_counted([authority(&[b'a'; 8 << 10])]).await;
}

#[tokio::test]
async fn a_call_with_an_empty_authority_is_answered_and_counted() {
    answered_and_counted([authority(b"")]).await;
}

#[tokio::test]
async fn a_call_without_an_authority_is_answered_and_counted() {
    answered_and_counted([vec![]]).await;
}

#[tokio::test]
async fn a_call_with_a_host_instead_of_an_authority_is_answered_and_counted() {
    answered_and_counted([
        vec![("host", &b"tollgate"[..])],
        vec![("host", b"a|b")],
        vec![("host", b"")],
    ])
    .await;
}

#[tokio::test]
async fn a_call_with_several_hosts_is_answered_and_counted() {
    let hosts = vec![("host", &b"tollgate"[..]), ("host", b"other")];
    let with_an_authority = [authority(b"tollgate"), hosts.clone()].concat();
    answered_and_counted([hosts, with_an_authority]).await;
}

#[tokio::test]
async fn a_call_with_another_host_than_its_authority_is_answered_and_counted() {
    answered_and_counted([[authority(b"tollgate"), vec![("host", b"other")]].concat()]).await;
}

#[tokio::test]
async fn calls_with_other_authorities_share_a_connection_and_a_counter() {
    let service = Tollgate::serve(Policies::of(&daily("user", 3)).path());
    let mut client = RawHeaders::connect(service.grpc).await;
    let message = request(vec![descriptor(&[("user", "ann")])]);
    let mut codes = Vec::new();
    for value in [&b"tollgate"[..], b"a|b", b"", b"/run/tollgate.sock"] {
        let answer = client.call(&authority(value), &message, Writes::One).await;
        codes.push(
            answer
                .map(|(_, answer)| answer.map(|answer| answer.overall_code()))
                .unwrap_or_default(),
        );
    }
    assert_eq!(codes, [Some(Code::Ok), Some(Code::Ok), Some(Code::Ok), Some(Code::OverLimit)]);
    assert_eq!(Web::new(service.http).metric("tollgate_grpc_connections").await, 1);
}

#[tokio::test]
async fn other_services_than_the_rate_limits_are_answered_whatever_the_authority() {
    const HEALTH: &[u8] = b"/grpc.health.v1.Health/Check";
    let service = Tollgate::serve(Policies::of(&daily("user", 5)).path());
    for value in [&b"tollgate"[..], b"a|b", b"/run/tollgate.sock", b"", b"\xff\xfe"] {
        let list: [(&str, &[u8]); 5] = [
            (":method", b"POST"),
            (":scheme", b"http"),
            (":path", HEALTH),
            (":authority", value),
            ("content-type", b"application/grpc"),
        ];
        let mut client = Http2::connect(service.grpc).await;
        let call =
            [frame(HEADERS, END_HEADERS, 1, &fields(&list)), frame(DATA, END_STREAM, 1, &[0; 5])]
                .concat();
        client.write(&call).await.unwrap();
        // The message of a health check: field 1, SERVING.
        let answer = client.data().await;
        assert_eq!(answer, Some(vec![0, 0, 0, 0, 2, 8, 1]), "{}", value.escape_ascii());
    }
}

/// Sends two calls, and asserts that the first is admitted and the second exceeds a limit of 1,
/// however their frames are written.
async fn answered_and_counted<'a>(authorities: impl IntoIterator<Item = Authority<'a>>) {
    let service = Tollgate::serve(Policies::of(&daily("user", 1)).path());
    let mut wrong = Vec::new();
    for (number, authority) in authorities.into_iter().enumerate() {
        for writes in [Writes::One, Writes::HeadersFirst] {
            let message = request(vec![descriptor(&[("user", &format!("{number} {writes:?}"))])]);
            let mut client = RawHeaders::connect(service.grpc).await;
            for expected in [Code::Ok, Code::OverLimit] {
                let answer = client.call(&authority, &message, writes).await;
                let is_right = matches!(&answer, Ok((status, Some(answer)))
                    if status == "0" && answer.overall_code() == expected);
                if !is_right {
                    let answer = answer.map(|(status, answer)| {
                        (status, answer.map(|answer| answer.overall_code()))
                    });
                    wrong.push(format!(
                        "{} by {writes:?}: {answer:?}, not {expected:?}",
                        shown(&authority)
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let other = Client::connect(service.grpc).await;
    assert!(other.hit("user", "another").await, "others are served on");
}

fn authority(value: &[u8]) -> Authority<'_> {
    vec![(":authority", value)]
}

fn shown(authority: &Authority<'_>) -> String {
    let field = |(name, value): &(&str, &[u8])| {
        format!("{name}: {}", value[..value.len().min(60)].escape_ascii())
    };
    authority.iter().map(field).collect::<Vec<_>>().join(", ")
}
