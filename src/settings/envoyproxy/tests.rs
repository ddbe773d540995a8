use super::*;
use crate::envoyproxy::{Flag, Translation, Variables};

/// Translates variables, such as `HOST=:: PORT=9000`.
fn translate(variables: &str) -> Translation {
    let pairs = variables.split_whitespace().filter_map(|pair| pair.split_once('='));
    let variables: Variables =
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    crate::envoyproxy::translate(&variables, &service_flags())
}

/// Returns the problems of variables, as text.
fn problems(variables: &str) -> String {
    let problems = translate(variables).problems;
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Returns the flags that these variables change or remove, compared with no variables.
fn flags(variables: &str) -> Vec<String> {
    let translation = translate(variables);
    assert_eq!(translation.problems, [], "{variables}");
    let flags = translation.flags;
    let usual = translate("").flags;
    let is_gone = |flag: &&Flag| flags.iter().all(|other| other.name != flag.name);
    let gone = usual.iter().filter(is_gone).map(|flag| format!("no {}", flag.name));
    let changed = flags.iter().filter(|flag| !usual.contains(flag));
    let shown = |flag: &Flag| [&[flag.name.to_owned()], flag.values.as_slice()].concat().join(" ");
    changed.map(shown).chain(gone).collect()
}

#[test]
fn nothing_set_is_that_services_defaults() {
    let translation = translate("");
    let lines: Vec<_> = translation.flags.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r##"
    --grpc-listen 0.0.0.0:8081
    --http-listen 0.0.0.0:8080
    --admin-listen 0.0.0.0:6070
    --admin-open-pages
    --max-connection-age 86400s
    --max-connection-age-grace 3600s
    --log warn
    --log-format text
    --policy-dialect envoyproxy
    --fixed-window-charge always
    --policy /srv/runtime_data/current
    --policy-file-prefix config.
    --policy-dot-files
    --start-without-policy
    --ready-without-policy
    --near-limit-ratio 0.8
    --stats-page
    --statsd tcp://localhost:8125
    --statsd-dialect plain
    --stats-interval 10s
    --store redis+unix:///var/run/nutcracker/ratelimit.sock
    --store-timeout 1s
    --deny-cache-max 0s
    "##);
    assert_eq!((translation.notes, translation.problems), (vec![], vec![]));
}

/// Variables, and the flags that they change or remove.
#[rustfmt::skip]
const CASES: &[(&str, &str)] = &[
    ("HOST=:: PORT=9000", "--http-listen [::]:9000"),
    ("HOST=", ""),
    ("HOST=localhost", "--http-listen 127.0.0.1:8080"),
    ("DEBUG_HOST=127.0.0.1 DEBUG_PORT=0x1000", "--admin-listen 127.0.0.1:4096"),
    ("GRPC_HOST=:: GRPC_PORT=0", "--grpc-listen [::]:0"),
    ("GRPC_UDS=/run/r.sock GRPC_PORT=1", "--grpc-listen unix:/run/r.sock"),
    ("GRPC_MAX_CONNECTION_AGE=1h30m", "--max-connection-age 5400s"),
    ("GRPC_MAX_CONNECTION_AGE_GRACE=1500ms", "--max-connection-age-grace 1500ms"),
    ("GRPC_SERVER_TLS_CERT=/c GRPC_CLIENT_TLS_CACERT=/a", ""),
    ("GRPC_SERVER_USE_TLS=true GRPC_SERVER_TLS_CERT=/c GRPC_SERVER_TLS_KEY=/k", "--grpc-tls-cert /c + --grpc-tls-key /k"),
    ("GRPC_SERVER_USE_TLS=1 GRPC_SERVER_TLS_CERT=/c GRPC_SERVER_TLS_KEY=/k GRPC_CLIENT_TLS_CACERT=/a GRPC_CLIENT_TLS_SAN=s", "--grpc-tls-cert /c + --grpc-tls-key /k + --grpc-tls-client-ca /a + --grpc-tls-client-san s"),
    ("GRPC_SERVER_USE_TLS=t GRPC_SERVER_TLS_CERT=/c GRPC_SERVER_TLS_KEY=/k GRPC_SERVER_TLS_CA_CERT=/a", "--grpc-tls-cert /c + --grpc-tls-key /k + --grpc-tls-client-ca /a"),
    ("LOG_LEVEL=INFO", "--log info"),
    ("LOG_LEVEL=panic LOG_FORMAT=json", "--log error + --log-format logrus"),
    ("USE_STATSD=true STATSD_PROTOCOL=udp", "--statsd udp://localhost:8125"),
    ("USE_STATSD=false USE_DOG_STATSD=true STATSD_HOST=::1 STATSD_PORT=1", "--statsd udp://[::1]:1 + --statsd-dialect dogstatsd"),
    ("USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=A DOG_STATSD_MOGRIFIER_A_PATTERN=^x\\.(.*)$ DOG_STATSD_MOGRIFIER_A_NAME=y DOG_STATSD_MOGRIFIER_A_TAGS=k:$1", "--statsd udp://localhost:8125 + --statsd-dialect dogstatsd + --statsd-rewrite ^x\\.(.*)$ y k:$1"),
    ("EXTRA_TAGS=a:b,c:d STATS_FLUSH_INTERVAL=1s", "--stats-interval 1s + --stats-tag a=b + --stats-tag c=d"),
    ("DISABLE_STATS=true USE_PROMETHEUS=true", "no --stats-page + no --statsd + no --statsd-dialect + no --stats-interval"),
    ("USE_STATSD=false USE_PROMETHEUS=true PROMETHEUS_ADDR=:19001", "--stats-prometheus-listen :19001 + --stats-prometheus-path /metrics + no --statsd + no --statsd-dialect + no --stats-interval"),
    ("USE_PROMETHEUS=true PROMETHEUS_PATH=/m PROMETHEUS_MAPPER_YAML=/f PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS=true", "--stats-prometheus-listen :9090 + --stats-prometheus-path /m + --stats-prometheus-mapper /f + --stats-milliseconds"),
    ("NEAR_LIMIT_RATIO=0.5", "--near-limit-ratio 0.5"),
    ("RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit", "--policy /data/ratelimit"),
    ("RUNTIME_ROOT=/data/ RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_WATCH_ROOT=false", "--policy /data/ratelimit/config + no --policy-file-prefix"),
    ("RUNTIME_APPDIRECTORY=app", "--policy-file-prefix app."),
    ("RUNTIME_IGNOREDOTFILES=true", "no --policy-dot-files"),
    ("MERGE_DOMAIN_CONFIG=true", "--merge-domains"),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true", "--fixed-window-charge blamed"),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED=true", "--ready-while-policy + no --ready-without-policy"),
    ("LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_RESET_HEADER=X", "--response-headers legacy + --response-header-names RateLimit-Limit,RateLimit-Remaining,X"),
    ("SHADOW_MODE=true QUOTA_MODE=true", "--shadow-mode + --quota-mode"),
    ("RESPONSE_DYNAMIC_METADATA=true", "--dynamic-metadata"),
    ("REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379", "--store redis://redis:6379"),
    ("REDIS_URL=redis://u:p@h:1/2", "--store redis://u:p@h:1/2"),
    ("REDIS_SOCKET_TYPE=tcp REDIS_URL=h:1 REDIS_TLS=true", "--store rediss://h:1"),
    ("REDIS_TYPE=cluster REDIS_URL=a:1,b:2", "--store redis-cluster://a:1,b:2"),
    ("REDIS_TYPE=SENTINEL REDIS_URL=my@m,a:1,b:2 REDIS_TLS=true", "--store rediss-sentinel://my%40m@a:1,b:2"),
    ("REDIS_AUTH=secret", "--redis-password secret"),
    ("REDIS_AUTH=--secret CACHE_KEY_PREFIX=-p", "--redis-password --secret + --redis-prefix -p"),
    ("CONFIG_TYPE=GRPC_XDS_SOTW FORCE_START_WITHOUT_INITIAL_CONFIG=true XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=45s", "--xds localhost:18000 + --xds-node-id default + --xds-backoff-min 45s + --xds-backoff-max 60s + no --policy + no --policy-file-prefix + no --policy-dot-files + no --start-without-policy"),
    ("USE_PROMETHEUS=true PROMETHEUS_ADDR=localhost:9090", "--stats-prometheus-listen 127.0.0.1:9090 + --stats-prometheus-path /metrics"),
    ("LIMIT_RESPONSE_HEADERS_ENABLED=true LIMIT_LIMIT_HEADER=", "--response-headers legacy + --response-header-names RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset"),
    ("REDIS_AUTH=me:se:cret", "--redis-user me + --redis-password se:cret"),
    ("REDIS_SENTINEL_AUTH=a:b", "--sentinel-user a + --sentinel-password b"),
    ("REDIS_TLS_CLIENT_CERT=/c REDIS_TLS_CLIENT_KEY=/k REDIS_TLS_CACERT=/a", "--redis-cert /c + --redis-key /k + --redis-ca /a + --redis-system-roots"),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION=true", "--redis-any-hostname"),
    ("CACHE_KEY_PREFIX=p: REDIS_TIMEOUT=2s", "--redis-prefix p: + --redis-connect-timeout 2s"),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true", "--ready-while-store"),
    ("LOCAL_CACHE_SIZE_IN_BYTES=1024", "--deny-cache-max 60s"),
    ("REDIS_PERSECOND=true REDIS_PERSECOND_SOCKET_TYPE=tcp REDIS_PERSECOND_URL=h:2 REDIS_PERSECOND_AUTH=u:p", "--per-second-store redis://h:2 + --per-second-user u + --per-second-password p"),
    ("REDIS_PERSECOND_URL=h:2", ""),
    ("TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=grpc TRACING_SAMPLING_RATE=0.1 TRACING_SERVICE_NAMESPACE=ns", "--otlp-protocol grpc + --otlp-endpoint http://localhost:4317 + --trace-sampler parentbased_traceidratio + --trace-sampler-arg 0.1 + --service-name RateLimit + --resource-attribute service.namespace=ns"),
    ("TRACING_ENABLED=true TRACING_EXPORTER_PROTOCOL=grpc OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317", "--otlp-protocol grpc + --trace-sampler parentbased_traceidratio + --trace-sampler-arg 1 + --service-name RateLimit"),
    ("TRACING_ENABLED=true OTEL_RESOURCE_ATTRIBUTES=team=a,service.namespace=b TRACING_SERVICE_NAMESPACE=ns OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "--otlp-protocol http/protobuf + --trace-sampler parentbased_traceidratio + --trace-sampler-arg 1 + --service-name RateLimit + --resource-attribute team=a + --resource-attribute service.namespace=ns"),
    ("TRACING_ENABLED=true", "--otlp-protocol http/protobuf + --otlp-endpoint http://localhost:4318 + --trace-sampler parentbased_traceidratio + --trace-sampler-arg 1 + --service-name RateLimit"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT=http://h:4317", "--no-spans"),
    ("TRACING_SAMPLING_RATE=0.1", ""),
    ("PORT= USE_STATSD= REDIS_TIMEOUT=", ""),
];

#[test]
fn each_variable_makes_its_flags() {
    for (set, expected) in CASES {
        assert_eq!(flags(set).join(" + "), *expected, "{set}");
    }
}

#[test]
fn a_control_plane_takes_the_place_of_files() {
    const ALL: &str = "CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=envoy-gateway:18001
        CONFIG_GRPC_XDS_NODE_ID=envoy-ratelimit CONFIG_GRPC_XDS_NODE_METADATA=a=b,c=d
        CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS=x:y CONFIG_GRPC_XDS_SERVER_USE_TLS=true
        CONFIG_GRPC_XDS_CLIENT_TLS_CERT=/c CONFIG_GRPC_XDS_CLIENT_TLS_KEY=/k
        CONFIG_GRPC_XDS_SERVER_TLS_CACERT=/a CONFIG_GRPC_XDS_SERVER_TLS_SAN=gw
        XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=1s XDS_CLIENT_BACKOFF_MAX_INTERVAL=2s
        XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES=100";
    insta::assert_snapshot!(flags(ALL).join("\n"), @r##"
    --xds envoy-gateway:18001
    --xds-node-id envoy-ratelimit
    --xds-node-metadata a=b,c=d
    --xds-header x=y
    --xds-tls
    --xds-cert /c
    --xds-key /k
    --xds-ca /a
    --xds-server-name gw
    --xds-backoff-min 1s
    --xds-backoff-max 2s
    --xds-max-message 100
    no --policy
    no --policy-file-prefix
    no --policy-dot-files
    no --start-without-policy
    no --ready-without-policy
    "##);
    let has = |more: &str, flag: &str| {
        let translation = translate(&format!("{ALL} {more}"));
        translation.flags.iter().any(|one| one.name == flag)
    };
    assert!(!has("", "--policy") && !has("", "--ready-without-policy"));
    assert!(has("FORCE_START_WITHOUT_INITIAL_CONFIG=true", "--ready-without-policy"));
}

#[test]
fn all_unsupported_settings_are_reported_together() {
    let found = problems(
        "BACKEND_TYPE=memcache MEMCACHE_HOST_PORT=memcached:11211
        MEMCACHE_SRV=_memcache._tcp.local PORT=eighty GRPC_PORT=70000 GRPC_HOST=ratelimit.local
        USE_STATSD=yes EXTRA_TAGS=a=b STATS_FLUSH_INTERVAL=10 LOG_LEVEL=loud CONFIG_TYPE=file
        USE_DOG_STATSD=true USE_DOG_STATSD_MOGRIFIERS=A REDIS_PERSECOND=true
        REDIS_PERSECOND_TYPE=RING",
    );
    insta::assert_snapshot!(found, @r##"
    PORT: expected a whole number, found `eighty`
    USE_STATSD: expected true or false, found `yes`
    EXTRA_TAGS: expected key:value,key:value, found `a=b`
    STATS_FLUSH_INTERVAL: expected a length of time such as 150us, 10s or 24h, found `10`
    GRPC_HOST: expected an address such as 0.0.0.0 or ::, or a host name, found `ratelimit.local`
    GRPC_PORT: expected a port from 0 to 65535, found `70000`
    LOG_LEVEL: expected error, warn, info, debug or trace, found `loud`
    CONFIG_TYPE: expected FILE or GRPC_XDS_SOTW, found `file`
    DOG_STATSD_MOGRIFIER_A_PATTERN: must be set, since USE_DOG_STATSD_MOGRIFIERS lists it
    BACKEND_TYPE, MEMCACHE_HOST_PORT, MEMCACHE_SRV: memcached is not supported: it cannot check and charge atomically; set BACKEND_TYPE=redis and REDIS_URL
    REDIS_PERSECOND_TYPE: expected SINGLE, SENTINEL or CLUSTER, found `RING`
    "##);
}

#[test]
fn problems_of_flags_are_reported_by_their_variables() {
    let not_set = "REDIS_SOCKET_TYPE, REDIS_URL: REDIS_SOCKET_TYPE is not set, which means `unix`, and `redis:6379` is not \
                   the path of a socket; set REDIS_SOCKET_TYPE=tcp for host:port";
    let no_address =
        "REDIS_URL: expected the address of a Redis, such as redis:6379, found an empty text";
    let drain = "TOLLGATE_DRAIN_DELAY: expected a duration such as 500ms or 10s, found `soon`";
    let one_port = "GRPC_PORT, PORT: expected different ports, found 8081 in both";
    for (set, expected) in [
        ("REDIS_URL=redis:6379", not_set),
        ("REDIS_SOCKET_TYPE=tcp REDIS_TYPE=SINGLE REDIS_URL=", no_address),
        ("REDIS_SOCKET_TYPE=tcp REDIS_TYPE=CLUSTER REDIS_URL=", no_address),
        ("REDIS_SOCKET_TYPE=tcp REDIS_TYPE=SENTINEL REDIS_URL=", no_address),
        // Variables of tollgate itself.
        ("TOLLGATE_DRAIN_DELAY=soon", drain),
        ("TOLLGATE_DRAIN_DELAY=1s TOLLGATE_SHADOW_MODE=true TOLLGATE_NEAR_LIMIT_RATIO=x", ""),
        // Two listeners on one port.
        ("PORT=8081", one_port),
        ("PORT=0 GRPC_PORT=0 DEBUG_PORT=0", ""),
        ("PORT=8081 HOST=127.0.0.1 GRPC_HOST=127.0.0.2", ""),
    ] {
        assert_eq!(problems(set), expected, "{set}");
    }
    for (set, expected) in [
        ("REDIS_TLS_CLIENT_CERT=/c", ["REDIS_TLS_CLIENT_KEY: ", ""]),
        ("CACHE_KEY_PREFIX=a{b", ["CACHE_KEY_PREFIX: ", "unclosed hash tag"]),
        (
            "REDIS_SOCKET_TYPE=tcp REDIS_URL=h:port NEAR_LIMIT_RATIO=7",
            ["REDIS_SOCKET_TYPE, REDIS_URL: ", "NEAR_LIMIT_RATIO: "],
        ),
        ("PORT=eighty NEAR_LIMIT_RATIO=7", ["PORT: ", "NEAR_LIMIT_RATIO: "]),
        (
            "REDIS_SOCKET_TYPE=unix REDIS_URL=redis:6379 REDIS_TLS_CACERT=/a",
            ["REDIS_SOCKET_TYPE is `unix`, and", ""],
        ),
        (
            "REDIS_PERSECOND=true REDIS_PERSECOND_URL=h:1",
            ["REDIS_PERSECOND_SOCKET_TYPE, REDIS_PERSECOND_URL: ", ""],
        ),
    ] {
        let found = problems(set);
        assert!(expected.iter().all(|text| found.contains(text)), "{found}");
        let count = expected.iter().filter(|text| text.ends_with(": ")).count();
        assert_eq!(found.lines().count(), count.max(1), "{found}");
    }
    let metadata = problems(
        "CONFIG_TYPE=GRPC_XDS_SOTW CONFIG_GRPC_XDS_SERVER_URL=h:1
        CONFIG_GRPC_XDS_NODE_METADATA=hunter2",
    );
    assert!(metadata.starts_with("CONFIG_GRPC_XDS_NODE_METADATA: "), "{metadata}");
    assert!(!metadata.contains("hunter2"), "{metadata}");
}

#[test]
fn settings_with_another_equivalent_are_noted() {
    for (set, count) in [
        ("TRACING_ENABLED=1 REDIS_POOL_SIZE=5 EXPIRATION_JITTER_MAX_SECONDS=0", 0),
        ("EXTRA_TAGS=a: GRPC_SERVER_USE_TLS=1 GRPC_CLIENT_TLS_SAN=s", 2),
        ("REDIS_STARTUP_MAX_ELAPSED_TIME=1m MEMCACHE_SRV=x", 2),
        ("USE_DOG_STATSD=true", 0),
        ("USE_DOG_STATSD=true USE_STATSD=true", 1),
    ] {
        let notes = translate(set).notes;
        assert_eq!(notes.len(), count, "{notes:?}");
        let is_of_both = notes.first().is_some_and(|note| note.contains("DogStatsD is used"));
        assert_eq!(is_of_both, set.ends_with("USE_STATSD=true") && count == 1, "{notes:?}");
    }
}
