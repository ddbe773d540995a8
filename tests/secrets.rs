//! Secrets from every source: none appears in any output, of any error.

use std::process::Command;

use crate::support::policy::{Policies, daily};
use crate::support::process::Process;
use crate::support::tollgate::{command, quiet};

/// The secret that no output may contain.
const MARKER: &str = "mArKeR-of-sixteen-bytes";

/// Returns URLs that are invalid or have the wrong scheme, with a secret wherever one can occur.
fn wrong_urls() -> Vec<String> {
    let wrong = [
        "redis://u:SECRET@127.0.0.1:bad",
        "redis://u:SECRET@127.0.0.1:1/x",
        "redis://u:SECRET@a,b",
        "redis://u:1/SECRET",
        "redis://u:SECRET",
        "redis://:SECRET",
        "redis:u:SECRET@h",
        "ftp://u:SECRET@h",
        "redis-cluster://:SECRET@a,b:x",
        "redis-sentinel://:SECRET@m",
        "redis+unix://u:SECRET@h",
    ];
    wrong.iter().map(|url| url.replace("SECRET", MARKER)).collect()
}

#[test]
fn an_invalid_url_is_reported_without_its_password() {
    let policies = Policies::of(&daily("user", 5));
    let policy = policies.path().to_str().unwrap();
    for url in wrong_urls() {
        for arguments in [
            vec!["serve", "--policy", policy, "--store", &url],
            vec!["serve", "--policy", policy, "--per-second-store", &url],
            vec!["inspect", "--policy", policy, "--store", &url, "test", "user=ann"],
            vec!["replay", "--policy", policy, "--store", &url, "-"],
        ] {
            let output = output_of(&mut command(&arguments));
            assert!(
                output.contains("error") && !output.contains(MARKER),
                "{arguments:?}: {output}"
            );
        }
        let variables = [
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_PERSECOND", "true"),
            ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
        ];
        for name in ["REDIS_URL", "REDIS_PERSECOND_URL"] {
            let mut settings = command(["settings", "--from-env"]);
            settings.envs(variables).env(name, &url);
            let output = output_of(&mut settings);
            assert!(!output.contains(MARKER), "{name}={url}: {output}");
        }
    }
}

#[test]
fn settings_and_help_show_no_secret_of_the_environment() {
    let ours = [
        "REDIS_PASSWORD",
        "SENTINEL_PASSWORD",
        "PER_SECOND_PASSWORD",
        "PER_SECOND_SENTINEL_PASSWORD",
        "REDIS_CREDENTIALS_COMMAND",
        "PER_SECOND_CREDENTIALS_COMMAND",
        "HASH_KEY",
    ];
    for name in ours.into_iter().chain(["STORE", "PER_SECOND_STORE", "XDS_HEADER"]) {
        let mut help = command(["serve", "--help"]);
        assert!(
            !output_of(help.env(format!("TOLLGATE_{name}"), format!("redis://u:{MARKER}@h")))
                .contains(MARKER),
            "{name}"
        );
    }
    let theirs = [
        "REDIS_AUTH",
        "REDIS_SENTINEL_AUTH",
        "REDIS_PERSECOND_AUTH",
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
    ];
    for (name, value) in
        theirs.iter().flat_map(|name| [(name, MARKER.to_owned()), (name, format!("user:{MARKER}"))])
    {
        let mut settings = command(["settings", "--from-env"]);
        settings
            .env("REDIS_SOCKET_TYPE", "tcp")
            .env("REDIS_URL", "h:1")
            .env("REDIS_PERSECOND", "true");
        assert!(!output_of(settings.env(name, &value)).contains(MARKER), "{name}={value}");
    }
}

#[test]
fn invalid_headers_are_reported_without_their_values() {
    for header in [MARKER.to_owned(), format!("a b={MARKER}"), format!("ab={MARKER}\n")] {
        let output = output_of(
            command(["serve", "--xds", "127.0.0.1:1", "--xds-header", &header]).args(quiet(&[])),
        );
        assert!(output.contains("--xds-header") && !output.contains(MARKER), "{output}");
    }
}

#[test]
fn secrets_in_the_environment_log_no_warning() {
    let policies = Policies::of(&daily("user", 5));
    let mut serve = command(["serve", "--policy", policies.path().to_str().unwrap()]);
    serve.args(quiet(&[])).env("TOLLGATE_REDIS_PASSWORD", MARKER).env("TOLLGATE_STORE", "memory");
    let mut service = Process::start("tollgate", &mut serve);
    service
        .wait_for_line("its address", |line| line.contains("\"protocol\":\"admin\"").then_some(()));
    service.signal(rustix::process::Signal::TERM);
    let log = service.final_log();
    assert!(!log.contains("on the command line") && !log.contains(MARKER), "{log}");
}

/// Returns all output of a command that exits by itself.
fn output_of(command: &mut Command) -> String {
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}
