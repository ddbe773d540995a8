//! The values of a set of variables, with the defaults of envoyproxy/ratelimit, and the flags that
//! they become.

use std::time::Duration;

use crate::table::{
    DifferingValues, IDLE_MEMCACHE, VARIABLES, Variable, VariableKind, VariableMeaning,
};
use crate::{Flag, Translation, VariableProblem, Variables, words};

/// The variable that contains tokens.
const HEADERS: &str = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS";

/// Reads variables, and collects the flags, notes and problems.
#[derive(Debug)]
pub struct VariableReader<'v> {
    pub(crate) variables: &'v Variables,
    pub(crate) translation: Translation,
}

impl<'v> VariableReader<'v> {
    /// Creates a reader without flags, notes and problems.
    pub fn new(variables: &'v Variables) -> Self {
        Self { variables, translation: Translation::default() }
    }

    /// Checks each variable on its own.
    pub(crate) fn check(&mut self) {
        for variable in VARIABLES {
            let Some(text) = self.set(variable) else { continue };
            if let Some(expected) = variable.expected_instead_of(text) {
                // A value of these headers is often a token.
                let found = if variable.name == HEADERS { "***" } else { text };
                self.problem(&[variable.name], format!("expected {expected}, found `{found}`"));
            }
            match variable.worth {
                // Named together with the backend.
                VariableMeaning::Refused(_) if self.is_memcached() => {}
                VariableMeaning::Refused(_) => self.note(variable.name, IDLE_MEMCACHE),
                VariableMeaning::Instead(what) if variable.is_changed_by(text) => {
                    self.note(variable.name, what)
                }
                VariableMeaning::Instead(_)
                | VariableMeaning::NeedNot(_)
                | VariableMeaning::Part(_) => {}
            }
        }
    }

    /// Returns `true` if counters are in memcached.
    pub fn is_memcached(&self) -> bool {
        self.text("BACKEND_TYPE") == "memcache"
    }

    pub(crate) fn problem(&mut self, names: &[&str], what: impl Into<String>) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.translation.problems.push(VariableProblem { names, what: what.into() });
    }

    pub(crate) fn note(&mut self, name: &str, what: &str) {
        self.translation.notes.push(format!("{name}: {what}"));
    }

    pub(crate) fn put(&mut self, name: &'static str, value: impl Into<String>) {
        self.translation.flags.push(Flag { name, values: vec![value.into()] });
    }

    pub(crate) fn switch(&mut self, name: &'static str, on: bool) {
        if on {
            self.translation.flags.push(Flag { name, values: vec![] });
        }
    }

    /// Sets a flag to the text of a variable that is not empty.
    pub(crate) fn put_text(&mut self, flag: &'static str, name: &str) {
        let text = self.text(name);
        if !text.is_empty() {
            self.put(flag, text);
        }
    }

    /// Returns the value of a variable if it is set.
    pub fn set(&self, variable: &Variable) -> Option<&'v str> {
        let text = self.variables.get(variable.name)?;
        (variable.kind == VariableKind::Text || !text.is_empty()).then_some(text.as_str())
    }

    /// Returns the value of a variable, or that service's default.
    pub(crate) fn text(&self, name: &str) -> &'v str {
        let variable = Variable::named(name);
        variable.map_or("", |variable| self.set(variable).unwrap_or(variable.default))
    }

    /// Returns the value of a variable if it is not empty, or that service's default.
    pub(crate) fn text_or_default(&self, name: &str) -> &'v str {
        if self.has(name) {
            return self.text(name);
        }
        Variable::named(name).map_or("", |variable| variable.default)
    }

    /// Returns the difference from the effect there, for a value of a variable.
    pub fn difference(&self, variable: &Variable, text: &str) -> Option<&'static str> {
        let difference = variable.difference?;
        let is_true = words::boolean(text) == Some(true);
        let has_tls = !text.is_empty() && self.boolean("GRPC_SERVER_USE_TLS");
        let differs = match difference.values {
            DifferingValues::All => true,
            DifferingValues::True => is_true,
            DifferingValues::Positive => words::integer(text).is_some_and(|number| number > 0),
            DifferingValues::Verbose => {
                ["debug", "trace"].iter().any(|level| text.eq_ignore_ascii_case(level))
            }
            DifferingValues::NotEmptyWithTls => has_tls,
            DifferingValues::OnlyCa => has_tls && !self.has("GRPC_CLIENT_TLS_CACERT"),
            DifferingValues::NotEmptyWithPrometheus => {
                !text.is_empty() && self.boolean("USE_PROMETHEUS") && !self.boolean("DISABLE_STATS")
            }
            DifferingValues::DefaultExport => is_true && !self.has_otlp_endpoint(),
        };
        differs.then_some(difference.text)
    }

    /// Returns the variables that set a flag: only those that have a value, or all of them if none
    /// has; the flag itself if none sets it.
    pub fn variables_of(&self, flag: &str) -> Vec<String> {
        let all: Vec<_> = VARIABLES.iter().filter(|variable| variable.sets(flag)).collect();
        let set: Vec<_> = all.iter().copied().filter(|variable| self.has(variable.name)).collect();
        match (set.as_slice(), all.as_slice()) {
            ([], []) => vec![flag.to_owned()],
            ([], names) | (names, _) => {
                names.iter().map(|variable| variable.name.to_owned()).collect()
            }
        }
    }

    /// Returns `true` if a variable is set and not empty.
    pub fn has(&self, name: &str) -> bool {
        self.variables.get(name).is_some_and(|text| !text.is_empty())
    }

    /// Returns `true` if a variable of OpenTelemetry sets the endpoint for spans.
    pub(crate) fn has_otlp_endpoint(&self) -> bool {
        let endpoints = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        endpoints.iter().any(|name| self.variables.contains_key(*name))
    }

    // Values that cannot be parsed have been reported by `check`.

    pub(crate) fn boolean(&self, name: &str) -> bool {
        words::boolean(self.text(name)).unwrap_or_default()
    }

    pub(crate) fn integer(&self, name: &str) -> i64 {
        words::integer(self.text(name)).unwrap_or_default()
    }

    pub(crate) fn duration(&self, name: &str) -> String {
        duration_text(words::duration(self.text(name)).unwrap_or_default())
    }

    pub(crate) fn map(&self, name: &str) -> Vec<(&'v str, &'v str)> {
        words::map(self.text(name)).unwrap_or_default()
    }
}

impl Variable {
    /// Returns what a value should be; `None` if it is of the type.
    pub(crate) fn expected_instead_of(&self, text: &str) -> Option<&'static str> {
        let (is_valid, expected) = match self.kind {
            VariableKind::Text | VariableKind::List => return None,
            VariableKind::Bool => (words::boolean(text).is_some(), "true or false"),
            VariableKind::Int => (words::integer(text).is_some(), "a whole number"),
            VariableKind::Float => (words::float(text).is_some(), "a number"),
            VariableKind::Duration => {
                (words::duration(text).is_some(), "a length of time such as 150us, 10s or 24h")
            }
            VariableKind::Map => (words::map(text).is_some(), "key:value,key:value"),
        };
        (!is_valid).then_some(expected)
    }

    /// Returns `true` if a value is neither the default nor a switch that is off.
    pub fn is_changed_by(&self, text: &str) -> bool {
        let is_off = self.kind == VariableKind::Bool && words::boolean(text) == Some(false);
        text != self.default && !is_off
    }
}

/// Formats a duration for our flags, to the microsecond.
fn duration_text(length: Duration) -> String {
    match (length.as_secs(), length.subsec_micros()) {
        (seconds, 0) => format!("{seconds}s"),
        (_, micros) if micros % 1_000 == 0 => format!("{}ms", length.as_millis()),
        (_, _) => format!("{}us", length.as_micros()),
    }
}
