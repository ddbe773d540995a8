//! The effect of each variable that is set, as `tollgate migrate` prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use clap::CommandFactory as _;

use super::table::{IDLE_MEMCACHE, VARIABLES, Variable, VariableMeaning};
use super::{
    EnvServe, Flag, RESOURCE_ATTRIBUTES, SECRET, Translation, VariableReader, Variables, is_off,
};
use crate::settings::PolicySettings;
use crate::store::redis::without_password;

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
    let reader = VariableReader { variables, translation: Translation::default() };
    let is_refused = |variable: &Variable| {
        matches!(variable.worth, VariableMeaning::Refused(_)) && reader.is_memcached()
    };
    let set = VARIABLES.iter().filter(|variable| !is_refused(variable));
    set.filter_map(|variable| {
        Some((variable.name, effect(&reader, variable, reader.set(variable)?)))
    })
    .collect()
}

fn effect(reader: &VariableReader<'_>, variable: &Variable, text: &str) -> VariableEffect {
    match (
        variable.difference.filter(|difference| (difference.applies)(reader, text)),
        variable.worth,
    ) {
        (Some(difference), _) => VariableEffect::Differs(difference.text),
        (None, VariableMeaning::NeedNot(why)) => VariableEffect::NotNeeded(why),
        (None, VariableMeaning::Instead(what))
            if text != variable.default && !is_off(variable, text) =>
        {
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

/// Returns the services that read a variable.
pub fn read_by(name: &str) -> ReadBy {
    let starts = |families: &[&str]| families.iter().any(|family| name.starts_with(family));
    let is_in_table = VARIABLES.iter().any(|variable| variable.name == name);
    match () {
        () if is_in_table || starts(&["DOG_STATSD_MOGRIFIER_"]) || is_carried(name) => {
            ReadBy::Tollgate
        }
        () if GO_RUNTIME.contains(&name) => ReadBy::GoRuntime,
        () if starts(&["OTEL_", "GOSTATS_"]) || PROXIES.contains(&name) => ReadBy::OnlyTheirs,
        () => ReadBy::Neither,
    }
}

/// Returns `true` if Tollgate reads a variable under the same name.
pub fn is_carried(name: &str) -> bool {
    // Building the command takes too long to do it for each of many variables.
    static NAMES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let command = EnvServe::command();
        let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
        names.map(str::to_owned).collect()
    });
    name.starts_with("SSL_CERT_") || NAMES.contains(name)
}

fn argument_of<'c>(command: &'c clap::Command, name: &str) -> Option<&'c clap::Arg> {
    command.get_arguments().find(|argument| argument.get_env().is_some_and(|env| env == name))
}

/// Returns the variables of Tollgate that have the effect of a variable of that service.
pub fn own_names(name: &str) -> Vec<String> {
    let command = EnvServe::command();
    let of_flag = |flag: &str| {
        let argument =
            command.get_arguments().find(|argument| argument.get_long() == flag.strip_prefix("--"));
        Some(argument?.get_env()?.to_str()?.to_owned())
    };
    match VARIABLES.iter().find(|variable| variable.name == name).map(|variable| variable.worth) {
        Some(VariableMeaning::Part(flags)) => flags.split(' ').filter_map(of_flag).collect(),
        Some(
            VariableMeaning::NeedNot(_) | VariableMeaning::Instead(_) | VariableMeaning::Refused(_),
        ) => Vec::new(),
        None if is_carried(name) => vec![name.to_owned()],
        None => Vec::new(),
    }
}

/// Returns the variables that Tollgate reads under the same name, without those that are overridden
/// by a flag of the translation.
pub fn carried(variables: &Variables, translation: &Translation) -> Vec<OwnVariable> {
    let command = EnvServe::command();
    let mut carried = Vec::new();
    for (name, value) in variables.iter().filter(|(name, _)| is_carried(name)) {
        let argument = argument_of(&command, name);
        let long = argument.and_then(clap::Arg::get_long).unwrap_or_default();
        if translation.flags.iter().any(|flag| flag.name.strip_prefix("--") == Some(long)) {
            continue;
        }
        let is_hidden = argument.is_some_and(clap::Arg::is_hide_env_values_set);
        let is_secret = is_hidden || without_password(value) != *value;
        carried.push(OwnVariable {
            name: name.clone(),
            flag: "",
            value: (!is_secret).then(|| value.clone()),
        });
    }
    carried
}

/// Returns the flags that have the effect of variables of Tollgate and OpenTelemetry, by variable.
/// Left out are those that the flags of the translation override, that this process has in its own
/// environment, and secrets, which errors would contain.
pub(super) fn carried_flags(
    variables: &Variables,
    translation: &Translation,
) -> BTreeMap<String, String> {
    let command = EnvServe::command();
    let is_own = |name: &str, value: &str| std::env::var_os(name).is_some_and(|own| own == value);
    let mut flags = BTreeMap::new();
    for OwnVariable { name, value, .. } in carried(variables, translation) {
        let Some(argument) = argument_of(&command, &name) else { continue };
        let Some(value) = value else { continue };
        let Some(long) = argument.get_long() else { continue };
        let takes_one = argument.get_num_args().is_none_or(|number| number.max_values() <= 1);
        let takes_value =
            matches!(argument.get_action(), clap::ArgAction::Set | clap::ArgAction::Append);
        // The file of the key is read as the flag is parsed; it may be that of a container.
        let names_file = long == "hash-key-file";
        if takes_value && takes_one && !names_file && !is_own(&name, &value) {
            flags.insert(name, format!("--{long}={value}"));
        }
    }
    flags
}

/// Returns the variables of Tollgate and OpenTelemetry that those of envoyproxy/ratelimit override,
/// each with what overrides it.
pub fn overridden(variables: &Variables, translation: &Translation) -> Vec<(String, String)> {
    let command = EnvServe::command();
    let reader = VariableReader { variables, translation: Translation::default() };
    let mut overridden = Vec::new();
    for name in variables.keys().filter(|name| *name != RESOURCE_ATTRIBUTES && is_carried(name)) {
        let long = argument_of(&command, name).and_then(clap::Arg::get_long).unwrap_or_default();
        let Some(flag) =
            translation.flags.iter().find(|flag| flag.name.strip_prefix("--") == Some(long))
        else {
            continue;
        };
        let by = reader.variables_of(flag.name);
        let is_set = by.split(", ").any(|name| reader.has(name));
        let by = if is_set { by } else { format!("the default of {by}") };
        overridden.push((name.clone(), by));
    }
    overridden
}

/// Returns the sources of policies that the flags set; `None` if the flags cannot be parsed.
pub fn policies(translation: &Translation) -> Option<PolicySettings> {
    let flags = translation.flags.iter().flat_map(Flag::words);
    let serve = <EnvServe as clap::Parser>::try_parse_from(
        std::iter::once("tollgate".to_owned()).chain(flags),
    )
    .ok()?;
    Some(serve.flags.resolve().0.policy)
}

/// A variable of Tollgate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnVariable {
    /// The name, such as `TOLLGATE_STORE`.
    pub name: String,
    /// The flag that it sets; empty for a variable that keeps its name.
    pub flag: &'static str,
    /// The value; `None` if it contains a secret.
    pub value: Option<String>,
}

/// Returns the flags as variables of Tollgate, without those that have the default value.
pub fn own_variables(translation: &Translation) -> Vec<OwnVariable> {
    let command = EnvServe::command();
    let mut own: Vec<OwnVariable> = Vec::new();
    for flag in &translation.flags {
        let argument = command
            .get_arguments()
            .find(|argument| argument.get_long() == flag.name.strip_prefix("--"));
        let Some((argument, name)) =
            argument.and_then(|argument| Some((argument, argument.get_env()?.to_str()?)))
        else {
            continue;
        };
        let separator = argument.get_value_delimiter().unwrap_or(',').to_string();
        let text =
            if flag.values.is_empty() { "true".to_owned() } else { flag.values.join(&separator) };
        if argument.get_default_values().iter().any(|default| *default == *text) {
            continue;
        }
        let is_secret = SECRET.contains(&flag.name)
            || flag.name == "--xds-header"
            || without_password(&text) != text;
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
    own
}

#[cfg(test)]
mod tests {
    use super::super::translate;
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
        let guide = include_str!("../../docs/migrating.md");
        for variable in VARIABLES.iter().filter(|variable| variable.difference.is_some()) {
            assert!(guide.contains(variable.name), "{}", variable.name);
        }
    }

    #[test]
    fn own_variables_have_no_secrets_and_no_defaults() {
        let set = [
            ("GRPC_PORT", "9081"),
            ("REDIS_AUTH", "ann:secret"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "redis:6379"),
            ("EXTRA_TAGS", "a:b,c:d"),
            ("SHADOW_MODE", "true"),
        ];
        let own = own_variables(&translate(&variables(&set)));
        let of = |name: &str| {
            own.iter()
                .find(|variable| variable.name == name)
                .map(|variable| variable.value.as_deref())
        };
        assert_eq!(of("TOLLGATE_GRPC_LISTEN"), Some(Some("0.0.0.0:9081")));
        assert_eq!(of("TOLLGATE_STORE"), Some(Some("redis://redis:6379")));
        assert_eq!(of("TOLLGATE_STATS_TAG"), Some(Some("a=b,c=d")));
        assert_eq!(of("TOLLGATE_SHADOW_MODE"), Some(Some("true")));
        assert_eq!(of("TOLLGATE_REDIS_PASSWORD"), Some(None));
        assert_eq!(of("TOLLGATE_FIXED_WINDOW_CHARGE"), None, "the default of both");
    }

    #[test]
    fn unknown_names_are_distinguished_from_known_ones() {
        let by = |names: &[&str]| names.iter().map(|name| read_by(name)).collect::<Vec<_>>();
        let here = by(&[
            "REDIS_URL",
            "OTEL_TRACES_SAMPLER",
            "DOG_STATSD_MOGRIFIER_A_NAME",
            "TOLLGATE_DRAIN_DELAY",
        ]);
        assert_eq!(here, [ReadBy::Tollgate; 4]);
        assert_eq!(
            by(&["OTEL_BSP_SCHEDULE_DELAY", "GOSTATS_BATCH_ENABLED"]),
            [ReadBy::OnlyTheirs; 2]
        );
        assert_eq!(by(&["GOMAXPROCS", "GOMEMLIMIT"]), [ReadBy::GoRuntime; 2]);
        assert_eq!(by(&["HTTPS_PROXY"]), [ReadBy::OnlyTheirs]);
        assert_eq!(by(&["REDIS_ULR", "TOLLGATE_DRAIN"]), [ReadBy::Neither; 2]);
    }

    #[test]
    fn variables_of_both_are_carried_over_unless_a_flag_overrides_them() {
        let set = variables(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"),
            ("OTEL_SERVICE_NAME", "ours"),
            ("OTEL_TRACES_SAMPLER", "always_off"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", "redis:6379"),
            ("TOLLGATE_DRAIN_DELAY", "5s"),
            ("TOLLGATE_GRPC_LISTEN", "[::]:1"),
            ("TRACING_ENABLED", "true"),
        ]);
        let carried = carried(&set, &translate(&set));
        let shown: Vec<_> =
            carried.iter().map(|own| (own.name.as_str(), own.value.as_deref())).collect();
        assert_eq!(
            shown,
            [("OTEL_EXPORTER_OTLP_HEADERS", None), ("TOLLGATE_DRAIN_DELAY", Some("5s"))]
        );
        assert_eq!(own_names("REDIS_AUTH"), ["TOLLGATE_REDIS_USER", "TOLLGATE_REDIS_PASSWORD"]);
    }
}
