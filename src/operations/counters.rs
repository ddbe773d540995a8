//! Operations on one counter: inspect, reset, refund and grant.

use super::audit::AuditEntry;
use super::workers::WorkerService;
use super::{OperationError, deadline};
use crate::algorithm::Limit;
use crate::algorithm::amend::{Amended, Amendment, CounterReading};
use crate::algorithm::hold::HoldList;
use crate::algorithm::tallies::EntryTally;
use crate::algorithm::time::{Micros, Timestamp};
use crate::descriptor::{CounterKey, Entry, KeyBuffer, Keyed};
use crate::limiter::Live;
use crate::policy::Rule;
use crate::policy::explain::limit_in_words;
use crate::store::StoreError;
use crate::store::backend::{Backend, BackendError};
use crate::telemetry::journal::key::{OwnedEntries, read_text, write_text};

/// The callers that used up a counter.
#[derive(Clone, Debug)]
pub struct CounterTallies {
    /// Path of the rule.
    pub rule: String,
    /// Tallies per caller, largest first.
    pub tallies: Vec<EntryTally>,
}

/// A counter with its limit, state and callers.
#[derive(Clone, Debug)]
pub struct CounterState {
    /// Domain.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// Entries of the descriptor as the journal names them; values are hashed if the rule has
    /// `hash_values`.
    pub key: String,
    /// The limit.
    pub limit: Limit,
    /// The limit as text.
    pub limit_text: String,
    /// Algorithm of the limit.
    pub algorithm: String,
    /// `true` if the rule or the process is in shadow mode.
    pub is_shadow: bool,
    /// State of the counter.
    pub reading: CounterReading,
    /// Tallies of the callers, largest first; `None` if the rule does not record callers, an error
    /// only if the store does not support it.
    pub tallies: Option<Result<Vec<EntryTally>, BackendError>>,
    /// Open holds, the oldest first; `None` if the limit keeps none. IDs are hashed if the rule has
    /// `hash_values`.
    pub held: Option<Result<HoldList, BackendError>>,
}

/// A counter that was changed.
#[derive(Clone, Debug)]
pub struct AmendedCounter {
    /// Domain.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// Entries of the descriptor, in the same form as in [`CounterState`].
    pub key: String,
    /// The limit.
    pub limit: Limit,
    /// State before and after the change.
    pub amended: Amended,
    /// Key of an entry without a value, which is rarely intended.
    pub valueless_key: Option<String>,
    /// Maximum time for which other replicas may act on a cached denial; `None` if counters are not
    /// shared.
    pub cached_for: Option<Micros>,
    /// Maximum time for which any replica may use hits that it leased before.
    pub leased: Option<Micros>,
    /// `true` if hits are lent to proxies by RLQS, which a grant does not reach.
    pub is_lent_to_proxies: bool,
}

/// Returns the callers that used up the counter of a descriptor.
pub(super) async fn who(
    service: &WorkerService<impl Backend>,
    domain: &str,
    descriptor: &str,
) -> Result<CounterTallies, OperationError> {
    let snapshot = service.limiter().snapshot();
    let mut keys = KeyBuffer::default();
    let owned = read(descriptor)?;
    let entries = owned.entries();
    let (rule, key, _) = find(snapshot.as_deref(), domain, &entries, &mut keys)?;
    let rule_path = rule.path().to_owned();
    if rule.record().is_empty() {
        return Err(OperationError::NotRecorded { rule: rule_path });
    }
    let tallies = tallies(service, &key).await?.map_err(OperationError::Callers)?;
    Ok(CounterTallies { rule: rule_path, tallies })
}

/// Returns the state of the counter of a descriptor, and the callers that used it up.
pub(super) async fn inspect(
    service: &WorkerService<impl Backend>,
    domain: &str,
    descriptor: &str,
) -> Result<CounterState, OperationError> {
    let snapshot = service.limiter().snapshot();
    let mut keys = KeyBuffer::default();
    let owned = read(descriptor)?;
    let entries = owned.entries();
    let (rule, key, text) = find(snapshot.as_deref(), domain, &entries, &mut keys)?;
    let limit = limit_of(rule)?;
    let looked = amend(service, rule, key, Amendment::Look).await?;
    let tallies = match rule.record() {
        [] => None,
        _ => Some(tallies(service, &key).await?),
    };
    let keyed = snapshot.as_deref().and_then(|live| live.policies().find(domain)?.keyed_for(rule));
    let held = match limit.hold() {
        Some(_) => Some(open_holds(service, &key, looked.after.at, keyed).await),
        None => None,
    };
    Ok(CounterState {
        domain: domain.to_owned(),
        rule: rule.path().to_owned(),
        key: text,
        limit: limit.clone(),
        limit_text: limit_in_words(rule).unwrap_or_default(),
        algorithm: rule.algorithm().to_owned(),
        is_shadow: service.limiter().is_shadow(rule),
        reading: looked.after,
        tallies,
        held,
    })
}

/// Resets, refunds or grants hits to the counter of a descriptor.
pub(super) async fn change(
    service: &WorkerService<impl Backend>,
    domain: &str,
    descriptor: &str,
    amendment: Amendment,
    audit: &AuditEntry,
) -> Result<AmendedCounter, OperationError> {
    let snapshot = service.limiter().snapshot();
    let mut keys = KeyBuffer::default();
    let owned = read(descriptor)?;
    let entries = owned.entries();
    let (rule, key, text) = find(snapshot.as_deref(), domain, &entries, &mut keys)?;
    audit.add(&format!("counter {text} of rule {} in domain {domain}", rule.path()));
    let limit = limit_of(rule)?;
    let amended = amend(service, rule, key, amendment).await?;
    Ok(AmendedCounter {
        domain: domain.to_owned(),
        rule: rule.path().to_owned(),
        key: text,
        limit: limit.clone(),
        amended,
        valueless_key: valueless_key(&entries),
        cached_for: None,
        leased: rule.lease().map(|lease| lease.ttl),
        is_lent_to_proxies: rule.quota().is_ok(),
    })
}

/// Parses a descriptor in the format of `tollgate denials`.
fn read(descriptor: &str) -> Result<OwnedEntries, OperationError> {
    read_text(descriptor)
        .map_err(|error| OperationError::Descriptor { descriptor: descriptor.to_owned(), error })
}

/// Returns the rule and the counter of a descriptor, and the name of the counter in the journal.
fn find<'a>(
    live: Option<&'a Live>,
    domain: &'a str,
    entries: &[Entry<'_>],
    keys: &'a mut KeyBuffer,
) -> Result<(&'a Rule, CounterKey<'a>, String), OperationError> {
    let policies = live.ok_or(OperationError::NoPolicy)?.policies();
    let (rule, key) = policies.counter(domain, entries, keys).map_err(OperationError::NoCounter)?;
    let keyed = policies.find(domain).and_then(|policy| policy.keyed_for(rule));
    if keyed.is_some() && entries.iter().any(|entry| Keyed::is_shown(entry.value)) {
        return Err(OperationError::HashedValues { rule: rule.path().to_owned() });
    }
    let mut text = String::new();
    Keyed::show(keyed, entries, |entries| write_text(entries, &mut text));
    Ok((rule, key, text))
}

/// Returns the key of an entry without a value.
fn valueless_key(entries: &[Entry<'_>]) -> Option<String> {
    let entry = entries.iter().find(|entry| entry.value.is_empty())?;
    Some(String::from_utf8_lossy(entry.key).into_owned())
}

/// Returns the limit of a rule, or a refusal if the rule counts nothing.
fn limit_of(rule: &Rule) -> Result<&Limit, OperationError> {
    let limit = rule.limit().filter(|limit| !limit.is_ban());
    limit.ok_or_else(|| OperationError::Ban { rule: rule.path().to_owned() })
}

async fn amend(
    service: &WorkerService<impl Backend>,
    rule: &Rule,
    key: CounterKey<'_>,
    amendment: Amendment,
) -> Result<Amended, OperationError> {
    let amended = service.limiter().amend(rule, key, amendment, deadline()).await;
    amended.map_err(|error| {
        let may_have_run = matches!(error, StoreError::Late | StoreError::Lost);
        if may_have_run && amendment != Amendment::Look {
            OperationError::MaybeApplied(error)
        } else {
            OperationError::Store(error)
        }
    })
}

/// Returns the open holds of a counter, with hashed IDs if values are hashed.
async fn open_holds(
    service: &WorkerService<impl Backend>,
    key: &CounterKey<'_>,
    now: Timestamp,
    keyed: Option<&Keyed>,
) -> Result<HoldList, BackendError> {
    let mut open = service.limiter().store().backend().open_holds(key, now).await?;
    if let Some(keyed) = keyed {
        for hold in open.holds.iter_mut().filter(|hold| !hold.id.is_empty()) {
            hold.id = keyed.shown(&hold.id).into_bytes().into();
        }
    }
    Ok(open)
}

/// Returns the tallies of a counter. The inner error means that the store does not support it.
async fn tallies(
    service: &WorkerService<impl Backend>,
    key: &CounterKey<'_>,
) -> Result<Result<Vec<EntryTally>, BackendError>, OperationError> {
    match service.limiter().store().backend().tallies(key).await {
        Err(BackendError::Failed(error)) => Err(OperationError::Store(error)),
        tallies => Ok(tallies),
    }
}
