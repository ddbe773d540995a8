//! The variables of envoyproxy/ratelimit, as flags of Tollgate: for a process that replaces that
//! service, and for the migration guide.
//!
//! Knows the variables of that service. The flags and the check of their values are given to it, as
//! [`ServiceFlags`]. May use `core`, `yaml` and clap, and nothing of the service: no policies, no
//! stores, no protocols. Reads no files; resolves host names.
//!
//! A variable that is not set has that service's default, except for the delays between attempts to
//! connect, which no deployment can rely on. An empty variable counts as not set, except for texts.
//!
//! | file | subject |
//! |---|---|
//! | [`table`] | every variable: its type, its default, its meaning here |
//! | `words` | parsers of values, with the rules of Go |
//! | [`reader`] | the values of a set of variables |
//! | `flags`, `redis` | variables to flags, one function per concern |
//! | [`service_flags`] | the flags of the service, and the check of their values |
//! | [`own_variables`] | variables of Tollgate among those of a deployment |

mod flags;
pub mod own_variables;
pub mod reader;
mod redis;
pub mod service_flags;
pub mod table;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use tollgate_core::printable::{shell_quoted, without_password};

pub use self::flags::{RESOURCE_ATTRIBUTES, has_public_admin};
use self::own_variables::CarriedFlag;
use self::reader::VariableReader;
use self::service_flags::{FlagProblem, ServiceFlags};
use self::table::VARIABLES;

/// The variables of a process, by name.
pub type Variables = BTreeMap<String, String>;

/// The flags that have the effect of a set of variables.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The flags, in the order of that service's settings.
    pub flags: Vec<Flag>,
    /// Notes on variables whose effect is achieved in another way.
    pub notes: Vec<String>,
    /// Variables that cannot be honored; the flags then serve only to find further problems.
    pub problems: Vec<VariableProblem>,
}

/// Variables that cannot be honored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableProblem {
    /// The names of the variables.
    pub names: Vec<String>,
    /// The value found, and the values allowed.
    pub what: String,
}

/// A flag with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The name, such as `--store`.
    pub name: &'static str,
    /// The values; empty for a switch.
    pub values: Vec<String>,
}

/// Flags whose values are secret.
const SECRET: [&str; 4] = [
    "--redis-password",
    "--sentinel-password",
    "--per-second-password",
    "--per-second-sentinel-password",
];

/// Returns the flags of variables, and the problems of the variables and of the flags.
pub fn translate(variables: &Variables, service: &ServiceFlags) -> Translation {
    let mut reader = VariableReader::new(variables);
    reader.check();
    flags::put(&mut reader);
    let more = problems_of_flags(&reader, service);
    let mut translation = reader.translation;
    // The replacement of an invalid value may be invalid as well: the variable has already been
    // reported.
    let unreported: Vec<_> = more
        .into_iter()
        .filter(|problem| !problem.names.iter().any(|name| translation.has_problem_of(name)))
        .collect();
    translation.problems.extend(unreported);
    translation
}

/// Returns the problems of the flags, by the variables that set them.
fn problems_of_flags(reader: &VariableReader<'_>, service: &ServiceFlags) -> Vec<VariableProblem> {
    let carried = own_variables::carried_flags(reader.variables, &reader.translation, service);
    let own = carried.iter().map(CarriedFlag::word);
    match service.problems(reader.translation.words().chain(own)) {
        Ok(problems) => problems
            .into_iter()
            .map(|FlagProblem { flag, what }| VariableProblem {
                names: setters_of(&flag, reader, &carried),
                what,
            })
            .collect(),
        Err(error) => {
            let flags = service.named_in(&error);
            let names = flags.iter().flat_map(|flag| setters_of(flag, reader, &carried));
            vec![VariableProblem { names: names.collect(), what: first_paragraph(&error) }]
        }
    }
}

/// Returns the variables that set a flag: the one of Tollgate, or those of envoyproxy/ratelimit.
fn setters_of(flag: &str, reader: &VariableReader<'_>, carried: &[CarriedFlag]) -> Vec<String> {
    match carried.iter().find(|carried| carried.flag == flag) {
        Some(carried) => vec![carried.variable.clone()],
        None => reader.variables_of(flag),
    }
}

/// Returns the first paragraph of an error, in one line, without usage and tips.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns every variable, and the flags that it sets or why it sets none.
pub fn guide() -> impl Iterator<Item = (&'static str, &'static str)> {
    VARIABLES.iter().map(|variable| (variable.name, variable.worth.text()))
}

impl Translation {
    /// Returns the flags as words of a command line.
    pub fn words(&self) -> impl Iterator<Item = String> {
        self.flags.iter().flat_map(Flag::words)
    }

    /// Returns a flag, if it is set.
    pub fn flag(&self, name: &str) -> Option<&Flag> {
        self.flags.iter().find(|flag| flag.name == name)
    }

    /// Returns `true` if a variable cannot be honored.
    pub fn has_problem_of(&self, variable: &str) -> bool {
        self.problems.iter().any(|problem| problem.is_about(variable))
    }
}

impl VariableProblem {
    /// Returns `true` if it is a problem of this variable, alone or with others.
    pub fn is_about(&self, variable: &str) -> bool {
        self.names.iter().any(|name| name == variable)
    }
}

impl fmt::Display for VariableProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.names.is_empty() {
            return f.write_str(&self.what);
        }
        write!(f, "{}: {}", self.names.join(", "), self.what)
    }
}

impl Flag {
    /// Returns the flag as words of a command line, whatever its values begin with.
    pub fn words(&self) -> Vec<String> {
        match self.values.as_slice() {
            [value] => vec![format!("{}={value}", self.name)],
            values => std::iter::once(self.name)
                .chain(values.iter().map(String::as_str))
                .map(str::to_owned)
                .collect(),
        }
    }

    /// Returns `true` if a value of the flag is a secret, or often contains one.
    pub fn is_secret(&self) -> bool {
        SECRET.contains(&self.name) || self.name == "--xds-header"
    }
}

impl fmt::Display for Flag {
    /// Writes the flag as shell words, with secrets masked.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        let hidden = SECRET.contains(&self.name);
        self.values.iter().try_for_each(|value| {
            let value = match self.name {
                _ if hidden => "***".to_owned(),
                // The value is often a token.
                "--xds-header" => format!("{}=***", value.split('=').next().unwrap_or_default()),
                _ => without_password(value),
            };
            write!(f, " {}", shell_quoted(&value))
        })
    }
}

#[cfg(test)]
mod tests;
