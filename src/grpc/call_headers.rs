//! The headers of a call: the checks that gRPC over HTTP/2 requires of servers, the responses when
//! one fails, and the caller's timeout.
//!
//! Codes and messages are those of grpc-go, on which envoyproxy/ratelimit runs.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tonic::Status;
use tonic::body::Body;

use super::response::Receiver;
use crate::printable::excerpt;

/// Content type of gRPC; may be followed by `+` and a format, or `;` and parameters.
const CONTENT_TYPE: &[u8] = b"application/grpc";
/// Metadata of a caller that reads answers itself, and has the value `service`.
pub(super) const CALLER: &str = "x-tollgate-caller";
pub(super) const SERVICE: &str = "service";
/// Maximum timeout of a call, whatever the caller allows.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of digits of a timeout, by the protocol.
const MAX_DIGITS: usize = 8;
/// Maximum length of client text quoted in a response, in bytes.
const MAX_QUOTED: usize = 256;

/// An invalid header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadError<'a> {
    /// The method is not POST.
    Method(&'a [u8]),
    /// The content type is not gRPC; empty if missing.
    ContentType(&'a [u8]),
    /// `grpc-timeout` is not a valid timeout.
    Timeout(&'a [u8]),
}

/// Checks the headers that every gRPC method has in common.
///
/// # Errors
/// The first error found.
pub(super) fn check<'a>(
    method: &'a [u8],
    content_type: Option<&'a [u8]>,
    timeout: Option<&'a [u8]>,
) -> Result<(), HeadError<'a>> {
    let content_type = content_type.unwrap_or_default();
    let format = content_type
        .get(..CONTENT_TYPE.len())
        .filter(|begin| begin.eq_ignore_ascii_case(CONTENT_TYPE));
    let is_grpc = format.is_some()
        && matches!(content_type.get(CONTENT_TYPE.len()), None | Some(b'+' | b';'));
    match timeout {
        _ if !is_grpc => Err(HeadError::ContentType(content_type)),
        _ if method != b"POST" => Err(HeadError::Method(method)),
        Some(timeout) if timeout_of(timeout).is_none() => Err(HeadError::Timeout(timeout)),
        Some(_) | None => Ok(()),
    }
}

/// Returns the receiver of the answer to a call with this value of [`CALLER`].
pub(super) fn receiver_of(caller: Option<&[u8]>) -> Receiver {
    if caller == Some(SERVICE.as_bytes()) { Receiver::Caller } else { Receiver::Proxy }
}

/// Checks the headers of a request, as [`check`] does.
///
/// # Errors
/// The first error found.
pub(super) fn check_request<'a>(
    method: &'a http::Method,
    headers: &'a HeaderMap,
) -> Result<(), HeadError<'a>> {
    let content_type = headers.get("content-type").map(HeaderValue::as_bytes);
    let timeout = headers.get("grpc-timeout").map(HeaderValue::as_bytes);
    check(method.as_str().as_bytes(), content_type, timeout)
}

/// Parses `grpc-timeout`, the caller's timeout, less a margin for the network: a quarter of it, at
/// most 5 ms. Returns `None` if it is invalid.
pub(super) fn timeout_of(timeout: &[u8]) -> Option<Duration> {
    let (unit, digits) = timeout.split_last()?;
    let ns: u64 = match unit {
        b'H' => 3_600_000_000_000,
        b'M' => 60_000_000_000,
        b'S' => 1_000_000_000,
        b'm' => 1_000_000,
        b'u' => 1_000,
        b'n' => 1,
        _ => return None,
    };
    if digits.len() > MAX_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let amount: u32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    // Eight digits of hours are more than 2^64 ns.
    let whole = Duration::from_nanos(u64::from(amount).saturating_mul(ns)).min(MAX_TIMEOUT);
    Some(whole.saturating_sub(whole.div_f64(4.0).min(Duration::from_millis(5))))
}

impl HeadError<'_> {
    /// Returns the response to the call.
    pub(super) fn response(self) -> Response<Body> {
        let (code, status) = match self {
            Self::ContentType(found) => {
                let text = format!("invalid gRPC request content-type \"{}\"", quoted(found));
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, Status::invalid_argument(text))
            }
            Self::Method(found) => {
                let text = format!(
                    "Received a HEADERS frame with :method \"{}\" which should be POST",
                    quoted(found)
                );
                (StatusCode::METHOD_NOT_ALLOWED, Status::internal(text))
            }
            Self::Timeout(found) => {
                let text = format!("malformed grpc-timeout: \"{}\"", quoted(found));
                (StatusCode::BAD_REQUEST, Status::internal(text))
            }
        };
        let mut response = status.into_http();
        *response.status_mut() = code;
        response
    }
}

/// Returns a part of a client's text that is shown to it.
fn quoted(text: &[u8]) -> String {
    excerpt(&String::from_utf8_lossy(text), MAX_QUOTED).into_owned()
}

/// Returns the response to a call of an unknown method.
pub(super) fn unknown_method(path: &str) -> Response<Body> {
    Status::unimplemented(format!("unknown method {}", excerpt(path, MAX_QUOTED))).into_http()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_time_is_read_in_every_unit() {
        let cases = [
            ("90000000n", Some(85_000)),
            ("20000u", Some(15_000)),
            ("500m", Some(495_000)),
            ("8m", Some(6_000)),
            ("1S", Some(995_000)),
            ("1H", Some(59_995_000)),
            ("99999999H", Some(59_995_000)),
            ("0n", Some(0)),
            ("10", None),
            ("m", None),
            ("", None),
            ("1\u{e9}", None),
            ("-5m", None),
            ("5x", None),
            ("+5m", None),
            ("123456789m", None),
        ];
        for (text, us) in cases {
            assert_eq!(timeout_of(text.as_bytes()), us.map(Duration::from_micros), "{text}");
        }
    }

    #[test]
    fn a_call_is_a_post_of_grpc_within_a_time() {
        let grpc = Some(&b"application/grpc"[..]);
        assert_eq!(check(b"POST", grpc, None), Ok(()));
        assert_eq!(check(b"POST", Some(b"application/grpc+proto"), Some(b"20m")), Ok(()));
        assert_eq!(check(b"POST", Some(b"Application/GRPC;charset=utf-8"), None), Ok(()));
        assert_eq!(check(b"GET", grpc, None), Err(HeadError::Method(b"GET")));
        assert_eq!(check(b"POST", None, None), Err(HeadError::ContentType(b"")));
        for other in
            ["application/json", "application/grpc-web", "application/grpcx", "application"]
        {
            assert_eq!(
                check(b"POST", Some(other.as_bytes()), None),
                Err(HeadError::ContentType(other.as_bytes()))
            );
        }
        for timeout in ["", "m", "10", "-5m", "5x", "123456789m"] {
            let found = check(b"POST", grpc, Some(timeout.as_bytes()));
            assert_eq!(found, Err(HeadError::Timeout(timeout.as_bytes())), "{timeout}");
        }
    }
}
