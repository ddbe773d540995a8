//! Contents of responses beyond the decision, and modes that apply to all limits.

use super::{FlagError, FlagValue, Problems, deferred};
use crate::grpc::headers::HeaderStyle;
use crate::grpc::response::AnswerStyle;
use crate::limiter::Modes;

/// Maximum length of a header name, in bytes.
const MAX_NAME: usize = 128;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Responses")]
pub(super) struct Flags {
    /// Send durations to the microsecond. Proxies truncate them to whole seconds, so by default
    /// they are rounded up.
    #[arg(long, env = "TOLLGATE_EXACT_DURATIONS")]
    exact_durations: bool,
    /// Response headers that describe the limits to clients, a list of: legacy (limit, remaining
    /// and reset of the tightest limit), ietf (RateLimit-Policy and RateLimit, with all limits).
    #[arg(long, env = "TOLLGATE_RESPONSE_HEADERS", value_name = "LIST", default_value = "", value_parser = deferred(header_kinds))]
    response_headers: FlagValue<HeaderFlag>,
    /// Names of the three legacy headers.
    #[arg(
        long,
        env = "TOLLGATE_RESPONSE_HEADER_NAMES",
        value_name = "LIMIT,REMAINING,RESET",
        default_value = "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset",
        value_parser = deferred(names)
    )]
    response_header_names: FlagValue<[String; 3]>,
    /// Return the request, the fewest remaining hits of its limits and the metadata of the matched
    /// rules to the proxy as dynamic metadata.
    #[arg(long, env = "TOLLGATE_DYNAMIC_METADATA")]
    dynamic_metadata: bool,
    /// Admit every request; report in statuses and metrics what would have been denied.
    #[arg(long, env = "TOLLGATE_SHADOW_MODE")]
    shadow_mode: bool,
    /// Apply quota mode to every descriptor that is not unlimited: a request is denied only if all
    /// of them are over their limits. A descriptor without a limit counts as within its limit.
    #[arg(long, env = "TOLLGATE_QUOTA_MODE")]
    quota_mode: bool,
}

/// Contents of responses beyond the decision, and modes that apply to all limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseSettings {
    /// Format of responses.
    pub style: AnswerStyle,
    /// Modes that apply to all limits.
    pub modes: Modes,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> ResponseSettings {
        let kinds = problems.take(self.response_headers);
        let names = problems.take(self.response_header_names);
        let headers = HeaderStyle { legacy: kinds.legacy.then_some(names), ietf: kinds.ietf };
        ResponseSettings {
            style: AnswerStyle {
                exact_durations: self.exact_durations,
                headers,
                dynamic_metadata: self.dynamic_metadata,
            },
            modes: Modes { shadow: self.shadow_mode, quota: self.quota_mode },
        }
    }
}

/// The kinds of response headers to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct HeaderFlag {
    legacy: bool,
    ietf: bool,
}

fn header_kinds(text: &str) -> Result<HeaderFlag, FlagError> {
    let mut kinds = HeaderFlag::default();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word {
            "legacy" => kinds.legacy = true,
            "ietf" => kinds.ietf = true,
            _ => return Err(FlagError::unexpected("legacy, ietf or legacy,ietf", word)),
        }
    }
    Ok(kinds)
}

fn names(text: &str) -> Result<[String; 3], FlagError> {
    const ALLOWED: &str = "three different header names, LIMIT,REMAINING,RESET";
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| is_name(name)).collect();
    match names.as_slice() {
        [limit, remaining, reset] if text.matches(',').count() == 2 && are_different(&names) => {
            Ok([limit, remaining, reset].map(|name| (*name).to_owned()))
        }
        _ => Err(FlagError::unexpected(ALLOWED, text)),
    }
}

/// Returns `true` for a name of the characters of an HTTP token; any other would break the proxy's
/// response.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn are_different(names: &[&str]) -> bool {
    names.iter().enumerate().all(|(place, name)| {
        !names.iter().take(place).any(|other| other.eq_ignore_ascii_case(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_selected_by_words() {
        assert_eq!(header_kinds(""), Ok(HeaderFlag::default()));
        assert_eq!(header_kinds(" ietf, legacy"), Ok(HeaderFlag { legacy: true, ietf: true }));
        assert_eq!(
            header_kinds("draft3").unwrap_err().to_string(),
            "expected legacy, ietf or legacy,ietf, found `draft3`"
        );
    }

    #[test]
    fn names_are_three_that_http_can_carry() {
        assert_eq!(
            names("X-Limit, X-Left,X-Reset"),
            Ok(["X-Limit", "X-Left", "X-Reset"].map(str::to_owned))
        );
        for wrong in
            ["", "a,b", "a,b,c,d", "a,,c", "a,b,c c", "a,b,ü", ":path,b,c", "a,b,c,", "a,b,A"]
        {
            assert!(names(wrong).unwrap_err().to_string().contains(wrong), "{wrong}");
        }
    }
}
