//! Limits of address space, as set by `ulimit -v`: the process reserves no more than it needs, or
//! refuses to start.

use std::process::{Command, Output};

use crate::support::policy::{Policies, daily};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, command};
use crate::support::web::Web;

const MIB: usize = 1 << 20;
/// The memory of a pod, as a limit of addresses.
const ADDRESSES: &str = "ulimit -v 393216";
/// Maximum for a debug build, whose code takes more than 60 MiB; by default the allocators would
/// fill the limit.
const MOST: usize = 224 * MIB;

/// Runs `serve`, which is expected to fail, with a limit of its resources.
fn serve_within(limits: &str, policies: &Policies) -> Output {
    let serve = command(["serve", "--policy", policies.path().to_str().unwrap()]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("{limits} && exec \"$@\""), "sh"])
        .arg(serve.get_program())
        .args(serve.get_args());
    limited.output().unwrap()
}

#[tokio::test]
async fn a_process_with_a_small_address_space_reserves_little_of_it() {
    let policies = Policies::of(&daily("user", 2));
    let flags = ["--policy", policies.path().to_str().unwrap(), "--workers", "2"];
    let service = Tollgate::serve_within(ADDRESSES, &flags);
    assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmPeak:")?.trim().strip_suffix(" kB"))
        .unwrap();
    let peak = peak.parse::<usize>().unwrap() << 10;
    assert!(peak <= MOST, "{} MiB", peak / MIB);
    assert!(service.process.log().iter().any(|line| line.contains("384MiB of 384MiB (RLIMIT_AS)")));
}

/// Refusal of policies beyond a third of the remaining limit: 58 MiB.
const TOO_LARGE: &str = "--policy-memory-max";

/// Returns a policy file of more than 9 MB.
fn nine_megabytes() -> String {
    let rules: String =
        (0..150_000).map(|rule| format!("- {{ key: user, value: \"{rule:048}\" }}\n")).collect();
    format!("domain: large\ndescriptors:\n{rules}")
}

#[test]
fn policies_beyond_their_part_of_the_memory_fail_startup() {
    let policies = Policies::of(&nine_megabytes());
    let output = serve_within(ADDRESSES, &policies);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(TOO_LARGE), "{text}");
}

#[tokio::test]
async fn a_reload_of_policies_beyond_their_part_of_the_memory_is_refused() {
    let policies = Policies::of(&daily("user", 2));
    let service =
        Tollgate::serve_within(ADDRESSES, &["--policy", policies.path().to_str().unwrap()]);
    policies.write("large.yaml", &nine_megabytes());
    let admin = Web::new(service.admin);
    let headers = [("x-tollgate", "reload")];
    let report = admin.send_with("POST", "/api/v1/policies/reload", &headers, "").await;
    assert_eq!(report.status, 422, "{}", report.body);
    assert!(report.body.contains(TOO_LARGE), "{}", report.body);
    assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
}

#[test]
fn a_too_small_address_space_limit_fails_startup() {
    let policies = Policies::of(&daily("user", 2));
    let output = serve_within("ulimit -v 196608", &policies);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("RLIMIT_AS: memory settings add up to 272MiB, above the limit of 192MiB"),
        "{text}"
    );
}
