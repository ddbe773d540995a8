//! The flags of `serve`, to which the variables of envoyproxy/ratelimit are translated.

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use super::{PolicySettings, SettingProblem};
use crate::envoyproxy::service_flags::{FlagProblem, ServiceFlags};

#[derive(clap::Parser)]
#[command(args_override_self = true)]
struct TranslatedServe {
    #[command(flatten)]
    flags: super::Flags,
}

/// Returns the flags of `serve`, with the check of their values.
pub fn service_flags() -> ServiceFlags {
    ServiceFlags::new(TranslatedServe::command(), problems)
}

/// Returns the sources of policies that flags of [`service_flags`] set.
pub fn policy_settings(matches: &ArgMatches) -> Option<PolicySettings> {
    Some(TranslatedServe::from_arg_matches(matches).ok()?.flags.resolve().0.policy)
}

fn problems(matches: &ArgMatches) -> Result<Vec<FlagProblem>, clap::Error> {
    let (_, problems) = TranslatedServe::from_arg_matches(matches)?.flags.resolve();
    Ok(problems
        .into_iter()
        .map(|SettingProblem { flag, what }| FlagProblem { flag, what: what.to_string() })
        .collect())
}

#[cfg(test)]
mod tests;
