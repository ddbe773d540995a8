//! A table of a world as it runs: processes, servers, counters and the latest events.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::history::Ending;
use super::plan::{Fault, Plan};
use super::server::session::host_of;
use super::sky::Sky;

/// Time of a world between two tables, and the time for which a person sees each.
const STEP: Duration = Duration::from_millis(50);
const SHOWN_FOR: Duration = Duration::from_millis(80);
/// Number of the latest events in a table.
const EVENTS: usize = 12;
/// Clears the screen, and moves to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints a table of a world again and again until it ends.
pub(crate) async fn watch(sky: Arc<Sky>, plan: Plan) {
    loop {
        println!("{CLEAR}{}", table(&sky, &plan));
        // The world waits: the thread is its own.
        std::thread::sleep(SHOWN_FOR);
        tokio::time::sleep(STEP).await;
    }
}

fn table(sky: &Sky, plan: &Plan) -> String {
    let now = sky.now();
    let mut text = String::new();
    let _ = writeln!(text, "seed {}  {:>6} ms of {}", plan.seed, now / 1_000, plan.end / 1_000);
    let _ = writeln!(text, "\nserver  group  role            keys  clock ms  state");
    let fleet = sky.fleet.lock();
    for (number, server) in fleet.servers.iter().enumerate() {
        let role = match (&server.stale, server.is_replica) {
            (Some(_), _) => "stale master",
            (None, true) => "replica",
            (None, false) => "master",
        };
        let faults = [
            ("down", server.down_until),
            ("stopped", server.hung_until),
            ("busy", server.busy_until),
            ("loading", server.loading_until),
            ("full", server.full_until),
        ];
        let faults = faults.iter().filter(|(_, until)| *until > now).map(|(name, _)| *name);
        let _ = writeln!(
            text,
            "{:<6}  {:>5}  {role:<14}  {:>4}  {:>8}  {}",
            host_of(number),
            server.group,
            server.keys.len(),
            server.skew_us / 1_000,
            faults.collect::<Vec<_>>().join(" ")
        );
    }
    drop(fleet);
    let chronicle = sky.chronicle.lock();
    let _ = writeln!(text, "\nprocess    OK  over limit  failed  cancelled");
    for process in 0..plan.processes {
        let of = |is: fn(&Ending) -> bool| {
            let calls = chronicle.calls.iter().filter(|record| record.call.process == process);
            calls.filter(|record| is(&record.ending)).count()
        };
        let _ = writeln!(
            text,
            "{process:<7}  {:>4}  {:>10}  {:>6}  {:>9}",
            of(|ending| matches!(ending, Ending::Decided(false, _))),
            of(|ending| matches!(ending, Ending::Decided(true, _))),
            of(|ending| matches!(ending, Ending::Failed(_))),
            of(|ending| *ending == Ending::Cancelled),
        );
    }
    let faults = chronicle.faults.iter().rev().take(3);
    let _ = writeln!(text, "\nfaults {:?}", faults.collect::<Vec<&(u64, Fault)>>());
    let first = chronicle.lines.len().saturating_sub(EVENTS);
    for line in &chronicle.lines[first..] {
        let _ = writeln!(text, "{}", line.chars().take(110).collect::<String>());
    }
    text
}
