//! Operations on one counter for the admin API: inspect, reset, refund and grant.

use std::time::{Duration, Instant};

use super::serving::WorkerService;
use super::stores::Stores;
use crate::admin::api::ask::{CounterUsers, TallyView};
use crate::admin::api::counter::{Changed, CounterView, GrantView, StateView, WindowView};
use crate::admin::api::{ApiError, rfc3339};
use crate::admin::operations::AuditEntry;
use crate::algorithm::Limit;
use crate::algorithm::amend::{Amended, Amendment, CounterReading, WindowLook};
use crate::algorithm::quota::Window;
use crate::algorithm::tallies::EntryTally;
use crate::algorithm::time::Micros;
use crate::descriptor::{CounterKey, Entry, KeyBuffer, Keyed};
use crate::journal::key::{OwnedEntries, read_text, write_text};
use crate::limiter::Live;
use crate::policy::explain::limit_in_words;
use crate::policy::{Imposes, Rule};
use crate::store::StoreError;

/// Timeout for a call to the store. Longer than on the hot path, since a person waits and not a
/// proxy.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the deadline of a call that starts now on behalf of an operator.
pub(super) fn deadline() -> Instant {
    let now = Instant::now();
    now.checked_add(STORE_TIMEOUT).unwrap_or(now)
}

/// Returns the callers that used up the counter of a descriptor.
pub(super) async fn who(service: &WorkerService, domain: &str, descriptor: &str) -> Result<CounterUsers, ApiError> {
    let snapshot = service.limiter().snapshot();
    let mut keys = KeyBuffer::default();
    let owned = read(descriptor)?;
    let entries = owned.entries();
    let (rule, key, _) = find(snapshot.as_deref(), domain, &entries, &mut keys)?;
    let rule_path = rule.path().to_owned();
    if rule.record().is_empty() {
        return Err(ApiError::NotFound(format!(
            "rule `{rule_path}` does not record callers; add `record: [key]` to its rate_limit"
        )));
    }
    Ok(CounterUsers { rule: rule_path, tallies: tallies(service, &key).await? })
}

/// Returns the state of the counter of a descriptor, and the callers that used it up.
pub(super) async fn inspect(service: &WorkerService, domain: &str, descriptor: &str) -> Result<CounterView, ApiError> {
    let snapshot = service.limiter().snapshot();
    let mut keys = KeyBuffer::default();
    let owned = read(descriptor)?;
    let entries = owned.entries();
    let (rule, key, text) = find(snapshot.as_deref(), domain, &entries, &mut keys)?;
    let limit = limit_of(rule)?;
    let looked = amend(service, rule, key, Amendment::Look).await?;
    let (who, who_unknown) = match rule.record() {
        [] => (Vec::new(), Some("callers not recorded; add `record: [key]` to rate_limit")),
        _ => (tallies(service, &key).await?, None),
    };
    Ok(CounterView {
        domain: domain.to_owned(),
        rule: rule.path().to_owned(),
        key: text,
        limit: limit_in_words(rule).unwrap_or_default(),
        algorithm: rule.algorithm().to_owned(),
        is_shadow: service.limiter().is_shadow(rule),
        state: view(limit, &looked.after),
        who,
        who_unknown: who_unknown.map(str::to_owned),
        denials: None,
        denials_missing: None,
    })
}

/// Resets, refunds or grants hits to the counter of a descriptor.
pub(super) async fn change(
    service: &WorkerService,
    stores: &Stores,
    domain: &str,
    descriptor: &str,
    amendment: Amendment,
    audit: &AuditEntry,
) -> Result<Changed, ApiError> {
    let snapshot = service.limiter().snapshot();
    let mut keys = KeyBuffer::default();
    let owned = read(descriptor)?;
    let entries = owned.entries();
    let (rule, key, text) = find(snapshot.as_deref(), domain, &entries, &mut keys)?;
    audit.add(&format!("counter {text} of rule {} in domain {domain}", rule.path()));
    let limit = limit_of(rule)?;
    let amended = amend(service, rule, key, amendment).await?;
    let (elsewhere_within, elsewhere) = elsewhere(stores, rule);
    Ok(Changed {
        domain: domain.to_owned(),
        rule: rule.path().to_owned(),
        key: text,
        before: view(limit, &amended.before),
        after: view(limit, &amended.after),
        notes: bare(&entries).into_iter().collect(),
        elsewhere_within_us: elsewhere_within.map(Micros::get),
        elsewhere,
    })
}

/// Parses a descriptor in the format of `tollgate denials`.
fn read(descriptor: &str) -> Result<OwnedEntries, ApiError> {
    read_text(descriptor).map_err(|wrong| ApiError::Invalid(format!("descriptor `{descriptor}`: {wrong}")))
}

/// Returns the rule and the counter of a descriptor, and the name of the counter in the journal.
fn find<'a>(
    live: Option<&'a Live>,
    domain: &'a str,
    entries: &[Entry<'_>],
    keys: &'a mut KeyBuffer,
) -> Result<(&'a Rule, CounterKey<'a>, String), ApiError> {
    let policies = live.ok_or_else(|| ApiError::Unavailable("no policy loaded yet".to_owned()))?.policies();
    let (rule, key) = policies.counter(domain, entries, keys).map_err(|none| ApiError::NotFound(none.to_string()))?;
    let keyed = policies.find(domain).and_then(|policy| policy.keyed_for(rule));
    if keyed.is_some() && entries.iter().any(|entry| Keyed::is_shown(entry.value)) {
        let why = "hashes its values, and its counters cannot be looked up by hash; use the original value";
        return Err(ApiError::NotFound(format!("rule `{}` {why}", rule.path())));
    }
    let mut text = String::new();
    Keyed::show(keyed, entries, |entries| write_text(entries, &mut text));
    Ok((rule, key, text))
}

/// Returns a warning if an entry has no value, which is rarely intended.
fn bare(entries: &[Entry<'_>]) -> Option<String> {
    let key = entries.iter().find(|entry| entry.value.is_empty()).map(|entry| String::from_utf8_lossy(entry.key))?;
    Some(format!("`{key}` has no value: this is the counter of `{key}=`; check the key"))
}

/// Returns the limit of a rule, or a refusal if the rule counts nothing.
fn limit_of(rule: &Rule) -> Result<&Limit, ApiError> {
    match rule.imposes() {
        Imposes::Limit(limit) if !limit.is_ban() => Ok(limit),
        Imposes::Limit(_) | Imposes::Nothing | Imposes::Unlimited => Err(ApiError::Conflict(format!(
            "rule `{}` is a ban (requests_per_unit: 0) and has no counter; to admit callers, change the policy",
            rule.path()
        ))),
    }
}

async fn amend(
    service: &WorkerService,
    rule: &Rule,
    key: CounterKey<'_>,
    amendment: Amendment,
) -> Result<Amended, ApiError> {
    let amended = service.limiter().amend(rule, key, amendment, deadline()).await;
    amended.map_err(|error| {
        let is_unsure = matches!(error, StoreError::Late | StoreError::Lost) && amendment != Amendment::Look;
        let unsure =
            if is_unsure { "; the change may have been applied: inspect the counter before you retry" } else { "" };
        ApiError::Unavailable(format!("{error}{unsure}"))
    })
}

/// Returns the tallies of a counter in the form of the admin API.
async fn tallies(service: &WorkerService, key: &CounterKey<'_>) -> Result<Vec<TallyView>, ApiError> {
    let tallies = service.limiter().store().tallies(key).await;
    let view = |tally: EntryTally| TallyView {
        who: (!tally.entry.is_empty()).then(|| String::from_utf8_lossy(&tally.entry).into_owned()),
        charged: tally.charged,
        denied: tally.denied,
    };
    tallies.map(|all| all.into_iter().map(view).collect()).map_err(|error| ApiError::Unavailable(error.to_string()))
}

/// Returns the maximum time for which processes may act on state from before a change, and an
/// explanation: other replicas remember denials, and all replicas, including this one, use hits
/// that they leased before.
fn elsewhere(stores: &Stores, rule: &Rule) -> (Option<Micros>, String) {
    let Some(remembered) = stores.remembered() else {
        let own = "applied to this process only; other replicas keep their own counters";
        return (None, own.to_owned());
    };
    let remembered = Micros::new(u64::try_from(remembered.as_micros()).unwrap_or(u64::MAX));
    let leased = rule.lease().map(|lease| lease.ttl);
    let seen = match remembered {
        Micros::ZERO => "other replicas see the change at once".to_owned(),
        _ => format!("other replicas see the change within {remembered}, for which they cache denials"),
    };
    let used = leased
        .map(|ttl| format!("; hits leased before by any replica may be used for up to {ttl}, even after a grant ends"));
    (Some(leased.map_or(remembered, |ttl| remembered.max(ttl))), seen + &used.unwrap_or_default())
}

fn view(limit: &Limit, look: &CounterReading) -> StateView {
    let after = |length: Micros| rfc3339(look.at + length);
    let windows = limit.windows().iter().zip(&look.windows);
    let window = |(window, look): (&Window, &WindowLook)| WindowView {
        limit: window.to_string(),
        used: look.used,
        remaining: look.remaining,
        reset_at: after(look.reset_after),
    };
    let granted = look.grant.map_or(0, |grant| grant.left);
    let room = look.windows.iter().map(|window| window.remaining).min().unwrap_or_default();
    let retry = look.windows.iter().map(|window| window.retry_after).collect::<Option<Vec<_>>>();
    let retry = retry.and_then(|all| all.into_iter().max()).filter(|wait| *wait > Micros::ZERO && granted == 0);
    StateView {
        at: rfc3339(look.at),
        remaining: room.max(granted),
        retry_at: retry.map(after),
        windows: windows.map(window).collect(),
        grant: look.grant.map(|grant| GrantView { remaining: grant.left, until: rfc3339(grant.until) }),
    }
}
