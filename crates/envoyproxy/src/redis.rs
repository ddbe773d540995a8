//! Translation of the variables of the store.

use tollgate_core::printable::without_password;

use crate::reader::VariableReader;
use crate::table::{MEMCACHE, VARIABLES, VariableMeaning};
use crate::words;

/// Timeout of a decision for callers that set none, which in envoyproxy/ratelimit wait without
/// limit. Envoy always sets one.
const STORE_TIMEOUT: &str = "1s";

/// Maximum time to cache a denial. envoyproxy/ratelimit caches it until the window ends, regardless
/// of refunds.
const DENY_CACHE_MAX: &str = "60s";

/// Replaces an invalid URL, so that problems of other variables are found. Only parsed.
const PLACEHOLDER: &str = "redis://redis.invalid";

pub(crate) fn store(reader: &mut VariableReader<'_>) {
    match reader.text("BACKEND_TYPE") {
        "redis" | "" => {}
        "memcache" => {
            let mut names = vec!["BACKEND_TYPE"];
            for variable in VARIABLES {
                if matches!(variable.worth, VariableMeaning::Refused(_))
                    && reader.set(variable).is_some()
                {
                    names.push(variable.name);
                }
            }
            return reader.problem(&names, MEMCACHE);
        }
        other => {
            return reader.problem(&["BACKEND_TYPE"], format!("expected redis, found `{other}`"));
        }
    }
    url(reader, "--store", "REDIS");
    login(reader, "REDIS_AUTH", ["--redis-user", "--redis-password"]);
    login(reader, "REDIS_SENTINEL_AUTH", ["--sentinel-user", "--sentinel-password"]);
    reader.put_text("--redis-cert", "REDIS_TLS_CLIENT_CERT");
    reader.put_text("--redis-key", "REDIS_TLS_CLIENT_KEY");
    reader.put_text("--redis-ca", "REDIS_TLS_CACERT");
    reader.put_text("--redis-prefix", "CACHE_KEY_PREFIX");
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

pub(crate) fn per_second(reader: &mut VariableReader<'_>) {
    if !reader.boolean("REDIS_PERSECOND") {
        return;
    }
    url(reader, "--per-second-store", "REDIS_PERSECOND");
    login(reader, "REDIS_PERSECOND_AUTH", ["--per-second-user", "--per-second-password"]);
    let sentinel = ["--per-second-sentinel-user", "--per-second-sentinel-password"];
    login(reader, "REDIS_PERSECOND_SENTINEL_AUTH", sentinel);
}

/// Sets the URL of a Redis, which the variables with a prefix locate.
fn url(reader: &mut VariableReader<'_>, flag: &'static str, prefix: &str) {
    let [url, kind] = ["URL", "TYPE"].map(|name| format!("{prefix}_{name}"));
    let written = reader.text(&url);
    let scheme = if reader.boolean(&format!("{prefix}_TLS")) { "rediss" } else { "redis" };
    if written.is_empty() {
        reader.problem(
            &[&url],
            "expected the address of a Redis, such as redis:6379, found an empty text",
        );
        return reader.put(flag, PLACEHOLDER);
    }
    match reader.text(&kind).to_uppercase().as_str() {
        "SINGLE" => single(reader, flag, prefix, scheme),
        "CLUSTER" => {
            let hosts: Vec<_> = words::list(written).into_iter().map(without_scheme).collect();
            reader.put(flag, format!("{scheme}-cluster://{}", hosts.join(",")));
        }
        "SENTINEL" => match words::list(written).as_slice() {
            [master, hosts @ ..] if !hosts.is_empty() => {
                let hosts: Vec<_> = hosts.iter().copied().map(without_scheme).collect();
                let master = escaped(master);
                reader.put(flag, format!("{scheme}-sentinel://{master}@{}", hosts.join(",")));
            }
            _ => {
                let found = without_password(written);
                let what = format!("expected master,host:port,host:port, found `{found}`");
                reader.problem(&[&url], what);
            }
        },
        other => {
            let what = format!("expected SINGLE, SENTINEL or CLUSTER, found `{other}`");
            reader.problem(&[&kind], what);
        }
    }
}

/// Sets the URL of a single Redis, which a URL, the path of a socket or `host:port` locates.
fn single(reader: &mut VariableReader<'_>, flag: &'static str, prefix: &str, scheme: &str) {
    let [url, socket] = ["URL", "SOCKET_TYPE"].map(|name| format!("{prefix}_{name}"));
    let written = reader.text(&url);
    match reader.text(&socket) {
        _ if written.contains("://") && scheme == "rediss" => {
            reader.put(flag, format!("rediss://{}", without_scheme(written)));
        }
        _ if written.contains("://") => reader.put(flag, written),
        "unix" if !written.starts_with('/') => {
            let is = if reader.has(&socket) { "is" } else { "is not set, which means" };
            let what = format!(
                "{socket} {is} `unix`, and `{}` is not the path of a socket; set {socket}=tcp for host:port",
                without_password(written)
            );
            reader.problem(&[&socket, &url], what);
            reader.put(flag, PLACEHOLDER);
        }
        "unix" => reader.put(flag, format!("redis+unix://{written}")),
        "tcp" => reader.put(flag, format!("{scheme}://{written}")),
        other => reader.problem(&[&socket], format!("expected unix or tcp, found `{other}`")),
    }
}

/// Returns an address without `redis://` or `rediss://`.
fn without_scheme(address: &str) -> &str {
    address.trim().trim_start_matches("redis://").trim_start_matches("rediss://")
}

/// Escapes a name for a URL.
fn escaped(name: &str) -> String {
    name.trim().replace('%', "%25").replace('@', "%40").replace('/', "%2F").replace(':', "%3A")
}

/// Parses `password` or `user:password`.
fn login(reader: &mut VariableReader<'_>, name: &str, [user, password]: [&'static str; 2]) {
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
