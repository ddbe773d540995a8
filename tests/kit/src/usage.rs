//! Resource usage of processes, as the kernel reports it: CPU, context switches, memory, system
//! calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The kernel's unit of CPU time.
const TICK: Duration = Duration::from_millis(10);

/// The usage of a process since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: Duration,
    /// Voluntary context switches of its threads.
    pub waits: u64,
}

impl Usage {
    pub fn of(process: u32) -> Self {
        let stat = read(process, "stat");
        // Fields after the name, which is in parentheses and may contain any character: the state,
        // 10 others, then the ticks in user and in kernel mode.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks: u64 =
            fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Self { cpu: TICK * ticks as u32, waits: waits(process) }
    }

    pub fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            waits: self.waits.saturating_sub(before.waits),
        }
    }

    pub fn and(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, waits: self.waits + other.waits }
    }
}

/// Returns the resident memory of a process in bytes.
pub fn resident_bytes(process: u32) -> u64 {
    field(&read(process, "status"), "VmRSS:") * 1024
}

fn waits(process: u32) -> u64 {
    let threads =
        std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let status =
        |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("status")).ok();
    threads.filter_map(status).map(|status| field(&status, "voluntary_ctxt_switches:")).sum()
}

fn read(process: u32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.and_then(|value| value.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// Returns the number of system calls of a process during `work`; `None` if perf is missing or not
/// permitted to count them.
pub fn system_calls(process: u32, work: impl FnOnce()) -> Option<u64> {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x,", "-e", "raw_syscalls:sys_enter", "-p", &process.to_string()]);
    // perf counts for as long as its child, `cat`, runs. An echo shows that it has started; closing
    // the child's stdin ends it.
    let perf = perf
        .args(["--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut perf = perf.spawn().ok()?;
    let mut input = perf.stdin.take()?;
    let answer = perf.stdout.take()?;
    input.write_all(b"counting?\n").ok()?;
    let mut echo = String::new();
    let is_counting = BufReader::new(answer).read_line(&mut echo).is_ok_and(|bytes| bytes > 0);
    if is_counting {
        work();
    }
    drop(input);
    let ended = perf.wait_with_output().ok()?;
    let report = String::from_utf8_lossy(&ended.stderr).into_owned();
    report.lines().find(|line| line.contains("sys_enter"))?.split(',').next()?.parse().ok()
}
