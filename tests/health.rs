//! gRPC health under three names, reflection, and the HTTP probes.

use prost::Message as _;
use prost_types::field_descriptor_proto::Type;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tokio_stream::StreamExt as _;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::policy::{Policies, daily};
use crate::support::probes::NAMES;
use crate::support::rls::channel;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

#[tokio::test]
async fn health_says_serving_under_each_of_its_names() {
    let service = serve();
    let mut health = HealthClient::new(channel(service.grpc).await);
    for name in NAMES {
        let answer = health.check(HealthCheckRequest { service: name.to_owned() }).await.unwrap();
        assert_eq!(answer.into_inner().status(), ServingStatus::Serving, "{name:?}");
    }
}

#[tokio::test]
async fn health_of_an_unknown_service_is_not_found() {
    let service = serve();
    let mut health = HealthClient::new(channel(service.grpc).await);
    let answer = health.check(HealthCheckRequest { service: "absent".to_owned() }).await;
    assert_eq!(answer.unwrap_err().code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn the_probes_report_live_and_ready() {
    let service = serve();
    let web = Web::new(service.http);
    assert_eq!(web.get("/livez").await.status, 200);
    assert_eq!(web.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn metrics_count_decisions() {
    let service = serve();
    let client = crate::support::rls::Client::connect(service.grpc).await;
    assert!(client.hit("user", "ann").await);
    let metrics = Web::new(service.http).get("/metrics").await;
    assert_eq!(metrics.status, 200);
    let decisions: Vec<&str> =
        metrics.body.lines().filter(|line| line.starts_with("tollgate_decisions")).collect();
    assert!(decisions.iter().any(|line| line.ends_with(" 1")), "{decisions:#?}");
}

#[tokio::test]
async fn reflection_lists_the_service() {
    let MessageResponse::ListServicesResponse(list) =
        reflect(MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list of services")
    };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    assert!(
        names.iter().any(|name| name == "envoy.service.ratelimit.v3.RateLimitService"),
        "{names:?}"
    );
}

#[tokio::test]
async fn reflection_shows_the_method_and_what_it_takes() {
    let file = file_with("envoy.service.ratelimit.v3.RateLimitService").await;
    let method = &file.service[0].method[0];
    assert_eq!(method.name(), "ShouldRateLimit");
    assert_eq!(method.input_type(), ".envoy.service.ratelimit.v3.RateLimitRequest");
}

#[tokio::test]
async fn reflection_shows_keys_and_values_as_text() {
    let file = file_with("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor").await;
    let descriptor =
        file.message_type.iter().find(|message| message.name() == "RateLimitDescriptor").unwrap();
    let entry = descriptor.nested_type.iter().find(|message| message.name() == "Entry").unwrap();
    let types: Vec<(&str, Type)> =
        entry.field.iter().map(|field| (field.name(), field.r#type())).collect();
    assert_eq!(types, [("key", Type::String), ("value", Type::String)]);
}

#[tokio::test]
async fn reflection_has_the_fields_that_published_copies_of_the_protocol_lack() {
    let file = file_with("envoy.extensions.common.ratelimit.v3.RateLimitDescriptor").await;
    let descriptor =
        file.message_type.iter().find(|message| message.name() == "RateLimitDescriptor").unwrap();
    assert!(
        descriptor
            .field
            .iter()
            .any(|field| field.name() == "is_negative_hits" && field.number() == 4)
    );
}

#[tokio::test]
async fn reflection_can_be_turned_off() {
    let service =
        Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &["--no-reflection"]);
    let mut reflection = ServerReflectionClient::new(channel(service.grpc).await);
    let message = MessageRequest::ListServices(String::new());
    let message = ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let refused = reflection.server_reflection_info(tokio_stream::once(message)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unimplemented);
}

fn serve() -> Tollgate {
    Tollgate::serve(Policies::of(&daily("user", 5)).path())
}

/// Returns the file that defines a symbol.
async fn file_with(symbol: &str) -> FileDescriptorProto {
    let MessageResponse::FileDescriptorResponse(files) =
        reflect(MessageRequest::FileContainingSymbol(symbol.to_owned())).await
    else {
        panic!("no file has {symbol}")
    };
    let files = files
        .file_descriptor_proto
        .iter()
        .map(|file| FileDescriptorProto::decode(file.as_slice()).unwrap());
    let files = FileDescriptorSet { file: files.collect() };
    let package = symbol.rsplit_once('.').unwrap().0;
    files.file.into_iter().find(|file| file.package() == package).unwrap()
}

async fn reflect(message: MessageRequest) -> MessageResponse {
    let service = serve();
    let mut reflection = ServerReflectionClient::new(channel(service.grpc).await);
    let message = ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let answers = reflection.server_reflection_info(tokio_stream::once(message)).await.unwrap();
    answers.into_inner().next().await.unwrap().unwrap().message_response.unwrap()
}
