//! Conversion of spans to OTLP messages.

use std::time::{Duration, SystemTime};

use crate::grpc::proto::opentelemetry::proto::common::v1::any_value::Value;
use crate::grpc::proto::opentelemetry::proto::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use crate::grpc::proto::opentelemetry::proto::resource::v1::Resource;
use crate::grpc::proto::opentelemetry::proto::trace::v1::span::SpanKind;
use crate::grpc::proto::opentelemetry::proto::trace::v1::status::StatusCode;
use crate::grpc::proto::opentelemetry::proto::trace::v1::{
    self as otlp, ResourceSpans, ScopeSpans,
};
use crate::telemetry::spans::{CallSpan, SpanAttributes};

const SERVICE: &str = "envoy.service.ratelimit.v3.RateLimitService";
const METHOD: &str = "ShouldRateLimit";
/// Span flags: the trace is sampled, the parent's remoteness is known, the parent is remote.
const SAMPLED: u32 = 0x01;
const IS_REMOTE_KNOWN: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// gRPC status CANCELLED, for a call that its caller canceled.
const CANCELLED: i32 = 1;
/// gRPC status codes that are errors of the server, by the OpenTelemetry conventions.
const ERRORS: [i32; 6] = [2, 4, 12, 13, 14, 15];

/// Converts the spans of this process.
pub(super) fn resource_spans(resource: &[(String, String)], spans: Vec<CallSpan>) -> ResourceSpans {
    let attributes = resource.iter().map(|(key, value)| attribute(key, text(value))).collect();
    let scope = InstrumentationScope {
        name: "tollgate".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let spans = spans.into_iter().map(span).collect();
    ResourceSpans {
        resource: Some(Resource { attributes }),
        scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
    }
}

fn span(span: CallSpan) -> otlp::Span {
    let status = span.attributes.status.unwrap_or(CANCELLED);
    let code = if ERRORS.contains(&status) { StatusCode::Error } else { StatusCode::Unset };
    let begun = span.begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let remote = if span.parent.is_some() { IS_REMOTE_KNOWN | IS_REMOTE } else { IS_REMOTE_KNOWN };
    otlp::Span {
        trace_id: span.trace.to_vec(),
        span_id: span.id.to_vec(),
        trace_state: span.state,
        parent_span_id: span.parent.map(Vec::from).unwrap_or_default(),
        flags: SAMPLED | remote,
        name: format!("{SERVICE}/{METHOD}"),
        kind: SpanKind::Server.into(),
        start_time_unix_nano: nanos(begun),
        end_time_unix_nano: nanos(begun.saturating_add(span.length)),
        attributes: attributes(span.attributes, status),
        status: Some(otlp::Status { message: String::new(), code: code.into() }),
    }
}

fn attributes(span: SpanAttributes, status: i32) -> Vec<KeyValue> {
    let rules = span.rules.iter().map(|rule| AnyValue { value: Some(text(rule)) }).collect();
    let mut attributes = vec![
        attribute("rpc.system", text("grpc")),
        attribute("rpc.service", text(SERVICE)),
        attribute("rpc.method", text(METHOD)),
        attribute("rpc.grpc.status_code", Value::IntValue(status.into())),
        attribute("tollgate.domain", text(&span.domain)),
        attribute("tollgate.rules", Value::ArrayValue(ArrayValue { values: rules })),
    ];
    let outcome =
        span.is_over_limit.map(|is_over_limit| if is_over_limit { "OVER_LIMIT" } else { "OK" });
    attributes.extend(outcome.map(|outcome| attribute("tollgate.outcome", text(outcome))));
    let store_time = span
        .store_time
        .map(|time| Value::IntValue(i64::try_from(time.as_micros()).unwrap_or(i64::MAX)));
    attributes.extend(store_time.map(|time| attribute("tollgate.store_time_us", time)));
    attributes
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}
