//! Translation of variables to flags, one function per concern.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use crate::reader::VariableReader;
use crate::{Flag, Translation, redis, words};

/// The variable of OpenTelemetry that is merged with those of envoyproxy/ratelimit.
pub const RESOURCE_ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";

pub(crate) fn put(reader: &mut VariableReader<'_>) {
    listen(reader);
    log(reader);
    policies(reader);
    stats(reader);
    answers(reader);
    redis::store(reader);
    redis::per_second(reader);
    tracing(reader);
}

fn listen(reader: &mut VariableReader<'_>) {
    let grpc = match reader.text("GRPC_UDS") {
        "" => address(reader, "GRPC_HOST", "GRPC_PORT"),
        path => format!("unix:{path}"),
    };
    let http = address(reader, "HOST", "PORT");
    let admin = address(reader, "DEBUG_HOST", "DEBUG_PORT");
    distinct_ports(reader, [("GRPC_PORT", &grpc), ("PORT", &http), ("DEBUG_PORT", &admin)]);
    reader.put("--grpc-listen", grpc);
    reader.put("--http-listen", http);
    reader.put("--admin-listen", admin);
    // The debug port of that service serves its pages without authentication.
    reader.switch("--admin-open-pages", true);
    let age = reader.duration("GRPC_MAX_CONNECTION_AGE");
    let grace = reader.duration("GRPC_MAX_CONNECTION_AGE_GRACE");
    reader.put("--max-connection-age", age);
    reader.put("--max-connection-age-grace", grace);
    if !reader.boolean("GRPC_SERVER_USE_TLS") {
        return;
    }
    for name in ["GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"] {
        if !reader.has(name) {
            reader.problem(&[name], "must be set if GRPC_SERVER_USE_TLS is set");
        }
    }
    reader.put_text("--grpc-tls-cert", "GRPC_SERVER_TLS_CERT");
    reader.put_text("--grpc-tls-key", "GRPC_SERVER_TLS_KEY");
    // The second is set by Envoy Gateway, and that service does not read it.
    let authorities = ["GRPC_CLIENT_TLS_CACERT", "GRPC_SERVER_TLS_CA_CERT"];
    match authorities.map(|name| reader.text(name)).into_iter().find(|path| !path.is_empty()) {
        Some(authority) => {
            reader.put("--grpc-tls-client-ca", authority);
            reader.put_text("--grpc-tls-client-san", "GRPC_CLIENT_TLS_SAN");
        }
        None if reader.has("GRPC_CLIENT_TLS_SAN") => {
            reader.note("GRPC_CLIENT_TLS_SAN", "has no effect without GRPC_CLIENT_TLS_CACERT");
        }
        None => {}
    }
}

/// Returns `true` if other machines can reach the admin port, whose clients then need a token.
pub fn has_public_admin(translation: &Translation) -> bool {
    let listen = translation.flag("--admin-listen");
    let address = listen.and_then(|flag| flag.values.first()?.parse::<SocketAddr>().ok());
    address.is_some_and(|address| !address.ip().is_loopback())
}

/// Reports listeners with the same port: only one of them could be opened.
fn distinct_ports(reader: &mut VariableReader<'_>, listeners: [(&'static str, &str); 3]) {
    let addresses = listeners.map(|(name, text)| (name, text.parse::<SocketAddr>().ok()));
    for (number, (name, address)) in addresses.iter().enumerate() {
        let Some(address) = address.filter(|address| address.port() != 0) else { continue };
        let mut earlier = addresses.iter().take(number);
        if let Some((other, _)) =
            earlier.find(|(_, other)| other.is_some_and(|other| overlaps(other, address)))
        {
            let what = format!("expected different ports, found {} in both", address.port());
            reader.problem(&[other, name], what);
        }
    }
}

/// Returns `true` if two listeners cannot be open at once.
fn overlaps(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && (covers(one.ip(), other.ip()) || covers(other.ip(), one.ip()))
}

/// Returns `true` if a listener on `all` also accepts connections to `one`.
fn covers(all: IpAddr, one: IpAddr) -> bool {
    all == one || all.is_unspecified() && (all.is_ipv6() || one.is_ipv4())
}

/// Returns `host:port`, with the host resolved to an address.
fn address(reader: &mut VariableReader<'_>, host: &'static str, port: &'static str) -> String {
    let written = reader.text(host);
    let ip = ip_of(written);
    let number = u16::try_from(reader.integer(port));
    if ip.is_none() {
        let what =
            format!("expected an address such as 0.0.0.0 or ::, or a host name, found `{written}`");
        reader.problem(&[host], what);
    }
    if number.is_err() {
        let found = reader.text(port);
        reader.problem(&[port], format!("expected a port from 0 to 65535, found `{found}`"));
    }
    let ip = ip.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    SocketAddr::new(ip, number.unwrap_or_default()).to_string()
}

/// Returns the address of a host; the unspecified one if it is empty.
fn ip_of(host: &str) -> Option<IpAddr> {
    match host.trim_start_matches('[').trim_end_matches(']') {
        "" => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        text => text
            .parse()
            .ok()
            .or_else(|| (text, 0).to_socket_addrs().ok()?.next().map(|address| address.ip())),
    }
}

fn log(reader: &mut VariableReader<'_>) {
    let level = reader.text("LOG_LEVEL");
    match level.to_lowercase().as_str() {
        "panic" | "fatal" | "error" => reader.put("--log", "error"),
        "warn" | "warning" => reader.put("--log", "warn"),
        "info" => reader.put("--log", "info"),
        // Applies to Tollgate alone: libraries log every frame at this level.
        known @ ("debug" | "trace") => reader.put("--log", format!("info,tollgate={known}")),
        _ => reader.problem(
            &["LOG_LEVEL"],
            format!("expected error, warn, info, debug or trace, found `{level}`"),
        ),
    }
    reader.put("--log-format", if reader.text("LOG_FORMAT") == "json" { "logrus" } else { "text" });
}

fn policies(reader: &mut VariableReader<'_>) {
    reader.put("--policy-dialect", "envoyproxy");
    reader.switch("--merge-domains", reader.boolean("MERGE_DOMAIN_CONFIG"));
    let charge =
        if reader.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") { "blamed" } else { "always" };
    reader.put("--fixed-window-charge", charge);
    let first_is_awaited = match reader.text("CONFIG_TYPE") {
        "FILE" => {
            files(reader);
            false
        }
        "GRPC_XDS_SOTW" => {
            xds(reader);
            !reader.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG")
        }
        other => {
            return reader.problem(
                &["CONFIG_TYPE"],
                format!("expected FILE or GRPC_XDS_SOTW, found `{other}`"),
            );
        }
    };
    if reader.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED") {
        reader.switch("--ready-while-policy", true)
    } else {
        reader.switch("--ready-without-policy", !first_is_awaited)
    }
}

fn files(reader: &mut VariableReader<'_>) {
    let [root, sub, app] = ["RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"]
        .map(|name| reader.text(name));
    let folder = join(root, sub);
    if reader.boolean("RUNTIME_WATCH_ROOT") {
        reader.put("--policy", folder);
        reader.put("--policy-file-prefix", format!("{app}."));
    } else {
        reader.put("--policy", join(&folder, app))
    }
    reader.switch("--policy-dot-files", !reader.boolean("RUNTIME_IGNOREDOTFILES"));
    reader.switch("--start-without-policy", true);
}

fn join(folder: &str, below: &str) -> String {
    match below.trim_matches('/') {
        "" => folder.to_owned(),
        below => format!("{}/{below}", folder.trim_end_matches('/')),
    }
}

fn xds(reader: &mut VariableReader<'_>) {
    reader.put_text("--xds", "CONFIG_GRPC_XDS_SERVER_URL");
    reader.put_text("--xds-node-id", "CONFIG_GRPC_XDS_NODE_ID");
    reader.put_text("--xds-node-metadata", "CONFIG_GRPC_XDS_NODE_METADATA");
    for (name, value) in reader.map("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS") {
        reader.put("--xds-header", format!("{name}={value}"));
    }
    if reader.boolean("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
        reader.switch("--xds-tls", true);
        reader.put_text("--xds-cert", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT");
        reader.put_text("--xds-key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY");
        reader.put_text("--xds-ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT");
        reader.put_text("--xds-server-name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN");
    }
    let waits = [
        ("--xds-backoff-min", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"),
        ("--xds-backoff-max", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"),
    ];
    // Both or none: one that is set may not fit the default of the other here.
    if waits.iter().any(|(_, name)| reader.has(name)) {
        waits.into_iter().for_each(|(flag, name)| reader.put(flag, reader.duration(name)));
    }
    if reader.integer("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES") > 0 {
        reader.put(
            "--xds-max-message",
            reader.integer("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES").to_string(),
        );
    }
}

fn stats(reader: &mut VariableReader<'_>) {
    reader.put_text("--near-limit-ratio", "NEAR_LIMIT_RATIO");
    if reader.boolean("DISABLE_STATS") {
        return;
    }
    reader.switch("--stats-page", true);
    let dog = reader.boolean("USE_DOG_STATSD");
    let plain = reader.boolean("USE_STATSD");
    if dog || plain {
        let protocol = if dog || reader.text("STATSD_PROTOCOL") == "udp" { "udp" } else { "tcp" };
        let host = reader.text("STATSD_HOST");
        let port = reader.integer("STATSD_PORT");
        let host = if host.contains(':') && !host.starts_with('[') {
            format!("[{host}]")
        } else {
            host.to_owned()
        };
        reader.put("--statsd", format!("{protocol}://{host}:{port}"));
        reader.put("--statsd-dialect", if dog { "dogstatsd" } else { "plain" });
        reader.put("--stats-interval", reader.duration("STATS_FLUSH_INTERVAL"));
    }
    if dog && reader.has("USE_STATSD") && plain {
        let text = "DogStatsD is used, and plain StatsD is not; envoyproxy/ratelimit does not start with both";
        reader.note("USE_DOG_STATSD, USE_STATSD", text);
    }
    if dog {
        rewrites(reader);
    }
    for (name, value) in reader.map("EXTRA_TAGS") {
        if name.is_empty() || value.is_empty() {
            reader.note(
                "EXTRA_TAGS",
                &format!("`{name}:{value}` is ignored: a tag needs a name and a value"),
            )
        } else {
            reader.put("--stats-tag", format!("{name}={value}"))
        }
    }
    if reader.boolean("USE_PROMETHEUS") {
        let written = reader.text("PROMETHEUS_ADDR");
        let named = written.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let address = named.and_then(|(host, port)| {
            Some(SocketAddr::new(ip_of(host)?, port.parse().ok()?).to_string())
        });
        reader.put("--stats-prometheus-listen", address.unwrap_or_else(|| written.to_owned()));
        reader.put_text("--stats-prometheus-path", "PROMETHEUS_PATH");
        reader.put_text("--stats-prometheus-mapper", "PROMETHEUS_MAPPER_YAML");
        reader.switch(
            "--stats-milliseconds",
            reader.boolean("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS"),
        );
    }
}

fn rewrites(reader: &mut VariableReader<'_>) {
    for rewrite in words::list(reader.text("USE_DOG_STATSD_MOGRIFIERS")) {
        let names = ["PATTERN", "NAME", "TAGS"]
            .map(|part| format!("DOG_STATSD_MOGRIFIER_{rewrite}_{part}"));
        let values =
            names.each_ref().map(|name| reader.variables.get(name).cloned().unwrap_or_default());
        let [pattern, ..] = &names;
        if reader.has(pattern) {
            reader.translation.flags.push(Flag { name: "--statsd-rewrite", values: values.into() });
        } else {
            let what = "must be set, since USE_DOG_STATSD_MOGRIFIERS lists it";
            reader.problem(&[pattern], what);
        }
    }
}

fn answers(reader: &mut VariableReader<'_>) {
    if reader.boolean("LIMIT_RESPONSE_HEADERS_ENABLED") {
        reader.put("--response-headers", "legacy");
        let names = ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"];
        let names = names.map(|name| reader.text_or_default(name));
        reader.put("--response-header-names", names.join(","));
    }
    reader.switch("--shadow-mode", reader.boolean("SHADOW_MODE"));
    reader.switch("--quota-mode", reader.boolean("QUOTA_MODE"));
    reader.switch("--dynamic-metadata", reader.boolean("RESPONSE_DYNAMIC_METADATA"));
}

/// Sets up the export of spans. The endpoint comes from OpenTelemetry's own variables, as in that
/// service.
fn tracing(reader: &mut VariableReader<'_>) {
    let has_endpoint = reader.has_otlp_endpoint();
    if !reader.boolean("TRACING_ENABLED") {
        return reader.switch("--no-spans", has_endpoint);
    }
    let (protocol, usual) = match reader.text("TRACING_EXPORTER_PROTOCOL") {
        "grpc" => ("grpc", "http://localhost:4317"),
        "http" | "" => ("http/protobuf", "http://localhost:4318"),
        other => {
            let what = format!("expected http or grpc, found `{other}`");
            return reader.problem(&["TRACING_EXPORTER_PROTOCOL"], what);
        }
    };
    reader.put("--otlp-protocol", protocol);
    if !has_endpoint {
        reader.put("--otlp-endpoint", usual);
    }
    reader.put("--trace-sampler", "parentbased_traceidratio");
    reader.put("--trace-sampler-arg", reader.text("TRACING_SAMPLING_RATE"));
    reader.put("--service-name", reader.text("TRACING_SERVICE_NAME"));
    resource_attributes(reader);
}

/// Sets the attributes of the resource. The flags replace OpenTelemetry's own variable, so its
/// attributes are repeated. An attribute that both set has the value of that service's variable.
fn resource_attributes(reader: &mut VariableReader<'_>) {
    let own = [
        ("service.namespace", "TRACING_SERVICE_NAMESPACE"),
        ("service.instance.id", "TRACING_SERVICE_INSTANCE_ID"),
    ];
    let own: Vec<_> = own.into_iter().filter(|(_, name)| reader.has(name)).collect();
    if own.is_empty() {
        return;
    }
    let common = reader.variables.get(RESOURCE_ATTRIBUTES).map_or("", String::as_str);
    for attribute in
        words::list(common).into_iter().map(str::trim).filter(|attribute| !attribute.is_empty())
    {
        match attribute.split_once('=').map(|(key, _)| key.trim()) {
            None | Some("") => {
                let what = format!("expected key=value, found `{attribute}`");
                reader.problem(&[RESOURCE_ATTRIBUTES], what);
            }
            Some(key) if own.iter().any(|(replaced, _)| *replaced == key) => {}
            Some(_) => reader.put("--resource-attribute", attribute),
        }
    }
    for (key, name) in own {
        reader.put("--resource-attribute", format!("{key}={}", reader.text(name)));
    }
}
