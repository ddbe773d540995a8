//! `reference/api.md`, generated from the API document of a running service.

use std::fmt::Write as _;

use serde_json::Value;

use super::super::is_written;
use super::{cell, head, table, types};
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

#[tokio::test]
async fn the_api_reference_matches_the_service() {
    let service = Tollgate::serve(Policies::of(&daily("user", 1)).path());
    let document = Web::new(service.admin).get("/api/v1/openapi.json").await.body;
    let document: Value = serde_json::from_str(&document).unwrap();
    let text = "The administration API, on `--admin-listen` (127.0.0.1:6070): JSON over HTTP/1.1. As an OpenAPI document: \
                `/api/v1/openapi.json`. Clients on the same machine need no credentials; others send `Authorization: Bearer SECRET`, see \
                `--admin-token-file` in the [settings](settings.md). Each write is logged with target `audit`.\n\nDecisions are requested \
                over gRPC (8081): `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`, with `grpc.health.v1.Health` and \
                reflection; or by `POST /json` over HTTP (8080), in proto3 JSON. Gateways \
                call `envoy.service.auth.v3.Authorization/Check` or `/auth/NAME`. The HTTP port has an OpenAPI document of its own, \
                `/openapi.json`; its errors are `application/problem+json`.";
    let mut page = head("API", text);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            page += &format!("## {} {path}\n\n{}", method.to_uppercase(), section(operation));
        }
    }
    page += "## Objects\n\n";
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        page += &format!(
            "### {name}\n\n{}\n\n{}\n",
            cell(text_of(schema, "description")),
            fields(schema)
        );
    }
    is_written("reference/api.md", &(page.trim_end().to_owned() + "\n"));
}

/// Describes an operation of a path.
fn section(operation: &Value) -> String {
    let mut text = cell(text_of(operation, "summary")) + "\n\n";
    let more = cell(text_of(operation, "description"));
    if !more.is_empty() {
        text += &format!("{more}\n\n");
    }
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let rows: Vec<_> = parameters
        .map(|parameter| {
            let must = if parameter["required"] == true { ", required" } else { "" };
            let name = format!("`{}`", text_of(parameter, "name"));
            [name, kind(&parameter["schema"]) + must, cell(text_of(parameter, "description"))]
        })
        .collect();
    if !rows.is_empty() {
        writeln!(text, "{}", table(["parameter", "type", "meaning"], rows)).unwrap();
    }
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    if !body.is_null() {
        write!(text, "Request body: {}\n\n", kind(body)).unwrap();
    }
    let answers = operation["responses"].as_object().unwrap().iter().map(|(status, answer)| {
        [
            status.clone(),
            kind(&answer["content"]["application/json"]["schema"]),
            cell(text_of(answer, "description")),
        ]
    });
    writeln!(text, "{}", table(["answer", "with", "when"], answers)).unwrap();
    text
}

fn fields(schema: &Value) -> String {
    let required: Vec<_> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let fields = schema["properties"].as_object().into_iter().flatten();
    let rows = fields.map(|(name, field)| {
        let absent = if required.contains(&name.as_str()) { "" } else { ", or absent" };
        [format!("`{name}`"), kind(field) + absent, cell(text_of(field, "description"))]
    });
    table(["field", "is", "meaning"], rows)
}

/// Describes the type of a value in words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(words) = schema["enum"].as_array() {
        return words
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    if let Some(one) = ["oneOf", "anyOf", "allOf"].iter().find_map(|of| schema[of].as_array()) {
        let kinds = one.iter().filter(|kind| kind["type"] != "null").map(kind);
        return kinds.collect::<Vec<_>>().join(" or ");
    }
    match types(schema).into_iter().find(|name| *name != "null") {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if !schema["additionalProperties"].is_null() => {
            format!("names to {}", kind(&schema["additionalProperties"]))
        }
        Some(name) => name.to_owned(),
        None => String::new(),
    }
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
