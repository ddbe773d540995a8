//! `tollgate settings`: maps the variables of envoyproxy/ratelimit to flags.

use std::io::{self, Write as _};
use std::process::ExitCode;

use super::output::print_stderr;
use crate::envoyproxy::{self, Translation, Variables};
use crate::settings::service_flags;

/// Show how the variables of envoyproxy/ratelimit map to flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if all variables are supported, 1 if one is not.

Examples:
  # List the variables with their flags
  tollgate settings
  # Print the command that is equivalent to an env file
  env $(cat ratelimit.env) tollgate settings --from-env")]
pub struct SettingsArgs {
    /// Print the command that is equivalent to the variables of this environment.
    #[arg(long)]
    from_env: bool,
}

impl SettingsArgs {
    /// Prints the mapping. Exits with 1 if a variable is not supported.
    pub fn run(self) -> ExitCode {
        if !self.from_env {
            let lines: String =
                envoyproxy::guide().map(|(name, flags)| format!("{name:<50} {flags}\n")).collect();
            // A closed standard output is no reason to fail.
            let _ = io::stdout().write_all(lines.as_bytes());
            return ExitCode::SUCCESS;
        }
        let translation = envoyproxy::translate(&variables(), &service_flags());
        match supported(&translation) {
            Ok(()) => {
                let _ = io::stdout().write_all(command(&translation).as_bytes());
                ExitCode::SUCCESS
            }
            // A command without the invalid variables would behave differently.
            Err(errors) => {
                print_stderr(errors);
                ExitCode::FAILURE
            }
        }
    }
}

/// Returns the variables of the process. Those that are not UTF-8 are skipped, since
/// envoyproxy/ratelimit has none.
pub(super) fn variables() -> Variables {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Variables that cannot be honored, with the problem of each.
#[derive(Debug, thiserror::Error)]
#[error("{}", problems.iter().map(|problem| format!("error: {problem}")).collect::<Vec<_>>().join("\n"))]
pub(super) struct UnsupportedVariables {
    problems: Vec<String>,
}

/// Returns all problems of a translation, if there are any.
///
/// # Errors
/// [`UnsupportedVariables`]
pub(super) fn supported(translation: &Translation) -> Result<(), UnsupportedVariables> {
    let problems: Vec<_> = translation.problems.iter().map(ToString::to_string).collect();
    if problems.is_empty() { Ok(()) } else { Err(UnsupportedVariables { problems }) }
}

fn command(translation: &Translation) -> String {
    let notes = translation.notes.iter().map(|note| format!("# {note}\n"));
    let flags = translation.flags.iter().map(|flag| format!(" \\\n  {flag}"));
    let secret =
        "# Passwords are masked. Read them from a file instead: --redis-password-file FILE\n";
    let has_secret = translation.flags.iter().any(|flag| flag.name.ends_with("-password"));
    let notes: String = notes.chain(has_secret.then(|| secret.to_owned())).collect();
    let flags: String = flags.collect();
    format!("{notes}tollgate serve{flags}\n")
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_command_is_quoted_for_a_shell() {
        let set = [
            ("REDIS_AUTH", "x"),
            ("MEMCACHE_SRV", "x"),
            ("CACHE_KEY_PREFIX", "a b"),
            ("SHADOW_MODE", "1"),
        ];
        let variables =
            set.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        let text = command(&envoyproxy::translate(&variables, &service_flags()));
        assert!(text.starts_with("# MEMCACHE_SRV: has no effect"), "{text}");
        assert!(text.contains("\ntollgate serve \\\n  --grpc-listen 0.0.0.0:8081 \\\n"), "{text}");
        assert!(
            text.contains("--redis-prefix 'a b'") && text.contains("--redis-password '***'"),
            "{text}"
        );
        assert!(
            text.contains(" \\\n  --shadow-mode \\\n") && text.ends_with("--deny-cache-max 0s\n"),
            "{text}"
        );
    }
}
