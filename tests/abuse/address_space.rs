//! Limits of address space, as set by `ulimit -v`: the process reserves no more than it needs, or
//! refuses to start.

use std::process::Command;

use crate::support::policy::{Policies, daily};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, command};

const MIB: usize = 1 << 20;
/// Maximum for a debug build, whose code takes more than 60 MiB; by default the allocators would
/// fill the limit.
const MOST: usize = 224 * MIB;

#[tokio::test]
async fn a_process_with_a_small_address_space_reserves_little_of_it() {
    let policies = Policies::of(&daily("user", 2));
    let flags = ["--policy", policies.path().to_str().unwrap(), "--workers", "2"];
    let service = Tollgate::serve_within("ulimit -v 393216", &flags);
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

#[test]
fn a_too_small_address_space_limit_fails_startup() {
    let policies = Policies::of(&daily("user", 2));
    let serve = command(["serve", "--policy", policies.path().to_str().unwrap()]);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -v 196608 && exec \"$@\"", "sh"])
        .arg(serve.get_program())
        .args(serve.get_args());
    let output = limited.output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("RLIMIT_AS: memory settings add up to 256MiB, above the limit of 192MiB"),
        "{text}"
    );
}
