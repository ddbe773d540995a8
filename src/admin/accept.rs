//! Media types that a client accepts.

use axum::http::{HeaderMap, header};

/// Returns `true` if `Accept` names a media type, and not with a weight of 0, which refuses it.
pub(super) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| is_accepted(range, media_type))
}

fn is_accepted(range: &str, media_type: &str) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(media_type));
    let weight = parts
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("q"))
        .map_or(Ok(1.0), |(_, weight)| weight.parse::<f32>());
    is_named && weight.is_ok_and(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_accepted_unless_its_weight_is_0() {
        let open = "application/openmetrics-text";
        let cases = [
            ("application/openmetrics-text", true),
            ("text/plain;q=0.5, Application/OpenMetrics-Text; version=1.0.0 ; Q=0.001", true),
            ("application/openmetrics-text;version=1.0.0;q=0,text/plain", false),
            ("application/openmetrics-text; q=0.000", false),
            ("application/openmetrics-text;q=0, application/openmetrics-text;version=1.0.0", true),
            ("application/openmetrics-text-too, text/plain;q=1", false),
            ("application/openmetrics-text;q=high", false),
            ("*/*", false),
            ("", false),
        ];
        for (value, accepted) in cases {
            let headers = [(header::ACCEPT, value.parse().unwrap())].into_iter().collect();
            assert_eq!(accepts(&headers, open), accepted, "{value}");
        }
        assert!(!accepts(&HeaderMap::new(), open));
    }
}
