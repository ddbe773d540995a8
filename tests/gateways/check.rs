//! `Authorization/Check` on the gRPC port.

use tollgate::grpc::proto::auth::attribute_context::{HttpRequest, Peer, Request};
use tollgate::grpc::proto::auth::authorization_client::AuthorizationClient;
use tollgate::grpc::proto::auth::check_response::HttpResponse;
use tollgate::grpc::proto::auth::{AttributeContext, CheckRequest, CheckResponse};
use tollgate::grpc::proto::envoy::config::core::v3 as core;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{POLICY, serve};
use crate::support::rls::channel;

/// Returns a request from an address.
fn from(address: &str) -> AttributeContext {
    let socket = core::SocketAddress { address: address.to_owned(), ..Default::default() };
    let address = core::Address { address: Some(core::address::Address::SocketAddress(socket)) };
    let http = HttpRequest {
        method: "GET".into(),
        host: "shop.example".into(),
        path: "/api".into(),
        headers: [("x-forwarded-for".to_owned(), "198.51.100.1".to_owned())].into(),
        ..Default::default()
    };
    AttributeContext {
        source: Some(Peer { address: Some(address), ..Default::default() }),
        request: Some(Request { http: Some(http), ..Default::default() }),
        ..Default::default()
    }
}

async fn check(
    client: &mut AuthorizationClient<Channel>,
    attributes: AttributeContext,
) -> Result<CheckResponse, Status> {
    let request = CheckRequest { attributes: Some(attributes) };
    Ok(client.check(request).await?.into_inner())
}

/// Returns the HTTP status of a denial, or 200, and its `Retry-After`.
fn outcome(response: CheckResponse) -> (i32, Option<u64>) {
    let code = response.status.unwrap().code;
    match response.http_response.unwrap() {
        HttpResponse::OkResponse(_) => {
            assert_eq!(code, 0);
            (200, None)
        }
        HttpResponse::DeniedResponse(denied) => {
            assert_ne!(code, 0);
            let mut headers = denied.headers.into_iter().filter_map(|option| option.header);
            let retry_after = headers.find(|header| header.key == "retry-after");
            let seconds = retry_after.map(|header| header.value.parse().unwrap());
            (denied.status.unwrap().code, seconds)
        }
    }
}

#[tokio::test]
async fn a_request_is_admitted_and_then_denied_with_retry_after() {
    let (service, web) = serve(POLICY, &[]);
    let mut client = AuthorizationClient::new(channel(service.grpc).await);
    for _ in 0..2 {
        assert_eq!(outcome(check(&mut client, from("203.0.113.7")).await.unwrap()), (200, None));
    }
    let (status, retry_after) = outcome(check(&mut client, from("203.0.113.7")).await.unwrap());
    assert_eq!(status, 429);
    assert!((1..=86_400).contains(&retry_after.unwrap()));
    assert_eq!(outcome(check(&mut client, from("203.0.113.8")).await.unwrap()), (200, None));
    let denied = r#"tollgate_decisions_total{domain="test",rule="address",outcome="denied"}"#;
    assert_eq!(web.metric(denied).await, 1);
}

#[tokio::test]
async fn compressed_calls_are_answered_the_same() {
    let (service, _web) = serve(POLICY, &[]);
    let client = AuthorizationClient::new(channel(service.grpc).await);
    let mut client = client.send_compressed(CompressionEncoding::Gzip);
    for status in [200, 200, 429] {
        assert_eq!(outcome(check(&mut client, from("203.0.113.7")).await.unwrap()).0, status);
    }
}

#[tokio::test]
async fn a_route_or_a_call_names_the_mapping() {
    let other = "- { name: other, descriptors: [{ entries: { route: login } }] }\n";
    let policy = POLICY.replace("descriptors:\n- key", &format!("{other}descriptors:\n- key"));
    let (service, _web) = serve(&policy, &[]);
    let mut client = AuthorizationClient::new(channel(service.grpc).await);
    let unnamed = check(&mut client, from("203.0.113.7")).await.unwrap_err();
    assert_eq!(unnamed.code(), Code::NotFound);

    let by_route = |name: &str| AttributeContext {
        context_extensions: [("mapping".to_owned(), name.to_owned())].into(),
        ..from("203.0.113.7")
    };
    assert_eq!(check(&mut client, by_route("none")).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(outcome(check(&mut client, by_route("other")).await.unwrap()).0, 200);

    let mut by_call = async |attributes| {
        let mut request = tonic::Request::new(CheckRequest { attributes: Some(attributes) });
        request.metadata_mut().insert("x-tollgate-mapping", "other".parse().unwrap());
        client.check(request).await.map(tonic::Response::into_inner)
    };
    assert_eq!(outcome(by_call(from("203.0.113.7")).await.unwrap()).0, 429);
    let both = by_call(by_route("none")).await;
    assert_eq!(both.unwrap_err().code(), Code::NotFound, "the route takes precedence");
}

#[tokio::test]
async fn a_claim_in_the_metadata_of_the_gateway_is_a_value() {
    let (service, _web) = serve(POLICY, &[]);
    let mut client = AuthorizationClient::new(channel(service.grpc).await);
    let of = |subject: &str| {
        let text = |text: &str| prost_types::Value {
            kind: Some(prost_types::value::Kind::StringValue(text.to_owned())),
        };
        let nested =
            |name: &str, value| prost_types::Struct { fields: [(name.to_owned(), value)].into() };
        let claims = nested("sub", text(subject));
        let claims =
            prost_types::Value { kind: Some(prost_types::value::Kind::StructValue(claims)) };
        let filters = [("jwt".to_owned(), nested("claims", claims))];
        core::Metadata { filter_metadata: filters.into(), ..Default::default() }
    };
    let mut statuses = Vec::new();
    for (address, subject) in [("192.0.2.1", "ann"), ("192.0.2.2", "ann"), ("192.0.2.3", "bob")] {
        let metadata_context = Some(of(subject));
        let attributes = AttributeContext { metadata_context, ..from(address) };
        statuses.push(outcome(check(&mut client, attributes).await.unwrap()).0);
    }
    assert_eq!(statuses, [200, 429, 200]);
}

#[tokio::test]
async fn another_peer_is_refused() {
    let (service, _web) = serve(POLICY, &["--gateways", "192.0.2.1"]);
    for client in [
        AuthorizationClient::new(channel(service.grpc).await),
        AuthorizationClient::new(channel(service.grpc).await)
            .send_compressed(CompressionEncoding::Gzip),
    ] {
        let mut client = client;
        let refused = check(&mut client, from("203.0.113.7")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
}
