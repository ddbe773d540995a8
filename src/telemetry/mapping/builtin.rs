//! The mapping that envoyproxy/ratelimit has built in, as a mapping file: what its dashboards are made for.
//!
//! Rules of one level have the labels `domain` and `key1`, deeper ones `key2` too; what is below the second level is added up.
//! One difference: there a pattern without an end takes `over_limit_with_local_cache` of deep rules for `over_limit`, so that
//! such hits count twice; here they keep a name of their own, as those of rules of one level do.

use std::fmt::Write as _;

const REST: &str = r#"
- {match: "ratelimit.service.call.should_rate_limit.*", match_metric_type: counter,
   name: ratelimit_service_should_rate_limit_error, labels: {err_type: "$1"}}
- {match: "ratelimit_server.*.total_requests", match_metric_type: counter,
   name: ratelimit_service_total_requests, labels: {grpc_method: "$1"}}
- {match: ratelimit.service.config_load_success, match_metric_type: counter, name: ratelimit_service_config_load_success}
- {match: ratelimit.service.config_load_error, match_metric_type: counter, name: ratelimit_service_config_load_error}
"#;

/// The mapping. `milliseconds`: the response time stays in them, under the name that says seconds.
pub(super) fn text(milliseconds: bool) -> String {
    let mut text = "mappings:".to_owned();
    for what in ["near_limit", "over_limit", "total_hits", "within_limit", "shadow_mode"] {
        // A string takes all.
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
