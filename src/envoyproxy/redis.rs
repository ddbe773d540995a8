//! Translation of the variables of the store.

use super::table::{MEMCACHE, VARIABLES, Variable, VariableMeaning};

use super::{VariableReader, texts, words};
use crate::store::redis::without_password;

/// Timeout of a decision for callers that set none, which in envoyproxy/ratelimit wait without
/// limit. Envoy always sets one.
const STORE_TIMEOUT: &str = "1s";

/// Maximum time to cache a denial. envoyproxy/ratelimit caches it until the window ends, regardless
/// of refunds.
const DENY_CACHE_MAX: &str = "60s";

/// Replaces an invalid URL, so that problems of other variables are found. Only parsed.
const PLACEHOLDER: &str = "redis://redis.invalid";

pub(super) fn store(reader: &mut VariableReader<'_>) {
    match reader.text("BACKEND_TYPE") {
        "redis" | "" => {}
        "memcache" => {
            let is_refused =
                |variable: &&Variable| matches!(variable.worth, VariableMeaning::Refused(_));
            let set = VARIABLES
                .iter()
                .filter(is_refused)
                .filter(|variable| reader.set(variable).is_some());
            let names: Vec<_> =
                std::iter::once("BACKEND_TYPE").chain(set.map(|variable| variable.name)).collect();
            return reader.problem(&names.join(", "), MEMCACHE);
        }
        other => {
            return reader.problem("BACKEND_TYPE", &format!("expected redis, found `{other}`"));
        }
    }
    let names = RedisVariables {
        url: "REDIS_URL",
        socket: "REDIS_SOCKET_TYPE",
        kind: "REDIS_TYPE",
        tls: "REDIS_TLS",
    };
    url(reader, "--store", &names);
    login(reader, "REDIS_AUTH", "--redis-user", "--redis-password");
    login(reader, "REDIS_SENTINEL_AUTH", "--sentinel-user", "--sentinel-password");
    texts(
        reader,
        &[("--redis-cert", "REDIS_TLS_CLIENT_CERT"), ("--redis-key", "REDIS_TLS_CLIENT_KEY")],
    );
    texts(reader, &[("--redis-ca", "REDIS_TLS_CACERT"), ("--redis-prefix", "CACHE_KEY_PREFIX")]);
    reader.switch("--redis-system-roots", reader.has("REDIS_TLS_CACERT"));
    reader.switch("--redis-any-hostname", reader.boolean("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION"));
    if reader.has("REDIS_TIMEOUT") {
        reader.put("--redis-connect-timeout", reader.duration("REDIS_TIMEOUT"));
    }
    reader.switch("--ready-while-store", reader.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"));
    reader.put("--store-timeout", STORE_TIMEOUT);
    let remembers = reader.integer("LOCAL_CACHE_SIZE_IN_BYTES") > 0;
    reader.put("--deny-cache-max", if remembers { DENY_CACHE_MAX } else { "0s" });
}

pub(super) fn per_second(reader: &mut VariableReader<'_>) {
    if !reader.boolean("REDIS_PERSECOND") {
        return;
    }
    let names = RedisVariables {
        url: "REDIS_PERSECOND_URL",
        socket: "REDIS_PERSECOND_SOCKET_TYPE",
        kind: "REDIS_PERSECOND_TYPE",
        tls: "REDIS_PERSECOND_TLS",
    };
    url(reader, "--per-second-store", &names);
    login(reader, "REDIS_PERSECOND_AUTH", "--per-second-user", "--per-second-password");
    login(
        reader,
        "REDIS_PERSECOND_SENTINEL_AUTH",
        "--per-second-sentinel-user",
        "--per-second-sentinel-password",
    );
}

/// The variables that locate a Redis.
struct RedisVariables {
    url: &'static str,
    socket: &'static str,
    kind: &'static str,
    tls: &'static str,
}

fn url(reader: &mut VariableReader<'_>, flag: &'static str, names: &RedisVariables) {
    let written = reader.text(names.url);
    let tls = reader.boolean(names.tls);
    let scheme = |kind: &str| format!("{}{kind}://", if tls { "rediss" } else { "redis" });
    let bare = |text: &str| {
        text.trim().trim_start_matches("redis://").trim_start_matches("rediss://").to_owned()
    };
    if written.is_empty() {
        reader.problem(
            names.url,
            "expected the address of a Redis, such as redis:6379, found an empty text",
        );
        return reader.put(flag, PLACEHOLDER);
    }
    match reader.text(names.kind).to_uppercase().as_str() {
        "SINGLE" => match (written.contains("://"), reader.text(names.socket)) {
            (true, _) => reader.put(
                flag,
                if tls { format!("rediss://{}", bare(written)) } else { written.to_owned() },
            ),
            (false, "unix") if !written.starts_with('/') => {
                let socket = names.socket;
                let is = if reader.has(socket) { "is" } else { "is not set, which means" };
                let what = format!(
                    "{socket} {is} `unix`, and `{}` is not the path of a socket; set {socket}=tcp for host:port",
                    without_password(written)
                );
                reader.problem(&format!("{socket}, {}", names.url), &what);
                reader.put(flag, PLACEHOLDER);
            }
            (false, "unix") => reader.put(flag, format!("redis+unix://{written}")),
            (false, "tcp") => reader.put(flag, format!("{}{written}", scheme(""))),
            (false, other) => {
                reader.problem(names.socket, &format!("expected unix or tcp, found `{other}`"))
            }
        },
        "CLUSTER" => {
            let hosts: Vec<_> = words::list(written).into_iter().map(bare).collect();
            reader.put(flag, format!("{}{}", scheme("-cluster"), hosts.join(",")));
        }
        "SENTINEL" => match words::list(written).as_slice() {
            [master, hosts @ ..] if !hosts.is_empty() => {
                let hosts: Vec<_> = hosts.iter().copied().map(bare).collect();
                reader.put(
                    flag,
                    format!("{}{}@{}", scheme("-sentinel"), escaped(master), hosts.join(",")),
                );
            }
            _ => reader.problem(
                names.url,
                &format!(
                    "expected master,host:port,host:port, found `{}`",
                    without_password(written)
                ),
            ),
        },
        other => reader
            .problem(names.kind, &format!("expected SINGLE, SENTINEL or CLUSTER, found `{other}`")),
    }
}

/// Escapes a name for a URL.
fn escaped(name: &str) -> String {
    name.trim().replace('%', "%25").replace('@', "%40").replace('/', "%2F").replace(':', "%3A")
}

/// Parses `password` or `user:password`.
fn login(
    reader: &mut VariableReader<'_>,
    name: &'static str,
    user: &'static str,
    password: &'static str,
) {
    match reader.text(name).split_once(':') {
        Some((who, secret)) => {
            if !who.is_empty() {
                reader.put(user, who);
            }
            reader.put(password, secret);
        }
        None if reader.has(name) => reader.put(password, reader.text(name)),
        None => {}
    }
}
