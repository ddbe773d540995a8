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
      counters   start at zero at the switch, since Redis keys differ; both services can share a Redis
                 and count separately
      Redis user needs +eval +evalsha +time +get +set +del; `tollgate check-store URL` shows what is
                 missing
      errors     INVALID_ARGUMENT or UNAVAILABLE instead of UNKNOWN
      health     the ports open within 1 s and report NOT_SERVING until Redis was reached once; that
                 service opens no port until then. Later, as there, a lost Redis counts only with
                 REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true. NOT_SERVING also while Redis is a read-only
                 replica or denies commands
      shutdown   after SIGTERM, requests are served for 3s more (--drain-delay)

    Gained immediately
      exactness  a request is checked and charged atomically: concurrent requests cannot exceed a limit
      insight    `tollgate top`, `denials` and `inspect` show who is denied, by which rule, and why;
                 they need a token: TOLLGATE_ADMIN_TOKEN_FILE. `tollgate explain` shows which rule a
                 descriptor matches

    Gained with one line in a policy
      smoothness defaults: {algorithm: sliding_window} admits at most 2 hits in 365d at any time; a
                 fixed window admits up to 4 around its end (test user)
      fairness   defaults: {charge: admitted} does not charge denied requests; now their hits are
                 counted

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
    assert!(page.contains("problem    BACKEND_TYPE, MEMCACHE_SRV: memcached is not supported: it"), "{page}");
    assert_eq!(page.matches("memcached").count(), 1, "{page}");
    assert!(page.contains("note       EXTRA_TAGS: `a:` is ignored: a tag needs a name and a value"), "{page}");
    assert!(page.contains("problem    PORT: expected a whole number, found `eighty`"), "{page}");
    assert!(page.contains("  1. fix the problems above"), "{page}");
    files.write("good.env", "REDIS_URL=redis:6379\nREDIS_SOCKET_TYPE=tcp\n");
    let (status, page, _) = migrate(&["--env-file", path(&files.file("good.env"))]);
    assert_eq!(status, 1, "{page}");
    assert!(page.contains("/srv/runtime_data/current does not exist; add `--policy PATH`"), "{page}");
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
    assert!(status == 2 && complaints.contains("`--container NAME`, one of: proxy, limiter"), "{complaints}");
    let (status, page, _) = migrate(&["--manifest", path(&pods), "--container", "limiter"]);
    assert!(status == 1 && page.contains("not read   command runs /bin/rl instead of /bin/ratelimit"), "{page}");
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
    let folder = std::fs::read_dir(output.join("policies")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(folder.collect::<Vec<_>>(), ["config.yaml"]);
    let (status, _, complaints) = migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert!(status == 2 && complaints.contains("already exists"), "nothing is overwritten: {complaints}");

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
    assert!(status == 2 && complaints.contains("already exists"), "{complaints}");
}

/// A manifest with every source of variables and files.
const SOURCES: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: settings, namespace: prod }
data: { URL: 'redis:6379', HOST: redis }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: settings, namespace: test }
data: { URL: 'other:1', HOST: other }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: config, namespace: prod }
data:
  README.md: 'The limits of the shop: see the wiki'
  shop: 'domain: shop'
binaryData: { logo.png: aGVsbG8= }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: one, namespace: prod }
spec:
  template:
    spec:
      containers:
        - name: ratelimit
          image: envoyproxy/ratelimit
          envFrom:
            - { prefix: REDIS_, configMapRef: { name: settings } }
            - { configMapRef: { name: absent } }
            - { prefix: STATSD_, secretRef: { name: hidden } }
          env:
            - { name: REDIS_SOCKET_TYPE, value: tcp }
            - { name: STATSD_HOST, value: '$(REDIS_HOST)-statsd' }
            - { name: PORT, valueFrom: { configMapKeyRef: { name: ports, key: http } } }
            - { name: REDIS_TLS, valueFrom: { secretKeyRef: { name: redis, key: tls } } }
            - { name: CACHE_KEY_PREFIX, value: '$(POD)' }
            - { name: RUNTIME_WATCH_ROOT, value: 'false' }
            - { name: OTEL_BSP_SCHEDULE_DELAY, value: '1000' }
            - { name: TOLLGATE_DRAIN_DELAY, value: 1s }
          volumeMounts:
            - { name: config, mountPath: /srv/runtime_data/current/config }
            - { name: other, mountPath: /other }
      volumes:
        - { name: config, projected: { sources: [{ configMap: { name: config } }] } }
        - { name: other, configMap: { name: other } }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: two, namespace: prod }
spec: { template: { spec: { containers: [{ name: ratelimit, image: envoyproxy/ratelimit }] } } }
";

/// Everything that the manifest does not contain, or that only one service reads, is named.
#[test]
fn each_source_of_variables_and_files_is_read_or_named() {
    let files = Policies::none();
    files.write("all.yaml", SOURCES);
    let manifest = files.file("all.yaml");
    let output = files.file("own");
    let (status, _, complaints) = migrate(&["--manifest", path(&manifest)]);
    assert!(status == 2 && complaints.contains("one of: one/ratelimit, two/ratelimit"), "{complaints}");
    let chosen = ["--manifest", path(&manifest), "--container", "one/ratelimit", "--output", path(&output)];
    let (status, page, complaints) = migrate(&chosen);
    assert_eq!((status, complaints.as_str()), (1, ""), "{page}");
    let settings = page.split("\nAlways different").next().unwrap();
    insta::assert_snapshot!(settings.replace(path(files.path()), ""), @r"
    Settings: 10 variables from container ratelimit of Deployment one in /all.yaml
      unchanged  STATSD_HOST, RUNTIME_WATCH_ROOT, CACHE_KEY_PREFIX, REDIS_SOCKET_TYPE, REDIS_URL
      kept       TOLLGATE_DRAIN_DELAY: read under the same name
      no effect  OTEL_BSP_SCHEDULE_DELAY: read only by a library of envoyproxy/ratelimit
      not read   variables of envFrom: ConfigMap absent is not in the manifest
      not read   variables STATSD_* of envFrom: the values are in Secret hidden
      not read   ConfigMap config/logo.png, mounted at /srv/runtime_data/current/config: binaryData
      not read   files mounted at /other: ConfigMap other is not in the manifest
      reference  PORT: ConfigMap ports, http; value not in the manifest
      reference  REDIS_TLS: Secret redis, tls; value not in the manifest
      reference  CACHE_KEY_PREFIX: $(POD), which is not set earlier in the manifest; value not in the
                 manifest
      unknown    REDIS_HOST: read by neither service

    Policies: 1 file from /srv/runtime_data/current/config, 0 rules, 0 limits
      unchanged  all rules and limits
    ");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    insta::assert_snapshot!(variables.replace(path(files.path()), ""), @r"
    # Generated by `tollgate migrate` from container ratelimit of Deployment one in /all.yaml. Defaults are omitted.
    # not read: variables of envFrom: ConfigMap absent is not in the manifest
    # not read: variables STATSD_* of envFrom: the values are in Secret hidden
    TOLLGATE_POLICY=/own/policies
    TOLLGATE_ADMIN_LISTEN=0.0.0.0:6070
    TOLLGATE_ADMIN_OPEN_PAGES=true
    TOLLGATE_MAX_CONNECTION_AGE=86400s
    TOLLGATE_MAX_CONNECTION_AGE_GRACE=3600s
    TOLLGATE_LOG=warn
    TOLLGATE_START_WITHOUT_POLICY=true
    TOLLGATE_READY_WITHOUT_POLICY=true
    TOLLGATE_STATS_PAGE=true
    TOLLGATE_STATSD=tcp://redis-statsd:8125
    TOLLGATE_STORE_TIMEOUT=1s
    TOLLGATE_DENY_CACHE_MAX=0s
    TOLLGATE_DRAIN_DELAY=1s
    # TOLLGATE_HTTP_LISTEN= from PORT: ConfigMap ports, http
    # TOLLGATE_STORE= from REDIS_TLS: Secret redis, tls
    # Replace the next value with redis://HOST:PORT, or rediss:// with TLS
    TOLLGATE_STORE=FILL-IN
    # TOLLGATE_REDIS_PREFIX= from CACHE_KEY_PREFIX: $(POD), which is not set earlier in the manifest
    # Replace the next value with the prefix of all keys
    TOLLGATE_REDIS_PREFIX=FILL-IN{
    ");
}

#[test]
fn a_secret_with_all_variables_leaves_the_store_open() {
    let files = Policies::of(&yearly("user", 2));
    let manifest = SOURCES.replace("prefix: REDIS_, configMapRef: { name: settings }", "secretRef: { name: settings }");
    files.write("all.yaml", &manifest);
    let manifest = files.file("all.yaml");
    let policy = files.file("policy.yaml");
    let output = files.file("own");
    let chosen = ["--manifest", path(&manifest), "--container", "one/ratelimit", "--policy", path(&policy)];
    let (status, page, complaints) = migrate(&[&chosen[..], &["--output", path(&output)]].concat());
    assert_eq!((status, complaints.as_str()), (1, ""), "{page}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    let store: Vec<_> = variables.lines().filter(|line| line.starts_with("TOLLGATE_STORE=")).collect();
    assert_eq!(store, ["TOLLGATE_STORE=FILL-IN"], "{variables}");
}

#[test]
fn a_readme_beside_policies_is_ignored_and_unknown_variables_are_bounded() {
    let files = Policies::none();
    files.write("config/shop.yaml", &yearly("user", 2));
    files.write("config/README.md", "# Limits\n\n- one: [\n");
    let unknown: String = (0..30).map(|number| format!("UNKNOWN_{number:02}=x\n")).collect();
    files.write("a.env", &format!("\u{feff}REDIS_SOCKET_TYPE='tcp' # comment\nREDIS_URL=redis:6379\n{unknown}"));
    let env = files.file("a.env");
    let policy = files.file("config");
    let (status, page, complaints) = migrate(&["--env-file", path(&env), "--policy", path(&policy)]);
    assert_eq!((status, complaints.as_str()), (0, ""), "{page}");
    assert!(
        page.contains("Policies: 1 file from") && page.contains("unchanged  REDIS_SOCKET_TYPE, REDIS_URL"),
        "{page}"
    );
    assert_eq!(page.matches("read by neither service").count(), 10, "{page}");
    assert!(page.contains("  unknown    … and 20 more\n"), "{page}");
}

/// Only one source of policies is written, by a path that does not depend on the working directory.
#[test]
fn files_given_by_hand_take_the_place_of_a_control_plane() {
    let files = Policies::of(&yearly("user", 2));
    let plane = "CONFIG_TYPE=GRPC_XDS_SOTW\nCONFIG_GRPC_XDS_SERVER_URL=gateway:18001\n";
    files.write("a.env", &format!("REDIS_SOCKET_TYPE=tcp\nREDIS_URL=redis:6379\n{plane}"));
    let env = files.file("a.env");
    let policy = files.file("policy.yaml");
    let arguments = ["migrate", "--env-file", path(&env), "--policy", path(&policy), "--output", "own"];
    let written = tollgate::command(arguments).current_dir(files.path()).output().unwrap();
    let page = String::from_utf8(written.stdout).unwrap();
    assert!(written.status.success() && page.contains("instead of the control plane at gateway:18001"), "{page}");
    let variables = std::fs::read_to_string(files.file("own/tollgate.env")).unwrap();
    let folder = files.path().canonicalize().unwrap();
    assert!(variables.contains(&format!("TOLLGATE_POLICY={}/own/policies\n", path(&folder))), "{variables}");
    assert!(!variables.contains("TOLLGATE_XDS"), "{variables}");
}
