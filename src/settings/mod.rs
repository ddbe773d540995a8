//! Settings of the process: one module per concern, and a flag, an environment variable and a
//! default for each setting.
//!
//! The problems of flags are kept beside their values and reported together, in `flag`.

mod admin;
mod envoyproxy;
mod error;
mod flag;
mod gateways;
mod limits;
mod listen;
mod loans;
mod log;
mod memory;
mod observation;
mod parse;
mod policy;
mod readiness;
mod redis;
mod responses;
mod secret_files;
mod shutdown;
mod stats;
mod store;
mod tls;
mod tracing;
mod xds;

use self::flag::{FlagValue, Problems, deferred};

pub use self::admin::AdminSettings;
pub use self::envoyproxy::{FlagProblem, policy_settings, service_flags};
pub use self::error::FlagError;
pub use self::limits::{LimitSettings, MessageFlag};
pub use self::listen::{Endpoint, ListenSettings};
pub use self::loans::LoanSettings;
pub use self::log::LogSettings;
pub use self::memory::{
    BASE_BYTES, LimitSource, MemoryLimit, MemorySettings, Size, missing_allocator_variables,
};
pub use self::observation::ObservationSettings;
pub use self::policy::{PolicySettings, ReadingFlags, program_name};
pub use self::readiness::ReadinessSettings;
pub use self::redis::Flags as RedisFlags;
pub use self::responses::ResponseSettings;
pub use self::shutdown::ShutdownSettings;
pub use self::stats::{PrometheusSettings, StatsSettings};
pub use self::store::{StoreLocation, StoreSettings, place};
pub use self::tracing::TracingSettings;
use crate::grpc::rights::Allowance;
use crate::grpc::service::gateway::TrustedGateways;
use crate::http2::tls::TlsFiles;
use crate::xds::ControlPlane;

/// All flags of `serve`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Flags {
    #[command(flatten)]
    policy: policy::Flags,
    #[command(flatten)]
    xds: xds::Flags,
    #[command(flatten)]
    listen: listen::Flags,
    #[command(flatten)]
    admin: admin::Flags,
    #[command(flatten)]
    tls: tls::Flags,
    #[command(flatten)]
    gateways: gateways::Flags,
    #[command(flatten)]
    store: store::Flags,
    #[command(flatten)]
    memory: memory::Flags,
    #[command(flatten)]
    limits: limits::Flags,
    #[command(flatten)]
    loans: loans::Flags,
    #[command(flatten)]
    answers: responses::Flags,
    #[command(flatten)]
    readiness: readiness::Flags,
    #[command(flatten)]
    shutdown: shutdown::Flags,
    #[command(flatten)]
    stats: stats::Flags,
    #[command(flatten)]
    observation: observation::Flags,
    #[command(flatten)]
    tracing: tracing::Flags,
    #[command(flatten)]
    log: log::Flags,
}

/// All settings of `serve`.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sources of policies.
    pub policy: PolicySettings,
    /// The control plane, if policies come from one.
    pub xds: Option<ControlPlane>,
    /// Listen addresses.
    pub listen: ListenSettings,
    /// Access control of the admin port.
    pub admin: AdminSettings,
    /// Certificates for gRPC; `None` for plaintext.
    pub tls: Option<TlsFiles>,
    /// Domains that gRPC clients may use, by the names in their certificates; empty for all.
    pub allowances: Vec<Allowance>,
    /// Peers that may ask for decisions on HTTP requests.
    pub gateways: TrustedGateways,
    /// The store of counters.
    pub store: StoreSettings,
    /// Memory budget of the process.
    pub memory: MemorySettings,
    /// Bounds on requests and connections.
    pub limits: LimitSettings,
    /// Leased hits in the hands of clients.
    pub loans: LoanSettings,
    /// Contents of responses beyond the decision.
    pub answers: ResponseSettings,
    /// Conditions under which the process reports that it is ready.
    pub readiness: ReadinessSettings,
    /// Delays of a graceful shutdown.
    pub shutdown: ShutdownSettings,
    /// Statistics under the names of envoyproxy/ratelimit.
    pub stats: StatsSettings,
    /// Recording of decisions for later inspection.
    pub observation: ObservationSettings,
    /// The collector of spans and the sampling of calls; `None` if no spans are recorded.
    pub tracing: Option<TracingSettings>,
    /// Settings of the log.
    pub log: LogSettings,
}

impl Flags {
    /// Resolves the flags and returns all problems. Settings with problems serve only to find
    /// further ones.
    pub fn resolve(self) -> (Settings, Vec<FlagProblem>) {
        let mut problems = Problems::default();
        let listen = self.listen.resolve(&mut problems);
        let observation = self.observation.resolve(&mut problems);
        let memory = self.memory.resolve(
            observation.journal_bytes,
            self.policy.memory_max(),
            MemoryLimit::find(),
            &mut problems,
        );
        problems.0.extend(memory.problem());
        let store = self.store.resolve(&memory, &mut problems);
        let (tls, allowances) = self.tls.resolve(&mut problems);
        let settings = Settings {
            readiness: self.readiness.resolve(&store, &mut problems),
            policy: self.policy.resolve(self.xds.xds.is_some(), memory.policies, &mut problems),
            xds: self.xds.resolve(&mut problems),
            admin: self.admin.resolve(listen.admin, &mut problems),
            listen,
            tls,
            allowances,
            gateways: self.gateways.resolve(&mut problems),
            store,
            limits: self.limits.resolve(&memory, &mut problems),
            memory,
            loans: self.loans.resolve(&mut problems),
            answers: self.answers.resolve(&mut problems),
            shutdown: self.shutdown.resolve(&mut problems),
            stats: self.stats.resolve(&mut problems),
            observation,
            tracing: self.tracing.resolve(&mut problems),
            log: self.log.resolve(&mut problems),
        };
        (settings, problems.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::Credential;
    use clap::Parser;

    #[derive(Parser)]
    struct ServeCommand {
        #[command(flatten)]
        flags: Flags,
    }

    fn resolve(arguments: &str) -> (Settings, Vec<FlagProblem>) {
        let arguments = std::iter::once("tollgate").chain(arguments.split_whitespace());
        ServeCommand::parse_from(arguments).flags.resolve()
    }

    #[test]
    fn the_defaults_are_valid() {
        let (settings, problems) = resolve("");
        assert_eq!(problems, []);
        assert_eq!(settings.listen.grpc.to_string(), "0.0.0.0:8081");
        assert_eq!(settings.store.memory.max_bytes, 256 << 20);
        assert_eq!(settings.store.memory.domain_max_bytes, 128 << 20);
    }

    #[test]
    fn flags_are_taken_up_to_their_bounds() {
        let index = |index: &str| resolve(&format!("--replicas 3 --replica-index {index}")).1;
        assert_eq!(index("2"), []);
        assert_eq!(index("3")[0].flag, "--replica-index");
        let guard =
            |guard: &str| ServeCommand::try_parse_from(["tollgate", "--rlqs-guard", guard]).is_ok();
        let guards = ["999ms", "1s", "5s", "5001ms"].map(guard);
        assert_eq!(guards, [false, true, true, false]);
        let age = |age: &str| {
            let (settings, _) = resolve(&format!("--max-connection-age {age}"));
            settings.limits.lifetime.max_age
        };
        assert_eq!([age("0s"), age("1s")], [None, Some(std::time::Duration::from_secs(1))]);
        let dot_files = |flag: &str| resolve(flag).0.policy.places.which.dot_files;
        assert_eq!([dot_files(""), dot_files("--policy-dot-files")], [false, true]);
    }

    #[test]
    fn the_largest_request_fits_the_memory_of_a_connection() {
        let resolve = |flags: &str| resolve(&format!("--client-memory-max {flags}"));
        let bounds = |flags: &str| {
            let (settings, problems) = resolve(flags);
            assert_eq!(problems, [], "{flags}");
            (settings.limits.request.descriptors, settings.limits.request.all_entries)
        };
        assert_eq!(bounds("32MiB"), (1024, 65_536));
        assert_eq!(bounds("4MiB"), (327, 8_536));
        assert_eq!(bounds("112MiB --max-descriptors 16384"), (16_384, 65_536));
        assert_eq!(bounds("100MiB --max-descriptors 16384"), (16_384, 16_384));
        let problem = |flags: &str| resolve(flags).1[0].to_string();
        assert_eq!(
            problem("32MiB --max-descriptors 16384"),
            "--max-descriptors: requires --client-memory-max of at least 100MiB, found 32MiB"
        );
        assert_eq!(
            problem("4MiB --max-request-entries 8537"),
            "--max-request-entries: requires --client-memory-max of at least 5MiB, found 4MiB"
        );
    }

    #[test]
    fn sentinels_have_a_login_of_their_own() {
        let (settings, _) = resolve(
            "--store redis-sentinel://m@h --redis-user a --redis-password b --sentinel-user c --sentinel-password d",
        );
        let StoreLocation::Redis(redis) = settings.store.place else { panic!("another store") };
        let text = |text: &str| Some(Credential::Text(text.to_owned()));
        for (access, user, password) in
            [(redis.access, "a", "b"), (redis.sentinel_access, "c", "d")]
        {
            assert_eq!((access.user, access.password), (text(user), text(password)));
        }
    }

    #[test]
    fn a_name_among_the_attributes_of_spans_is_overridden_only_by_the_flag() {
        let names = |flags: &str| {
            let attribute = "--otlp-endpoint c:4317 --resource-attribute service.name=a";
            let (settings, _) = resolve(&format!("{attribute} {flags}"));
            settings.tracing.unwrap().collector.resource
        };
        let name = |name: &str| [("service.name".to_owned(), name.to_owned())];
        assert_eq!([names(""), names("--service-name b")], [name("a"), name("b")]);
    }

    #[test]
    fn a_control_plane_takes_the_place_of_files() {
        let (settings, problems) = resolve("--xds dns:///envoy-gateway:18001 --overlay a.yaml");
        assert_eq!(problems, []);
        assert!(settings.policy.places.paths.is_empty() && !settings.policy.are_examples);
        assert_eq!(settings.policy.places.overlays, [std::path::PathBuf::from("a.yaml")]);
        let plane = settings.xds.unwrap();
        assert_eq!(
            (plane.target.to_string(), plane.node_id),
            ("envoy-gateway:18001".into(), "default".into())
        );
        assert_eq!((plane.backoff_min.as_millis(), plane.max_message_bytes), (500, 4 << 20));
    }

    #[test]
    fn all_problems_of_a_control_plane_are_reported_together() {
        let (_, problems) = resolve(
            "--xds nowhere --policy a.yaml --xds-key key.pem --xds-ca ca.pem --xds-header bad
            --xds-node-metadata a=b,c --xds-backoff-max 1ms",
        );
        let flags: Vec<_> = problems.iter().map(|problem| problem.flag.as_str()).collect();
        let all =
            "--policy --xds --xds-node-metadata --xds-header --xds-key --xds-ca --xds-backoff-max";
        assert_eq!(flags.join(" "), all);
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once() {
        let (_, problems) =
            resolve("--grpc-listen here --memory-max lots --store ftp://x --drain-delay soon");
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(problems.join("\n"));
    }
}
