//! Policies designed to take memory, loaded again and again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::policy::Policies;

use super::client::run_clients;
use super::harness::Target;

const FILE: &str = "attack.yaml";
const RELOAD: &[u8] =
    b"POST /api/v1/policies/reload HTTP/1.1\r\nhost: 127.0.0.1\r\nx-tollgate: 1\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";
/// Pause between two reloads.
const PAUSE: Duration = Duration::from_millis(100);

/// A file that is removed when the attack ends.
struct Removed(Arc<Policies>);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0.file(FILE));
    }
}

/// Loads 400 KB of aliases that expand to 819,000 rules.
pub(super) fn aliases(target: Target) -> BoxFuture<'static, ()> {
    let rule = "{ key: a, rate_limit: { unit: day, requests_per_unit: 1 } }";
    let level = |number: usize, below: &str| {
        let keys: Vec<String> =
            (0..9).map(|key| format!("{{ key: k{key}, descriptors: {below} }}")).collect();
        format!("- key: l{number}\n  descriptors: &l{number} [{}]\n", keys.join(", "))
    };
    let mut text =
        format!("domain: attack\ndescriptors:\n- key: l0\n  descriptors: &l0 [{rule}]\n");
    for number in 1..7 {
        text += &level(number, &format!("*l{}", number - 1));
    }
    reloads(target, always(text))
}

fn always(text: String) -> impl Fn(u64) -> String + Send + Sync + 'static {
    move |_| text.clone()
}

/// Loads nearly as many rules as fit twice into a pod's memory for policies, with one rule that
/// changes on each reload.
pub(super) fn many_rules(target: Target) -> BoxFuture<'static, ()> {
    let text = rules(4_500);
    reloads(target, move |number| format!("{text}- key: reload{number}\n"))
}

/// Loads 100,000 rules in 8 MB, which would take 150 MB to parse and 300 MB when compiled.
pub(super) fn too_many_rules(target: Target) -> BoxFuture<'static, ()> {
    reloads(target, always(rules(100_000)))
}

fn rules(count: usize) -> String {
    let rule = |number: usize| {
        format!(
            "- {{ key: user, value: v{number}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}\n"
        )
    };
    let rules: String = (0..count).map(rule).collect();
    format!("domain: attack\ndescriptors:\n{rules}")
}

/// Requests a reload every [`PAUSE`], as an operator's script might. `text` returns the file for
/// the number of the reload.
fn reloads(
    target: Target,
    text: impl Fn(u64) -> String + Send + Sync + 'static,
) -> BoxFuture<'static, ()> {
    let admin = target.admin;
    let removed = Removed(target.policies);
    async move {
        let number = AtomicU64::default();
        let policies = &removed.0;
        let number = &number;
        let text = &text;
        run_clients(2, || reload(admin, policies, || text(number.fetch_add(1, Relaxed)))).await;
    }
    .boxed()
}

async fn reload(
    admin: SocketAddr,
    policies: &Policies,
    text: impl FnOnce() -> String,
) -> io::Result<()> {
    policies.write(FILE, &text());
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(RELOAD).await?;
    stream.read_to_end(&mut Vec::new()).await?;
    tokio::time::sleep(PAUSE).await;
    Ok(())
}
