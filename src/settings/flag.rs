//! Values of flags whose problems are reported together: clap itself stops at the first.

use std::env::var_os;
use std::ffi::OsStr;
use std::fmt::Display;

use clap::builder::{StringValueParser, TypedValueParser};
use clap::{Arg, Command};

use super::{FlagError, FlagProblem};

/// The value of a flag, or its problem, to be reported with those of other flags.
#[derive(Clone, Debug)]
pub(super) struct FlagValue<T> {
    /// Its name, with that of the variable of the environment that has the value.
    pub(super) flag: String,
    pub(super) value: Result<T, FlagError>,
}

/// A parser for clap that never fails: a problem becomes part of the value.
#[derive(Clone)]
pub(super) struct DeferredParser<T> {
    parse: fn(&str) -> Result<T, FlagError>,
}

/// Returns the parser of a flag whose problems are reported with those of other flags.
pub(super) fn deferred<T>(parse: fn(&str) -> Result<T, FlagError>) -> DeferredParser<T> {
    DeferredParser { parse }
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for DeferredParser<T> {
    type Value = FlagValue<T>;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<FlagValue<T>, clap::Error> {
        let text = StringValueParser::new().parse_ref(command, arg, value)?;
        let name = arg.and_then(Arg::get_long).unwrap_or_default();
        let variable = arg.and_then(Arg::get_env);
        let flag =
            match variable.filter(|variable| var_os(variable).is_some_and(|set| set == value)) {
                Some(variable) => format!("--{name} ({})", variable.to_string_lossy()),
                None => format!("--{name}"),
            };
        Ok(FlagValue { flag, value: (self.parse)(&text) })
    }
}

/// Collects problems, so that one mistake does not hide the next.
#[derive(Debug, Default)]
pub(super) struct Problems(pub(super) Vec<FlagProblem>);

impl Problems {
    /// Records a problem of a flag.
    pub(super) fn add(&mut self, flag: &str, what: impl Display) {
        self.0.push(FlagProblem { flag: flag.to_owned(), what: what.to_string() });
    }

    /// Returns a value. If there is none, records the problem and returns the default of its type.
    pub(super) fn take<T: Default>(&mut self, value: FlagValue<T>) -> T {
        value.value.unwrap_or_else(|what| {
            self.add(&value.flag, what);
            T::default()
        })
    }

    /// Returns those of the values that are not empty, and records the problems of the others.
    pub(super) fn take_all<T>(&mut self, values: Vec<FlagValue<Option<T>>>) -> Vec<T> {
        values.into_iter().filter_map(|value| self.take(value)).collect()
    }
}
