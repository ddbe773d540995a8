//! Configurations and their errors.

use super::CONFIG;
use crate::config::Config;

fn error_of(actions: &str) -> String {
    let text = format!(
        r#"{{"domain": "shop", "cluster": "tollgate", "rate_limits": [{{"actions": {actions}}}]}}"#
    );
    Config::read(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_configuration_is_read() {
    let config = Config::read(CONFIG.as_bytes()).unwrap();
    assert_eq!((config.domain.as_str(), config.cluster.as_str()), ("shop", "tollgate"));
    assert!(config.shows_limits && config.shows_retry_after && config.shows_ratelimited);
    assert_eq!(config.rate_limits.0.len(), 2);
}

#[test]
fn what_is_not_supported_is_an_error_with_its_name() {
    for (actions, expected) in [
        (
            r#"[{"remote_address": {}}, {"query_parameters": {"query_parameter_name": "a"}}]"#,
            "filter_config.rate_limits[0].actions[1].query_parameters is not supported; supported \
             is: generic_key, request_headers, remote_address, destination_cluster, \
             header_value_match, metadata",
        ),
        (
            r#"[{"remote_address": {"mask": 8}}]"#,
            "filter_config.rate_limits[0].actions[0].remote_address.mask is not supported; \
             supported is: {}",
        ),
        (
            r#"[{"generic_key": {"descriptor_value": "%REQ(a)%"}}]"#,
            "filter_config.rate_limits[0].actions[0].generic_key.descriptor_value is not a text \
             without %",
        ),
        (
            r#"[{"request_headers": {"header_name": "a"}}]"#,
            "filter_config.rate_limits[0].actions[0].request_headers.descriptor_key is missing",
        ),
        (
            r#"[{"header_value_match": {"descriptor_value": "v", "headers": [{"name": "a",
            "string_match": {"safe_regex": {"regex": "a"}}}]}}]"#,
            "filter_config.rate_limits[0].actions[0].header_value_match.headers[0].string_match\
             .safe_regex is not supported; supported is: exact, prefix, suffix, contains, \
             ignore_case",
        ),
        (
            r#"[{"metadata": {"descriptor_key": "m", "metadata_key": {"key": "a", "path":
            [{"key": "b"}, {"key": "c"}]}}}]"#,
            "filter_config.rate_limits[0].actions[0].metadata.metadata_key.path is not a list of \
             one key",
        ),
        (
            r#"[{"remote_address": {}, "destination_cluster": {}}]"#,
            "filter_config.rate_limits[0].actions[0] is not an object with one action",
        ),
        ("[]", "filter_config.rate_limits[0].actions is not a list with 1 to 16 items"),
        ("7", "filter_config.rate_limits[0].actions is not a list with 1 to 16 items"),
    ] {
        assert_eq!(error_of(actions), expected);
    }
}

#[test]
fn limits_of_the_configuration_itself_are_errors() {
    for (found, replaced, expected) in [
        ("\"domain\": \"shop\",", "", "filter_config.domain is missing"),
        ("\"tollgate\"", "7", "filter_config.cluster is not a text"),
        (
            "DRAFT_VERSION_03",
            "DRAFT_VERSION_99",
            "filter_config.enable_x_ratelimit_headers is not OFF or DRAFT_VERSION_03",
        ),
        (
            "\"enable_retry_after_header\"",
            "\"stage\"",
            "filter_config.stage is not supported; supported is: domain, cluster, rate_limits, \
             enable_x_ratelimit_headers, enable_retry_after_header, \
             disable_x_envoy_ratelimited_header",
        ),
    ] {
        let text = CONFIG.replace(found, replaced);
        assert_eq!(Config::read(text.as_bytes()).unwrap_err().to_string(), expected);
    }
    let error = Config::read(b"{").unwrap_err().to_string();
    assert!(error.starts_with("the configuration is not a JSON object: EOF"), "{error}");
}
