//! The flags of the service, to which variables are translated: their definition, and the check of
//! their values.

use std::fmt;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgMatches, Command};

/// A flag whose value cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagProblem {
    /// The name, such as `--store`.
    pub flag: String,
    /// The value found, and the values allowed.
    pub what: String,
}

impl std::error::Error for FlagProblem {}

impl fmt::Display for FlagProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.flag, self.what)
    }
}

/// Returns the flags whose values cannot be used, of those that clap has parsed.
type FlagCheck = fn(&ArgMatches) -> Result<Vec<FlagProblem>, clap::Error>;

/// The flags of the service, as its command line defines them.
pub struct ServiceFlags {
    command: Command,
    check: FlagCheck,
}

impl ServiceFlags {
    /// Creates the flags of a command, with the check of values that clap has parsed.
    pub fn new(mut command: Command, check: FlagCheck) -> Self {
        // Before, the usage of an argument is not known.
        command.build();
        Self { command, check }
    }

    /// Parses words of a command line, without the program.
    ///
    /// # Errors
    /// The first error of the command line.
    pub fn parse(&self, words: impl Iterator<Item = String>) -> Result<ArgMatches, clap::Error> {
        let words = std::iter::once("tollgate".to_owned()).chain(words);
        self.command.clone().try_get_matches_from(words)
    }

    /// Returns the flags whose values cannot be used.
    ///
    /// # Errors
    /// The first error of the command line.
    pub(crate) fn problems(
        &self,
        words: impl Iterator<Item = String>,
    ) -> Result<Vec<FlagProblem>, clap::Error> {
        (self.check)(&self.parse(words)?)
    }

    /// Returns the definition of a flag, by its name.
    pub fn by_name(&self, flag: &str) -> Option<&Arg> {
        let long = flag.strip_prefix("--")?;
        self.command.get_arguments().find(|argument| argument.get_long() == Some(long))
    }

    /// Returns the definition of the flag that a variable of Tollgate sets.
    pub fn by_variable(&self, name: &str) -> Option<&Arg> {
        let mut arguments = self.command.get_arguments();
        arguments.find(|argument| argument.get_env().is_some_and(|variable| variable == name))
    }

    /// Returns `true` if Tollgate reads a variable under this name.
    pub fn reads(&self, name: &str) -> bool {
        name.starts_with("SSL_CERT_") || self.by_variable(name).is_some()
    }

    /// Returns the flags that an error is about, such as `--store`.
    pub(crate) fn named_in(&self, error: &clap::Error) -> Vec<String> {
        let mut usages = Vec::new();
        for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
            if let Some(ContextValue::String(usage)) = error.get(kind) {
                usages.push(usage);
            } else if let Some(ContextValue::Strings(several)) = error.get(kind) {
                usages.extend(several);
            }
        }
        usages.into_iter().filter_map(|usage| self.by_usage(usage)).collect()
    }

    /// Returns the flag with a usage, such as `--store <URL>`.
    fn by_usage(&self, usage: &str) -> Option<String> {
        let mut arguments = self.command.get_arguments();
        flag_of(arguments.find(|argument| argument.to_string() == usage)?)
    }
}

/// Returns the name of a flag, such as `--store`.
pub fn flag_of(argument: &Arg) -> Option<String> {
    argument.get_long().map(|long| format!("--{long}"))
}

impl fmt::Debug for ServiceFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceFlags").field("command", &self.command.get_name()).finish()
    }
}
