//! The limit of a first policy.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::InvalidAnswer;

/// Units of a limit with the duration after which a window of each is over.
pub(super) const UNITS: [(&str, UnitLength); 7] = [
    ("second", UnitLength { number: 1, letter: 's' }),
    ("minute", UnitLength { number: 1, letter: 'm' }),
    ("hour", UnitLength { number: 1, letter: 'h' }),
    ("day", UnitLength { number: 1, letter: 'd' }),
    ("week", UnitLength { number: 7, letter: 'd' }),
    ("month", UnitLength { number: 31, letter: 'd' }),
    ("year", UnitLength { number: 366, letter: 'd' }),
];

/// Algorithms of a limit without further options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum FirstAlgorithm {
    /// Windows of the unit, one after the other; up to twice the limit around the end of one
    #[default]
    FixedWindow,
    /// The last unit of time, estimated from two windows
    SlidingWindow,
    /// The last unit of time, exactly; stores the time of each hit
    SlidingLog,
    /// An even rate, with a burst of the whole limit
    Gcra,
    /// The same as gcra, in other terms
    TokenBucket,
}

/// A number of requests per unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FirstLimit {
    pub(super) amount: u32,
    pub(super) unit: String,
    /// Duration after which a window is over.
    pub(super) length: UnitLength,
}

/// A duration in the notation of test files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnitLength {
    number: u32,
    letter: char,
}

impl FromStr for FirstLimit {
    type Err = InvalidAnswer;

    fn from_str(text: &str) -> Result<Self, InvalidAnswer> {
        let invalid = || InvalidAnswer::Limit(text.to_owned());
        let (amount, unit) = text.split_once('/').ok_or_else(invalid)?;
        let amount = amount.trim().parse().ok().filter(|amount| *amount > 0).ok_or_else(invalid)?;
        let unit = unit.trim().to_ascii_lowercase();
        let known = UNITS.iter().find(|(name, _)| unit == *name || unit == format!("{name}s"));
        if let Some((name, length)) = known {
            return Ok(Self { amount, unit: (*name).to_owned(), length: *length });
        }
        let letter = unit.chars().last().filter(|letter| "smhd".contains(*letter));
        let letter = letter.ok_or_else(invalid)?;
        let digits = unit.trim_end_matches(letter);
        let number = digits.parse().ok().filter(|number| *number > 0).ok_or_else(invalid)?;
        if unit != format!("{number}{letter}") {
            return Err(invalid());
        }
        Ok(Self { amount, length: UnitLength { number, letter }, unit })
    }
}

impl fmt::Display for UnitLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.number, self.letter)
    }
}

impl FirstAlgorithm {
    /// Returns the word in policies.
    pub(super) fn word(self) -> String {
        self.to_possible_value().as_ref().map_or("", PossibleValue::get_name).to_owned()
    }

    /// Returns the time after which a limit that is used up admits requests again: a sliding
    /// window also weighs the one before.
    pub(super) fn recovery(self, length: UnitLength) -> UnitLength {
        let number = match self {
            Self::SlidingWindow => length.number.saturating_mul(2),
            Self::FixedWindow | Self::SlidingLog | Self::Gcra | Self::TokenBucket => length.number,
        };
        UnitLength { number, ..length }
    }
}
