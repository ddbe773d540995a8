//! Translation of the variables of envoyproxy/ratelimit to flags of Tollgate, for a process that
//! replaces that service and for the migration guide.
//!
//! A variable that is not set has that service's default, except for the delays between attempts to
//! connect, which no deployment can rely on. An empty variable counts as not set, except for texts.
//!
//! | file | subject |
//! |---|---|
//! | `table` | every variable: its type, its default, its meaning here |
//! | `words` | parsers of values, with the rules of Go |
//! | `flags`, `redis` | variables to flags, one function per concern |
//! | `effects` | the effect of each variable that is set |

mod effects;
mod flags;
mod redis;
mod table;
mod words;

use std::collections::BTreeMap;
use std::fmt;

pub use self::effects::{
    OwnVariable, ReadBy, VariableEffect, carried, effects, is_carried, overridden, own_names,
    own_variables, policies, read_by,
};
pub use self::flags::has_public_admin;
use crate::printable::shell_quoted;
use crate::store::redis::without_password;
use table::{IDLE_MEMCACHE, VARIABLES, Variable, VariableKind, VariableMeaning};

/// The variables of a process, by name.
pub type Variables = BTreeMap<String, String>;

/// The flags that have the effect of a set of variables.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// The flags, in the order of that service's settings.
    pub flags: Vec<Flag>,
    /// Notes on variables whose effect is achieved in another way.
    pub notes: Vec<String>,
    /// Variables that cannot be honored, one line each; the flags then serve only to find further
    /// problems.
    pub problems: Vec<String>,
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
/// The variable that contains tokens.
const HEADERS: &str = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";

/// The variable of OpenTelemetry that is merged with those of envoyproxy/ratelimit.
const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// Translates variables to flags.
pub fn translate(variables: &Variables) -> Translation {
    let mut reader = VariableReader { variables, translation: Translation::default() };
    reader.check();
    flags::put(&mut reader);
    // The replacement of an invalid value may be invalid as well: the variable has already been
    // reported.
    let is_reported = |found: &String| {
        named(found)
            .any(|name| reader.translation.problems.iter().any(|known| known.starts_with(name)))
    };
    let more: Vec<_> = resolved(&reader).into_iter().filter(|found| !is_reported(found)).collect();
    reader.translation.problems.extend(more);
    reader.translation
}

/// Returns the variables that set a flag: only those that have a value, or all of them if none has.
pub fn variables_of(variables: &Variables, flag: &str) -> String {
    VariableReader { variables, translation: Translation::default() }.variables_of(flag)
}

/// Returns the variables that a problem names.
pub fn named(problem: &str) -> impl Iterator<Item = &str> {
    problem.split(": ").next().unwrap_or_default().split(", ")
}

#[derive(clap::Parser)]
#[command(args_override_self = true)]
struct EnvServe {
    #[command(flatten)]
    flags: crate::settings::Flags,
}

/// Returns the problems of the flags, named by the variables that set them.
fn resolved(reader: &VariableReader<'_>) -> Vec<String> {
    let flags = reader.translation.flags.iter().flat_map(Flag::words);
    let own = effects::carried_flags(reader.variables, &reader.translation);
    let words = std::iter::once("tollgate".to_owned()).chain(flags).chain(own.values().cloned());
    // A variable of Tollgate is named itself.
    let name = |flag: &str| {
        own.iter()
            .find(|(_, word)| word.split('=').next() == Some(flag))
            .map(|(name, _)| name.clone())
    };
    let named = |flag: &str| name(flag).unwrap_or_else(|| reader.variables_of(flag));
    match <EnvServe as clap::Parser>::try_parse_from(words) {
        Ok(serve) => {
            let problems = serve.flags.resolve().1;
            problems
                .iter()
                .map(|problem| format!("{}: {}", named(&problem.flag), problem.what))
                .collect()
        }
        Err(error) => {
            let text = error.to_string();
            let said = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            let words = said.split_whitespace().map(|word| word.trim_matches('\''));
            let names: Vec<_> = words.filter(|word| word.starts_with("--")).map(named).collect();
            vec![format!(
                "{}: {}",
                names.join(", "),
                said.split_whitespace().collect::<Vec<_>>().join(" ")
            )]
        }
    }
}

/// Returns every variable, and the flags that it sets or why it sets none.
pub fn guide() -> impl Iterator<Item = (&'static str, &'static str)> {
    VARIABLES.iter().map(|variable| match variable.worth {
        VariableMeaning::Part(text)
        | VariableMeaning::NeedNot(text)
        | VariableMeaning::Instead(text)
        | VariableMeaning::Refused(text) => (variable.name, text),
    })
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

/// Reads variables, and collects the flags, notes and problems.
struct VariableReader<'v> {
    variables: &'v Variables,
    translation: Translation,
}

impl<'v> VariableReader<'v> {
    /// Checks each variable on its own.
    fn check(&mut self) {
        for variable in VARIABLES {
            let Some(text) = self.set(variable) else { continue };
            let is_default = text == variable.default;
            if let Err(what) = variable.check(text) {
                // A value of these headers is often a token.
                let found = if variable.name == HEADERS { "***" } else { text };
                self.problem(variable.name, &format!("{what}, found `{found}`"));
            }
            match variable.worth {
                // Named together with the backend.
                VariableMeaning::Refused(_) if self.is_memcached() => {}
                VariableMeaning::Refused(_) => self.note(variable.name, IDLE_MEMCACHE),
                VariableMeaning::Instead(what) if !is_default && !is_off(variable, text) => {
                    self.note(variable.name, what)
                }
                VariableMeaning::Instead(_)
                | VariableMeaning::NeedNot(_)
                | VariableMeaning::Part(_) => {}
            }
        }
    }

    /// Returns `true` if counters are in memcached.
    fn is_memcached(&self) -> bool {
        self.text("BACKEND_TYPE") == "memcache"
    }

    fn problem(&mut self, name: &str, what: &str) {
        self.translation.problems.push(format!("{name}: {what}"));
    }

    fn note(&mut self, name: &str, what: &str) {
        self.translation.notes.push(format!("{name}: {what}"));
    }

    fn put(&mut self, name: &'static str, value: impl Into<String>) {
        self.translation.flags.push(Flag { name, values: vec![value.into()] });
    }

    fn switch(&mut self, name: &'static str, on: bool) {
        if on {
            self.translation.flags.push(Flag { name, values: vec![] });
        }
    }

    /// Returns the value of a variable if it is set.
    fn set(&self, variable: &Variable) -> Option<&'v str> {
        let text = self.variables.get(variable.name)?;
        (variable.kind == VariableKind::Text || !text.is_empty()).then_some(text.as_str())
    }

    /// Returns the value of a variable, or that service's default.
    fn text(&self, name: &str) -> &'v str {
        let variable = VARIABLES.iter().find(|variable| variable.name == name);
        variable.map_or("", |variable| self.set(variable).unwrap_or(variable.default))
    }

    /// Returns the variables that set a flag: only those that have a value, or all of them if none
    /// has.
    fn variables_of(&self, flag: &str) -> String {
        let makes = |variable: &&Variable| match variable.worth {
            VariableMeaning::Part(flags) => flags.split(' ').any(|one| one == flag),
            VariableMeaning::NeedNot(_)
            | VariableMeaning::Instead(_)
            | VariableMeaning::Refused(_) => false,
        };
        let all: Vec<_> = VARIABLES.iter().filter(makes).map(|variable| variable.name).collect();
        let set: Vec<_> = all.iter().copied().filter(|name| self.has(name)).collect();
        match (set.as_slice(), all.as_slice()) {
            ([], []) => flag.to_owned(),
            ([], all) => all.join(", "),
            (set, _) => set.join(", "),
        }
    }

    /// Returns that service's default of a variable.
    fn default(&self, name: &str) -> &'static str {
        VARIABLES
            .iter()
            .find(|variable| variable.name == name)
            .map_or("", |variable| variable.default)
    }

    /// Returns `true` if a variable is set and not empty.
    fn has(&self, name: &str) -> bool {
        self.variables.get(name).is_some_and(|text| !text.is_empty())
    }

    /// Returns `true` if a variable of OpenTelemetry sets the endpoint for spans.
    fn has_otlp_endpoint(&self) -> bool {
        let endpoints = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        endpoints.iter().any(|name| self.variables.contains_key(*name))
    }

    // Values that cannot be parsed have been reported by `check`.

    fn boolean(&self, name: &str) -> bool {
        words::boolean(self.text(name)).unwrap_or_default()
    }

    fn integer(&self, name: &str) -> i64 {
        words::integer(self.text(name)).unwrap_or_default()
    }

    fn duration(&self, name: &str) -> String {
        in_words(words::duration(self.text(name)).unwrap_or_default())
    }

    fn map(&self, name: &str) -> Vec<(&'v str, &'v str)> {
        words::map(self.text(name)).unwrap_or_default()
    }
}

impl Variable {
    fn check(&self, text: &str) -> Result<(), String> {
        match self.kind {
            VariableKind::Text | VariableKind::List => Ok(()),
            VariableKind::Bool => words::boolean(text).map(|_| ()),
            VariableKind::Int => words::integer(text).map(|_| ()),
            VariableKind::Float => words::float(text).map(|_| ()),
            VariableKind::Duration => words::duration(text).map(|_| ()),
            VariableKind::Map => words::map(text).map(|_| ()),
        }
    }
}

fn is_off(variable: &Variable, text: &str) -> bool {
    variable.kind == VariableKind::Bool && words::boolean(text) == Ok(false)
}

/// Formats a duration for our flags, to the microsecond.
fn in_words(length: std::time::Duration) -> String {
    match (length.as_secs(), length.subsec_micros()) {
        (seconds, 0) => format!("{seconds}s"),
        (_, micros) if micros % 1_000 == 0 => format!("{}ms", length.as_millis()),
        (_, _) => format!("{}us", length.as_micros()),
    }
}

#[cfg(test)]
mod tests;

/// Sets flags to the text of variables that are not empty.
fn texts(reader: &mut VariableReader<'_>, pairs: &[(&'static str, &'static str)]) {
    for (flag, name) in pairs {
        let text = reader.text(name);
        if !text.is_empty() {
            reader.put(flag, text);
        }
    }
}
