//! Expansion of the command line before it is parsed: in place of envoyproxy/ratelimit, its
//! variables become flags.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::settings::complaints;
use crate::settings::envoyproxy::{Flag, Translation, translate};

/// Name of the program when it runs in place of envoyproxy/ratelimit.
const THEIR_NAME: &str = "ratelimit";
/// Flag that enables the same under Tollgate's own name.
const FLAG: &str = "--envoyproxy-env";

/// Replaces [`FLAG`] with flags, so that later flags override them; also returns the notes to log.
///
/// # Errors
/// All variables that cannot be honored.
pub(super) fn expanded(
    mut arguments: Vec<OsString>,
    variables: &crate::settings::envoyproxy::Variables,
) -> Result<(Vec<OsString>, Vec<String>), String> {
    let name = arguments.first().and_then(|name| Path::new(name).file_name());
    if name == Some(OsStr::new(THEIR_NAME)) {
        arguments.splice(1..1, ["serve", FLAG].map(OsString::from));
    }
    let Some(place) = arguments.iter().position(|argument| argument == FLAG) else { return Ok((arguments, vec![])) };
    let translation: Translation = translate(variables);
    if let Some(complaints) = complaints(&translation) {
        return Err(complaints);
    }
    let words = translation.flags.iter().flat_map(Flag::words).map(OsString::from);
    let words: Vec<_> = words.collect();
    arguments.splice(place..=place, words);
    Ok((arguments, translation.notes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(arguments: &[&str], set: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let variables = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let (words, _) = expanded(arguments.iter().map(OsString::from).collect(), &variables)?;
        Ok(words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn under_their_name_or_on_request_their_variables_are_flags() {
        for arguments in [&["/bin/ratelimit"][..], &["tollgate", "serve", "--envoyproxy-env"]] {
            let words = expand(arguments, &[("GRPC_PORT", "1")]).unwrap();
            assert_eq!(words[1..3], ["serve", "--grpc-listen=0.0.0.0:1"]);
        }
        let words = expand(&["tollgate", "--envoyproxy-env", "--grpc-listen", "[::]:2"], &[]).unwrap();
        assert_eq!(words[words.len() - 2..], ["--grpc-listen", "[::]:2"]);
        assert_eq!(expand(&["tollgate", "serve"], &[("GRPC_PORT", "x")]).unwrap(), ["tollgate", "serve"]);
        assert!(expand(&["ratelimit"], &[("GRPC_PORT", "x")]).unwrap_err().contains("error: GRPC_PORT: expected"));
    }
}
