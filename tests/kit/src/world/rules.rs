//! The limits of a world.

use super::plan::VERSIONS;
use super::plan_holds::SimHold;
use crate::random::Random;

/// A counting algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    Fixed,
    Sliding,
    Log,
    Gcra,
    /// `concurrency`.
    Permits,
}

/// Holders of leased hits of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseHolders {
    Processes,
    Clients,
    All,
}

/// A limit of a world.
#[derive(Clone, Debug)]
pub struct SimRule {
    pub counting: Counting,
    /// The algorithm in the last version of the policy, if that has another.
    pub last_counting: Option<Counting>,
    pub period_us: u64,
    /// `true` if its fixed window is a day of the calendar.
    pub is_calendar: bool,
    /// The amount in each version of the policy.
    pub amounts: Vec<u32>,
    /// Time to live of leases, if there are any.
    pub lease_us: Option<u64>,
    /// Holders of its leases.
    pub lease_holders: LeaseHolders,
    /// Time in seconds for which proxies hold hits, if they do.
    pub quota_ttl_s: Option<u64>,
    pub on_store_error: &'static str,
    pub charge: &'static str,
    /// The settings of its holds, if it keeps any.
    pub hold: Option<SimHold>,
}

/// A period that does not end while a world runs.
pub const LONG_US: u64 = 86_400_000_000;

impl SimRule {
    /// Returns a limit without options.
    pub fn plain(amount: u32) -> Self {
        Self {
            counting: Counting::Fixed,
            last_counting: None,
            is_calendar: false,
            period_us: LONG_US,
            amounts: vec![amount; VERSIONS],
            lease_us: None,
            lease_holders: LeaseHolders::Processes,
            quota_ttl_s: None,
            on_store_error: "error",
            charge: "admitted",
            hold: None,
        }
    }

    /// Draws a limit.
    pub fn draw(random: &mut Random) -> Self {
        const COUNTINGS: [Counting; 5] =
            [Counting::Fixed, Counting::Fixed, Counting::Sliding, Counting::Log, Counting::Gcra];
        let counting = *random.one_of(&COUNTINGS);
        let short = 1_000_000 * (1 + random.below(3)) as u64;
        let period_us = if random.percent(65) { LONG_US } else { short };
        let lease_us = random.percent(30).then(|| 100_000 * (1 + random.below(10)) as u64);
        let amount = 6 + random.below(if lease_us.is_some() { 600 } else { 60 });
        let mut draw = || match random.below(7) {
            // Much lower, as after a mistake.
            0 => (amount / 20 + 1) as u32,
            1 | 2 => amount as u32,
            3 | 4 => (amount + random.below(20)) as u32,
            _ => (amount - random.below(amount / 2)) as u32,
        };
        let amounts = (0..VERSIONS).map(|_| draw()).collect();
        let other = *random.one_of(&COUNTINGS);
        let last_counting = random.percent(20).then_some(other).filter(|other| *other != counting);
        let has_log = [Some(counting), last_counting].contains(&Some(Counting::Log));
        let charge = if has_log || random.percent(80) { "admitted" } else { "always" };
        Self {
            counting,
            last_counting,
            is_calendar: period_us == LONG_US && random.percent(20),
            period_us,
            amounts,
            lease_us,
            lease_holders: LeaseHolders::Processes,
            quota_ttl_s: None,
            on_store_error: *random.one_of(&["error", "error", "error", "allow", "deny", "local"]),
            charge,
            hold: None,
        }
    }

    /// Returns the algorithm of a version of the policy.
    pub fn counting_of(&self, version: usize) -> Counting {
        let last = self.last_counting.filter(|_| version + 1 == VERSIONS);
        last.unwrap_or(self.counting)
    }

    /// Returns `true` if its period does not end while a world runs.
    pub fn is_long(&self) -> bool {
        self.period_us == LONG_US
    }

    /// Returns `true` if hits of it are given back by callers.
    pub fn is_refundable(&self) -> bool {
        self.is_long()
            && self.hold.is_none()
            && self.charge == "admitted"
            && self.on_store_error == "error"
    }

    /// Returns `true` if processes lease hits of it.
    pub fn is_leased(&self) -> bool {
        self.lease_us.is_some() && self.lease_holders != LeaseHolders::Clients
    }

    /// Returns `true` if holders outside of the processes may have hits of it.
    pub fn is_lent(&self) -> bool {
        self.lease_us.is_some() && self.lease_holders != LeaseHolders::Processes
    }

    /// Returns `true` if this process may decide alone.
    pub fn is_local(&self) -> bool {
        self.on_store_error == "local"
    }

    /// Returns the limit as a policy has it.
    pub fn limit(&self, version: usize) -> String {
        if let Some(limit) = self.limit_with_holds(version) {
            return limit;
        }
        let algorithm = match self.counting_of(version) {
            Counting::Fixed => "fixed_window",
            Counting::Sliding => "sliding_window",
            Counting::Log => "sliding_log",
            Counting::Gcra | Counting::Permits => "gcra",
        };
        let holders = match self.lease_holders {
            LeaseHolders::Processes => "",
            LeaseHolders::Clients => ", holders: [client]",
            LeaseHolders::All => ", holders: [process, client]",
        };
        let quota = self
            .quota_ttl_s
            .map(|seconds| format!(", rlqs: {{ size: 50%, ttl: {seconds}s }}"))
            .unwrap_or_default();
        let lease = self
            .lease_us
            .map(|us| format!(", lease: {{ size: 50%, ttl: {}ms{holders}{quota} }}", us / 1_000));
        let unit = if self.is_calendar && algorithm == "fixed_window" {
            "day, calendar: true".to_owned()
        } else {
            format!("{}ms", self.period_us / 1_000)
        };
        format!(
            "algorithm: {algorithm}, requests_per_unit: {}, unit: {unit}, charge: {}, on_store_error: {}{}",
            self.amounts[version],
            self.charge,
            self.on_store_error,
            lease.unwrap_or_default()
        )
    }
}
