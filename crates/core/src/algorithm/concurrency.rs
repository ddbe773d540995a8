//! Concurrency: at most `in_flight` hits at one time, as permits that end.
//!
//! Idea: an admitted request takes a permit of its hits, which ends when its caller says so, or at
//! its TTL. A hit is allowed iff `used + n <= in_flight`, where `used` is the sum of the permits
//! that have not ended. The limit has no windows; its times are those of the TTLs, upper bounds.
//!
//! Example, `in_flight: 2`, TTL 1 m: permits taken at 0:00 and 0:10 are admitted, at 0:20 the next
//! one is denied with retry_after 40 s. The first ends at 0:30 by a commit: one more is admitted.

use super::Receipt;
use super::parameter::{Parameter, Parameters};
use super::quota::{MAX_IN_FLIGHT, MAX_TTL, QuotaError, Report, WindowUsage};
use super::time::{Micros, Timestamp};

/// Estimated overhead of the allocation of an ID in bytes.
const ALLOCATION: usize = 16;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concurrency {
    in_flight: u32,
}

/// The counter: the permits in the order in which they were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    permits: Vec<Permit>,
}

/// The hits of one request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit {
    /// ID of the hold; empty for a charge without an ID.
    pub id: Box<[u8]>,
    /// Number of hits.
    pub hits: u32,
    /// Instant at which the permit was taken.
    pub taken_at: Timestamp,
    /// First instant at which the permit has ended.
    pub ends_at: Timestamp,
}

impl Concurrency {
    /// Creates a limit of `in_flight` hits at one time; 0 is a ban.
    ///
    /// # Errors
    /// If `in_flight` exceeds [`MAX_IN_FLIGHT`].
    pub fn new(in_flight: u32) -> Result<Self, QuotaError> {
        if in_flight > MAX_IN_FLIGHT {
            return Err(QuotaError::InFlight { found: in_flight });
        }
        Ok(Self { in_flight })
    }

    /// Returns the maximum number of hits in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn parameters(&self) -> Parameters {
        [Some(Parameter::amount("in_flight", self.in_flight.into())), None]
    }

    pub(super) fn unused(&self) -> State {
        State { last: Timestamp::EPOCH, permits: Vec::new() }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        state.used(now).saturating_add(hits) <= u64::from(self.in_flight)
    }

    /// Takes a permit that has no ID and lives as long as any may.
    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        state.take(&[], hits, MAX_TTL, now);
    }

    /// Refunds hits of the newest permits, whatever their IDs. Returns `true` if it took any.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        if hits == 0 || state.used(now) == 0 {
            return false;
        }
        state.begin_write(now);
        let mut left = u32::try_from(hits).unwrap_or(u32::MAX);
        for permit in state.permits.iter_mut().rev() {
            let part = permit.hits.min(left);
            permit.hits = permit.hits.saturating_sub(part);
            left = left.saturating_sub(part);
        }
        state.permits.retain(|permit| permit.hits > 0);
        true
    }

    /// Undoes what is left of a charge. Returns `true` if it took any.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        let taken = state.permits.iter_mut().filter(|permit| {
            permit.ends_at > now && permit.taken_at == receipt.at && permit.id.is_empty()
        });
        // The newest of several permits of one instant, but a whole one before one that a refund
        // has taken from.
        let permit = taken.max_by_key(|permit| u64::from(permit.hits) == receipt.hits);
        let Some(permit) = permit else { return false };
        permit.hits = permit.hits.saturating_sub(u32::try_from(receipt.hits).unwrap_or(u32::MAX));
        state.permits.retain(|permit| permit.hits > 0);
        state.begin_write(now);
        true
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        let used = state.used(now);
        let limit = u64::from(self.in_flight);
        let reset_after =
            state.live(now).map(|permit| permit.ends_at.since(now)).max().unwrap_or(Micros::ZERO);
        Report {
            remaining: limit.saturating_sub(used),
            beyond: 0,
            window: 0,
            reset_after: Some(reset_after),
            retry_after: denied.and_then(|hits| state.retry_after(limit.checked_sub(hits)?, now)),
        }
    }

    /// Returns the usage of the permits.
    pub(super) fn usage(&self, state: &State, now: Timestamp) -> WindowUsage {
        let report = self.report(state, Some(1), now);
        WindowUsage {
            used: state.used(now),
            remaining: report.remaining,
            reset_after: report.reset_after.unwrap_or_default(),
            retry_after: report.retry_after,
        }
    }

    /// Sets the latest instant of the counter.
    pub(super) fn touch(&self, state: &mut State, now: Timestamp) {
        state.begin_write(now);
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        state.permits.iter().map(|permit| permit.ends_at).max().unwrap_or(state.last)
    }
}

impl State {
    /// Returns the permits that have not ended.
    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = &Permit> {
        self.permits.iter().filter(move |permit| permit.ends_at > now)
    }

    /// Returns the hits in flight.
    pub(super) fn used(&self, now: Timestamp) -> u64 {
        self.live(now).fold(0, |sum: u64, permit| sum.saturating_add(permit.hits.into()))
    }

    /// Takes a permit, even without room.
    pub(super) fn take(&mut self, id: &[u8], hits: u64, ttl: Micros, now: Timestamp) {
        self.begin_write(now);
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        self.permits.push(Permit { id: id.into(), hits, taken_at: now, ends_at: now + ttl });
    }

    /// Ends the oldest permit of an ID. Returns its hits; `None` if there is none.
    pub(super) fn end(&mut self, id: &[u8], now: Timestamp) -> Option<u32> {
        let oldest =
            self.permits.iter().position(|permit| permit.ends_at > now && *permit.id == *id)?;
        let permit = self.permits.remove(oldest);
        self.begin_write(now);
        Some(permit.hits)
    }

    /// Lets all permits of an ID end at `until`. Returns `true` if there are any.
    pub(super) fn extend(&mut self, id: &[u8], until: Timestamp, now: Timestamp) -> bool {
        let mut any = false;
        for permit in
            self.permits.iter_mut().filter(|permit| permit.ends_at > now && *permit.id == *id)
        {
            permit.ends_at = until;
            any = true;
        }
        if any {
            self.begin_write(now);
        }
        any
    }

    /// Removes the permits that have ended. Called only by a write: an earlier clock counts them.
    fn begin_write(&mut self, now: Timestamp) {
        self.permits.retain(|permit| permit.ends_at > now);
        self.last = now;
    }

    /// Returns the time until at most `room` hits are in flight.
    fn retry_after(&self, room: u64, now: Timestamp) -> Option<Micros> {
        let mut used = self.used(now);
        if used <= room {
            return Some(Micros::ZERO);
        }
        let mut ends: Vec<(Timestamp, u32)> =
            self.live(now).map(|permit| (permit.ends_at, permit.hits)).collect();
        ends.sort_unstable();
        ends.into_iter().find_map(|(ends_at, hits)| {
            used = used.saturating_sub(hits.into());
            (used <= room).then(|| ends_at.since(now))
        })
    }

    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let ids =
            self.permits.iter().map(|permit| id_bytes(&permit.id)).fold(0, usize::saturating_add);
        self.permits.capacity().saturating_mul(size_of::<Permit>()).saturating_add(ids)
    }

    /// Returns the number of bytes that a permit of this ID may allocate.
    pub(super) fn growth_bytes(&self, id: &[u8]) -> usize {
        super::growth_of::<Permit>(self.permits.len(), self.permits.capacity())
            .saturating_add(id_bytes(id))
    }
}

fn id_bytes(id: &[u8]) -> usize {
    if id.is_empty() { 0 } else { id.len().saturating_add(ALLOCATION) }
}
