//! The table of permitted dependencies between modules.

/// Permitted dependencies of a file or folder, each list separated by whitespace.
pub(super) struct Row {
    /// A file or folder below `src`. A row applies to everything below it; rows of deeper places
    /// add to it.
    pub(super) place: &'static str,
    /// Other modules, from rows above this one only; `store::Store` permits only this item.
    pub(super) rooms: &'static str,
    /// Crates, and items of [`OUTSIDE`](super::modules::OUTSIDE).
    pub(super) foreign: &'static str,
}

/// Permitted dependencies. A module may use everything in itself, and `#[cfg(test)]` may use
/// anything.
pub(super) const HOUSE: &[Row] = &[
    // Values: no clock, IO, lock, async, serde.
    Row { place: "algorithm", rooms: "", foreign: "hashbrown smallvec thiserror" },
    Row { place: "algorithm/calendar", rooms: "", foreign: "jiff" },
    Row {
        place: "descriptor",
        rooms: "algorithm",
        foreign: "foldhash sha2 smallvec std::sync::OnceLock",
    },
    Row { place: "descriptor/keyed", rooms: "", foreign: "hmac" },
    Row { place: "printable", rooms: "", foreign: "" },
    Row { place: "yaml", rooms: "printable", foreign: "granit_parser serde_json strsim" },
    // Deletable: what stands in for the statistics of envoyproxy/ratelimit.
    Row {
        place: "statistics",
        rooms: "",
        foreign: "foldhash parking_lot smallvec std::sync std::time::Instant",
    },
    Row { place: "statistics/mapping", rooms: "yaml", foreign: "regex" },
    Row {
        place: "statistics/statsd",
        rooms: "",
        foreign: "regex std::io std::net std::thread tracing",
    },
    Row {
        place: "telemetry",
        rooms: "statistics",
        foreign: "parking_lot prometheus_client std::io std::sync tracing_subscriber",
    },
    Row { place: "telemetry/log/logrus", rooms: "", foreign: "serde_json tracing" },
    Row { place: "telemetry/log_throttle", rooms: "", foreign: "std::time::Instant" },
    Row {
        place: "spans",
        rooms: "telemetry::metrics",
        foreign: "rand std::sync std::time::Instant std::time::SystemTime tokio",
    },
    Row { place: "telemetry/metrics", rooms: "", foreign: "std::fs std::time::SystemTime" },
    Row { place: "watch", rooms: "", foreign: "async tokio" },
    Row { place: "tls", rooms: "", foreign: "rustls rustls_native_certs std::sync webpki" },
    // Policies do not depend on stores, and only their sources access files.
    Row {
        place: "policy",
        rooms: "algorithm descriptor printable yaml",
        foreign: "aho_corasick foldhash hashbrown memchr serde_json sha2 smallvec std::sync::Arc",
    },
    Row { place: "policy/document/trial", rooms: "", foreign: "jiff" },
    Row { place: "policy/source", rooms: "watch", foreign: "async std::fs std::io std::os" },
    // Stores do not depend on policies, and own the clock.
    Row {
        place: "store",
        rooms: "algorithm descriptor telemetry",
        foreign: "async hashbrown parking_lot std::sync std::time::Instant thiserror",
    },
    Row { place: "store/any", rooms: "", foreign: "futures_util::future" },
    Row { place: "store/background", rooms: "", foreign: "tokio tokio_util" },
    Row { place: "store/clock", rooms: "", foreign: "std::time::SystemTime tokio" },
    Row { place: "store/deny_cache", rooms: "", foreign: "foldhash futures_util::future" },
    Row { place: "store/lease", rooms: "", foreign: "tokio tokio_util" },
    // The only module that uses Redis.
    Row {
        place: "store/redis",
        rooms: "",
        foreign: "arc_swap futures_util rand redis sha1 smallvec std::fs std::io tokio tracing",
    },
    Row { place: "store/redis/node/tls", rooms: "tls", foreign: "rustls tokio_rustls" },
    // Written while requests are decided, read by operators.
    Row {
        place: "journal",
        rooms: "algorithm descriptor printable",
        foreign: "foldhash hashbrown parking_lot std::sync::Arc std::time::SystemTime",
    },
    Row { place: "journal/peers", rooms: "", foreign: "serde serde_json" },
    // Connects policies with the `Store` trait.
    Row {
        place: "limiter",
        rooms: "algorithm descriptor journal policy store::Check store::Outcomes store::Store statistics store::StoreError telemetry",
        foreign: "arc_swap async parking_lot std::sync std::time::Instant thiserror",
    },
    Row { place: "limiter/holds", rooms: "", foreign: "tracing" },
    // HTTP/2 for gRPC servers, without protobuf and rate limits.
    Row {
        place: "transport",
        rooms: "telemetry",
        foreign: "async bytes foldhash futures_util http http_body parking_lot std::io std::sync std::time::Instant thiserror \
                  tokio",
    },
    Row { place: "transport/registry", rooms: "", foreign: "std::net tracing" },
    Row {
        place: "transport/server",
        rooms: "",
        foreign: "rand rustls std::net tokio_util tracing",
    },
    Row {
        place: "transport/socket",
        rooms: "",
        foreign: "std::net std::os tokio_rustls tokio_util",
    },
    Row { place: "transport/tls", rooms: "tls", foreign: "arc_swap rustls std::fs tokio_rustls" },
    // The only module that uses protobuf.
    Row {
        place: "grpc",
        rooms: "algorithm descriptor limiter printable spans statistics store::Store telemetry transport",
        foreign: "async http http_body_util prost prost_reflect prost_types serde serde_json smallvec std::sync \
                  std::time::Instant thiserror tonic tonic_health tonic_reflection",
    },
    Row { place: "grpc/call", rooms: "", foreign: "flate2 futures_util::future std::io" },
    Row { place: "grpc/rights", rooms: "tls::names", foreign: "std::net" },
    Row { place: "grpc/client", rooms: "tls", foreign: "rustls" },
    Row {
        place: "grpc/request_log",
        rooms: "journal::key policy::Policy",
        foreign: "std::io std::thread tracing",
    },
    Row { place: "grpc/service", rooms: "", foreign: "tracing" },
    // Delivers policies as text, and does not interpret them.
    Row {
        place: "xds",
        rooms: "grpc::client grpc::proto policy::Source printable telemetry::metrics",
        foreign: "async prost prost_types rand std::fs std::io thiserror tokio tokio_stream tonic tracing",
    },
    Row {
        place: "otlp",
        rooms: "grpc::client grpc::proto spans telemetry",
        foreign: "async std::sync std::time::SystemTime tokio tokio_util tonic tracing",
    },
    Row {
        place: "otlp/http",
        rooms: "tls",
        foreign: "bytes http http_body_util hyper hyper_util prost rustls std::io thiserror tokio_rustls",
    },
    // Returns values, which `admin` renders.
    Row {
        place: "operations",
        rooms: "algorithm descriptor grpc::request grpc::service journal limiter policy store telemetry",
        foreign: "async jiff parking_lot serde std::sync std::time::Instant thiserror tokio tracing",
    },
    // The only module that serves HTTP; gRPC has its own HTTP/2 server.
    Row {
        place: "admin",
        rooms: "algorithm descriptor journal limiter::InForce limiter::Standing operations policy printable statistics telemetry",
        foreign: "async axum jiff parking_lot serde std::io std::sync tokio tracing",
    },
    Row { place: "admin/api", rooms: "", foreign: "serde_json utoipa utoipa_axum" },
    Row { place: "admin/connections", rooms: "", foreign: "tokio_util" },
    Row { place: "admin/guard", rooms: "", foreign: "std::net::IpAddr" },
    Row { place: "admin/page", rooms: "", foreign: "sha2" },
    Row { place: "admin/rights", rooms: "", foreign: "sha2 subtle" },
    Row {
        place: "admin/server",
        rooms: "",
        foreign: "hyper hyper_util std::net::SocketAddr tokio_util",
    },
    // The only module that reads the environment, except for the arguments of `cli`.
    Row {
        place: "settings",
        rooms: "algorithm::Charge descriptor::HashKey grpc::client grpc::headers grpc::request grpc::response grpc::rights grpc::server limiter::Modes policy::PolicyDialect policy::CompileOptions \
                otlp policy::source::files spans store::memory store::redis statistics telemetry::log transport xds",
        foreign: "clap http jiff std::env std::net std::thread",
    },
    Row { place: "settings/memory", rooms: "", foreign: "std::fs" },
    Row { place: "settings/policy", rooms: "", foreign: "std::fs" },
    // Deletable: the variables of envoyproxy/ratelimit.
    Row {
        place: "envoyproxy",
        rooms: "settings::Flags settings::PolicySettings store::redis::without_password yaml::scalar",
        foreign: "clap",
    },
    Row { place: "envoyproxy/fates", rooms: "", foreign: "std::env std::sync" },
    Row { place: "envoyproxy/flags", rooms: "", foreign: "std::net" },
    // Composes the concrete parts.
    Row {
        place: "app",
        rooms: "admin algorithm grpc journal limiter operations otlp policy settings spans statistics store telemetry transport watch xds",
        foreign: "async bytes futures_util jiff parking_lot rand std::fs std::io std::net std::os std::sync std::thread std::time::Instant tokio tokio_util \
                  tracing",
    },
    Row { place: "app/files", rooms: "", foreign: "rustix" },
    Row { place: "app/threads", rooms: "", foreign: "rustix" },
    Row { place: "app/pages", rooms: "", foreign: "std::process" },
    Row {
        place: "cli",
        rooms: "admin::api admin::rights::Token algorithm app descriptor envoyproxy grpc journal::key journal::summary limiter policy printable settings store telemetry yaml",
        foreign: "async clap jiff rand serde serde_json smallvec std::env std::fs std::io std::process std::sync std::time::Instant thiserror tokio tracing",
    },
    // Starts the process again with other variables, which std has for Unix alone.
    Row { place: "cli/serve", rooms: "", foreign: "std::os" },
    Row {
        place: "cli/api",
        rooms: "",
        foreign: "bytes http_body_util hyper hyper_util std::net::IpAddr",
    },
    Row { place: "cli/api/tls", rooms: "tls", foreign: "rustls tokio_rustls" },
    Row { place: "main", rooms: "cli", foreign: "mimalloc std::process" },
    Row { place: "lib", rooms: "", foreign: "" },
];
