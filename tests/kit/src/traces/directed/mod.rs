//! Traces made by hand, of what random ones rarely meet. Most were written for mutants of the
//! scripts (`tests/MUTANTS.md`).
//!
//! | module | traces of |
//! |---|---|
//! | `limits` | windows, logs and rates |
//! | `holds` | holds and permits |
//! | `amounts` | marks, ledgers, and amounts of their greatest length |
//! | `amendments` | grants, resets, and data beside a state |
//! | `requests` | several counters of one request |
//! | `calendars` | windows of a calendar that a script does not receive at first |

mod amendments;
mod amounts;
mod calendars;
mod holds;
mod limits;
mod requests;

use std::sync::LazyLock;

use tollgate::algorithm::amend::Amendment;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::cases::START;
use super::rules::{RandomRule, text_of};
use super::{TraceCase, TraceOperation, TraceStep};
use crate::rls::{descriptor, request};

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
        calendars::cases(),
        holds::cases(),
        limits::cases(),
        requests::cases(),
    ]
    .concat()
});

/// Returns a trace under the limits of `k0`, `k1` and so on, as in a policy. A request that names
/// several is judged at once.
fn in_one_slot(limits: &[&str], trace: Vec<TraceStep>) -> TraceCase {
    TraceCase { policies: vec![policy(limits, true)], modes: Modes::default(), begin: START, trace }
}

/// Returns a trace as [`in_one_slot`]. In a Cluster, a request that names several is judged by the
/// slot of each.
fn in_slots(limits: &[&str], trace: Vec<TraceStep>) -> TraceCase {
    TraceCase { policies: vec![policy(limits, false)], ..in_one_slot(&[], trace) }
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
fn hold(operation: &str, key: &str, id: &str, hits: u64) -> RateLimitDescriptor {
    let operation = format!("tollgate.{operation}");
    let descriptor = descriptor(&[(key, "a"), (&operation, id)]);
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

/// Returns an amendment of the counter of a key and the value `a`.
fn amend(key: &str, amendment: Amendment) -> TraceOperation {
    TraceOperation::Amend(format!("{key}=a"), amendment)
}

/// Returns a look at that counter, which all stores must answer alike.
fn look(key: &str) -> TraceOperation {
    amend(key, Amendment::Look)
}
