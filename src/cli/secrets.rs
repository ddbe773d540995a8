//! Secrets on the command line, which everybody who may see the machine's processes can read there.

use std::ffi::OsString;

use crate::store::redis::RedisUrl;

/// Flags whose values are secrets, and where those are to be instead.
const SECRETS: [(&str, &str); 7] = [
    ("--redis-password", "--redis-password-file or TOLLGATE_REDIS_PASSWORD"),
    ("--sentinel-password", "--sentinel-password-file or TOLLGATE_SENTINEL_PASSWORD"),
    ("--per-second-password", "--per-second-password-file or TOLLGATE_PER_SECOND_PASSWORD"),
    ("--per-second-sentinel-password", "TOLLGATE_PER_SECOND_SENTINEL_PASSWORD"),
    ("--hash-key", "--hash-key-file or TOLLGATE_HASH_KEY"),
    ("--xds-header", "TOLLGATE_XDS_HEADER"),
    ("--otlp-header", "OTEL_EXPORTER_OTLP_HEADERS"),
];
/// Flags whose URLs may have one in them.
const URLS: [(&str, &str); 2] = [
    ("--store", "--redis-password-file or TOLLGATE_REDIS_PASSWORD"),
    ("--per-second-store", "--per-second-password-file or TOLLGATE_PER_SECOND_PASSWORD"),
];

/// A warning for each secret among the words of a command line.
pub(super) fn on_command_line(words: &[OsString]) -> Vec<String> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let value_of = |flag: &str| {
        words.iter().enumerate().find_map(|(at, word)| match word.strip_prefix(flag)? {
            "" => words.get(at.saturating_add(1)).map(AsRef::as_ref),
            rest => rest.strip_prefix('='),
        })
    };
    let has_password = |url: &str| matches!(RedisUrl::parse(url), Some(Ok(url)) if url.password.is_some());
    let secrets = SECRETS.iter().filter(|(flag, _)| value_of(flag).is_some());
    let urls = URLS.iter().filter(|(flag, _)| value_of(flag).is_some_and(has_password));
    let told = secrets.map(|place| ("a secret", place)).chain(urls.map(|place| ("a password", place)));
    told.map(|(what, (flag, instead))| format!("{flag}: {what} on the command line is to be read there; use {instead}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_secret_is_told_with_where_it_belongs_and_nothing_else_is() {
        let told = |words: &[&str]| on_command_line(&words.iter().map(OsString::from).collect::<Vec<_>>());
        let secrets = ["tollgate", "--redis-password=x", "--store", "redis://:x@h", "--xds-header", "a=b"];
        let told_of: Vec<_> = told(&secrets).iter().map(|line| line.split(':').next().unwrap().to_owned()).collect();
        assert_eq!(told_of, ["--redis-password", "--xds-header", "--store"]);
        assert!(told(&secrets)[0].contains("--redis-password-file or TOLLGATE_REDIS_PASSWORD"));
        assert_eq!(
            told(&["tollgate", "--store", "redis://h", "--redis-password-file", "x", "--hash-key-file=y"]),
            [""; 0]
        );
    }
}
