//! Every variable that envoyproxy/ratelimit reads: its type, its default, and its meaning in
//! Tollgate.

use DifferingValues::{
    All, DefaultExport, NotEmptyWithPrometheus, NotEmptyWithTls, OnlyCa, Positive, True, Verbose,
};
use VariableKind::{Bool, Duration, Float, Int, List, Map, Text};
use VariableMeaning::{Instead, NeedNot, Part, Refused};

/// The type of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// Any text.
    Text,
    /// `true`, `1`, `t` and other forms that Go accepts.
    Bool,
    /// A whole number, also in forms such as `0x10`.
    Int,
    /// A finite number.
    Float,
    /// A duration of Go: `150us`, `10s`, `1h30m`.
    Duration,
    /// Texts separated by commas.
    List,
    /// Pairs, `key:value,key:value`.
    Map,
}

/// The meaning of a variable in Tollgate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableMeaning {
    /// The variable sets these flags, alone or with others.
    Part(&'static str),
    /// No setting is needed; the text has the reason.
    NeedNot(&'static str),
    /// The effect is achieved in another way; a note reports it if the variable is set.
    Instead(&'static str),
    /// The variable cannot be honored; the text describes what to do.
    Refused(&'static str),
}

/// A variable of envoyproxy/ratelimit.
#[derive(Debug)]
pub struct Variable {
    /// The name.
    pub name: &'static str,
    /// The type.
    pub kind: VariableKind,
    /// Default of that service; empty if there is none.
    pub default: &'static str,
    /// The meaning here.
    pub worth: VariableMeaning,
    /// The difference from the effect there, if there is one.
    pub difference: Option<VariableDifference>,
}

/// A difference in effect between the services.
#[derive(Clone, Copy, Debug)]
pub struct VariableDifference {
    /// The values that have a different effect.
    pub(crate) values: DifferingValues,
    /// The effect here, beside the effect there.
    pub text: &'static str,
}

/// Values of a variable that have a different effect, some of them only beside other variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DifferingValues {
    All,
    True,
    Positive,
    /// The levels below `info`.
    Verbose,
    /// Texts, if gRPC uses TLS.
    NotEmptyWithTls,
    /// Texts, if gRPC uses TLS and no other variable sets a CA.
    OnlyCa,
    /// Texts, if there are statistics for Prometheus.
    NotEmptyWithPrometheus,
    /// `true`, if no variable of OpenTelemetry sets the endpoint.
    DefaultExport,
}

/// All variables, in the order of that service's settings.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    v("HOST", Text, "0.0.0.0", Part("--http-listen")),
    v("PORT", Int, "8080", Part("--http-listen")),
    v("DEBUG_HOST", Text, "0.0.0.0", Part("--admin-listen")),
    v("DEBUG_PORT", Int, "6070", Part("--admin-listen")),
    v("GRPC_UDS", Text, "", Part("--grpc-listen")),
    v("GRPC_HOST", Text, "0.0.0.0", Part("--grpc-listen")),
    v("GRPC_PORT", Int, "8081", Part("--grpc-listen")),
    v("GRPC_MAX_CONNECTION_AGE", Duration, "24h", Part("--max-connection-age")),
    v("GRPC_MAX_CONNECTION_AGE_GRACE", Duration, "1h", Part("--max-connection-age-grace")),
    v("GRPC_SERVER_USE_TLS", Bool, "false", Part("--grpc-tls-cert --grpc-tls-key --grpc-tls-client-ca")),
    v("GRPC_SERVER_TLS_CERT", Text, "", Part("--grpc-tls-cert")),
    v("GRPC_SERVER_TLS_KEY", Text, "", Part("--grpc-tls-key")),
    v("GRPC_CLIENT_TLS_CACERT", Text, "", Part("--grpc-tls-client-ca")).but(NotEmptyWithTls, "only this CA is trusted, not those of the system"),
    v("GRPC_SERVER_TLS_CA_CERT", Text, "", Part("--grpc-tls-client-ca")).but(OnlyCa, "envoyproxy/ratelimit ignores it; Tollgate requires client certificates of this CA"),
    v("GRPC_CLIENT_TLS_SAN", Text, "", Part("--grpc-tls-client-san")),
    v("LOG_LEVEL", Text, "WARN", Part("--log")).but(Verbose, "one line per descriptor, for at most 100 requests per second"),
    v("LOG_FORMAT", Text, "text", Part("--log-format")),

    v("CONFIG_TYPE", Text, "FILE", Part("--policy --xds")),
    v("FORCE_START_WITHOUT_INITIAL_CONFIG", Bool, "false", Part("--ready-without-policy")),
    v("CONFIG_GRPC_XDS_NODE_ID", Text, "default", Part("--xds-node-id")),
    v("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", Part("--xds-node-metadata")),
    v("CONFIG_GRPC_XDS_SERVER_URL", Text, "localhost:18000", Part("--xds")),
    v("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", Duration, "3s", NeedNot("there is one backoff, from --xds-backoff-min to --xds-backoff-max")),
    v("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Map, "", Part("--xds-header")),
    v("CONFIG_GRPC_XDS_SERVER_USE_TLS", Bool, "false", Part("--xds-tls")),
    v("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", Part("--xds-cert")),
    v("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", Part("--xds-key")),
    v("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", Part("--xds-ca")),
    v("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", Part("--xds-server-name")),
    v("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", Part("--xds-backoff-min")),
    v("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", Part("--xds-backoff-max")),
    v("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", Float, "0.5", NeedNot("the backoff doubles")),
    v("XDS_CLIENT_BACKOFF_JITTER", Bool, "true", NeedNot("the backoff always has jitter")),
    v("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Int, "0", Part("--xds-max-message")),

    v("USE_DOG_STATSD", Bool, "false", Part("--statsd --statsd-dialect")),
    v("USE_DOG_STATSD_MOGRIFIERS", List, "", Part("--statsd-rewrite")),
    v("USE_STATSD", Bool, "true", Part("--statsd")),
    v("STATSD_PROTOCOL", Text, "tcp", Part("--statsd")),
    v("STATSD_HOST", Text, "localhost", Part("--statsd")),
    v("STATSD_PORT", Int, "8125", Part("--statsd")),
    v("EXTRA_TAGS", Map, "", Part("--stats-tag")).but(NotEmptyWithPrometheus, "labels for Prometheus; envoyproxy/ratelimit appends them to names, as in `…_total_hits___env_prod`, or drops them"),
    v("STATS_FLUSH_INTERVAL", Duration, "10s", Part("--stats-interval")),
    v("DISABLE_STATS", Bool, "false", Part("--stats-page --statsd --stats-prometheus-listen")),
    v("USE_PROMETHEUS", Bool, "false", Part("--stats-prometheus-listen")),
    v("PROMETHEUS_ADDR", Text, ":9090", Part("--stats-prometheus-listen")),
    v("PROMETHEUS_PATH", Text, "/metrics", Part("--stats-prometheus-path")),
    v("PROMETHEUS_MAPPER_YAML", Text, "", Part("--stats-prometheus-mapper")),
    v("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Bool, "false", Part("--stats-milliseconds")),

    v("RUNTIME_ROOT", Text, "/srv/runtime_data/current", Part("--policy")),
    v("RUNTIME_SUBDIRECTORY", Text, "", Part("--policy")),
    v("RUNTIME_APPDIRECTORY", Text, "config", Part("--policy --policy-file-prefix")),
    v("RUNTIME_IGNOREDOTFILES", Bool, "false", Part("--policy-dot-files")),
    v("RUNTIME_WATCH_ROOT", Bool, "true", Part("--policy --policy-file-prefix")).but(True, "every change below RUNTIME_ROOT is loaded, not only a swap of RUNTIME_ROOT itself"),
    v("MERGE_DOMAIN_CONFIG", Bool, "false", Part("--merge-domains")),

    v("EXPIRATION_JITTER_MAX_SECONDS", Int, "300", NeedNot("a counter expires one minute after it is no longer needed")),
    v("LOCAL_CACHE_SIZE_IN_BYTES", Int, "0", Part("--deny-cache-max")).but(Positive, "at most 65,536 denials are cached, for at most 60 s; a refund or a higher limit invalidates them"),
    v("NEAR_LIMIT_RATIO", Float, "0.8", Part("--near-limit-ratio")),
    v("CACHE_KEY_PREFIX", Text, "", Part("--redis-prefix")),
    v("BACKEND_TYPE", Text, "redis", Part("--store")),
    v("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Bool, "false", Part("--fixed-window-charge")),
    v("LIMIT_RESPONSE_HEADERS_ENABLED", Bool, "false", Part("--response-headers")),
    v("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", Part("--response-header-names")),
    v("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", Part("--response-header-names")),
    v("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", Part("--response-header-names")),
    v("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Bool, "false", Part("--ready-while-policy")),
    v("SHADOW_MODE", Bool, "false", Part("--shadow-mode")),
    v("QUOTA_MODE", Bool, "false", Part("--quota-mode")),
    v("RESPONSE_DYNAMIC_METADATA", Bool, "false", Part("--dynamic-metadata")),

    v("REDIS_SOCKET_TYPE", Text, "unix", Part("--store")),
    v("REDIS_TYPE", Text, "SINGLE", Part("--store")),
    v("REDIS_URL", Text, "/var/run/nutcracker/ratelimit.sock", Part("--store")),
    v("REDIS_POOL_SIZE", Int, "10", NeedNot(POOL)),
    v("REDIS_AUTH", Text, "", Part("--redis-user --redis-password")),
    v("REDIS_TLS", Bool, "false", Part("--store")),
    v("REDIS_TLS_CLIENT_CERT", Text, "", Part("--redis-cert")),
    v("REDIS_TLS_CLIENT_KEY", Text, "", Part("--redis-key")),
    v("REDIS_TLS_CACERT", Text, "", Part("--redis-ca --redis-system-roots")),
    v("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Bool, "false", Part("--redis-any-hostname")),
    v("REDIS_PIPELINE_WINDOW", Duration, "0", NeedNot(PIPELINE)),
    v("REDIS_PIPELINE_LIMIT", Int, "0", NeedNot(PIPELINE)),
    v("REDIS_CLUSTER_PIPELINE_PARALLELISM", Int, "1", NeedNot("all slots of a request are queried concurrently")),
    v("REDIS_SENTINEL_AUTH", Text, "", Part("--sentinel-user --sentinel-password")),
    v("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Bool, "false", Part("--ready-while-store")),
    v("REDIS_TIMEOUT", Duration, "10s", Part("--redis-connect-timeout")).but(All, "limits connecting, as in envoyproxy/ratelimit; a call is limited by the caller's grpc-timeout, or else to 1 s"),
    v("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", NeedNot(POOL)),
    v("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "1s", NeedNot(STARTUP)),
    v("REDIS_STARTUP_MAX_INTERVAL", Duration, "30s", NeedNot(STARTUP)),
    v("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "0", Instead("the process does not exit without Redis: it is not ready until Redis is reached")),

    v("REDIS_PERSECOND", Bool, "false", Part("--per-second-store")),
    v("REDIS_PERSECOND_SOCKET_TYPE", Text, "unix", Part("--per-second-store")),
    v("REDIS_PERSECOND_TYPE", Text, "SINGLE", Part("--per-second-store")),
    v("REDIS_PERSECOND_URL", Text, "/var/run/nutcracker/ratelimitpersecond.sock", Part("--per-second-store")),
    v("REDIS_PERSECOND_POOL_SIZE", Int, "10", NeedNot(POOL)),
    v("REDIS_PERSECOND_AUTH", Text, "", Part("--per-second-user --per-second-password")),
    v("REDIS_PERSECOND_TLS", Bool, "false", Part("--per-second-store")),
    v("REDIS_PERSECOND_SENTINEL_AUTH", Text, "", Part("--per-second-sentinel-user --per-second-sentinel-password")),
    v("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", NeedNot(PIPELINE)),
    v("REDIS_PERSECOND_PIPELINE_LIMIT", Int, "0", NeedNot(PIPELINE)),
    v("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Int, "1", NeedNot("all slots of a request are queried concurrently")),
    v("REDIS_PERSECOND_TIMEOUT", Duration, "10s", NeedNot("REDIS_TIMEOUT applies to both")),
    v("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", NeedNot(POOL)),

    v("MEMCACHE_HOST_PORT", List, "", Refused(MEMCACHE)),
    v("MEMCACHE_MAX_IDLE_CONNS", Int, "2", Refused(MEMCACHE)),
    v("MEMCACHE_SRV", Text, "", Refused(MEMCACHE)),
    v("MEMCACHE_SRV_REFRESH", Duration, "0", Refused(MEMCACHE)),
    v("MEMCACHE_TLS", Bool, "false", Refused(MEMCACHE)),
    v("MEMCACHE_TLS_CLIENT_CERT", Text, "", Refused(MEMCACHE)),
    v("MEMCACHE_TLS_CLIENT_KEY", Text, "", Refused(MEMCACHE)),
    v("MEMCACHE_TLS_CACERT", Text, "", Refused(MEMCACHE)),
    v("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Bool, "false", Refused(MEMCACHE)),

    v("TRACING_ENABLED", Bool, "false", Part("--no-spans --otlp-endpoint --otlp-protocol --trace-sampler --trace-sampler-arg")).but(DefaultExport, "without OTEL_EXPORTER_OTLP_ENDPOINT, spans go to http://localhost:4318, or 4317 by gRPC, not to https"),
    v("TRACING_SERVICE_NAME", Text, "RateLimit", Part("--service-name")),
    v("TRACING_SERVICE_NAMESPACE", Text, "", Part("--resource-attribute")),
    v("TRACING_SERVICE_INSTANCE_ID", Text, "", Part("--resource-attribute")),
    v("TRACING_EXPORTER_PROTOCOL", Text, "http", Part("--otlp-protocol --otlp-endpoint")),
    v("TRACING_SAMPLING_RATE", Float, "1", Part("--trace-sampler --trace-sampler-arg")),
];

const POOL: &str = "requests share one connection per worker and node, without waiting";
const PIPELINE: &str = "commands of concurrent requests are sent together";
const STARTUP: &str = "connecting is retried after 10 ms, doubling up to 1 s";
/// The statement on memcached, for all its variables.
pub(crate) const MEMCACHE: &str = "memcached is not supported: it cannot check and charge atomically; set BACKEND_TYPE=redis and REDIS_URL";
/// The statement on the variables of memcached beside another store.
pub const IDLE_MEMCACHE: &str = "has no effect without BACKEND_TYPE=memcache";

const fn v(
    name: &'static str,
    kind: VariableKind,
    default: &'static str,
    worth: VariableMeaning,
) -> Variable {
    Variable { name, kind, default, worth, difference: None }
}

impl VariableMeaning {
    /// Returns the flags, or the reason why there are none.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Part(text) | NeedNot(text) | Instead(text) | Refused(text) => text,
        }
    }

    /// Returns the flags that the variable sets, alone or with others.
    pub fn flags(self) -> impl Iterator<Item = &'static str> {
        let flags = match self {
            Part(flags) => flags,
            NeedNot(_) | Instead(_) | Refused(_) => "",
        };
        flags.split_whitespace()
    }
}

impl Variable {
    /// Returns the variable with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        VARIABLES.iter().find(|variable| variable.name == name)
    }

    /// Returns `true` if the variable sets a flag, alone or with others.
    pub(crate) fn sets(&self, flag: &str) -> bool {
        self.worth.flags().any(|one| one == flag)
    }

    /// Returns the variable with a difference for some of its values.
    const fn but(self, values: DifferingValues, text: &'static str) -> Self {
        Self { difference: Some(VariableDifference { values, text }), ..self }
    }
}
