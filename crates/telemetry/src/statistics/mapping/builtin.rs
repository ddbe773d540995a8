//! The built-in mapping of envoyproxy/ratelimit as a mapping file; its dashboards expect these
//! names.
//!
//! Rules of one level get the labels `domain` and `key1`, deeper ones also `key2`; levels below the
//! second are summed. One difference: in envoyproxy/ratelimit an unanchored pattern matches
//! `over_limit_with_local_cache` of deep rules as `over_limit`, so such hits count twice; here they
//! keep a name of their own, like those of rules of one level.

use std::fmt::Write as _;

const REST: &str = r#"
- {match: "ratelimit.service.call.should_rate_limit.*", match_metric_type: counter,
   name: ratelimit_service_should_rate_limit_error, labels: {err_type: "$1"}}
- {match: "ratelimit_server.*.total_requests", match_metric_type: counter,
   name: ratelimit_service_total_requests, labels: {grpc_method: "$1"}}
- {match: ratelimit.service.config_load_success, match_metric_type: counter, name: ratelimit_service_config_load_success}
- {match: ratelimit.service.config_load_error, match_metric_type: counter, name: ratelimit_service_config_load_error}
"#;

/// Returns the mapping. If `milliseconds`, the response time stays in milliseconds, despite a name
/// that ends in `seconds`.
pub(super) fn text(milliseconds: bool) -> String {
    let mut text = "mappings:".to_owned();
    for what in [
        "near_limit",
        "over_limit",
        "total_hits",
        "within_limit",
        "shadow_mode",
        "total_negative_hits",
    ] {
        // Writing to a `String` cannot fail.
        let _ = write!(
            text,
            r#"
- match: "ratelimit.service.rate_limit.*.*.{what}"
  name: ratelimit_service_rate_limit_{what}
  labels: {{domain: "$1", key1: "$2"}}
- match: '^ratelimit\.service\.rate_limit\.([^.]*)\.([^.]*)\.([^.]*)(?:\..*)?\.{what}$'
  match_type: regex
  name: ratelimit_service_rate_limit_{what}
  labels: {{domain: "$1", key1: "$2", key2: "$3"}}"#
        );
    }
    let scale = if milliseconds { 1.0 } else { 0.001 };
    let _ = write!(
        text,
        r#"{REST}- {{match: "ratelimit_server.*.response_time", observer_type: histogram, scale: {scale},
   name: ratelimit_service_response_time_seconds, labels: {{grpc_method: "$1"}}}}
"#
    );
    text
}
