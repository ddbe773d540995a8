//! Records beyond metrics per rule: denials in the journal, and exceptions to the promise.

use super::decision::Decision;
use super::status::{AppliedLimit, Status, StatusKind};
use super::{Limiter, Live};
use crate::algorithm::judge::Hits;
use crate::descriptor::{Descriptor, Keyed, Request};
use crate::store::Store;
use crate::telemetry::journal::{DenialEvent, DenialReason};

/// Journal name of a limit that a request sets itself.
const OWN_LIMIT: &str = "(limit of the request)";

impl<S: Store> Limiter<S> {
    /// Records the denial of a descriptor, if it is one.
    #[inline]
    pub(super) fn record_denial(
        &self,
        live: &Live,
        domain: &str,
        decision: &Decision<'_>,
        status: &Status<'_>,
        descriptor: &Descriptor<'_>,
    ) {
        let why = denial_reason(status.kind(), decision.is_over_limit());
        let Some(why) = why.filter(|_| self.recorder.is_on()) else { return };
        let denial = DenialEvent {
            domain,
            rule: status.rule().map_or(OWN_LIMIT, |rule| rule.path()),
            version: &live.version,
            why,
            hits: hits_of(descriptor.hits),
            retry_after: status.time_until_fit(),
            recorded: status.recorded(),
        };
        Keyed::show(status.keyed(), &descriptor.entries, |entries| {
            self.recorder.note(&denial, entries)
        });
    }

    /// Records the denials by candidate limits of a request that is admitted.
    pub(super) fn record_candidate_denials(
        &self,
        live: &Live,
        request: &Request<'_>,
        decision: &Decision<'_>,
    ) {
        if decision.is_over_limit() || !self.recorder.is_on() {
            return;
        }
        for candidate in decision.candidates() {
            if candidate.would_deny() != Some(true) {
                continue;
            }
            let Some(descriptor) = request.descriptors.get(candidate.descriptor()) else {
                continue;
            };
            let denial = DenialEvent {
                domain: request.domain,
                rule: candidate.name(),
                version: &live.version,
                why: DenialReason::Passed,
                hits: hits_of(descriptor.hits),
                retry_after: candidate.wait(),
                recorded: &[],
            };
            Keyed::show(candidate.keyed(), &descriptor.entries, |entries| {
                self.recorder.note(&denial, entries)
            });
        }
    }

    /// Counts hits that may exceed the limit: refunds, overruns and weighted estimates.
    pub(super) fn count_exception(&self, status: &Status<'_>, hits: Hits) {
        let metrics = &self.policies.metrics;
        match (hits, status.kind()) {
            (Hits::Refund(hits), StatusKind::Allowed) => {
                metrics.exceptions.refunded_hits.inc_by(hits.into());
            }
            (Hits::Charge(hits), kind) => match (status.limit(), kind) {
                (Some(AppliedLimit { limit, .. }), StatusKind::Denied)
                    if limit.charge_mode().is_afterwards() =>
                {
                    metrics.exceptions.overrun_hits.inc_by(hits.into());
                }
                (Some(AppliedLimit { limit, .. }), StatusKind::Allowed) if limit.is_estimated() => {
                    metrics.exceptions.estimated_hits.inc_by(hits.into());
                }
                (_, _) => {}
            },
            (Hits::Peek(_) | Hits::Refund(_), _) => {}
        }
    }
}

fn hits_of(wanted: Hits) -> u64 {
    match wanted {
        Hits::Charge(hits) => hits.into(),
        Hits::Peek(_) | Hits::Refund(_) => 0,
    }
}

fn denial_reason(kind: StatusKind, is_over_limit: bool) -> Option<DenialReason> {
    match (kind, is_over_limit) {
        (StatusKind::Denied, true) => Some(DenialReason::NoRoom),
        (StatusKind::PresumedDenied, true) => Some(DenialReason::Presumed),
        (StatusKind::Denied | StatusKind::PresumedDenied, false)
        | (StatusKind::ShadowDenied, _) => Some(DenialReason::Passed),
        (
            StatusKind::NoLimit
            | StatusKind::Unlimited
            | StatusKind::Allowed
            | StatusKind::PresumedAllowed,
            _,
        ) => None,
    }
}
