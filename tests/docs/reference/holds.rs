//! `reference/holds.md`, generated from the protobuf of `HoldService` and its comments.

use super::super::is_written;
use super::{cell, head, table};
use crate::support::root;

const FILE: &str = "proto/tollgate/v1/hold.proto";

/// A service, method, message or field, with its comment.
pub(super) struct Commented {
    pub(super) comment: Vec<String>,
    pub(super) line: String,
}

#[test]
fn the_hold_service_is_that_of_the_proto() {
    let text = std::fs::read_to_string(root().join(FILE)).unwrap();
    let about = "The service for [clients that reserve hits themselves](../holds.md), defined in `proto/tollgate/v1/hold.proto` and \
                 shown by reflection. The same requests can be sent as proto3 JSON to `/json/reserve`, `/json/extend`, `/json/commit` \
                 and `/json/cancel` of the HTTP port. Descriptors and responses are those of Envoy's `ShouldRateLimit`.";
    let mut page = head("HoldService", about);
    let parts = parts(&text);
    let methods = parts.iter().filter_map(|part| {
        let (name, _) = part.line.strip_prefix("rpc ")?.split_once('(')?;
        Some((name, part.comment.join(" ")))
    });
    for (name, about) in methods {
        page += &format!("## `{name}`\n\n{}\n\n", cell(&about));
        page += &fields(&parts, &format!("{name}Request"));
    }
    let errors = [
        (
            "INVALID_ARGUMENT",
            "400",
            "an ID that is empty or longer than 128 bytes; no hits to reserve; a `ttl` below 1s or above that of a rule; a request that `ShouldRateLimit` refuses",
        ),
        (
            "ALREADY_EXISTS",
            "409",
            "the ID already has an open hold with a different number of hits",
        ),
        ("NOT_FOUND", "404", "the ID has no open holds to extend"),
        (
            "PERMISSION_DENIED",
            "403",
            "`--allow` does not grant the domain; with `--allow`, every JSON request",
        ),
        ("OUT_OF_RANGE", "413", "a message larger than 16 KiB or `--max-message`"),
        (
            "UNAVAILABLE",
            "503",
            "the store failed and `on_store_error` is `error`; no policy is loaded",
        ),
    ];
    page += "## Errors\n\nA denied reserve is not an error: its `overall_code` is `OVER_LIMIT`, and its HTTP status in JSON is 429.\n\n";
    let rows =
        errors.map(|(code, http, about)| [format!("`{code}`"), http.to_owned(), cell(about)]);
    page += &table(["gRPC", "JSON", "reason"], rows);
    is_written("reference/holds.md", &page);
}

/// Returns the table of the fields of a message.
pub(super) fn fields(parts: &[Commented], message: &str) -> String {
    let begin = format!("message {message} {{");
    let own = parts.iter().skip_while(|part| part.line != begin).skip(1);
    let own = own.take_while(|part| !is_begin(&part.line));
    let rows = own.map(|part| {
        let (declared, _) = part.line.split_once(" = ").unwrap();
        let (kind, name) = declared.rsplit_once(' ').unwrap();
        let kind = kind.replace("envoy.extensions.common.ratelimit.v3.", "");
        let kind = kind.replace("google.protobuf.", "");
        [format!("`{name}`"), format!("`{kind}`"), cell(&part.comment.join(" "))]
    });
    table(["field", "type", "meaning"], rows) + "\n"
}

/// Returns `true` for the first line of a message or an enumeration.
fn is_begin(line: &str) -> bool {
    line.starts_with("message ") || line.starts_with("enum ")
}

/// Returns the commented lines of a file.
pub(super) fn parts(text: &str) -> Vec<Commented> {
    let mut parts = Vec::new();
    let mut comment = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(more) = line.strip_prefix("//") {
            comment.push(more.trim().to_owned());
        } else if line.is_empty() {
            comment.clear();
        } else if is_begin(line) || !comment.is_empty() {
            parts.push(Commented { comment: std::mem::take(&mut comment), line: line.to_owned() });
        }
    }
    parts
}
