//! Steps of a trace that first meet servers with a fault, which must not change what is stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::network::SpoiledItems::{Cut, CutEnd, CutHeads, OtherTag, WrongType};
use super::network::{CalmNetwork, ServerFault};
use super::sides::Sides;
use super::{LentHits, TraceOperation};

/// Values by the names of their keys.
type StoredValues = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Every how many steps a fault is met.
const EVERY: usize = 3;
const FAULTS: [ServerFault; 24] = [
    ServerFault::Full,
    ServerFault::Spoiled(CutEnd(1)),
    ServerFault::Refuses(0),
    ServerFault::Spoiled(Cut(0)),
    ServerFault::Spoiled(OtherTag(1)),
    ServerFault::Full,
    ServerFault::Spoiled(Cut(7)),
    ServerFault::Refuses(1),
    ServerFault::Spoiled(WrongType),
    ServerFault::Spoiled(CutHeads(16)),
    ServerFault::Spoiled(CutEnd(11)),
    ServerFault::Full,
    ServerFault::Spoiled(Cut(36)),
    ServerFault::Spoiled(Cut(1)),
    ServerFault::Refuses(2),
    ServerFault::Spoiled(CutHeads(17)),
    ServerFault::Spoiled(Cut(13)),
    ServerFault::Spoiled(OtherTag(255)),
    ServerFault::Full,
    ServerFault::Spoiled(Cut(4)),
    ServerFault::Spoiled(CutHeads(60)),
    ServerFault::Spoiled(Cut(5)),
    ServerFault::Spoiled(CutEnd(4)),
    ServerFault::Spoiled(Cut(8)),
];

/// Meets a fault before some steps. Returns an error if the answers or the items are not those
/// that it allows.
pub(super) async fn disturb(
    sides: &Sides,
    networks: &[Arc<CalmNetwork>],
    (number, now): (usize, u64),
    operation: &TraceOperation,
    lent: &LentHits,
) -> Result<(), String> {
    if !number.is_multiple_of(EVERY) {
        return Ok(());
    }
    let is_amendment = matches!(operation, TraceOperation::Amend(..));
    let fault = FAULTS[number / EVERY % FAULTS.len()];
    // Where a charge cannot be taken back, that is tried again later.
    let is_refused = matches!(fault, ServerFault::Refuses(_));
    let networks = if is_refused { &networks[..1] } else { networks };
    sides.set_clock(now);
    let whole: Vec<_> = networks.iter().map(|network| network.values()).collect();
    let saved: Vec<_> = networks.iter().map(|network| network.begin(fault)).collect();
    let disturbed: Vec<_> = networks.iter().map(|network| network.values()).collect();
    let answers = sides.of_servers(networks.len(), operation, lent).await;
    let values: Vec<_> = networks.iter().map(|network| network.values()).collect();
    for (network, saved) in networks.iter().zip(saved) {
        network.note_all();
        network.end(saved);
    }
    let is_full = matches!(fault, ServerFault::Full);
    let changed = whole.iter().zip(&disturbed).zip(&values).find_map(|((whole, before), after)| {
        // A script that has removed something may go on to write on a full server.
        let removes = is_amendment || before.keys().any(|name| !after.contains_key(name));
        let is_kept = |name: &Vec<u8>| is_full && !removes || before.get(name) != whole.get(name);
        changed(before, after, is_kept)
    });
    let cause = match fault {
        ServerFault::Full => "store full",
        ServerFault::Refuses(_) => "store refused",
        ServerFault::Spoiled(_) => "unreadable",
    };
    let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
    let is_other = errors.any(|error| !is_amendment && !error.contains(cause));
    if changed.is_none() && !is_other {
        return Ok(());
    }
    let found = format!("changes {changed:?}\nanswers {answers:?}");
    Err(format!("at {now}, {fault:?}: {operation:?}\n{found}"))
}

/// Returns the name of a value that has changed although it is to be kept.
fn changed(
    before: &StoredValues,
    after: &StoredValues,
    is_kept: impl Fn(&Vec<u8>) -> bool,
) -> Option<String> {
    let mut values = before.iter().filter(|(_, value)| value.is_some());
    let changed = values.find(|(name, value)| is_kept(name) && after.get(*name) != Some(*value));
    changed.map(|(name, _)| name.escape_ascii().to_string())
}
