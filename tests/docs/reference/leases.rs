//! `reference/leases.md`, generated from the protobuf of `LeaseService` and its comments.

use super::super::is_written;
use super::holds::{Commented, fields, parts};
use super::{cell, head, table};
use crate::support::root;

const FILE: &str = "proto/tollgate/v1/lease.proto";

#[test]
fn the_lease_service_is_that_of_the_proto() {
    let text = std::fs::read_to_string(root().join(FILE)).unwrap();
    let about = "The service for [clients that admit requests themselves](../loans.md), defined in `proto/tollgate/v1/lease.proto` and \
                 shown by reflection. The same request can be sent as proto3 JSON to `/json/exchange` of the HTTP port, with receipts in base64. \
                 Descriptors are those of Envoy's `ShouldRateLimit`.";
    let mut page = head("LeaseService", about);
    let parts = parts(&text);
    let method = parts.iter().find(|part| part.line.starts_with("rpc Exchange(")).unwrap();
    page += &format!("## `Exchange`\n\n{}\n\n", cell(&method.comment.join(" ")));
    page += &fields(&parts, "ExchangeRequest");
    for message in ["LeaseWant", "LeaseReturn"] {
        page += &format!("### `{message}`\n\n{}", fields(&parts, message));
    }
    page += &format!("## Response\n\n{}", fields(&parts, "ExchangeResponse"));
    for message in ["LeaseAnswer", "Loan", "AskEachRequest", "Denial", "NotLeasable"] {
        page += &format!("### `{message}`\n\n{}", fields(&parts, message));
        page += &values(&parts, &format!("message {message} {{"), "enum Reason {");
    }
    page += &format!("### `CounterReport`\n\n{}", fields(&parts, "CounterReport"));
    page += "### `LeaseResult`\n\n";
    page += &values(&parts, "message CounterReport {", "enum LeaseResult {");
    let errors = [
        (
            "INVALID_ARGUMENT",
            "400",
            "neither wants nor returns, or more than 256 of one; a descriptor with more than entries; a request that `ShouldRateLimit` refuses",
        ),
        (
            "PERMISSION_DENIED",
            "403",
            "`--allow` does not grant the domain; with `--allow`, every JSON request",
        ),
        ("OUT_OF_RANGE", "413", "a message larger than 64 KiB or `--max-message`"),
        ("RESOURCE_EXHAUSTED", "503", "`--client-memory-max` has no room for the call"),
        ("UNAVAILABLE", "503", "no policy is loaded"),
    ];
    page += "## Errors\n\nA store that fails is no error: the answer is `STORE_FAILED`, and the result `FAILED`.\n\n";
    let rows =
        errors.map(|(code, http, about)| [format!("`{code}`"), http.to_owned(), cell(about)]);
    page += &table(["gRPC", "JSON", "reason"], rows);
    is_written("reference/leases.md", &page);
}

/// Returns the table of the commented values of an enumeration after the first line of a message;
/// empty if the next message begins before.
fn values(parts: &[Commented], message: &str, begin: &str) -> String {
    let after = parts.iter().skip_while(|part| part.line != message).skip(1);
    let mut own = after.skip_while(|part| part.line != begin && !part.line.starts_with("message "));
    if own.next().is_none_or(|part| part.line != begin) {
        return String::new();
    }
    let rows = own.take_while(|part| !part.comment.is_empty() && part.line.contains(" = "));
    let rows = rows.map(|part| {
        let (name, _) = part.line.split_once(" = ").unwrap();
        [format!("`{name}`"), cell(&part.comment.join(" "))]
    });
    table(["value", "meaning"], rows) + "\n"
}
