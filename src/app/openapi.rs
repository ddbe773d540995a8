//! The OpenAPI document of the public port: decisions in JSON, and those for gateways.

use serde_json::{Map, Value, json};

use crate::admin::DecidePath;
use crate::grpc::json::JsonError;
use crate::grpc::json::schema::{reference, schemas};
use crate::problem::PROBLEM_JSON;

const RESPONSE: &str = "envoy.service.ratelimit.v3.RateLimitResponse";
const EXCHANGED: &str = "tollgate.v1.ExchangeResponse";
/// Headers that describe a request to `/auth/NAME`.
const DESCRIBED: [(&str, &str, bool); 4] = [
    ("X-Forwarded-Method", "the method of the request", true),
    ("X-Forwarded-Host", "the host of the request", true),
    ("X-Forwarded-Uri", "the request target: path and query", true),
    ("X-Forwarded-For", "the addresses of the hops, the client of the gateway last", false),
];

/// Returns the document.
///
/// # Errors
/// A message is missing in the protocol.
pub(super) fn document() -> Result<String, JsonError> {
    let messages: Vec<_> = DecidePath::ALL.map(|path| request_of(path).0).into();
    let mut all = schemas(&[messages.as_slice(), &[RESPONSE, EXCHANGED]].concat())?;
    all.insert("Problem".to_owned(), problem());
    let mut paths: Map<_, _> = DecidePath::ALL
        .map(|path| (path.path().to_owned(), json!({ "post": decision(path) })))
        .into_iter()
        .collect();
    paths.insert("/auth/{name}".to_owned(), json!({ "get": auth() }));
    let info = json!({
        "title": "Tollgate decisions",
        "description": "Decisions in proto3 JSON, and for gateways.",
        "version": env!("CARGO_PKG_VERSION"),
    });
    let document = json!({ "openapi": "3.1.0", "info": info, "paths": paths, "components": { "schemas": all } });
    Ok(document.to_string())
}

/// Returns the message of a request, and what it does.
fn request_of(path: DecidePath) -> (&'static str, &'static str) {
    match path {
        DecidePath::RateLimit => (
            "envoy.service.ratelimit.v3.RateLimitRequest",
            "Decides a request, and charges it if it is admitted.",
        ),
        DecidePath::Reserve => {
            ("tollgate.v1.ReserveRequest", "Charges an estimate under an ID, to be corrected.")
        }
        DecidePath::Extend => ("tollgate.v1.ExtendRequest", "Gives open holds a new TTL."),
        DecidePath::Commit => ("tollgate.v1.CommitRequest", "Ends a hold with its cost."),
        DecidePath::Cancel => {
            ("tollgate.v1.CancelRequest", "Ends a hold, and gives its hits back.")
        }
        DecidePath::Exchange => {
            ("tollgate.v1.ExchangeRequest", "Lends hits, and accepts the return of lent hits.")
        }
    }
}

fn decision(path: DecidePath) -> Value {
    let (message, summary) = request_of(path);
    let mut responses = errors(match path {
        DecidePath::RateLimit | DecidePath::Commit | DecidePath::Cancel | DecidePath::Exchange => {
            &[400, 403, 408, 413, 421, 503]
        }
        DecidePath::Reserve => &[400, 403, 408, 409, 413, 421, 503],
        DecidePath::Extend => &[400, 403, 404, 408, 413, 421, 503],
    });
    if path == DecidePath::Exchange {
        let content = json_of(EXCHANGED);
        responses.insert("200".into(), json!({ "description": "answered", "content": content }));
    } else {
        let content = json_of(RESPONSE);
        responses.insert("200".into(), json!({ "description": "admitted", "content": content }));
        responses.insert(
            "429".into(),
            json!({ "description": "over limit", "headers": retry_after(), "content": content }),
        );
    }
    let body = json!({ "required": true, "content": json_of(message) });
    json!({ "summary": summary, "requestBody": body, "responses": responses })
}

/// Returns the content of a message in JSON.
fn json_of(message: &str) -> Value {
    json!({ "application/json": { "schema": reference(message) } })
}

fn auth() -> Value {
    let headers = DESCRIBED.map(|(name, meaning, required)| {
        json!({ "name": name, "in": "header", "required": required, "description": meaning,
            "schema": { "type": "string" } })
    });
    let name = json!({ "name": "name", "in": "path", "required": true,
        "description": "the name of a mapping in `requests` of the policies",
        "schema": { "type": "string" } });
    let parameters: Vec<_> = [name].into_iter().chain(headers).collect();
    let mut responses = errors(&[400, 403, 404, 431, 503]);
    responses.insert("200".into(), json!({ "description": "admitted" }));
    responses.insert(
        "429".into(),
        json!({ "description": "over limit", "headers": retry_after(), "content": problems() }),
    );
    let summary =
        "Decides a request that a gateway describes by headers. Any method; no body is read.";
    json!({ "summary": summary, "parameters": parameters, "responses": responses })
}

/// Returns the responses that are problems.
fn errors(statuses: &[u16]) -> Map<String, Value> {
    let responses = statuses.iter().map(|status| {
        let meaning = match status {
            400 => "not a valid request",
            403 => "not permitted over HTTP, or to this client",
            404 => "no such mapping, or nothing to extend",
            408 => "the body did not arrive in time",
            409 => "in conflict with other holds of the ID",
            413 => "the body is too large",
            421 => "a browser that uses a host name",
            431 => "a value is too long to be matched",
            _ => "no decision",
        };
        (status.to_string(), json!({ "description": meaning, "content": problems() }))
    });
    responses.collect()
}

fn retry_after() -> Value {
    json!({ "Retry-After": { "description": "seconds", "schema": { "type": "integer" } } })
}

fn problems() -> Value {
    json!({ PROBLEM_JSON: { "schema": reference("Problem") } })
}

fn problem() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "description": "Problem details (RFC 9457).",
        "type": "object",
        "properties": { "type": text, "title": text, "status": { "type": "integer" }, "detail": text },
        "required": ["type", "title", "status", "detail"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_of_the_document_has_a_schema() {
        let text = document().unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let mut references = 0;
        for part in text.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
            references += 1;
        }
        assert!(references > 20);
        for path in DecidePath::ALL {
            let responses = &document["paths"][path.path()]["post"]["responses"];
            assert!(responses["200"].is_object());
            // Denials are answers to wants.
            assert_eq!(responses["429"].is_object(), path != DecidePath::Exchange);
            assert_eq!(responses["409"].is_object(), path == DecidePath::Reserve);
            assert_eq!(responses["404"].is_object(), path == DecidePath::Extend);
        }
    }
}
