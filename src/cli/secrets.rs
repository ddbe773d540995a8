//! Detection of secrets on the command line, which every user who can list the machine's processes
//! can read.

use std::borrow::Cow;
use std::ffi::OsString;

use crate::store::redis::RedisUrl;

/// Flags whose values are secrets, and the safe alternatives.
const SECRETS: [(&str, &str); 8] = [
    ("--token", "--token-file or TOLLGATE_ADMIN_TOKEN"),
    ("--redis-password", "--redis-password-file or TOLLGATE_REDIS_PASSWORD"),
    ("--sentinel-password", "--sentinel-password-file or TOLLGATE_SENTINEL_PASSWORD"),
    ("--per-second-password", "--per-second-password-file or TOLLGATE_PER_SECOND_PASSWORD"),
    ("--per-second-sentinel-password", "TOLLGATE_PER_SECOND_SENTINEL_PASSWORD"),
    ("--hash-key", "--hash-key-file or TOLLGATE_HASH_KEY"),
    ("--xds-header", "TOLLGATE_XDS_HEADER"),
    ("--otlp-header", "OTEL_EXPORTER_OTLP_HEADERS"),
];
/// Flags whose URLs may contain a password, and the safe alternatives.
const URLS: [(&str, &str); 3] = [
    ("--store", "--redis-password-file or TOLLGATE_REDIS_PASSWORD"),
    ("--per-second-store", "--per-second-password-file or TOLLGATE_PER_SECOND_PASSWORD"),
    ("--admin", "--token-file or TOLLGATE_ADMIN_TOKEN"),
];
/// The safe alternative for the URL of any other flag.
const ENVIRONMENT: &str = "the environment variable of that flag";

/// Returns a warning for each flag with a secret among the words of a command line.
pub(super) fn on_command_line(words: &[OsString]) -> Vec<String> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let mut warnings = Vec::new();
    for (flag, value) in flags(&words) {
        let (kind, alternative) = match alternative(&SECRETS, flag) {
            Some(alternative) => ("a secret", alternative),
            None if has_password(value) => {
                ("a password in a URL", alternative(&URLS, flag).unwrap_or(ENVIRONMENT))
            }
            None => continue,
        };
        let warning = format!(
            "{flag}: {kind} on the command line is visible to every user of this machine; use {alternative}"
        );
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    warnings
}

/// Returns the safe alternative to a flag of a list.
fn alternative(list: &[(&str, &'static str)], flag: &str) -> Option<&'static str> {
    list.iter().find(|(listed, _)| *listed == flag).map(|(_, alternative)| *alternative)
}

/// Returns the flags of a command line with their values, written with `=` or as two words.
fn flags<'a>(words: &'a [Cow<'a, str>]) -> impl Iterator<Item = (&'a str, &'a str)> {
    let after = words.iter().skip(1).map(AsRef::as_ref).chain([""]);
    words.iter().zip(after).filter(|(word, _)| word.starts_with("--")).filter_map(|(word, next)| {
        match word.split_once('=') {
            Some(written) => Some(written),
            None => (!next.is_empty() && !next.starts_with("--")).then_some((word.as_ref(), next)),
        }
    })
}

/// Returns `true` for a URL with a password, of Redis or any other service.
fn has_password(url: &str) -> bool {
    if matches!(RedisUrl::parse(url), Some(Ok(url)) if url.password.is_some()) {
        return true;
    }
    let authority = url.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    let login = authority.and_then(|authority| Some(authority.rsplit_once('@')?.0));
    login.and_then(|login| login.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(words: &str) -> Vec<String> {
        let words = std::iter::once("tollgate").chain(words.split(' '));
        on_command_line(&words.map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn warnings_name_each_secret_and_its_alternative() {
        let found = warnings("--redis-password=x --store redis://:x@h --xds-header a=b");
        let flags: Vec<_> = found.iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(flags, ["--redis-password", "--store", "--xds-header"]);
        assert!(found[0].contains("--redis-password-file or TOLLGATE_REDIS_PASSWORD"));
    }

    #[test]
    fn every_command_and_every_url_is_checked() {
        for (words, flag) in [
            ("top --token x", "--token"),
            ("top --token=x --once", "--token"),
            ("inspect --store memory --store redis://u:x@h", "--store"),
            ("serve --otlp-endpoint=https://u:x@h/v1", "--otlp-endpoint"),
            ("top --admin https://u:x@h:6070", "--admin"),
            ("serve --statsd tcp://u:x@h", "--statsd"),
        ] {
            let found = warnings(words);
            assert!(
                found.len() == 1 && found[0].starts_with(&format!("{flag}: a ")),
                "{words:?} {found:?}"
            );
        }
        for words in [
            "--store redis://h --redis-password-file x --hash-key-file=y",
            "hit h:1 test url=http://a:b@c",
            "top --token-file token",
            "top --admin http://h:6070/@:",
            "serve --otlp-endpoint http://user@h",
        ] {
            assert_eq!(warnings(words), [""; 0], "{words}");
        }
    }
}
