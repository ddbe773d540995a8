//! A table of a world as it runs: servers, processes, counters, and the latest faults and calls.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use super::history::{CallRecord, Chronicle, Ending, PartStatus};
use super::plan::{PartHits, Plan};
use super::server::fleet::{Fleet, Moment};
use super::server::session::host_of;
use super::shared::SharedWorld;

/// Time of a world between two tables, and the time for which a person sees each.
const STEP: Duration = Duration::from_millis(50);
const SHOWN_FOR: Duration = Duration::from_millis(80);
/// Numbers of the latest faults and calls in a table.
const FAULTS: usize = 5;
const CALLS: usize = 10;
/// Characters of a line.
const WIDTH: usize = 100;
/// Clears the screen, and moves to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Prints a table of a world again and again until it ends.
pub async fn watch(shared: Arc<SharedWorld>, plan: Plan) {
    loop {
        println!("{CLEAR}{}", table(&shared, &plan));
        // The world waits: the thread is its own.
        std::thread::sleep(SHOWN_FOR);
        tokio::time::sleep(STEP).await;
    }
}

fn table(shared: &SharedWorld, plan: &Plan) -> String {
    let now = shared.now();
    let phase = if now < plan.end { "faults" } else { "healed" };
    let mut text = format!(
        "seed {}   {} of {}   {phase}\n\n",
        plan.seed,
        seconds(now).trim_start(),
        seconds(plan.end).trim_start()
    );
    servers(&mut text, &shared.fleet.lock(), now);
    let chronicle = shared.chronicle.lock();
    processes(&mut text, plan, &chronicle, shared, now);
    counters(&mut text, plan, &chronicle);
    text.push_str("\nlatest faults\n");
    for (at, fault) in chronicle.faults.iter().rev().take(FAULTS).rev() {
        let _ = writeln!(text, "{}  {fault}", seconds(*at));
    }
    text.push_str("\nlatest calls\n");
    for record in chronicle.calls.iter().rev().take(CALLS).rev() {
        let line = format!("{}  {record}", seconds(record.ended));
        let _ = writeln!(text, "{}", line.chars().take(WIDTH).collect::<String>());
    }
    text
}

fn servers(text: &mut String, fleet: &Fleet, now: Moment) {
    text.push_str("server  group  role          keys  clock ms  state\n");
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
            "{:<6}  {:>5}  {role:<12}  {:>4}  {:>8}  {}",
            host_of(number),
            server.group,
            server.keys.len(),
            server.skew_us / 1_000,
            faults.collect::<Vec<_>>().join(" ")
        );
    }
}

fn processes(
    text: &mut String,
    plan: &Plan,
    chronicle: &Chronicle,
    shared: &SharedWorld,
    now: Moment,
) {
    text.push_str("\nprocess    OK  over limit  failed  canceled  state\n");
    for process in 0..plan.processes {
        let of = |is: fn(&Ending) -> bool| {
            let calls = chronicle.calls.iter().filter(|record| record.call.process == process);
            calls.filter(|record| is(&record.ending)).count()
        };
        let state = if shared.stopped_until(process) > now { "stopped" } else { "" };
        let _ = writeln!(
            text,
            "p{process:<6}  {:>4}  {:>10}  {:>6}  {:>8}  {state}",
            of(|ending| matches!(ending, Ending::Decided(false, _))),
            of(|ending| matches!(ending, Ending::Decided(true, _))),
            of(|ending| matches!(ending, Ending::Failed(_))),
            of(|ending| *ending == Ending::Cancelled),
        );
    }
}

fn counters(text: &mut String, plan: &Plan, chronicle: &Chronicle) {
    text.push_str("\ncounter  admitted  denied  undecided  left  limit\n");
    for counter in 0..plan.counters.len() {
        let [mut admitted, mut denied, mut undecided] = [0; 3];
        let mut left = None;
        let calls = chronicle.calls.iter();
        for (record, hits, status) in calls.flat_map(|record| of(record, counter)) {
            match record.ending {
                Ending::Decided(false, _) => admitted += hits,
                Ending::Decided(true, _) => denied += hits,
                Ending::Failed(_) | Ending::Cancelled => undecided += hits,
            }
            left = status.and_then(|status| status.left).or(left);
        }
        let left = left.map_or("-".to_owned(), |left| left.to_string());
        let limit = plan.rule_of(counter).limit(0).replace("algorithm: ", "");
        let limit = limit.replace("requests_per_unit: ", "");
        let limit: String = limit.chars().take(WIDTH - 46).collect();
        let _ = writeln!(
            text,
            "c{counter:<6}  {admitted:>8}  {denied:>6}  {undecided:>9}  {left:>4}  {limit}"
        );
    }
}

/// Returns the hits that a call requested of a counter, each with its status if there is a
/// decision.
fn of(
    record: &CallRecord,
    counter: usize,
) -> impl Iterator<Item = (&CallRecord, u64, Option<&PartStatus>)> {
    let statuses = match &record.ending {
        Ending::Decided(_, statuses) => statuses.as_slice(),
        Ending::Failed(_) | Ending::Cancelled => &[],
    };
    let parts = record.call.parts.iter().enumerate();
    parts.filter(move |(_, part)| part.counter == counter).filter_map(move |(number, part)| {
        match part.hits {
            PartHits::Charge(hits) | PartHits::Reserve { hits, .. } => {
                Some((record, hits.into(), statuses.get(number)))
            }
            PartHits::Peek | PartHits::Refund(_) | PartHits::End { .. } => None,
        }
    })
}

fn seconds(at: Moment) -> String {
    format!("{:>3}.{:03} s", at / 1_000_000, at / 1_000 % 1_000)
}
