//! The processes that share the limits of a store, as their periodic heartbeats find them.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use tollgate_core::algorithm::share::Share;

/// Time after its last heartbeat at which a process is considered gone.
pub(super) const REPLICA_TTL: Duration = Duration::from_secs(15);

/// Description of a process, which it publishes for operators of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Host name.
    pub name: String,
    /// Start time of the process, RFC 3339.
    pub begun_at: String,
    /// Release.
    pub release: String,
    /// Version of the policies in force; empty if there are none.
    pub policies: String,
    /// Time at which they came into force, RFC 3339.
    pub loaded_at: String,
    /// Rates of its rules, as text for other processes.
    pub rates: String,
}

/// A process that has sent a heartbeat lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredReplica {
    /// ID of the process.
    pub id: String,
    /// Time since its last heartbeat, by the clock of the store.
    pub silent_for: Duration,
    /// Its description; `None` for releases before 1.0, which publish none.
    pub info: Option<ReplicaInfo>,
}

/// The processes on a store, as a heartbeat found them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The list, sorted by ID.
    Listed {
        /// All IDs.
        ids: Vec<Vec<u8>>,
        /// Rank of this process, from 0.
        rank: Option<u32>,
    },
    /// Their number, if the user may not read the list.
    Counted(u32),
}

/// The processes on a store, as far as this one can rely on it.
///
/// A list is accepted after it was unchanged for as long as a process stays registered without a
/// heartbeat: all processes have read it by then, also after the store lost its data. Meanwhile,
/// this process has the smallest share by the highest number that it read, and none before its
/// first list. So shares by different lists do not sum to more than the limit either.
#[derive(Debug, Default)]
pub struct ReplicaList {
    current: Option<Registered>,
    /// Start of the unbroken run of `current`.
    since: Option<Instant>,
    /// `true` if `current` has been accepted.
    is_accepted: bool,
    /// `true` if any list has been accepted.
    has_share: bool,
    /// The highest number since the last accepted list.
    most: u32,
}

impl Registered {
    /// Returns the list of these IDs, in any order, for the process `own`.
    pub fn listed(mut ids: Vec<Vec<u8>>, own: &[u8]) -> Self {
        ids.sort_unstable();
        let rank = ids.iter().position(|id| id == own);
        Self::Listed { ids, rank: rank.and_then(|rank| u32::try_from(rank).ok()) }
    }

    fn count(&self) -> u32 {
        match self {
            Self::Listed { ids, .. } => u32::try_from(ids.len()).unwrap_or(u32::MAX),
            Self::Counted(count) => *count,
        }
    }

    fn rank(&self) -> Option<u32> {
        match self {
            Self::Listed { rank, .. } => *rank,
            Self::Counted(_) => None,
        }
    }
}

impl ReplicaList {
    /// Records the processes that a heartbeat found; `None` if the store did not answer.
    pub fn report(&mut self, found: Option<Registered>, now: Instant) {
        // While the store is down, no process can report: the time begins again.
        let Some(found) = found else { return self.since = None };
        if self.current.as_ref() != Some(&found) {
            self.since = None;
            self.is_accepted = false;
            self.most = self.most.max(found.count());
            self.current = Some(found);
        }
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= REPLICA_TTL {
            self.is_accepted = true;
            self.has_share = true;
            self.most = self.current.as_ref().map_or(0, Registered::count);
        }
    }

    /// Returns the number of processes, 0 before the first list.
    pub fn count(&self) -> u32 {
        self.most
    }

    /// Returns the share of this process.
    pub fn share(&self) -> Share {
        let rank = self.current.as_ref().filter(|_| self.is_accepted).and_then(Registered::rank);
        let parts = NonZeroU32::new(self.most).filter(|_| self.has_share);
        parts.map_or(Share::NONE, |parts| Share::of(parts, rank))
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: u8 = b'b';

    fn list(ids: &[u8], own: u8) -> Registered {
        Registered::listed(ids.iter().map(|id| vec![*id]).collect(), &[own])
    }

    /// Returns the numbers, and the shares of a limit of 5, after lists at these seconds.
    fn numbers(reports: &[(u64, Option<&str>)]) -> Vec<(u32, u32)> {
        let mut known = ReplicaList::default();
        let begin = Instant::now();
        let at = |seconds| begin.checked_add(Duration::from_secs(seconds)).unwrap();
        let report = |(seconds, ids): &(u64, Option<&str>)| {
            known.report(ids.map(|ids| list(ids.as_bytes(), OWN)), at(*seconds));
            (known.count(), known.share().amount(5))
        };
        reports.iter().map(report).collect()
    }

    #[test]
    fn a_process_has_no_share_before_all_others_had_time_to_read_of_it() {
        let reports = [(0, None), (5, Some("ab")), (10, Some("ab")), (15, Some("ab"))];
        assert_eq!(numbers(&reports), [(0, 0), (2, 0), (2, 0), (2, 0)]);
        assert_eq!(numbers(&[(5, Some("ab")), (20, Some("ab"))]), [(2, 0), (2, 2)]);
        assert_eq!(numbers(&[(5, Some("bc")), (20, Some("bc"))]), [(2, 0), (2, 3)]);
    }

    #[test]
    fn a_higher_number_applies_at_once_and_ranks_when_all_know_it() {
        let reports = [(0, "bc"), (15, "bc"), (20, "bcd"), (30, "bcd"), (35, "bcd")];
        let reports = reports.map(|(at, ids)| (at, Some(ids)));
        assert_eq!(numbers(&reports), [(2, 0), (2, 3), (3, 1), (3, 1), (3, 2)]);
    }

    #[test]
    fn a_store_that_lost_its_data_lowers_no_number_while_all_report_again() {
        let reports = [(0, "abc"), (15, "abc"), (20, "b"), (25, "bc"), (30, "abc"), (45, "abc")];
        let reports = reports.map(|(at, ids)| (at, Some(ids)));
        assert_eq!(numbers(&reports), [(3, 0), (3, 2), (3, 1), (3, 1), (3, 1), (3, 2)]);
    }

    #[test]
    fn the_time_to_report_begins_when_the_store_is_back() {
        let reports = [
            (0, Some("abc")),
            (15, Some("abc")),
            (20, Some("b")),
            (25, None),
            (60, None),
            (65, Some("b")),
            (75, Some("b")),
            (80, Some("b")),
        ];
        assert_eq!(
            numbers(&reports).split_off(2),
            [(3, 1), (3, 1), (3, 1), (3, 1), (3, 1), (1, 5)]
        );
    }

    #[test]
    fn a_process_that_may_not_read_the_list_has_the_smallest_share() {
        let mut known = ReplicaList::default();
        let begin = Instant::now();
        for seconds in [0, 15] {
            let now = begin.checked_add(Duration::from_secs(seconds)).unwrap();
            known.report(Some(Registered::Counted(3)), now);
        }
        assert_eq!((known.share().amount(5), known.share().amount(2)), (1, 0));
    }

    /// A process of the property below: its ID, and whether it is up.
    struct SimulatedProcess {
        known: ReplicaList,
        is_up: bool,
        last: Option<u64>,
    }

    proptest! {
        /// Processes start, stop, and send heartbeats every five seconds to a store that fails and
        /// loses its data, but not again before all lists are complete; whenever the store fails,
        /// the shares of those that are up must fit.
        #[test]
        fn shares_fit_the_limit_whatever_processes_know(
            events in prop::collection::vec((0..12_u8, 0..5_u8), 1..80),
            limit in 0..9_u32,
        ) {
            let begin = Instant::now();
            let mut processes: Vec<SimulatedProcess> = (0..5)
                .map(|_| SimulatedProcess { known: ReplicaList::default(), is_up: false, last: None })
                .collect();
            let mut is_down = false;
            let mut now = 0_u64;
            let mut keeps_data_until = 0;
            for (kind, which) in events {
                let process = &mut processes[usize::from(which)];
                match kind {
                    0 => *process = SimulatedProcess { known: ReplicaList::default(), is_up: true, last: None },
                    1 => process.is_up = false,
                    2 => is_down = !is_down,
                    3 if now >= keeps_data_until => {
                        processes.iter_mut().for_each(|process| process.last = None);
                        keeps_data_until = now + 2 * REPLICA_TTL.as_secs();
                    }
                    _ => {}
                }
                // A round of heartbeats in some order, one each second.
                for step in 0..5_u8 {
                    now += 1;
                    let own = (which + step) % 5;
                    if !processes[usize::from(own)].is_up {
                        continue;
                    }
                    let found = (!is_down).then(|| {
                        processes[usize::from(own)].last = Some(now);
                        let is_live = |last: u64| last + REPLICA_TTL.as_secs() > now;
                        let live = processes.iter().zip(0..).filter(|(process, _)| process.last.is_some_and(is_live));
                        list(&live.map(|(_, id)| id).collect::<Vec<u8>>(), own)
                    });
                    let at = begin + Duration::from_secs(now);
                    processes[usize::from(own)].known.report(found, at);
                    let shares = processes.iter().filter(|process| process.is_up).map(|process| process.known.share().amount(limit));
                    let sum: u32 = shares.sum();
                    prop_assert!(sum <= limit, "{sum} of {limit} at {now} s");
                }
            }
        }
    }
}
