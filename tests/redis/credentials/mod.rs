//! Users and passwords that change under load, and connections of a maximum age: no decision fails.
//!
//! | file | subject |
//! |---|---|
//! | `files` | users and passwords in files |
//! | `command` | a program that prints them, and that fails in every way |
//! | `age` | connections that are replaced because of their age, or to authenticate |
//! | `topologies` | the same for a Cluster, sentinels and per-second servers |

mod age;
mod command;
mod files;
mod topologies;

use std::collections::BTreeSet;

use crate::support::load::{Load, Traffic};
use crate::support::policy::{Policies, yearly};
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes, eventually};

const REAUTHENTICATIONS: &str = "tollgate_store_reauthentications_total";
const RENEWED: &str = "tollgate_store_renewed_connections_total";
const FAILURES: &str = "tollgate_store_renewal_failures_total";
/// The rights of each user.
const RIGHTS: [&str; 2] = ["~*", "+@all"];

/// Returns the setup of a server with the user `app`, and another one for the tests' own commands.
fn guarded() -> Setup {
    let lines = vec!["user app on >secret-0 ~* +@all".to_owned()];
    Setup { lines, password: Some("admin"), ..Setup::default() }
}

/// Returns the password after this number of rotations.
fn password(number: usize) -> String {
    format!("secret-{number}")
}

/// A service under a load, none of whose calls may fail.
struct Loaded {
    service: Tollgate,
    web: Web,
    load: Load,
}

impl Loaded {
    /// Starts a service on a store, and the load once all of its workers decide.
    async fn start(store: &str, flags: &[&str]) -> Self {
        let policies = Policies::of(&yearly("user", 1_000_000));
        let (service, client) = super::serve(&policies, store, flags).await;
        let web = Web::new(service.http);
        // Denials and misses of the scripts are over when every worker has decided.
        for user in 0..8 {
            assert!(client.hit("user", &user.to_string()).await);
        }
        let call = |user: u32| request(vec![descriptor(&[("user", &user.to_string())])]);
        let groups = vec![(0..50).map(call).collect()];
        let load = Load::start(service.grpc, Traffic { rate: 200, groups, timeout: None }).await;
        Self { service, web, load }
    }

    /// Waits until a counter has counted each open connection once more than `before`.
    async fn each_counted(&self, counter: &str, before: u64) {
        // That with which the process has checked the store at its start may end meanwhile.
        let counted = || async {
            (self.metric(counter).await, self.metric("tollgate_store_connections").await)
        };
        let is_each = |(count, open): &(u64, u64)| *open > 0 && *count >= before + open;
        becomes(counter, TEST_TIMEOUT, counted, is_each).await;
    }

    async fn metric(&self, name: &str) -> u64 {
        self.web.metric(name).await
    }

    fn wait_for_log(&self, text: &str) {
        eventually(text, TEST_TIMEOUT, || {
            self.service.process.log().iter().any(|line| line.contains(text)).then_some(())
        });
    }

    /// Ends the load, and returns the service. No call has failed, and no secret was logged.
    fn end(self, what: &str) -> Tollgate {
        let calls = self.load.finish();
        let summary = calls.summary();
        eprintln!("credentials: {what}: {summary}");
        assert!(summary.calls > 100, "{what}: {summary}");
        assert_eq!(summary.admitted, summary.calls, "{what}: {summary}");
        let log = self.service.process.log();
        assert!(
            !log.iter().any(|line| line.contains("secret-") || line.contains("secret argument")),
            "{log:#?}"
        );
        self.service
    }
}

/// Returns the IDs of the connections that a service has to a server, with their users.
async fn clients(redis: &Redis) -> BTreeSet<(u64, String)> {
    let list: String = redis.query(&["CLIENT", "LIST"]).await.unwrap();
    let field = |line: &str, name: &str| {
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.to_owned())
    };
    // Neither the client of this command, nor replicas, nor the connections of sentinels, which
    // have names.
    let is_of_service = |line: &&str| {
        let is_own = field(line, "cmd").unwrap().starts_with("client");
        !is_own && field(line, "flags").unwrap() == "N" && field(line, "name").unwrap().is_empty()
    };
    let lines = list.lines().filter(is_of_service);
    lines
        .map(|line| (field(line, "id").unwrap().parse().unwrap(), field(line, "user").unwrap()))
        .collect()
}

/// Waits until the service has connections to a server, and none of those in `before`.
async fn replaced(redis: &Redis, before: &BTreeSet<(u64, String)>) -> BTreeSet<(u64, String)> {
    // That with which the process has checked the store at its start may have ended.
    let is_replaced = |now: &BTreeSet<(u64, String)>| !now.is_empty() && now.is_disjoint(before);
    becomes("all connections are replaced", TEST_TIMEOUT, || clients(redis), is_replaced).await
}

/// Permits another password of the user `app`.
async fn add_password(redis: &Redis, number: usize) {
    redis.command(&["ACL", "SETUSER", "app", &format!(">{}", password(number))]).await;
}

/// Removes a password of the user `app`.
async fn remove_password(redis: &Redis, number: usize) {
    redis.command(&["ACL", "SETUSER", "app", &format!("<{}", password(number))]).await;
}
