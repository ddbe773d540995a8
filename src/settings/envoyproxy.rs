//! The flags of `serve`, to which the variables of envoyproxy/ratelimit are translated.

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use super::PolicySettings;
pub use crate::envoyproxy::service_flags::FlagProblem;
use crate::envoyproxy::service_flags::ServiceFlags;

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
    Ok(TranslatedServe::from_arg_matches(matches)?.flags.resolve().1)
}

#[cfg(test)]
mod tests;
