//! The matchers of headers of `header_value_match`.

use crate::host::Request;

/// A matcher of a header. Several values of a header are joined with commas, as in Envoy.
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

impl HeaderMatcher {
    /// Returns `true` if the header of the request fulfils the condition.
    pub(crate) fn matches(&self, request: &impl Request) -> bool {
        let value = self.value(request);
        let is_met = match (&self.condition, &value) {
            (Condition::Present(present), value) => *present == value.is_some(),
            // An absent header matches nothing else, even inverted.
            (_, None) => return false,
            (Condition::Text { part, text, ignores_case }, Some(value)) => {
                part.is(value, text, *ignores_case)
            }
            (Condition::Range(from, to), Some(value)) => std::str::from_utf8(value)
                .ok()
                .and_then(|text| text.parse::<i64>().ok())
                .is_some_and(|number| (*from..*to).contains(&number)),
        };
        is_met != self.inverts
    }

    fn value(&self, request: &impl Request) -> Option<Vec<u8>> {
        let (first, count) = request.header(&self.name, 0);
        let mut value = first?.to_vec();
        for index in 1..count {
            value.push(b',');
            value.extend_from_slice(request.header(&self.name, index).0.unwrap_or_default());
        }
        Some(value)
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
