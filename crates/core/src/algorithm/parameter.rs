//! The parameters of an algorithm besides its windows. Each algorithm states them once; the
//! identity of counters, versions, diffs and the deny cache iterate over them.

use std::fmt;

/// Maximum number of parameters of an algorithm.
pub(super) const MAX_PARAMETERS: usize = 2;

/// The parameters of one algorithm.
pub(super) type Parameters = [Option<Parameter>; MAX_PARAMETERS];

/// A parameter of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, a word of policies.
    pub name: &'static str,
    /// Effect of a change.
    pub kind: ParameterKind,
    /// Its value.
    pub value: ParameterValue,
}

/// The effect of a changed parameter on existing counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// Part of the identity of counters: a change starts with new ones.
    Shape,
    /// An amount: counters continue under another one.
    Amount,
}

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ParameterValue {
    Number(u64),
    Word(&'static str),
}

impl Parameter {
    /// Creates a part of a counter's identity.
    pub(super) fn shape(name: &'static str, value: ParameterValue) -> Self {
        Self { name, kind: ParameterKind::Shape, value }
    }

    /// Creates an amount.
    pub(super) fn amount(name: &'static str, value: u64) -> Self {
        Self { name, kind: ParameterKind::Amount, value: ParameterValue::Number(value) }
    }
}

impl fmt::Display for ParameterValue {
    /// Formats as policies write it. Identities and versions contain this text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}
