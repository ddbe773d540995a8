//! `tollgate migrate`: the report, the files that it writes, and the comparison of answers.

use std::path::Path;
use std::process::Output;

use super::{Istio, Ratelimit};
use crate::support::policy::{Policies, yearly};
use crate::support::redis::Redis;
use crate::support::tollgate::{self, Tollgate};

const MANIFEST: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: ratelimit-config }
data:
  config.yaml: |
    domain: test
    descriptors:
      - key: user
        rate_limit: { unit: year, requests_per_unit: 2 }
        unit: day
  NOTES: none of that service's business
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: ratelimit }
spec:
  template:
    spec:
      containers:
        - name: proxy
          image: envoyproxy/envoy:v1.40
        - name: limiter
          image: envoyproxy/ratelimit:master
          command: [/bin/ratelimit]
          env:
            - { name: REDIS_SOCKET_TYPE, value: tcp }
            - { name: REDIS_URL, value: 'redis:6379' }
            - { name: REDIS_AUTH, valueFrom: { secretKeyRef: { name: redis, key: password } } }
            - { name: RUNTIME_ROOT, value: /data }
            - { name: RUNTIME_SUBDIRECTORY, value: ratelimit }
            - { name: RUNTIME_WATCH_ROOT, value: 'false' }
            - { name: USE_STATSD, value: 'false' }
            - { name: REDIS_POOL_SIZE, value: '20' }
            - { name: REDIS_ULR, value: 'typo:6379' }
          volumeMounts: [{ name: config, mountPath: /data/ratelimit/config }]
      volumes: [{ name: config, configMap: { name: ratelimit-config, items: [{ key: config.yaml, path: config.yaml }] } }]
";

fn migrate(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tollgate::output([&["migrate"], arguments].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_manifest_is_one_page() {
    let files = Policies::none();
    files.write("ratelimit.yaml", MANIFEST);
    let (status, page, complaints) = migrate(&["--manifest", path(&files.file("ratelimit.yaml"))]);
    assert_eq!((status, complaints.as_str()), (0, ""));
    let page = page.replace(path(files.path()), "");
    insta::assert_snapshot!(page, @r"
    Settings: 8 variables of container limiter of Deployment ratelimit in /ratelimit.yaml
      the same   USE_STATSD, RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_WATCH_ROOT, REDIS_SOCKET_TYPE,
                 REDIS_URL, REDIS_AUTH
      not needed REDIS_POOL_SIZE: requests share a connection a worker and node, and never wait for one
      elsewhere  REDIS_AUTH: Secret redis, password
      unknown    REDIS_ULR: neither service reads it

    Policies: 1 file of /data/ratelimit/config, 1 rule, 1 limit
      the same   every rule and limit
      warning    ConfigMap ratelimit-config/config.yaml:5:5: `unit` means nothing in an item of
                 descriptors and is passed over

    Different in any case
      counters   start at zero at the switch: Redis keys are others. Both services can share a Redis
                 and count apart
      Redis user needs +eval +evalsha +time +get +set +del; `tollgate check-store URL` tells what is
                 missing
      errors     INVALID_ARGUMENT or UNAVAILABLE, where that service answers UNKNOWN
      health     NOT_SERVING while Redis is unreachable; SIGTERM is followed by 3 s of service
                 (--drain-delay)

    Gained at once
      exactness  a request is judged and charged in one step: no limit is passed by concurrent requests
      insight    `tollgate top`, `denials`, `explain` and `inspect` show who is denied, by which rule,
                 and why

    Gained on request, a line in a policy
      smoothness defaults: {algorithm: sliding_window} admits 2 hits in 365d at any time; a fixed
                 window lets 4 pass around its end (test user)
      fairness   defaults: {charge: admitted}: a denied request costs nothing. Today its hits are
                 counted

    Next
      1. swap the image; files, variables and ports stay. Or first write them anew by --output DIR
      2. compare the answers: tollgate migrate --live OLD:8081 --against NEW:8081 --peek TRACE
    ");
}

#[test]
fn what_cannot_stay_is_a_problem_and_exit_1() {
    let files = Policies::of(&yearly("user", 2));
    let variables = "BACKEND_TYPE=memcache\n# a comment\nexport PORT='eighty'\nMEMCACHE_SRV=_m._tcp\nEXTRA_TAGS=a:\n";
    files.write("memcache.env", variables);
    let (env, policy) = (files.file("memcache.env"), files.file("policy.yaml"));
    let (status, page, _) = migrate(&["--env-file", path(&env), "--policy", path(&policy)]);
    assert_eq!(status, 1);
    assert!(page.contains("problem    BACKEND_TYPE, MEMCACHE_SRV: memcached is not supported: it"), "{page}");
    assert_eq!(page.matches("memcached").count(), 1, "{page}");
    assert!(page.contains("note       EXTRA_TAGS: `a:` is passed over: a tag has a name and a value"), "{page}");
    assert!(page.contains("problem    PORT: expected a whole number, found `eighty`"), "{page}");
    assert!(page.contains("  1. correct the problems above"), "{page}");
    files.write("good.env", "REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\n");
    let (status, page, _) = migrate(&["--env-file", path(&files.file("good.env"))]);
    assert_eq!(status, 1, "{page}");
    assert!(page.contains("nothing is at /srv/runtime_data/current; add `--policy PATH`"), "{page}");
    files.write("broken.yaml", "domain: test\ndescriptors:\n  - kee: user\n");
    let (good, broken) = (files.file("good.env"), files.file("broken.yaml"));
    let (status, page, _) = migrate(&["--env-file", path(&good), "--policy", path(&broken)]);
    assert_eq!(status, 1);
    assert!(page.contains("that service refuses them too") && page.contains("broken.yaml:3"), "{page}");
}

#[test]
fn what_cannot_be_read_is_exit_2_and_shows_no_secret() {
    let files = Policies::none();
    files.write("a.env", "PORT=1\nhunter2\n");
    files.write(
        "pods.yaml",
        &MANIFEST.replace("envoyproxy/ratelimit", "mirror/rl").replace("/bin/ratelimit", "/bin/rl"),
    );
    let (status, _, complaints) = migrate(&["--env-file", path(&files.file("a.env"))]);
    assert!(status == 2 && complaints.contains("a.env:2: expected NAME=VALUE"), "{complaints}");
    assert!(!complaints.contains("hunter2"), "{complaints}");
    let pods = files.file("pods.yaml");
    let (status, _, complaints) = migrate(&["--manifest", path(&pods)]);
    assert!(status == 2 && complaints.contains("`--container NAME`, one of: proxy, limiter"), "{complaints}");
    assert_eq!(migrate(&["--manifest", path(&pods), "--container", "limiter"]).0, 0);
}

/// Equivalent of `set -a; . tollgate.env; tollgate serve`.
#[tokio::test]
async fn what_is_written_is_served_and_decides_the_same() {
    let (redis, files) = (Redis::start().await, Policies::none());
    files.write("ratelimit.yaml", &MANIFEST.replace("redis:6379", &redis.address.to_string()));
    let output = files.file("own");
    let manifest = files.file("ratelimit.yaml");
    let (status, page, _) = migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert_eq!(status, 0, "{page}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    insta::assert_snapshot!(variables.replace(path(files.path()), "").replace(&redis.address.to_string(), "REDIS"), @r"
    # Made by `tollgate migrate` of container limiter of Deployment ratelimit in /ratelimit.yaml. Defaults are left out.
    TOLLGATE_POLICY=/own/policies
    TOLLGATE_POLICY_DIALECT=envoyproxy
    TOLLGATE_ADMIN_LISTEN=0.0.0.0:6070
    TOLLGATE_ADMIN_OPEN_PAGES=true
    TOLLGATE_MAX_CONNECTION_AGE=86400s
    TOLLGATE_MAX_CONNECTION_AGE_GRACE=3600s
    TOLLGATE_LOG=warn
    TOLLGATE_START_WITHOUT_POLICY=true
    TOLLGATE_READY_WITHOUT_POLICY=true
    TOLLGATE_STORE=redis://REDIS
    # TOLLGATE_REDIS_PASSWORD= a secret, not written here; or TOLLGATE_REDIS_PASSWORD_FILE=PATH
    TOLLGATE_STORE_TIMEOUT=1s
    TOLLGATE_DENY_CACHE_MAX=0s
    ");
    let folder = std::fs::read_dir(output.join("policies")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(folder.collect::<Vec<_>>(), ["config.yaml"]);
    let (status, _, complaints) = migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert!(status == 2 && complaints.contains("is there already"), "nothing is overwritten: {complaints}");

    let lines = variables.lines().filter(|line| !line.starts_with('#'));
    let set: Vec<_> = lines.map(|line| line.split_once('=').unwrap()).collect();
    let service = Tollgate::serve_as(tollgate::command(["serve"]).envs(set), &["--log", "info"]);
    let client = crate::support::rls::Client::connect(service.grpc).await;
    assert!(client.hit("user", "ann").await && client.hit("user", "ann").await);
    assert!(!client.hit("user", "ann").await);
    assert_eq!(client.limit("user", "bob").await, Some(2));
}

/// Values that a shell would run, and a store that is not known yet, do not become settings.
#[test]
fn nothing_is_written_that_a_shell_runs_or_that_serves_without_its_store() {
    let files = Policies::none();
    let manifest = MANIFEST
        .replace("value: 'redis:6379'", "valueFrom: { secretKeyRef: { name: redis, key: url } }")
        .replace("name: REDIS_POOL_SIZE, value: '20'", "name: CACHE_KEY_PREFIX, value: 'a b;touch F;$(touch G)'");
    files.write("ratelimit.yaml", &manifest);
    let output = files.file("own");
    let written = ["--manifest", path(&files.file("ratelimit.yaml")), "--output", path(&output)].map(str::to_owned);
    let written = written.each_ref().map(String::as_str);
    let (status, page, complaints) = migrate(&written);
    assert_eq!(status, 0, "{page}{complaints}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    let lines: Vec<_> = variables.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(!lines.iter().any(|line| line.contains("touch")), "{variables}");
    assert!(lines.contains(&"TOLLGATE_STORE=FILL-IN"), "{variables}");
    let refused = tollgate::output(["serve", "--store", "FILL-IN"]);
    assert!(!refused.status.success(), "a store that is not filled in is refused");
    // Files that are there already, of whatever name, are neither overwritten nor served.
    std::fs::remove_file(output.join("tollgate.env")).unwrap();
    let (status, _, complaints) = migrate(&written);
    assert!(status == 2 && complaints.contains("is there already"), "{complaints}");
}

const TRACE: &str = r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}
{"at": 1, "request": {"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}}
{"domain": "", "descriptors": []}
"#;

/// Compares two services of one policy each, the old and the new one.
async fn compare(istio: &Istio, there: &mut Ratelimit, other: &Istio, peek: bool) -> (i32, String) {
    let trace = istio.map.files.file("trace.jsonl");
    std::fs::write(&trace, TRACE).unwrap();
    let mut here = other.serve(&[]).await;
    let (live, against) = (there.grpc().to_string(), here.grpc().to_string());
    let mut arguments = vec!["--live", &live, "--against", &against, path(&trace)];
    arguments.extend(peek.then_some("--peek"));
    let (status, text, complaints) = migrate(&arguments);
    (status, text.replace(path(istio.map.files.path()), "") + &complaints)
}

#[tokio::test]
async fn equal_answers_are_exit_0_and_others_are_named() {
    let (istio, other) = (Istio::with(&yearly("user", 2)).await, Istio::with(&yearly("user", 1)).await);
    let mut there = istio.serve(&[]).await;
    let (status, text) = compare(&istio, &mut there, &Istio::with(&yearly("user", 2)).await, false).await;
    assert_eq!((status, text.as_str()), (0, "3 requests: 3 answered alike, 0 differently\n"));
    // The two hits are used up now, and 0 hits take nothing.
    let (status, text) = compare(&istio, &mut there, &Istio::with(&yearly("user", 2)).await, true).await;
    assert_eq!((status, text.as_str()), (0, "3 requests: 3 answered alike, 0 differently\n"));
    let (status, text) = compare(&istio, &mut there, &other, false).await;
    assert_eq!(status, 1);
    insta::assert_snapshot!(text, @r"
    /trace.jsonl:1: overall_code: OVER_LIMIT there, OK here
    /trace.jsonl:1: user=ann: current_limit: 2 per YEAR there, 1 per YEAR here
    /trace.jsonl:1: user=ann: code: OVER_LIMIT there, OK here
    /trace.jsonl:2: user=ann: current_limit: 2 per YEAR there, 1 per YEAR here
    3 requests: 1 answered alike, 2 differently
      code 1, current_limit 2, overall_code 1
    ");
}

#[test]
fn a_service_that_nobody_answers_for_is_exit_2() {
    let files = Policies::none();
    files.write("trace.jsonl", TRACE);
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let trace = files.file("trace.jsonl");
    let (status, _, complaints) = migrate(&["--live", &closed, "--against", &closed, path(&trace)]);
    assert!(status == 2 && complaints.contains(&format!("cannot connect to {closed}")), "{complaints}");
    let service = Tollgate::serve(Policies::of(&yearly("user", 2)).path());
    let http = service.http.to_string();
    let (status, page, complaints) = migrate(&["--live", &http, "--against", &http, path(&trace)]);
    assert!(status == 2 && complaints.contains("no answer"), "a port without gRPC: {page}{complaints}");
}
