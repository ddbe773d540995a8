//! `tollgate migrate`: the report, and the files that it writes. That these are served, and
//! `--live`, are in `drop_in`.
//!
//! | file | subject |
//! |---|---|
//! | `manifest` | lost, overridden and unread parts of a deployment |
//! | `report` | differences, invalid values, the next steps |
//! | `sources` | sources of variables and policies |

mod manifest;
mod report;
mod sources;

use crate::support::policy::{Policies, yearly};
use crate::support::tollgate::{self, migrate, path};

const MANIFEST: &str = include_str!("ratelimit.yaml");

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
