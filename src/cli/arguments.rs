//! Expansion of the command line before it is parsed: replaces `--envoyproxy-env` with the flags
//! that are equivalent to the variables of envoyproxy/ratelimit. Errors of numbers in it.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;

use clap::error::{ContextKind, ErrorKind};

use super::settings::{UnsupportedVariables, supported};
use crate::envoyproxy::{Translation, translate};
use crate::settings::service_flags;

/// Name of the binary of envoyproxy/ratelimit.
const ENVOYPROXY_NAME: &str = "ratelimit";
/// Flag that enables the expansion under any other name.
const FLAG: &str = "--envoyproxy-env";

/// Replaces [`FLAG`] with flags, so that later flags override them; also returns the notes to log.
///
/// # Errors
/// All variables that are not supported.
pub(super) fn expanded(
    mut arguments: Vec<OsString>,
    variables: &crate::envoyproxy::Variables,
) -> Result<(Vec<OsString>, Vec<String>), UnsupportedVariables> {
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    if name == Some(OsStr::new(ENVOYPROXY_NAME)) {
        arguments.splice(1..1, ["serve", FLAG].map(OsString::from));
    }
    let Some(position) = arguments.iter().position(|argument| argument == FLAG) else {
        return Ok((arguments, vec![]));
    };
    let translation: Translation = translate(variables, &service_flags());
    supported(&translation)?;
    let words: Vec<_> = translation.words().map(OsString::from).collect();
    arguments.splice(position..=position, words);
    Ok((arguments, translation.notes))
}

/// Returns the error with what is allowed, if it is about a number that cannot be parsed, or about
/// a policy file without its flag.
pub(super) fn explained(error: clap::Error) -> clap::Error {
    match number_problem(&error).or_else(|| bare_policy_problem(&error)) {
        Some(problem) => clap::Error::raw(
            error.kind(),
            format!("{problem}\n\nFor more information, try '--help'.\n"),
        ),
        None => error,
    }
}

fn bare_policy_problem(error: &clap::Error) -> Option<String> {
    let kinds = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let found = kinds.into_iter().find_map(|kind| error.get(kind))?.to_string();
    let is_policy = [".yaml", ".yml"].iter().any(|end| found.ends_with(end));
    let is_unexpected =
        matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    (is_policy && is_unexpected && !found.starts_with('-')).then(|| {
        format!("unexpected argument '{found}' found\n\n  tip: did you mean `--policy {found}`?")
    })
}

fn number_problem(error: &clap::Error) -> Option<String> {
    let number = error.source()?.downcast_ref::<ParseIntError>()?;
    let value = error.get(ContextKind::InvalidValue)?;
    let argument = error.get(ContextKind::InvalidArg)?;
    let allowed = match number.kind() {
        IntErrorKind::Zero => "must be at least 1",
        IntErrorKind::PosOverflow => "number is too large",
        IntErrorKind::Empty | IntErrorKind::InvalidDigit | IntErrorKind::NegOverflow | _ => {
            "must be a whole number"
        }
    };
    Some(format!("invalid value '{value}' for '{argument}': {allowed}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn numbers_are_explained() {
        let error = |arguments: &str| {
            let arguments = std::iter::once("tollgate").chain(arguments.split(' '));
            let parsed = Cli::try_parse_from(arguments);
            let text = explained(parsed.err().unwrap()).to_string();
            text.split("\n\n").next().unwrap().to_owned()
        };
        for (arguments, wanted) in [
            ("grant a", "'a' for '<HITS>': must be a whole number"),
            (
                "grant 99999999999999999999",
                "'99999999999999999999' for '<HITS>': number is too large",
            ),
            ("serve --replicas 0", "'0' for '--replicas <N>': must be at least 1"),
            ("top --lines ", "'' for '--lines <N>': must be a whole number"),
        ] {
            assert_eq!(error(arguments), format!("error: invalid value {wanted}"));
        }
        let other = error("verify --target a --policy b --rate 0");
        assert!(other.contains("0 is not in 1..=100000"), "{other}");
    }

    #[test]
    fn a_policy_file_without_its_flag_is_explained() {
        for arguments in [&["tollgate", "serve", "limits.yaml"][..], &["tollgate", "limits.yaml"]] {
            let error = explained(Cli::try_parse_from(arguments).err().unwrap()).to_string();
            assert!(error.contains("did you mean `--policy limits.yaml`?"), "{error}");
        }
    }

    fn expand(
        arguments: &[&str],
        set: &[(&str, &str)],
    ) -> Result<Vec<String>, UnsupportedVariables> {
        let variables =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (words, _) = expanded(arguments.iter().map(OsString::from).collect(), &variables)?;
        Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn variables_become_flags_under_the_name_ratelimit_or_with_the_flag() {
        for arguments in [&["/bin/ratelimit"][..], &["tollgate", "serve", "--envoyproxy-env"]] {
            let words = expand(arguments, &[("GRPC_PORT", "1")]).unwrap();
            assert_eq!(words[1..3], ["serve", "--grpc-listen=0.0.0.0:1"]);
        }
        let words =
            expand(&["tollgate", "--envoyproxy-env", "--grpc-listen", "[::]:2"], &[]).unwrap();
        assert_eq!(words[words.len() - 2..], ["--grpc-listen", "[::]:2"]);
        let invalid = [("GRPC_PORT", "x")];
        assert_eq!(expand(&["tollgate", "serve"], &invalid).unwrap(), ["tollgate", "serve"]);
        let error = expand(&["ratelimit"], &invalid).unwrap_err().to_string();
        assert!(error.contains("error: GRPC_PORT: expected"), "{error}");
    }
}
