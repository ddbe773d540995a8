use crate::envoyproxy::own_variables::{OwnVariable, carried};
use crate::envoyproxy::{Variables, translate};
use crate::migrate::effects::{self, ReadBy, own_names, read_by};
use crate::settings::service_flags;

/// Reads variables, such as `PORT=1 SHADOW_MODE=true`.
fn variables(text: &str) -> Variables {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn own_variables(set: &Variables) -> Vec<OwnVariable> {
    let service = service_flags();
    effects::own_variables(set, &translate(set, &service), &service)
}

#[test]
fn own_variables_have_no_secrets_and_no_defaults() {
    let set = variables(
        "GRPC_PORT=9081 REDIS_AUTH=ann:secret REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379
        EXTRA_TAGS=a:b,c:d SHADOW_MODE=true",
    );
    let own = own_variables(&set);
    let of = |name: &str| {
        own.iter().find(|variable| variable.name == name).map(|variable| variable.value.as_deref())
    };
    assert_eq!(of("TOLLGATE_GRPC_LISTEN"), Some(Some("0.0.0.0:9081")));
    assert_eq!(of("TOLLGATE_STORE"), Some(Some("redis://redis:6379")));
    assert_eq!(of("TOLLGATE_STATS_TAG"), Some(Some("a=b,c=d")));
    assert_eq!(of("TOLLGATE_SHADOW_MODE"), Some(Some("true")));
    assert_eq!(of("TOLLGATE_REDIS_PASSWORD"), Some(None));
    assert_eq!(of("TOLLGATE_FIXED_WINDOW_CHARGE"), None, "the default of both");
}

#[test]
fn unknown_names_are_distinguished_from_known_ones() {
    let service = service_flags();
    for (names, by) in [
        ("REDIS_URL OTEL_TRACES_SAMPLER DOG_STATSD_MOGRIFIER_A_NAME", ReadBy::Tollgate),
        ("TOLLGATE_DRAIN_DELAY TOLLGATE_ADMIN", ReadBy::Tollgate),
        ("OTEL_BSP_SCHEDULE_DELAY GOSTATS_BATCH_ENABLED HTTPS_PROXY", ReadBy::OnlyTheirs),
        ("GOMAXPROCS GOMEMLIMIT", ReadBy::GoRuntime),
        ("REDIS_ULR TOLLGATE_DRAIN", ReadBy::Neither),
    ] {
        for name in names.split(' ') {
            assert_eq!(read_by(name, &service), by, "{name}");
        }
    }
}

#[test]
fn variables_of_both_are_carried_over_unless_a_flag_overrides_them() {
    let set = variables(
        "OTEL_EXPORTER_OTLP_HEADERS=authorization=secret OTEL_SERVICE_NAME=ours
        OTEL_TRACES_SAMPLER=always_off REDIS_SOCKET_TYPE=tcp REDIS_URL=redis:6379
        TOLLGATE_DRAIN_DELAY=5s TOLLGATE_GRPC_LISTEN=[::]:1 TRACING_ENABLED=true",
    );
    let service = service_flags();
    let carried = carried(&set, &translate(&set, &service), &service);
    let shown: Vec<_> =
        carried.iter().map(|own| (own.name.as_str(), own.value.as_deref())).collect();
    assert_eq!(shown, [("OTEL_EXPORTER_OTLP_HEADERS", None), ("TOLLGATE_DRAIN_DELAY", Some("5s"))]);
    let own = own_names("REDIS_AUTH", &service);
    assert_eq!(own, ["TOLLGATE_REDIS_USER", "TOLLGATE_REDIS_PASSWORD"]);
}
