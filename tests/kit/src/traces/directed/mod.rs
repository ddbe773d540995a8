//! Traces made by hand, of what random ones rarely meet. Most were written for mutants of the
//! scripts (`tests/MUTANTS.md`).
//!
//! | module | traces of |
//! |---|---|
//! | `limits` | windows, logs and rates |
//! | `holds` | holds and permits |
//! | `bounds` | IDs, amounts and numbers of holds at their bounds |
//! | `changes` | limits that change while counters are in use |
//! | `amounts` | marks, ledgers, and amounts of their greatest length |
//! | `amendments` | grants, resets, and data beside a state |
//! | `requests` | several counters of one request |
//! | `calendars` | windows of a calendar that a script does not receive at first |

mod amendments;
mod amounts;
mod bounds;
mod calendars;
mod changes;
mod holds;
mod limits;
mod requests;

use std::sync::LazyLock;

use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::grpc::proto::RateLimitDescriptor;

pub use self::bounds::the_most_records;
use super::rules::{RandomRule, text_of};
use super::{TraceCase, TraceOperation, TraceStep};
use crate::rls::{descriptor, entry, request};

const MS: i64 = 1_000;
const SECOND: i64 = 1_000 * MS;
/// The windows of a limit that has two.
const WINDOWS: &str =
    "windows: [{ requests_per_unit: 2, unit: second }, { requests_per_unit: 9, unit: hour }]";

/// All traces.
pub static DIRECTED: LazyLock<Vec<TraceCase>> = LazyLock::new(|| {
    [
        amendments::cases(),
        amounts::cases(),
        bounds::cases(),
        calendars::cases(),
        changes::cases(),
        holds::cases(),
        limits::cases(),
        requests::cases(),
    ]
    .concat()
});

/// Returns a trace under the limits of `k0`, `k1` and so on, as in a policy. A request that names
/// several is judged at once.
fn in_one_slot(limits: &[&str], trace: Vec<TraceStep>) -> TraceCase {
    TraceCase::new(vec![policy(limits, true)], trace)
}

/// Returns a trace as [`in_one_slot`]. In a Cluster, a request that names several is judged by the
/// slot of each.
fn in_slots(limits: &[&str], trace: Vec<TraceStep>) -> TraceCase {
    TraceCase::new(vec![policy(limits, false)], trace)
}

/// Returns a trace in parts, each under a limit of `k0`. Shorter parts end with looks.
fn changing<L: AsRef<str>>(parts: impl IntoIterator<Item = (L, Vec<TraceStep>)>) -> TraceCase {
    let (limits, mut traces): (Vec<L>, Vec<_>) = parts.into_iter().unzip();
    let longest = traces.iter().map(Vec::len).max().unwrap_or_default();
    traces.iter_mut().for_each(|trace| trace.resize(longest, (0, look("k0"))));
    let policies = limits.iter().map(|limit| policy(&[limit.as_ref()], true)).collect();
    TraceCase::new(policies, traces.concat())
}

/// Returns the text of a policy with the limits of `k0`, `k1` and so on.
fn policy(limits: &[&str], in_one_slot: bool) -> String {
    let rule = |limit: &&str| RandomRule { limit: (*limit).to_owned(), mode: "" };
    text_of(&limits.iter().map(rule).collect::<Vec<_>>(), in_one_slot)
}

/// Returns a request of some descriptors.
fn decide(descriptors: impl Into<Vec<RateLimitDescriptor>>) -> TraceOperation {
    TraceOperation::Decide(request(descriptors.into()))
}

/// Returns a descriptor that charges hits to the counter of a key and the value `a`.
fn hits(key: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, "a")]) }
}

/// Returns a descriptor of that counter with an operation on the holds of an ID: `reserve`,
/// `commit` or `settle`.
fn hold(operation: &str, key: &str, id: impl AsRef<[u8]>, count: u64) -> RateLimitDescriptor {
    let mut descriptor = hits(key, count);
    descriptor.entries.push(entry(format!("tollgate.{operation}").as_bytes(), id.as_ref()));
    descriptor
}

/// Returns a charge of hits to that counter in advance.
fn lend(key: &str, hits: u32) -> TraceOperation {
    TraceOperation::Lend(format!("{key}=a"), hits, Charge::Admitted)
}

/// Returns an amendment of the counter of a key and the value `a`.
fn amend(key: &str, amendment: Amendment) -> TraceOperation {
    TraceOperation::Amend(format!("{key}=a"), amendment)
}

/// Returns a list of that counter's open holds.
fn open_holds(key: &str) -> TraceOperation {
    TraceOperation::OpenHolds(format!("{key}=a"))
}

/// Returns a look at that counter, which all stores must answer alike.
fn look(key: &str) -> TraceOperation {
    amend(key, Amendment::Look)
}
