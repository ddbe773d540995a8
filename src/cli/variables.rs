//! Detection of mistyped environment variables, which clap ignores.

use std::collections::BTreeSet;

use crate::yaml::report::closest;

/// Prefix of the variables of flags.
const PREFIX: &str = "TOLLGATE_";

/// Returns a warning for each of `names` that is not the variable of a flag of `command` or of its
/// subcommands, and close to one. Any other may belong to another program.
pub(super) fn mistyped(
    names: impl IntoIterator<Item = String>,
    command: &clap::Command,
) -> Vec<String> {
    let mut known = BTreeSet::new();
    collect(command, &mut known);
    names.into_iter().filter_map(|name| warning(&name, &known)).collect()
}

/// Returns the warning about a variable, if it is close to a known one.
fn warning(name: &str, known: &BTreeSet<&str>) -> Option<String> {
    let found = name.strip_prefix(PREFIX)?;
    if known.contains(found) || is_of_kubernetes(found) {
        return None;
    }
    let word = closest(found, known.iter().copied())?;
    // Such as `TOLLGATE_REDIS`, a name on its own.
    if word.strip_prefix(found).is_some_and(|rest| rest.starts_with('_')) {
        return None;
    }
    let name = name.escape_debug();
    Some(format!(
        "environment variable `{name}` is unknown and ignored; did you mean `{PREFIX}{word}`?"
    ))
}

/// Adds the variables of a command and its subcommands, without [`PREFIX`].
fn collect<'c>(command: &'c clap::Command, known: &mut BTreeSet<&'c str>) {
    let names = command.get_arguments().filter_map(|argument| argument.get_env()?.to_str());
    known.extend(names.filter_map(|name| name.strip_prefix(PREFIX)));
    command.get_subcommands().for_each(|subcommand| collect(subcommand, known));
}

/// Returns `true` for a variable that Kubernetes sets in each pod for a Service whose name begins
/// with `tollgate`, such as `TOLLGATE_SERVICE_HOST` and `TOLLGATE_PORT_8081_TCP_ADDR`.
fn is_of_kubernetes(name: &str) -> bool {
    let words: Vec<_> = name.split('_').collect();
    words.ends_with(&["PORT"])
        || words.windows(2).any(|pair| match *pair {
            ["SERVICE", "HOST" | "PORT"] => true,
            ["PORT", number] => number.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn warnings(names: &[&str]) -> Vec<String> {
        mistyped(names.iter().map(|name| (*name).to_owned()), &Cli::command())
    }

    #[test]
    fn a_mistyped_variable_is_named_with_the_one_that_is_meant() {
        assert_eq!(
            warnings(&["TOLLGATE_STORE_TIMEOUTT", "TOLLGATE_STORE_TIMEOUT"])[0],
            "environment variable `TOLLGATE_STORE_TIMEOUTT` is unknown and ignored; did you mean \
             `TOLLGATE_STORE_TIMEOUT`?"
        );
        // A variable of a subcommand.
        assert!(warnings(&["TOLLGATE_ADMN"])[0].ends_with("did you mean `TOLLGATE_ADMIN`?"));
    }

    #[test]
    fn variables_of_services_in_kubernetes_and_of_other_programs_are_not_mistyped() {
        let others = [
            "TOLLGATE_PORT",
            "TOLLGATE_PORT_8081_TCP",
            "TOLLGATE_PORT_8081_TCP_ADDR",
            "TOLLGATE_SERVICE_HOST",
            "TOLLGATE_SERVICE_PORT_GRPC",
            "TOLLGATE_ADMI_SERVICE_HOST",
            "TOLLGATE_ADMI_PORT_6070_TCP_PROTO",
            "TOLLGATE_ENVOY",
            "TOLLGATE_DOCS",
            "TOLLGATE_REDIS",
            "TOLLGATE_VALKEY",
            "TOLLGATE_",
            "PATH",
        ];
        assert_eq!(warnings(&others), [""; 0]);
    }
}
