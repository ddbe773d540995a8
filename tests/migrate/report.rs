//! `tollgate migrate`: the report on differences, on values that cannot be, and on the next steps.

use std::io::Write as _;
use std::process::Stdio;

use crate::support::policy::{Policies, yearly};
use crate::support::tollgate::{self, migrate, path};

const REDIS: &str = "REDIS_SOCKET_TYPE=tcp\nREDIS_URL=redis:6379\n";

/// Reports on an env file, with the line breaks within texts removed.
fn of_env(variables: &str, policy: &str) -> (i32, String) {
    let files = Policies::of(policy);
    files.write("a.env", variables);
    let env = files.file("a.env");
    let policy = files.file("policy.yaml");
    let (status, page, complaints) =
        migrate(&["--env-file", path(&env), "--policy", path(&policy)]);
    assert_eq!(complaints, "", "{page}");
    (status, joined(&page).replace(path(files.path()), ""))
}

fn joined(page: &str) -> String {
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn has(page: &str, text: &str) {
    assert!(page.contains(text), "`{text}` is not in\n{page}");
}

#[test]
fn health_is_compared_as_it_is() {
    let (_, page) = of_env(REDIS, &yearly("user", 2));
    has(&page, "NOT_SERVING until Redis has been reached once; envoyproxy/ratelimit opens no port");
    has(&page, "a lost Redis has an effect only with REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true");
    assert!(!page.contains("NOT_SERVING while Redis is unreachable"), "{page}");
}

/// On one machine, every port of the old service is in use.
#[test]
fn the_next_steps_start_it_on_other_ports_with_a_command_that_cargo_installs() {
    let (_, page) = of_env(REDIS, &yearly("user", 2));
    has(
        &page,
        "(set -a; . /a.env; GRPC_PORT=9081 PORT=9080 DEBUG_PORT=9070; tollgate serve --envoyproxy-env --policy /policy.yaml)",
    );
    has(&page, "tollgate migrate --live 127.0.0.1:8081 --against 127.0.0.1:9081 --peek TRACE");
    let more = format!("{REDIS}USE_STATSD=false\nUSE_PROMETHEUS=true\nGRPC_PORT=9081\n");
    let (_, page) = of_env(&more, &yearly("user", 2));
    has(&page, "GRPC_PORT=8091 PORT=9080 DEBUG_PORT=9070 PROMETHEUS_ADDR=:9091; tollgate");
    has(&page, "--live 127.0.0.1:9081 --against 127.0.0.1:8091");
    let (_, page) = of_env(&format!("{REDIS}GRPC_UDS=/run/r.sock\n"), &yearly("user", 2));
    has(&page, "GRPC_UDS= GRPC_PORT=9081");
    has(&page, "--live OLD:8081 --against NEW:9081");
}

#[test]
fn the_exported_settings_are_started_on_other_ports_too() {
    let files = Policies::of(&yearly("user", 2));
    files.write("a.env", &format!("{REDIS}USE_STATSD=false\nUSE_PROMETHEUS=true\n"));
    let env = files.file("a.env");
    let policy = files.file("policy.yaml");
    let output = files.file("own");
    let arguments =
        ["--env-file", path(&env), "--policy", path(&policy), "--output", path(&output)];
    let page = joined(&migrate(&arguments).1);
    has(&page, "--grpc-listen 0.0.0.0:8091 --http-listen 0.0.0.0:8090 --admin-listen 0.0.0.0:6071");
    has(&page, "--stats-prometheus-listen :9092)");
    has(&page, "--against 127.0.0.1:8091 --peek");
}

#[test]
fn commands_that_need_a_token_are_marked() {
    let (_, page) = of_env(REDIS, &yearly("user", 2));
    has(&page, "they need a token: TOLLGATE_ADMIN_TOKEN_FILE");
    let (_, page) = of_env(&format!("{REDIS}DEBUG_HOST=127.0.0.1\n"), &yearly("user", 2));
    assert!(!page.contains("TOLLGATE_ADMIN_TOKEN_FILE"), "{page}");
}

#[test]
fn differences_of_statistics_are_in_the_report() {
    let both = "USE_STATSD=true\nUSE_DOG_STATSD=true\nUSE_PROMETHEUS=true\nEXTRA_TAGS=env:prod\n";
    let (status, page) = of_env(&format!("{REDIS}{both}"), &yearly("user", 2));
    assert_eq!(status, 0, "{page}");
    has(&page, "differs EXTRA_TAGS: labels for Prometheus");
    has(&page, "note USE_DOG_STATSD, USE_STATSD: DogStatsD is used");
}

#[test]
fn words_that_only_tollgate_accepts_are_not_unchanged() {
    let policy = "domain: test\ndescriptors:\n  - key: user\n    rate_limit: { unit: 15m, requests_per_unit: 2, \
                  algorithm: gcra }\n";
    let (_, page) = of_env(REDIS, policy);
    has(&page, "differs /policy.yaml: envoyproxy/ratelimit rejects `algorithm`, `unit: 15m`");
    assert!(!page.contains("unchanged all rules and limits"), "{page}");
}

#[test]
fn missing_files_and_shared_ports_are_reported_before_the_start() {
    let tls = "GRPC_SERVER_USE_TLS=true\nGRPC_SERVER_TLS_CERT=/none/a.crt\nGRPC_SERVER_TLS_KEY=/none/a.key\n";
    let (status, page) = of_env(&format!("{REDIS}{tls}"), &yearly("user", 2));
    assert_eq!(status, 0, "{page}");
    has(&page, "note GRPC_SERVER_TLS_CERT: /none/a.crt does not exist on this machine");
    has(&page, "note GRPC_SERVER_TLS_KEY: /none/a.key does not exist on this machine");
    let (status, page) = of_env(&format!("{REDIS}PORT=8081\n"), &yearly("user", 2));
    assert_eq!(status, 1, "{page}");
    has(&page, "problem GRPC_PORT, PORT: expected different ports, found 8081 in both");
}

#[test]
fn every_variable_of_the_report_is_counted() {
    let more = "TOLLGATE_DRAIN_DELAY=1s\nGOMAXPROCS=2\nUNKNOWN=1\n";
    let (_, page) = of_env(&format!("{REDIS}{more}"), &yearly("user", 2));
    has(&page, "Settings: 5 variables from");
}

const MANIFEST: &str = "
kind: Deployment
metadata: { name: a }
spec:
  template:
    spec:
      containers:
        - name: ratelimit
          image: envoyproxy/ratelimit
          env:
            - { name: REDIS_SOCKET_TYPE, value: tcp }
            - { name: REDIS_URL, valueFrom: { secretKeyRef: { name: redis, key: url } } }
            - { name: LOG_LEVEL, value: loud }
";

#[test]
fn a_manifest_is_read_from_standard_input_and_an_env_file_adds_to_it() {
    let files = Policies::of(&yearly("user", 2));
    files.write("a.env", "REDIS_URL=redis:6379\nLOG_LEVEL=info\n");
    let env = files.file("a.env");
    let policy = files.file("policy.yaml");
    let run = |more: &[&str]| {
        let arguments = [&["migrate", "--manifest", "-", "--policy", path(&policy)], more].concat();
        let mut command = tollgate::command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(MANIFEST.as_bytes()).unwrap();
        let ended = child.wait_with_output().unwrap();
        (ended.status.code().unwrap(), joined(&String::from_utf8(ended.stdout).unwrap()))
    };
    let (status, page) = run(&[]);
    assert_eq!(status, 1, "{page}");
    has(&page, "from container ratelimit of Deployment a in standard input");
    has(&page, "problem LOG_LEVEL: ");
    let (status, page) = run(&["--env-file", path(&env)]);
    assert_eq!(status, 0, "{page}");
    has(&page, "in a Deployment of its own");
    has(
        &page,
        "Settings: 3 variables from container ratelimit of Deployment a in standard input and ",
    );
    has(&page, "unchanged LOG_LEVEL, REDIS_SOCKET_TYPE, REDIS_URL");
    assert!(!page.contains("reference"), "{page}");
}

#[test]
fn flags_without_an_effect_are_refused() {
    for flags in
        [&["--output", "own"][..], &["--policy", "x"], &["--env-file", "x"], &["--manifest", "x"]]
    {
        let live = ["--live", "127.0.0.1:1", "--against", "127.0.0.1:1", "trace.jsonl"];
        let (status, _, complaints) = migrate(&[flags, &live].concat());
        assert!(
            status == 2 && complaints.contains("cannot be used with"),
            "{flags:?}: {complaints}"
        );
    }
    let (status, _, complaints) = migrate(&["--tls"]);
    assert!(status == 2 && complaints.contains("--live"), "{complaints}");
}
