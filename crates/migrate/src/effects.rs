//! The effect of each variable that is set.

use tollgate_core::printable::without_password;
use tollgate_envoyproxy::own_variables::{OwnVariable, carried};
use tollgate_envoyproxy::reader::VariableReader;
use tollgate_envoyproxy::service_flags::{ServiceFlags, flag_of};
use tollgate_envoyproxy::table::{IDLE_MEMCACHE, VARIABLES, Variable, VariableMeaning};
use tollgate_envoyproxy::{RESOURCE_ATTRIBUTES, Translation, Variables};

/// The effect of a variable of envoyproxy/ratelimit in Tollgate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableEffect {
    /// Identical to the effect in envoyproxy/ratelimit.
    Same,
    /// No setting is needed; the text has the reason.
    NotNeeded(&'static str),
    /// A different effect, which the text describes.
    Differs(&'static str),
}

/// Returns the variables that are set, in the order of that service's settings. Those of memcached
/// are left out if they are refused, as [`Translation::problems`] then contains them.
pub fn effects(variables: &Variables) -> Vec<(&'static str, VariableEffect)> {
    let reader = VariableReader::new(variables);
    let mut effects = Vec::new();
    for variable in VARIABLES {
        let is_refused =
            matches!(variable.worth, VariableMeaning::Refused(_)) && reader.is_memcached();
        if let Some(text) = reader.set(variable).filter(|_| !is_refused) {
            effects.push((variable.name, effect(&reader, variable, text)));
        }
    }
    effects
}

fn effect(reader: &VariableReader<'_>, variable: &Variable, text: &str) -> VariableEffect {
    match (reader.difference(variable, text), variable.worth) {
        (Some(difference), _) => VariableEffect::Differs(difference),
        (None, VariableMeaning::NeedNot(why)) => VariableEffect::NotNeeded(why),
        (None, VariableMeaning::Instead(what)) if variable.is_changed_by(text) => {
            VariableEffect::Differs(what)
        }
        (None, VariableMeaning::Refused(_)) => VariableEffect::NotNeeded(IDLE_MEMCACHE),
        (None, VariableMeaning::Instead(_) | VariableMeaning::Part(_)) => VariableEffect::Same,
    }
}

/// The services that read a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// envoyproxy/ratelimit and Tollgate, or Tollgate alone.
    Tollgate,
    /// A library of envoyproxy/ratelimit.
    OnlyTheirs,
    /// The runtime of Go in envoyproxy/ratelimit.
    GoRuntime,
    /// Neither.
    Neither,
}

/// Variables that tune Go's scheduler, memory and debugging.
const GO_RUNTIME: [&str; 5] = ["GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK"];
/// Variables by which Go's libraries connect to collectors and control planes through a proxy.
const PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"];

/// Variables of Tollgate's commands, which the service does not read.
const COMMANDS: [&str; 2] = ["TOLLGATE_ADMIN", "TOLLGATE_ADMIN_TOKEN"];

/// Returns the services that read a variable.
pub fn read_by(name: &str, service: &ServiceFlags) -> ReadBy {
    let is_theirs = Variable::named(name).is_some() || name.starts_with("DOG_STATSD_MOGRIFIER_");
    if is_theirs || service.reads(name) || COMMANDS.contains(&name) {
        ReadBy::Tollgate
    } else if GO_RUNTIME.contains(&name) {
        ReadBy::GoRuntime
    } else if name.starts_with("OTEL_") || name.starts_with("GOSTATS_") || PROXIES.contains(&name) {
        ReadBy::OnlyTheirs
    } else {
        ReadBy::Neither
    }
}

/// Returns the variables of Tollgate that have the effect of a variable of that service.
pub fn own_names(name: &str, service: &ServiceFlags) -> Vec<String> {
    let Some(variable) = Variable::named(name) else {
        return if service.reads(name) { vec![name.to_owned()] } else { Vec::new() };
    };
    let arguments = variable.worth.flags().filter_map(|flag| service.by_name(flag));
    arguments.filter_map(|argument| Some(argument.get_env()?.to_str()?.to_owned())).collect()
}

/// Returns the variables of Tollgate and OpenTelemetry that those of envoyproxy/ratelimit override,
/// each with what overrides it.
pub fn overridden(
    variables: &Variables,
    translation: &Translation,
    service: &ServiceFlags,
) -> Vec<(String, String)> {
    let reader = VariableReader::new(variables);
    let mut overridden = Vec::new();
    for name in variables.keys().filter(|name| *name != RESOURCE_ATTRIBUTES) {
        let flag = service.by_variable(name).and_then(flag_of);
        let Some(flag) = flag.and_then(|flag| translation.flag(&flag)) else { continue };
        let setters = reader.variables_of(flag.name);
        let is_set = setters.iter().any(|setter| reader.has(setter));
        let by = setters.join(", ");
        overridden.push((name.clone(), if is_set { by } else { format!("the default of {by}") }));
    }
    overridden
}

/// Returns the variables of Tollgate that have the effect of a deployment: the flags, without those
/// that have the default value, and the variables that Tollgate reads under the same name.
pub fn own_variables(
    variables: &Variables,
    translation: &Translation,
    service: &ServiceFlags,
) -> Vec<OwnVariable> {
    let mut own: Vec<OwnVariable> = Vec::new();
    for flag in &translation.flags {
        let Some(argument) = service.by_name(flag.name) else { continue };
        let Some(name) = argument.get_env().and_then(|name| name.to_str()) else { continue };
        let separator = argument.get_value_delimiter().unwrap_or(',').to_string();
        let text =
            if flag.values.is_empty() { "true".to_owned() } else { flag.values.join(&separator) };
        if argument.get_default_values().iter().any(|default| *default == *text) {
            continue;
        }
        let is_secret = flag.is_secret() || without_password(&text) != text;
        let known = own.iter_mut().find(|other| other.name == name);
        match known.and_then(|other| other.value.as_mut()) {
            Some(before) => *before = [before, text.as_str()].join(&separator),
            None => own.push(OwnVariable {
                name: name.to_owned(),
                flag: flag.name,
                value: (!is_secret).then_some(text),
            }),
        }
    }
    own.extend(carried(variables, translation, service));
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn each_variable_that_is_set_has_one_fate() {
        let set = [
            ("GRPC_PORT", "8081"),
            ("LOG_LEVEL", "info"),
            ("REDIS_POOL_SIZE", "5"),
            ("LOCAL_CACHE_SIZE_IN_BYTES", "1000"),
            ("MEMCACHE_SRV", "x"),
            ("PORT", ""),
        ];
        let effects = effects(&variables(&set));
        let kinds: Vec<_> =
            effects.iter().map(|(name, effect)| format!("{name} {effect:?}")).collect();
        assert_eq!(kinds[..2], ["GRPC_PORT Same", "LOG_LEVEL Same"]);
        assert!(kinds[2].starts_with("LOCAL_CACHE_SIZE_IN_BYTES Differs"), "{kinds:?}");
        assert!(
            kinds[3].starts_with("REDIS_POOL_SIZE NotNeeded")
                && kinds[4].starts_with("MEMCACHE_SRV NotNeeded")
        );
        assert_eq!(kinds.len(), 5);
    }

    #[test]
    fn a_difference_that_depends_on_another_variable_is_shown_only_with_it() {
        let differing = |pairs: &[(&str, &str)]| {
            let effects = effects(&variables(pairs)).into_iter();
            let differing = effects
                .filter(|(_, effect)| matches!(effect, VariableEffect::Differs(_)))
                .map(|(name, _)| name);
            differing.collect::<Vec<_>>()
        };
        assert_eq!(
            differing(&[("GRPC_CLIENT_TLS_CACERT", "/a"), ("GRPC_SERVER_TLS_CA_CERT", "/a")]),
            [""; 0]
        );
        let tls = ("GRPC_SERVER_USE_TLS", "true");
        assert_eq!(differing(&[("GRPC_CLIENT_TLS_CACERT", "/a"), tls]), ["GRPC_CLIENT_TLS_CACERT"]);
        assert_eq!(
            differing(&[("GRPC_SERVER_TLS_CA_CERT", "/a"), tls]),
            ["GRPC_SERVER_TLS_CA_CERT"]
        );
        assert_eq!(differing(&[("TRACING_ENABLED", "false")]), [""; 0]);
        assert_eq!(
            differing(&[
                ("TRACING_ENABLED", "true"),
                ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1")
            ]),
            [""; 0]
        );
        assert_eq!(differing(&[("TRACING_ENABLED", "true")]), ["TRACING_ENABLED"]);
        assert_eq!(differing(&[("EXTRA_TAGS", "env:prod")]), [""; 0]);
        let prometheus = [("EXTRA_TAGS", "env:prod"), ("USE_PROMETHEUS", "true")];
        assert_eq!(differing(&prometheus), ["EXTRA_TAGS"]);
        assert_eq!(differing(&[&prometheus[..], &[("DISABLE_STATS", "true")]].concat()), [""; 0]);
    }

    /// Users look up a difference in either place.
    #[test]
    fn each_difference_is_in_the_guide() {
        let guide = include_str!("../../../docs/migrating.md");
        for variable in VARIABLES.iter().filter(|variable| variable.difference.is_some()) {
            assert!(guide.contains(variable.name), "{}", variable.name);
        }
    }
}
