//! `tollgate migrate`: lost, overridden and unread parts of a deployment are in the report.

use crate::support::policy::{Policies, yearly};
use crate::support::tollgate::{self, migrate, path};

/// Reports on an env file.
fn of_env(variables: &str, more: &[&str]) -> (i32, String) {
    let files = Policies::of(&yearly("user", 2));
    files.write("a.env", &format!("REDIS_SOCKET_TYPE=tcp\nREDIS_URL=redis:6379\n{variables}"));
    let env = files.file("a.env");
    let policy = files.file("policy.yaml");
    let (status, page, complaints) =
        migrate(&[&["--env-file", path(&env), "--policy", path(&policy)], more].concat());
    assert_eq!(complaints, "", "{page}");
    (status, page)
}

/// Reports on a container, given by its fields other than name and image.
fn of_container(fields: &str) -> (i32, String) {
    let files = Policies::of(&yearly("user", 2));
    let container = format!("name: ratelimit, image: envoyproxy/ratelimit, {fields}");
    files.write("a.yaml", &format!("kind: Deployment\nmetadata: {{ name: a }}\nspec: {{ template: {{ spec: {{ containers: [{{ {container} }}] }} }} }}\n"));
    let manifest = files.file("a.yaml");
    let policy = files.file("policy.yaml");
    let (status, page, complaints) =
        migrate(&["--manifest", path(&manifest), "--policy", path(&policy)]);
    assert_eq!(complaints, "", "{page}");
    // Without the line breaks within a text.
    (status, page.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn attributes_of_both_are_merged() {
    let files = Policies::none();
    let output = files.file("own");
    let tracing = "TRACING_ENABLED=true\nOTEL_RESOURCE_ATTRIBUTES=team=a,service.instance.id=b\n";
    let tracing = format!("{tracing}TRACING_SERVICE_INSTANCE_ID=c\n");
    let (status, page) = of_env(&tracing, &["--output", path(&output)]);
    assert!(
        status == 0
            && page.contains("kept       OTEL_RESOURCE_ATTRIBUTES: read under the same name"),
        "{page}"
    );
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    assert!(
        variables.contains("OTEL_RESOURCE_ATTRIBUTES=team=a,service.instance.id=c\n"),
        "{variables}"
    );
}

#[test]
fn a_variable_that_another_overrides_is_not_kept() {
    let tracing =
        "TRACING_ENABLED=true\nTRACING_SAMPLING_RATE=0.5\nOTEL_TRACES_SAMPLER=always_on\n";
    let service = "TRACING_SERVICE_NAME=a\nOTEL_SERVICE_NAME=b\nOTEL_EXPORTER_OTLP_PROTOCOL=grpc\n";
    let own = "TRACING_EXPORTER_PROTOCOL=http\nTOLLGATE_STORE=redis://other:1\nTOLLGATE_NEAR_LIMIT_RATIO=0.1\n";
    let (status, page) = of_env(&format!("{tracing}{service}{own}TOLLGATE_DRAIN_DELAY=1s\n"), &[]);
    assert_eq!(status, 0, "{page}");
    let shown: Vec<_> =
        page.lines().filter(|line| line.contains("overridden") || line.contains("kept")).collect();
    assert_eq!(
        shown,
        [
            "  kept       TOLLGATE_DRAIN_DELAY: read under the same name",
            "  overridden OTEL_EXPORTER_OTLP_PROTOCOL: by TRACING_ENABLED, TRACING_EXPORTER_PROTOCOL",
            "  overridden OTEL_SERVICE_NAME: by TRACING_SERVICE_NAME",
            "  overridden OTEL_TRACES_SAMPLER: by TRACING_ENABLED, TRACING_SAMPLING_RATE",
            "  overridden TOLLGATE_NEAR_LIMIT_RATIO: by the default of NEAR_LIMIT_RATIO",
            "  overridden TOLLGATE_STORE: by REDIS_SOCKET_TYPE, REDIS_URL",
        ]
    );
}

#[test]
fn a_malformed_item_of_env_is_a_problem() {
    for (env, expected) in [
        ("[{ nam: PORT, value: '1' }]", "item 1: expected name, value or valueFrom, found `nam`"),
        (
            "[{ name: A, value: x }, 'PORT=hunter2']",
            "item 2: expected a mapping with name and value, found text",
        ),
        (
            "[{ name: PORT, valu: hunter2 }]",
            "item 1: expected name, value or valueFrom, found `valu` of PORT",
        ),
        ("[{ value: hunter2 }]", "item 1: expected a name, found none"),
        (
            "[{ name: PORT, value: [hunter2] }]",
            "item 1: expected text as value of PORT, found a list",
        ),
        (
            "[{ name: PORT, valueFrom: hunter2 }]",
            "item 1: expected a mapping as valueFrom of PORT, found text",
        ),
        ("{ PORT: hunter2 }", "expected a list, found a mapping"),
    ] {
        let (status, page) = of_container(&format!("env: {env}"));
        assert!(
            status == 1 && page.contains("problem env of the container") && page.contains(expected),
            "{page}"
        );
        assert!(!page.contains("hunter2") && page.contains("1. fix the problems above"), "{page}");
    }
    let (status, page) = of_container("envFrom: { configMapRef: { name: a } }");
    assert!(
        status == 1 && page.contains("envFrom of the container: expected a list, found a mapping"),
        "{page}"
    );
    let (_, page) = of_container("env: [{ name: PORT, value: '1' }, { name: PORT, value: '2' }]");
    assert!(page.contains("note PORT: set several times in env; the last value applies"), "{page}");
}

#[test]
fn a_command_that_the_image_does_not_have_is_not_read() {
    for (fields, expected) in [
        ("command: [sh, -c, 'PORT=1 ratelimit']", "command runs sh instead of /bin/ratelimit"),
        ("args: [/bin/ratelimit]", "set command: [/bin/ratelimit] without args"),
        ("command: [ratelimit], args: [-x]", "args: /bin/ratelimit takes no arguments"),
        (
            "livenessProbe: { exec: { command: [grpc_health_probe] } }",
            "livenessProbe runs grpc_health_probe: ",
        ),
        (
            "lifecycle: { preStop: { exec: { command: [sleep, '5'] } } }",
            "lifecycle preStop runs sleep: ",
        ),
    ] {
        let (status, page) = of_container(fields);
        assert!(
            status == 1 && page.contains("not read") && page.contains(expected),
            "{fields}: {page}"
        );
        assert!(page.contains("1. check each `not read` line above"), "{page}");
    }
    let own = "command: [/bin/ratelimit], readinessProbe: { httpGet: { port: 8080, path: /healthcheck } }";
    assert_eq!(of_container(own).0, 0);
    let (status, page) = of_container("command: /bin/ratelimit");
    assert!(
        status == 1 && page.contains("problem command of the container: expected a list"),
        "{page}"
    );
}

#[test]
fn a_secret_in_another_variable_is_masked() {
    let fields =
        "env: [{ name: MY_TOKEN, value: hunter2 }, { name: GRPC_PORT, value: 'a$(MY_TOKEN)' }]";
    let (status, page) = of_container(fields);
    assert!(
        status == 1 && page.contains("problem GRPC_PORT:") && page.contains("found `a***`"),
        "{page}"
    );
    assert!(!page.contains("hunter2"), "{page}");
}

#[test]
fn a_reference_that_decisions_depend_on_is_filled_in_before_the_start() {
    let files = Policies::of(&yearly("user", 2));
    let reference = |name: &str| {
        format!("{{ name: {name}, valueFrom: {{ secretKeyRef: {{ name: a, key: b }} }} }}")
    };
    let env = ["CACHE_KEY_PREFIX", "SHADOW_MODE", "LOG_LEVEL"].map(reference).join(", ");
    let env = format!(
        "[{env}, {{ name: REDIS_SOCKET_TYPE, value: tcp }}, {{ name: REDIS_URL, value: 'h:1' }}]"
    );
    let container = format!("name: ratelimit, image: a, env: {env}");
    files.write("a.yaml", &format!("kind: Pod\nspec: {{ containers: [{{ {container} }}] }}\n"));
    let manifest = files.file("a.yaml");
    let policy = files.file("policy.yaml");
    let output = files.file("own");
    let arguments =
        ["--manifest", path(&manifest), "--policy", path(&policy), "--output", path(&output)];
    let (status, page, _) = migrate(&arguments);
    assert_eq!(status, 0, "{page}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    assert!(
        variables.contains(
            "# Replace the next value with true or false\nTOLLGATE_SHADOW_MODE=FILL-IN\n"
        )
    );
    assert!(
        variables.contains("\nTOLLGATE_REDIS_PREFIX=FILL-IN{\n")
            && !variables.contains("\nTOLLGATE_LOG=")
    );
    for line in variables.lines().filter(|line| line.contains("=FILL-IN")) {
        let refused = tollgate::command(["serve", "--store", "redis://127.0.0.1:1"])
            .envs(line.split_once('='))
            .output()
            .unwrap();
        let complaints = String::from_utf8(refused.stderr).unwrap();
        assert!(
            !refused.status.success() && complaints.contains("FILL-IN"),
            "{line}: {complaints}"
        );
    }
}

#[test]
fn lines_that_repeat_a_variable_and_variables_of_go_are_explained() {
    let (status, page) = of_env("PORT=1\nPORT=2\nGOMAXPROCS=2\nHTTPS_PROXY=p:1\n", &[]);
    assert_eq!(status, 0, "{page}");
    assert!(
        page.contains("note       PORT: set on several lines; the last value applies"),
        "{page}"
    );
    assert!(page.contains("not needed GOMAXPROCS: read only by the Go runtime"), "{page}");
    assert!(
        page.contains("no effect  HTTPS_PROXY: read only by a library of envoyproxy/ratelimit"),
        "{page}"
    );
}

#[test]
fn a_manifest_with_a_syntax_error_has_one_error_and_a_full_disk_is_one() {
    let files = Policies::none();
    files.write("a.yaml", "a: [1\n");
    let (status, _, complaints) = migrate(&["--manifest", path(&files.file("a.yaml"))]);
    assert!(status == 2 && complaints.matches("error: ").count() == 1, "{complaints}");
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let written = tollgate::command(["migrate"]).stdout(full).output().unwrap();
    let complaints = String::from_utf8(written.stderr).unwrap();
    assert!(
        written.status.code() == Some(2) && complaints.contains("error: standard output: "),
        "{complaints}"
    );
}
