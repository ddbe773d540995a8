//! `tollgate replicas`: lists the processes that share the store, and waits for their policies.

use std::process::ExitCode;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::api::ServerArgs;
use super::duration::duration;
use super::output::{print, print_stderr};
use super::{CommandError, counter, table, try_block_on};
use crate::admin::api::replicas::{ReplicaView, ReplicasView};
use crate::printable::{counted, escaped};

/// Interval between queries while waiting. Processes announce a change within a second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Wait if `--wait` has no value.
pub(super) const DEFAULT_WAIT: &str = "30s";
/// Length of a short ID.
const SHORT_ID: usize = 8;

/// List the replicas that share the store
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A replica is listed until 15 s after its last heartbeat, so one that was stopped is still listed for that time. With \
counters in memory, each process counts for itself and lists itself. Releases before 1.0 publish no name, release or \
policies.

Exit codes: 0 if the replicas are listed, and with --wait have one version of policies; 1 if they have not after the wait; \
2 if the request fails.

Examples:
  # List the replicas on the store of the local service
  tollgate replicas
  # Wait until a changed ConfigMap has reached all replicas; `tollgate check` prints the version of files
  tollgate replicas --wait 2m --policies 39ec534d39d5012a")]
pub struct ReplicasArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Wait until all replicas have the policies of the replica that answers, at most this long.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = DEFAULT_WAIT, value_parser = duration)]
    wait: Option<SignedDuration>,
    /// Wait for this version of the policies instead.
    #[arg(long, value_name = "VERSION", requires = "wait")]
    policies: Option<String>,
    /// Print the response as JSON.
    #[arg(long)]
    json: bool,
}

/// The replicas after a wait.
pub(super) struct Waited {
    list: ReplicasView,
    /// The version that was expected.
    version: String,
    /// `true` if all replicas have it.
    pub(super) is_everywhere: bool,
}

impl ReplicasArgs {
    /// Prints the replicas, after the wait if there is one.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Some(wait) = self.wait else {
            let list = try_block_on(fetch(&self.server))?;
            self.print(&list);
            return Ok(ExitCode::SUCCESS);
        };
        let waited = try_block_on(wait_for(&self.server, self.policies.clone(), wait))?;
        self.print(&waited.list);
        print_stderr(waited.result(wait));
        Ok(if waited.is_everywhere { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn print(&self, list: &ReplicasView) {
        print(if self.json { table::json(list) } else { text_of(list, Timestamp::now()) });
    }
}

/// Waits until all replicas have a version of policies, by default that of the replica that
/// answers, for as long as `wait`.
///
/// # Errors
/// A request failed.
pub(super) async fn wait_for(
    server: &ServerArgs,
    version: Option<String>,
    wait: SignedDuration,
) -> Result<Waited, CommandError> {
    let end = Instant::now().checked_add(Duration::try_from(wait).unwrap_or_default());
    loop {
        let list = fetch(server).await?;
        let version = version.clone().unwrap_or_else(|| version_of_this(&list));
        let is_everywhere = list.missing.is_none() && others(&list, &version).next().is_none();
        if is_everywhere || end.is_none_or(|end| Instant::now() >= end) {
            return Ok(Waited { list, version, is_everywhere });
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn fetch(server: &ServerArgs) -> Result<ReplicasView, CommandError> {
    server.get("replicas", &[]).await
}

fn version_of_this(list: &ReplicasView) -> String {
    let this = list.replicas.iter().find(|replica| replica.is_this);
    this.and_then(|replica| replica.policies.clone()).unwrap_or_default()
}

/// Returns the replicas with another version, or whose version is not known.
fn others<'a>(list: &'a ReplicasView, version: &'a str) -> impl Iterator<Item = &'a ReplicaView> {
    list.replicas.iter().filter(move |replica| replica.policies.as_deref() != Some(version))
}

impl Waited {
    /// Returns the result of the wait as text.
    pub(super) fn result(&self, wait: SignedDuration) -> String {
        let Self { list, version, is_everywhere } = self;
        let all = counted(list.replicas.len(), "replica");
        if *is_everywhere {
            return format!("policies {version} are in force in {all}");
        }
        let mut text = format!(
            "policies {version} are not in force in all replicas after {wait:#}: {} of {all} have them",
            list.replicas.len() - others(list, version).count()
        );
        let mut has_others = false;
        for replica in others(list, version) {
            has_others |= replica.policies.is_some();
            let found = replica.policies.as_deref().unwrap_or("unknown");
            let name = replica.name.as_deref();
            let name = name.map_or_else(String::new, |name| format!("{} ", escaped(name)));
            text.push_str(&format!("\n  {name}({}) has {found}", escaped(short_id(replica))));
        }
        if has_others {
            text.push_str(
                "\none that was stopped is listed for 15 s; if these serve other policies on purpose, \
                 give them a --redis-prefix of their own",
            );
        }
        if let Some(missing) = &list.missing {
            text.push_str(&format!("\n  replicas may be missing: {}", escaped(missing)));
        }
        text
    }
}

/// Returns the beginning of the ID, which tells processes of one host apart.
fn short_id(replica: &ReplicaView) -> &str {
    replica.id.get(..SHORT_ID).unwrap_or(&replica.id)
}

/// Formats the replicas as a table.
fn text_of(list: &ReplicasView, now: Timestamp) -> String {
    let headings = ["replica", "id", "release", "policies", "in force for", "up for", "seen"];
    let now = now.to_string();
    let ago = |at: Option<&str>| at.map(|at| counter::length(at, &now)).unwrap_or_default();
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let rows = list.replicas.iter().map(|replica| {
        let mark = if replica.is_this { " (this)" } else { "" };
        [
            format!("{}{mark}", replica.name.as_deref().unwrap_or("(release before 1.0)")),
            short_id(replica).to_owned(),
            known(&replica.release),
            known(&replica.policies),
            ago(replica.loaded_at.as_deref()),
            ago(replica.begun_at.as_deref()),
            format!("{} ago", ago(Some(&replica.seen_at))),
        ]
    });
    let mut text = table::of(headings, rows);
    if !list.is_shared {
        text.push_str(
            "counters are in memory: other processes count for themselves and are not listed\n",
        );
    }
    if let Some(missing) = &list.missing {
        text.push_str(&format!("replicas may be missing: {missing}\n"));
    }
    if let Some(rejected) = &list.rejected {
        text.push_str(&format!("warning: {rejected}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(name: &str, policies: Option<&str>) -> ReplicaView {
        ReplicaView {
            id: format!("{name}0123456789"),
            is_this: name == "a",
            seen_at: "2026-06-01T12:00:03Z".to_owned(),
            name: policies.map(|_| name.to_owned()),
            begun_at: policies.map(|_| "2026-06-01T10:58:59Z".to_owned()),
            release: policies.map(|_| "1.0.0".to_owned()),
            policies: policies.map(str::to_owned),
            loaded_at: policies.map(|_| "2026-06-01T12:00:00Z".to_owned()),
        }
    }

    #[test]
    fn those_with_other_policies_are_named() {
        let replicas = vec![replica("a", Some("v2")), replica("b", Some("v1")), replica("c", None)];
        let list = ReplicasView { is_shared: true, replicas, missing: None, rejected: None };
        let waited = Waited { list: list.clone(), version: "v2".to_owned(), is_everywhere: false };
        let lines = [
            "policies v2 are not in force in all replicas after 1m 30s: 1 of 3 replicas have them",
            "  b (b0123456) has v1",
            "  (c0123456) has unknown",
            "one that was stopped is listed for 15 s; if these serve other policies on purpose, \
             give them a --redis-prefix of their own",
        ];
        assert_eq!(waited.result(SignedDuration::from_secs(90)), lines.join("\n"));
        let now = "2026-06-01T12:00:04Z".parse().unwrap();
        let lines = [
            "replica               id        release  policies  in force for  up for    seen",
            "a (this)              a0123456  1.0.0    v2        4s            1h 1m 5s  1s ago",
            "b                     b0123456  1.0.0    v1        4s            1h 1m 5s  1s ago",
            "(release before 1.0)  c0123456  unknown  unknown                           1s ago",
            "warning: the last policy change was rejected",
            "",
        ];
        let rejected = Some("the last policy change was rejected".to_owned());
        assert_eq!(text_of(&ReplicasView { rejected, ..list }, now), lines.join("\n"));
    }
}
