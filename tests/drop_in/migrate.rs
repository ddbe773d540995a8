//! `tollgate migrate`: the report, and the files that it writes.

use std::path::Path;
use std::process::Output;

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

pub(super) fn migrate(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = tollgate::output([&["migrate"], arguments].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

pub(super) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_manifest_gives_one_page() {
    let files = Policies::none();
    files.write("ratelimit.yaml", MANIFEST);
    let (status, page, complaints) = migrate(&["--manifest", path(&files.file("ratelimit.yaml"))]);
    assert_eq!((status, complaints.as_str()), (0, ""));
    let page = page.replace(path(files.path()), "");
    insta::assert_snapshot!(page, @r"
    Settings: 9 variables from container limiter of Deployment ratelimit in /ratelimit.yaml
      unchanged  USE_STATSD, RUNTIME_ROOT, RUNTIME_SUBDIRECTORY, RUNTIME_WATCH_ROOT, REDIS_SOCKET_TYPE,
                 REDIS_URL, REDIS_AUTH
      not needed REDIS_POOL_SIZE: requests share one connection per worker and node, without waiting
      reference  REDIS_AUTH: Secret redis, password; value not in the manifest
      unknown    REDIS_ULR: read by neither service

    Policies: 1 file from /data/ratelimit/config, 1 rule, 1 limit
      unchanged  all rules and limits
      warning    ConfigMap ratelimit-config/config.yaml:5:5: key `unit` is ignored in an item of
                 `descriptors`

    Always different
      counters   start at zero when you switch, since Redis keys differ; both services can share one
                 Redis without sharing counters
      Redis user needs +eval +evalsha +time +get +set +del; `tollgate check-store URL` shows what is
                 missing
      errors     INVALID_ARGUMENT or UNAVAILABLE instead of UNKNOWN
      health     the ports open within 1 s and report NOT_SERVING until Redis has been reached once;
                 envoyproxy/ratelimit opens no port until then. Later, as in envoyproxy/ratelimit, a
                 lost Redis has an effect only with REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true.
                 NOT_SERVING also while Redis is a read-only replica or denies commands
      shutdown   after SIGTERM, requests are served for 3s more (--drain-delay)

    Immediate improvements
      accuracy   a request is checked and charged atomically: concurrent requests cannot exceed a limit
      visibility `tollgate top`, `denials` and `inspect` show who is denied, by which rule, and why;
                 they need a token: TOLLGATE_ADMIN_TOKEN_FILE. `tollgate explain` shows which rule a
                 descriptor matches

    Improvements that need one line in a policy
      even rate  defaults: {algorithm: sliding_window} admits at most 2 hits in 365d at any time; a
                 fixed window admits up to 4 around its end (test user)
      denials    defaults: {charge: admitted} does not charge denied requests; currently, denied hits
                 are charged

    Next
      1. start it beside the old service, in a Deployment of its own with the same variables and
         volumes
      2. compare the responses:
         tollgate migrate --live OLD:8081 --against NEW:8081 --peek TRACE
      3. replace the image; files, variables and ports stay. --output DIR converts them to Tollgate's
         own format
    ");
}

#[test]
fn unsupported_settings_are_problems_and_exit_1() {
    let files = Policies::of(&yearly("user", 2));
    let variables = "BACKEND_TYPE=memcache\n# a comment\nexport PORT='eighty'\nMEMCACHE_SRV=_m._tcp\nEXTRA_TAGS=a:\n";
    files.write("memcache.env", variables);
    let env = files.file("memcache.env");
    let policy = files.file("policy.yaml");
    let (status, page, _) = migrate(&["--env-file", path(&env), "--policy", path(&policy)]);
    assert_eq!(status, 1);
    assert!(
        page.contains("problem    BACKEND_TYPE, MEMCACHE_SRV: memcached is not supported: it"),
        "{page}"
    );
    assert_eq!(page.matches("memcached").count(), 1, "{page}");
    assert!(
        page.contains("note       EXTRA_TAGS: `a:` is ignored: a tag needs a name and a value"),
        "{page}"
    );
    assert!(page.contains("problem    PORT: expected a whole number, found `eighty`"), "{page}");
    assert!(page.contains("  1. fix the problems above"), "{page}");
    files.write("good.env", "REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\n");
    let (status, page, _) = migrate(&["--env-file", path(&files.file("good.env"))]);
    assert_eq!(status, 1, "{page}");
    assert!(
        page.contains("/srv/runtime_data/current does not exist; add `--policy PATH`"),
        "{page}"
    );
    files.write("broken.yaml", "domain: test\ndescriptors:\n  - kee: user\n");
    let good = files.file("good.env");
    let broken = files.file("broken.yaml");
    let (status, page, _) = migrate(&["--env-file", path(&good), "--policy", path(&broken)]);
    assert_eq!(status, 1);
    assert!(page.contains("Policies: invalid, ") && page.contains("broken.yaml:3"), "{page}");
}

#[test]
fn unreadable_input_exits_2_and_shows_no_secret() {
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
    assert!(
        status == 2 && complaints.contains("`--container NAME`, one of: proxy, limiter"),
        "{complaints}"
    );
    let (status, page, _) = migrate(&["--manifest", path(&pods), "--container", "limiter"]);
    assert!(
        status == 1 && page.contains("not read   command runs /bin/rl instead of /bin/ratelimit"),
        "{page}"
    );
}

/// Equivalent of `set -a; . tollgate.env; tollgate serve`.
#[tokio::test]
async fn written_files_are_served_and_decide_the_same() {
    let redis = Redis::start().await;
    let files = Policies::none();
    files.write("ratelimit.yaml", &MANIFEST.replace("redis:6379", &redis.address.to_string()));
    let output = files.file("own");
    let manifest = files.file("ratelimit.yaml");
    let (status, page, _) = migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert_eq!(status, 0, "{page}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    insta::assert_snapshot!(variables.replace(path(files.path()), "").replace(&redis.address.to_string(), "REDIS"), @r"
    # Generated by `tollgate migrate` from container limiter of Deployment ratelimit in /ratelimit.yaml. Defaults are omitted.
    TOLLGATE_POLICY=/own/policies
    TOLLGATE_POLICY_DIALECT=envoyproxy
    TOLLGATE_ADMIN_LISTEN=0.0.0.0:6070
    TOLLGATE_ADMIN_OPEN_PAGES=true
    TOLLGATE_MAX_CONNECTION_AGE=86400s
    TOLLGATE_MAX_CONNECTION_AGE_GRACE=3600s
    TOLLGATE_LOG=warn
    TOLLGATE_START_WITHOUT_POLICY=true
    TOLLGATE_READY_WITHOUT_POLICY=true
    TOLLGATE_STATS_PAGE=true
    TOLLGATE_STORE=redis://REDIS
    TOLLGATE_STORE_TIMEOUT=1s
    TOLLGATE_DENY_CACHE_MAX=0s
    # TOLLGATE_REDIS_USER, TOLLGATE_REDIS_PASSWORD= from REDIS_AUTH: Secret redis, password; or TOLLGATE_REDIS_PASSWORD_FILE=PATH
    ");
    let folder =
        std::fs::read_dir(output.join("policies")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(folder.collect::<Vec<_>>(), ["config.yaml"]);
    let (status, _, complaints) =
        migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert!(
        status == 2 && complaints.contains("already exists"),
        "no file is overwritten: {complaints}"
    );

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
fn written_files_run_no_shell_code_and_do_not_serve_without_their_store() {
    let files = Policies::none();
    let manifest = MANIFEST
        .replace("value: 'redis:6379'", "valueFrom: { secretKeyRef: { name: redis, key: url } }")
        .replace(
            "name: REDIS_POOL_SIZE, value: '20'",
            "name: CACHE_KEY_PREFIX, value: 'a b;touch F;$(touch G)'",
        );
    files.write("ratelimit.yaml", &manifest);
    let output = files.file("own");
    let written = ["--manifest", path(&files.file("ratelimit.yaml")), "--output", path(&output)]
        .map(str::to_owned);
    let written = written.each_ref().map(String::as_str);
    let (status, page, complaints) = migrate(&written);
    assert_eq!(status, 0, "{page}{complaints}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    let lines: Vec<_> = variables.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(!lines.iter().any(|line| line.contains("touch")), "{variables}");
    assert!(lines.contains(&"TOLLGATE_STORE=FILL-IN"), "{variables}");
    let refused = tollgate::output(["serve", "--store", "FILL-IN"]);
    assert!(!refused.status.success(), "a store that is not filled in is refused");
    // Files that exist already, of any name, are neither overwritten nor served.
    std::fs::remove_file(output.join("tollgate.env")).unwrap();
    let (status, _, complaints) = migrate(&written);
    assert!(status == 2 && complaints.contains("already exists"), "{complaints}");
}
