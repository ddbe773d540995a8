//! The matchers of headers of `header_value_match`.

use crate::host::Request;

/// A matcher of a header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeaderMatcher {
    pub(crate) name: String,
    pub(crate) condition: Condition,
    pub(crate) inverts: bool,
}

/// A condition on the value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The header is present, or absent if `false`.
    Present(bool),
    /// A part of the value is a text.
    Text { part: Part, text: Vec<u8>, ignores_case: bool },
    /// A number from the first to the second, which is excluded.
    Range(i64, i64),
}

/// The part of a value that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// Its beginning.
    Prefix,
    /// Its end.
    Suffix,
    /// Any part.
    Contained,
}

/// The error of a header with several values, which match one by one and not joined with commas, or
/// the other way round. Envoy compares them one by one since 1.39, and joined if its runtime guard
/// `match_headers_individually` is off, which a module cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous;

impl HeaderMatcher {
    /// Returns `true` if the header of the request fulfils the condition.
    ///
    /// # Errors
    ///
    /// The answer depends on a setting of Envoy.
    pub(crate) fn matches(&self, request: &impl Request) -> Result<bool, Ambiguous> {
        let (first, count) = request.header(&self.name, 0);
        let is_met = match (&self.condition, first) {
            (Condition::Present(present), first) => *present == first.is_some(),
            // An absent header matches nothing else, even inverted.
            (_, None) => return Ok(false),
            (condition, Some(first)) => {
                let is_met = condition.is_met(first);
                if count <= 1 {
                    return Ok(is_met != self.inverts);
                }
                let mut any = is_met;
                let mut joined = first.to_vec();
                for index in 1..count {
                    let value = request.header(&self.name, index).0.unwrap_or_default();
                    any |= condition.is_met(value);
                    joined.push(b',');
                    joined.extend_from_slice(value);
                }
                if condition.is_met(&joined) != any {
                    return Err(Ambiguous);
                }
                any
            }
        };
        Ok(is_met != self.inverts)
    }
}

impl Condition {
    /// Returns `true` if a value of a header that is present fulfils it.
    fn is_met(&self, value: &[u8]) -> bool {
        match self {
            Self::Present(present) => *present,
            Self::Text { part, text, ignores_case } => part.is(value, text, *ignores_case),
            Self::Range(from, to) => std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .is_some_and(|number| (*from..*to).contains(&number)),
        }
    }
}

impl Part {
    fn is(self, value: &[u8], text: &[u8], ignores_case: bool) -> bool {
        let is_same = |found: &[u8]| {
            if ignores_case { found.eq_ignore_ascii_case(text) } else { found == text }
        };
        match self {
            Self::Whole => is_same(value),
            Self::Prefix => value.get(..text.len()).is_some_and(is_same),
            Self::Suffix => value
                .len()
                .checked_sub(text.len())
                .and_then(|start| value.get(start..))
                .is_some_and(is_same),
            Self::Contained => text.is_empty() || value.windows(text.len()).any(is_same),
        }
    }
}
