//! The table of permitted dependencies between modules.

/// Permitted dependencies of a file or folder, each list separated by whitespace.
pub(super) struct Row {
    /// A module, by its path in the root package, also if it is in a crate. A row applies to
    /// everything below it; rows of deeper places add to it.
    pub(super) place: &'static str,
    /// Other modules, from rows above this one only; `store::Store` permits only this item.
    pub(super) modules: &'static str,
    /// Crates, and items of [`OUTSIDE`](super::modules::OUTSIDE).
    pub(super) crates: &'static str,
}

/// Permitted dependencies. A module may use everything in itself, and `#[cfg(test)]` may use
/// anything.
pub(super) const ROWS: &[Row] = &[
    // Values: no clock, IO, lock, async, serde.
    Row { place: "algorithm", modules: "", crates: "hashbrown smallvec thiserror" },
    Row { place: "algorithm/calendar", modules: "", crates: "jiff" },
    Row { place: "backoff", modules: "", crates: "" },
    Row {
        place: "descriptor",
        modules: "algorithm",
        crates: "foldhash sha2 smallvec std::sync::OnceLock",
    },
    Row { place: "descriptor/keyed", modules: "", crates: "hmac" },
    // The contract of stores, which a holder of leased hits uses without a store.
    Row { place: "lease", modules: "algorithm descriptor", crates: "std::sync std::time::Instant" },
    Row {
        place: "lease/holder",
        modules: "algorithm descriptor",
        crates: "arc_swap crossbeam_queue foldhash hashbrown rustix std",
    },
    Row { place: "printable", modules: "", crates: "" },
    Row { place: "yaml", modules: "printable", crates: "granit_parser serde_json strsim" },
    Row { place: "bounded_file", modules: "", crates: "std::fs std::io" },
    Row {
        place: "tls",
        modules: "bounded_file",
        crates: "rustls rustls_native_certs std::sync thiserror webpki",
    },
    // HTTP/2 for gRPC servers, without protobuf and rate limits.
    Row {
        place: "http2",
        modules: "",
        crates: "async bytes foldhash futures_util http http_body parking_lot std::io std::sync std::time::Instant thiserror \
                  tokio",
    },
    Row { place: "http2/observer", modules: "", crates: "std::net" },
    Row { place: "http2/registry", modules: "", crates: "std::net" },
    Row { place: "http2/server", modules: "", crates: "rand rustls std::net tokio_util tracing" },
    Row { place: "http2/socket", modules: "", crates: "std::net std::os tokio_rustls tokio_util" },
    Row { place: "http2/tls", modules: "bounded_file tls", crates: "arc_swap rustls tokio_rustls" },
    Row {
        place: "telemetry",
        modules: "algorithm::store_error http2::observer",
        crates: "parking_lot std::io std::sync std::time::SystemTime tracing_subscriber",
    },
    Row { place: "telemetry/log/logrus", modules: "", crates: "serde_json tracing" },
    Row { place: "telemetry/log_throttle", modules: "", crates: "std::time::Instant" },
    Row { place: "telemetry/metrics", modules: "", crates: "rustix std::fs" },
    // Deletable: what stands in for the statistics of envoyproxy/ratelimit.
    Row {
        place: "telemetry/statistics",
        modules: "",
        crates: "foldhash parking_lot smallvec std::sync std::time::Instant thiserror",
    },
    Row { place: "telemetry/statistics/mapping", modules: "yaml", crates: "regex" },
    Row {
        place: "telemetry/statistics/statsd",
        modules: "",
        crates: "regex std::io std::net std::thread tracing",
    },
    Row {
        place: "telemetry/spans",
        modules: "",
        crates: "rand std::sync std::time::Instant std::time::SystemTime tokio",
    },
    // Written while requests are decided, read by operators.
    Row {
        place: "telemetry/journal",
        modules: "algorithm descriptor printable",
        crates: "foldhash hashbrown parking_lot std::sync::Arc std::time::SystemTime",
    },
    Row { place: "telemetry/journal/peers", modules: "", crates: "serde serde_json" },
    Row { place: "telemetry/journal/shared_rates", modules: "", crates: "serde serde_json" },
    Row { place: "watch", modules: "", crates: "async tokio" },
    Row { place: "problem", modules: "", crates: "http serde_json" },
    Row {
        place: "http_client",
        modules: "",
        crates: "async bytes http http_body_util hyper hyper_util rustls std::io std::sync::Arc thiserror tokio tokio_rustls",
    },
    // Policies do not depend on stores, and only their sources access files.
    Row {
        place: "policy",
        modules: "algorithm descriptor printable yaml",
        crates: "aho_corasick foldhash hashbrown memchr serde_json sha2 smallvec std::sync::Arc thiserror",
    },
    Row {
        place: "policy/requests",
        modules: "",
        crates: "std::net::IpAddr std::net::Ipv4Addr std::net::Ipv6Addr",
    },
    Row { place: "policy/source", modules: "", crates: "std::fs std::io std::os" },
    // Checks histories without a clock, IO or a protocol; only its workload has a runtime.
    Row { place: "verify", modules: "algorithm printable", crates: "serde thiserror" },
    Row { place: "verify/clock", modules: "", crates: "jiff" },
    Row { place: "verify/counters", modules: "", crates: "rand" },
    Row { place: "verify/open_holds", modules: "", crates: "rand" },
    Row { place: "verify/requests", modules: "", crates: "rand" },
    Row { place: "verify/rules", modules: "descriptor policy", crates: "" },
    Row { place: "verify/run", modules: "", crates: "async rand tokio" },
    Row { place: "verify/windows", modules: "", crates: "std::sync::Arc" },
    Row {
        place: "verify/workload",
        modules: "",
        crates: "async std::os std::process tokio tokio_util",
    },
    // The variables of envoyproxy/ratelimit. The flags of the service are given to it.
    Row { place: "envoyproxy", modules: "printable yaml::scalar", crates: "clap" },
    Row { place: "envoyproxy/flags", modules: "", crates: "std::net" },
    Row { place: "envoyproxy/own_variables", modules: "", crates: "std::env" },
    // Reads deployments of envoyproxy/ratelimit, and no service.
    Row {
        place: "migrate",
        modules: "algorithm envoyproxy policy printable yaml",
        crates: "clap serde_json std::fs std::io thiserror",
    },
    // Stores do not depend on policies, and own the clock.
    Row {
        place: "store",
        modules: "algorithm backoff bounded_file descriptor lease telemetry",
        crates: "async hashbrown parking_lot std::sync std::time::Instant thiserror",
    },
    Row { place: "store/any", modules: "", crates: "futures_util::future" },
    Row { place: "store/background", modules: "", crates: "tokio tokio_util" },
    Row { place: "store/clock", modules: "", crates: "std::time::SystemTime tokio" },
    Row { place: "store/layer/deny_cache", modules: "", crates: "foldhash futures_util::future" },
    Row { place: "store/layer/local", modules: "", crates: "futures_util::future" },
    Row { place: "store/layer/lease", modules: "", crates: "tokio tokio_util" },
    // The only module that uses Redis.
    Row {
        place: "store/redis",
        modules: "printable",
        crates: "arc_swap futures_util rand redis sha1 smallvec std::io tokio tracing",
    },
    // Runs a program that prints a password, on a thread.
    Row {
        place: "store/redis/credentials",
        modules: "",
        crates: "jiff rustix serde serde_json shlex std::process std::thread std::time::SystemTime",
    },
    Row { place: "store/redis/server/tls", modules: "tls", crates: "rustls tokio_rustls" },
    Row {
        place: "receipts",
        modules: "algorithm bounded_file descriptor",
        crates: "arc_swap sha2 std::sync::Arc subtle thiserror",
    },
    // Does no IO: times, reports and loans in, assignments out.
    Row { place: "rlqs", modules: "algorithm", crates: "parking_lot std::time::Instant" },
    // Connects policies with the `Store` trait.
    Row {
        place: "limiter",
        modules: "algorithm descriptor policy store::Check store::Outcomes store::Store store::StoreError store::error_behind telemetry",
        crates: "arc_swap async parking_lot smallvec std::sync std::time::Instant thiserror",
    },
    Row { place: "limiter/holds", modules: "", crates: "tracing" },
    // Decides in memory. Reads no files.
    Row {
        place: "scenario",
        modules: "algorithm descriptor limiter policy printable store::clock store::memory telemetry::metrics yaml",
        crates: "async jiff serde_json smallvec std::sync std::time::Instant thiserror",
    },
    // The only module that uses protobuf.
    Row {
        place: "grpc",
        modules: "algorithm descriptor http_client limiter printable receipts store::Store store::backend store::clock store::layer http2 telemetry",
        crates: "async http http_body_util prost prost_reflect prost_types serde serde_json smallvec std::sync \
                  std::time::Instant thiserror tonic tonic_health tonic_reflection",
    },
    Row { place: "grpc/fast_path", modules: "", crates: "flate2 futures_util::future std::io" },
    Row { place: "grpc/rights", modules: "tls::names", crates: "std::net" },
    Row { place: "grpc/client", modules: "tls", crates: "rustls std::io" },
    Row {
        place: "grpc/request_log",
        modules: "policy::Policy",
        crates: "std::io std::thread tracing",
    },
    Row { place: "grpc/service", modules: "store::loan", crates: "rand tracing" },
    Row { place: "grpc/service/gateway", modules: "policy::requests problem", crates: "std::net" },
    Row {
        place: "grpc/service/exchange",
        modules: "policy::NoLoan store::loan",
        crates: "futures_util::future",
    },
    Row {
        place: "grpc/service/quotas",
        modules: "policy::UnsupportedQuota rlqs",
        crates: "bytes futures_util http_body tokio",
    },
    // Delivers policies as text, and does not interpret them.
    Row {
        place: "xds",
        modules: "backoff grpc::client grpc::proto policy::Source printable telemetry::metrics",
        crates: "async prost prost_types rand thiserror tokio tokio_stream tonic tracing",
    },
    Row {
        place: "otlp",
        modules: "grpc::client grpc::proto http_client telemetry tls",
        crates: "async http prost std::sync std::time::SystemTime thiserror tokio tokio_util tonic tracing",
    },
    Row { place: "otlp/http", modules: "", crates: "bytes http_body_util" },
    // Returns values, which `admin` renders.
    Row {
        place: "operations",
        modules: "algorithm descriptor grpc::request grpc::service limiter policy store telemetry",
        crates: "async jiff parking_lot serde std::sync std::time::Instant thiserror tokio tracing",
    },
    Row { place: "operations/ahead", modules: "", crates: "futures_util::future" },
    // The only module that serves HTTP; gRPC has its own HTTP/2 server.
    Row {
        place: "admin",
        modules: "algorithm descriptor limiter::InForce limiter::StatusKind operations policy printable problem telemetry",
        crates: "async axum jiff parking_lot serde std::io std::sync thiserror tokio tracing",
    },
    Row { place: "admin/api", modules: "", crates: "serde_json utoipa utoipa_axum" },
    Row { place: "admin/connections", modules: "", crates: "tokio_util" },
    Row { place: "admin/decide", modules: "", crates: "bytes futures_util" },
    Row { place: "admin/forward_auth", modules: "", crates: "std::net::SocketAddr" },
    Row { place: "admin/guard", modules: "", crates: "std::net::IpAddr" },
    Row { place: "admin/page", modules: "", crates: "sha2" },
    Row { place: "admin/rights", modules: "", crates: "sha2 subtle" },
    Row {
        place: "admin/server",
        modules: "",
        crates: "hyper hyper_util std::net::SocketAddr tokio_util",
    },
    // The only module that reads the environment, except for the arguments of `cli`.
    Row {
        place: "settings",
        modules: "algorithm::Charge algorithm::share::Share bounded_file descriptor::HashKey grpc::client grpc::headers grpc::request grpc::response grpc::rights grpc::server grpc::service::gateway limiter::Modes http2 policy::PolicyDialect policy::CompileOptions policy::MEMORY_MAX \
                otlp policy::source::files receipts store::any::StoreLocation store::memory store::redis telemetry::log telemetry::spans telemetry::statistics xds",
        crates: "clap http jiff std::env std::net std::thread thiserror",
    },
    Row { place: "settings/envoyproxy", modules: "envoyproxy", crates: "" },
    Row { place: "settings/loans", modules: "rlqs", crates: "" },
    Row { place: "settings/memory", modules: "", crates: "std::fs" },
    // Composes the concrete parts.
    Row {
        place: "app",
        modules: "admin algorithm bounded_file grpc http2 limiter operations otlp policy problem receipts settings store telemetry watch xds",
        crates: "async bytes futures_util jiff parking_lot rand std::fs std::io std::net std::os std::sync std::thread std::time::Instant thiserror tokio \
                  tokio_util tracing",
    },
    Row { place: "app/connection_limits", modules: "", crates: "rustix" },
    Row { place: "app/operations", modules: "", crates: "rustix" },
    Row { place: "app/threads", modules: "", crates: "rustix" },
    Row { place: "app/openapi", modules: "", crates: "serde_json" },
    Row { place: "app/plain_pages", modules: "", crates: "std::process" },
    Row {
        place: "cli",
        modules: "admin::api admin::rights::Token algorithm app bounded_file descriptor envoyproxy grpc limiter policy printable scenario settings store telemetry yaml",
        crates: "async clap jiff rand serde serde_json std::env std::fs std::io std::process std::sync std::time::Instant thiserror tokio tracing",
    },
    // Starts the process again with other variables, which std has for Unix alone.
    Row { place: "cli/serve", modules: "", crates: "std::os" },
    Row { place: "cli/completions", modules: "", crates: "clap_complete clap_mangen" },
    Row { place: "cli/migrate", modules: "migrate", crates: "" },
    Row { place: "cli/verify", modules: "verify", crates: "" },
    Row {
        place: "cli/verify/gateway",
        modules: "http_client",
        crates: "bytes http http_body_util",
    },
    Row {
        place: "cli/api",
        modules: "http_client tls",
        crates: "bytes http_body_util hyper rustls std::net::IpAddr",
    },
    Row { place: "main", modules: "cli", crates: "mimalloc std::process" },
    Row {
        place: "lib",
        modules: "algorithm backoff bounded_file descriptor envoyproxy http2 lease migrate policy printable store telemetry tls verify watch yaml",
        crates: "",
    },
];
