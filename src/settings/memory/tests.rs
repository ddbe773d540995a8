//! Tests of the division of the memory budget.

use super::*;

const MIB: usize = 1 << 20;

fn cgroup(mib: usize) -> MemoryLimit {
    MemoryLimit { bytes: mib * MIB, source: LimitSource::Cgroup }
}

fn divided(
    limit: MemoryLimit,
    counters: Option<usize>,
    clients: Option<usize>,
) -> (usize, usize, usize) {
    let mib = |mib: usize| mib * MIB;
    let divided =
        MemorySettings::divide(limit, 16 * MIB, Some(0), counters.map(mib), clients.map(mib));
    (divided.counters / MIB, divided.clients / MIB, divided.warnings().len())
}

#[test]
fn clients_have_the_rest_of_the_memory_limit() {
    assert_eq!(divided(cgroup(384), None, None), (256, 48, 0));
    assert_eq!(divided(cgroup(4096), None, None), (256, 3760, 0));
    assert_eq!(divided(cgroup(384), Some(100), None), (100, 204, 0));
    assert_eq!(divided(cgroup(384), None, Some(40)), (256, 40, 0));
    let assumed = MemoryLimit { bytes: ASSUMED_LIMIT, source: LimitSource::Assumed };
    assert_eq!(divided(assumed, None, None), (256, 688, 0));
}

#[test]
fn if_both_do_not_fit_counters_have_less_and_a_note_is_logged() {
    assert_eq!(divided(cgroup(256), None, None), (144, 32, 1));
    assert_eq!(divided(cgroup(384), None, Some(128)), (176, 128, 1));
    // Too small for anything: both get their minimum, and a warning reports that they do not
    // fit.
    assert_eq!(divided(cgroup(64), None, None), (16, 32, 2));
}

#[test]
fn policies_have_a_third_of_what_is_divided_and_all_parts_fit_the_limit() {
    let parts = |mib: usize, policies: Option<usize>| {
        let policies = policies.map(|mib| mib * MIB);
        let divided = MemorySettings::divide(cgroup(mib), 16 * MIB, policies, None, None);
        assert!(divided.sum() <= mib * MIB, "{divided}");
        (divided.policies / MIB, divided.counters / MIB, divided.clients / MIB)
    };
    assert_eq!(parts(384, None), (101, 170, 32));
    assert_eq!(parts(1024, None), (314, 256, 373));
    assert_eq!(parts(16 << 10, None), (1024, 256, 15_024));
    assert_eq!(parts(384, Some(128)), (128, 144, 32));
}

#[test]
fn a_limit_of_addresses_has_less_for_the_same_number() {
    let limit = MemoryLimit { bytes: 1024 * MIB, source: LimitSource::AddressSpace };
    assert_eq!(divided(limit, None, None), (256, 560, 0));
    assert_eq!(divided(MemoryLimit { bytes: 384 * MIB, ..limit }, None, None), (144, 32, 1));
}

#[test]
fn a_limit_of_addresses_that_is_too_low_is_a_problem() {
    let problem = |mib: usize, counters: usize| {
        let limit = MemoryLimit { bytes: mib * MIB, source: LimitSource::AddressSpace };
        MemorySettings::divide(limit, 16 * MIB, None, Some(counters * MIB), None)
            .problem()
            .map(|problem| problem.to_string())
    };
    assert_eq!(problem(280, 16), None);
    assert_eq!(
        problem(192, 16).as_deref(),
        Some(
            "RLIMIT_AS: memory settings add up to 272MiB, above the limit of 192MiB (RLIMIT_AS): \
             --memory-max 16MiB, --client-memory-max 32MiB, --policy-memory-max 16MiB, --denial-journal 16MiB and fixed overhead 192MiB; \
             lower a setting or raise the limit"
        )
    );
    let cgroup = MemorySettings::divide(cgroup(64), 16 * MIB, None, None, None);
    assert_eq!(cgroup.problem(), None);
}

#[test]
fn flags_are_obeyed_and_warned_of_where_they_do_not_fit() {
    assert_eq!(divided(cgroup(384), Some(512), Some(64)), (512, 64, 1));
    let divided =
        MemorySettings::divide(cgroup(384), 16 * MIB, None, Some(512 * MIB), Some(64 * MIB));
    assert_eq!(
        divided.warnings(),
        [
            "memory settings add up to 757MiB, above the limit of 384MiB (cgroup): --memory-max 512MiB, \
          --client-memory-max 64MiB, --policy-memory-max 101MiB, --denial-journal 16MiB and fixed overhead 64MiB; lower a setting or raise the limit"
        ]
    );
}

#[test]
fn the_limit_is_the_smallest_of_all_that_apply() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let find = || MemoryLimit::find_in(root.path());
    assert_eq!(find(), MemoryLimit { bytes: ASSUMED_LIMIT, source: LimitSource::Assumed });
    write("proc/self/cgroup", "5:cpu,memory:/a\n0::/pod/container\n");
    write(
        "proc/self/limits",
        "Limit  Soft Limit  Hard Limit  Units\nMax address space  unlimited  unlimited  bytes\n",
    );
    write("sys/fs/cgroup/pod/container/memory.max", "max\n");
    assert_eq!(find().source, LimitSource::Assumed);
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_eq!(find().source, LimitSource::Assumed);
    write("sys/fs/cgroup/pod/memory.max", "402653184\n");
    assert_eq!(find(), cgroup(384));
    write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456\n");
    assert_eq!(find(), cgroup(256));
    write(
        "proc/self/limits",
        "Max address space         201326592            unlimited            bytes\n",
    );
    assert_eq!(find(), MemoryLimit { bytes: 192 * MIB, source: LimitSource::AddressSpace });
}
