//! Features of limits, each with each: six algorithms, ways to charge hits, and features
//! beside them. A cell is a policy that says all three; it does what its features do alone, or is
//! refused with its reason.
//!
//! | module | contents |
//! |---|---|
//! | `place` | a service over each kind of store, in paused time |
//! | `ahead` | hits charged before it is known how many are used |
//! | `beside` | expectations of a cell |
#![allow(clippy::wildcard_enum_match_arm, reason = "most cells are alike")]

mod ahead;
mod beside;
mod place;

use self::place::{StoreKind, compile};
use crate::traces::simulated::in_paused_time;

/// Hits of the limit of a cell.
const LIMIT: u32 = 1_000;
/// Hits charged ahead.
const AHEAD: u32 = 20;

/// An algorithm, as a policy names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Gcra,
    TokenBucket,
    Concurrency,
}

/// A way to charge hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Plain,
    /// In JSON.
    Json,
    /// By ext_authz, of a gateway.
    ExtAuthz,
    /// By `/auth/NAME`, of a gateway.
    ForwardAuth,
    /// Of a limit with several windows.
    Windows,
    /// Of windows of a calendar.
    Calendar,
    /// With an ID in a request like that of a proxy.
    Hold,
    HoldService,
    /// By HoldService in JSON.
    HoldJson,
    /// In blocks of a process.
    Process,
    /// Lent to a client.
    Client,
    /// Lent to a client, in JSON.
    ClientJson,
    /// Lent to a proxy by RLQS.
    Proxy,
}

/// A feature beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    Record,
    Grant,
    Reset,
    Override,
    Candidate,
    Shadow,
    Quota,
    /// Another amount.
    Edit,
    /// A hit by a process whose policy has neither holds nor leases.
    OtherPolicy,
    Local,
    PerSecond,
}

pub const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::Gcra,
    Algorithm::TokenBucket,
    Algorithm::Concurrency,
];

pub const FORMS: [Form; 13] = [
    Form::Plain,
    Form::Json,
    Form::ExtAuthz,
    Form::ForwardAuth,
    Form::Windows,
    Form::Calendar,
    Form::Hold,
    Form::HoldService,
    Form::HoldJson,
    Form::Process,
    Form::Client,
    Form::ClientJson,
    Form::Proxy,
];

pub const BESIDE: [Beside; 12] = [
    Beside::Nothing,
    Beside::Record,
    Beside::Grant,
    Beside::Reset,
    Beside::Override,
    Beside::Candidate,
    Beside::Shadow,
    Beside::Quota,
    Beside::Edit,
    Beside::OtherPolicy,
    Beside::Local,
    Beside::PerSecond,
];

/// A cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub algorithm: Algorithm,
    pub form: Form,
    pub beside: Beside,
}

impl Algorithm {
    const fn word(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::Gcra => "gcra",
            Self::TokenBucket => "token_bucket",
            Self::Concurrency => "concurrency",
        }
    }

    /// Returns `true` for algorithms whose hits drain.
    const fn is_rate(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket)
    }
}

impl Form {
    const fn is_hold(self) -> bool {
        matches!(self, Self::Hold | Self::HoldService | Self::HoldJson)
    }

    const fn is_of_client(self) -> bool {
        matches!(self, Self::Client | Self::ClientJson)
    }

    /// Returns `true` if a holder of its own decides on requests.
    const fn is_lent(self) -> bool {
        self.is_of_client() || matches!(self, Self::Proxy)
    }

    const fn is_leased(self) -> bool {
        self.is_lent() || matches!(self, Self::Process)
    }

    /// Returns `true` for charges that nothing remembers: refunds give them back.
    const fn is_plain(self) -> bool {
        !self.is_hold() && !self.is_leased()
    }

    const fn is_of_gateway(self) -> bool {
        matches!(self, Self::ExtAuthz | Self::ForwardAuth)
    }
}

impl Cell {
    /// Returns all cells.
    pub fn all() -> impl Iterator<Item = Self> {
        ALGORITHMS.into_iter().flat_map(|algorithm| {
            FORMS.into_iter().flat_map(move |form| {
                BESIDE.into_iter().map(move |beside| Self { algorithm, form, beside })
            })
        })
    }

    /// Returns the windows of the limit.
    fn windows(self, amount: u32) -> String {
        let unit = if self.beside == Beside::PerSecond { "second" } else { "year" };
        let one = format!("requests_per_unit: {amount}, unit: {unit}");
        match self.form {
            Form::Windows => {
                let longer = if self.beside == Beside::PerSecond { "second" } else { "3650d" };
                let two = format!("{{ requests_per_unit: 9000, unit: {longer} }}");
                format!("windows: [{{ {one} }}, {two}]")
            }
            Form::Calendar => format!("{one}, calendar: true, time_zone: Europe/Berlin"),
            _ => one,
        }
    }

    /// Returns the limit with an amount.
    fn limit(self, amount: u32) -> String {
        let word = self.algorithm.word();
        let is_permit = self.algorithm == Algorithm::Concurrency;
        let mut parts = vec![format!("algorithm: {word}")];
        if is_permit {
            parts.push(format!("in_flight: {amount}"));
            match self.form {
                Form::Windows => {
                    parts.push("windows: [{ requests_per_unit: 1, unit: day }]".into())
                }
                Form::Calendar => parts.push("calendar: true".into()),
                _ => {}
            }
        } else {
            parts.push(self.windows(amount));
        }
        if self.form.is_hold() || is_permit {
            let releases = self.form == Form::Hold && !is_permit;
            let on_settle = if releases { ", on_settle: release" } else { "" };
            parts.push(format!("hold: {{ ttl: 10m{on_settle} }}"));
        } else {
            parts.push("charge: admitted".to_owned());
        }
        // Time for which hits are lent: shorter than the period.
        let ttl = if self.beside == Beside::PerSecond { "50ms" } else { "1s" };
        let lease = match self.form {
            Form::Process => format!("lease: {{ size: 10%, ttl: {ttl} }}"),
            Form::Client | Form::ClientJson => {
                format!("lease: {{ size: 10%, ttl: {ttl}, holders: [client] }}")
            }
            Form::Proxy => {
                format!("lease: {{ size: 10%, ttl: {ttl}, rlqs: {{ ttl: 10s, size: 10% }} }}")
            }
            _ => String::new(),
        };
        let of_beside = match self.beside {
            Beside::Record => "record: [k0]",
            Beside::Override => "override: inherit",
            Beside::Local => "on_store_error: local",
            _ => "",
        };
        parts.extend([lease, of_beside.to_owned()].into_iter().filter(|part| !part.is_empty()));
        parts.join(", ")
    }

    /// Returns the policy of the cell, whose limit has an amount.
    fn policy(self, amount: u32) -> String {
        let mode = match self.beside {
            Beside::Shadow => "    shadow_mode: true\n",
            Beside::Quota => "    quota_mode: true\n",
            _ => "",
        };
        let limit = self.limit(amount);
        let rules = format!("  - key: k0\n    rate_limit: {{ {limit} }}\n{mode}");
        format!("domain: test\ndescriptors:\n{rules}")
    }

    /// Returns the policy of the cell, with the mapping of a gateway if there is one.
    fn whole_policy(self, amount: u32) -> String {
        let mut policy = self.policy(amount);
        if self.form.is_of_gateway() {
            policy += &format!(
                "requests:\n  - name: gateway\n    descriptors:\n      - {{ hits: {AHEAD}, entries: {{ k0: a }} }}\n"
            );
        }
        policy
    }

    /// Returns the cell whose limit has neither holds nor leases.
    fn without_form(self) -> Self {
        let form = if self.form.is_plain() { self.form } else { Form::Plain };
        Self { form, ..self }
    }

    /// Returns the reason for which the policy of the cell is refused; `None` if it is not.
    fn refusal(self) -> Option<&'static str> {
        let Self { algorithm, form, beside } = self;
        let is_permit = algorithm == Algorithm::Concurrency;
        let has_windows = matches!(
            algorithm,
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog
        );
        Some(match (form, beside) {
            (Form::Windows, _) if !has_windows => "`windows` does not apply to",
            (Form::Calendar, _) if algorithm != Algorithm::FixedWindow => {
                "`calendar` does not apply to"
            }
            _ if form.is_leased() && is_permit => "`lease` and `hold` cannot be combined",
            (Form::Calendar, Beside::PerSecond) => "`calendar` does not support the unit `second`",
            (Form::Windows, Beside::Override) => "the limit has several windows",
            (Form::Calendar, Beside::Override) => "calendar windows cannot take the period",
            (_, Beside::Override) if algorithm == Algorithm::SlidingLog => {
                "sliding_log has a maximum amount"
            }
            (Form::Proxy, Beside::PerSecond) => "rlqs",
            _ => return None,
        })
    }

    /// Returns the reason for which `check` says that a lease has no effect; `None` if it has one.
    fn warning(self) -> Option<&'static str> {
        match (self.form, self.beside) {
            (form, Beside::Record) if form.is_of_client() => Some("no hits are lent to clients"),
            (Form::Proxy, Beside::Record) => Some("no hits are lent to proxies"),
            (form, Beside::Quota) if form.is_leased() => Some("lease has no effect"),
            _ => None,
        }
    }

    /// Returns what the cell does that it should not, with simulated stores of each kind.
    ///
    /// # Panics
    /// If a call fails that cannot.
    pub fn broken(self) -> Vec<String> {
        let compiled = compile(&self.whole_policy(LIMIT), false);
        match (compiled, self.refusal()) {
            (Err(report), Some(reason)) if report.contains(reason) => return Vec::new(),
            (Err(report), _) => return vec![format!("{self:?} is refused: {report}")],
            (Ok(_), Some(reason)) => return vec![format!("{self:?} is not refused: {reason}")],
            (Ok(loaded), None) => {
                let warnings = loaded.warnings.to_string();
                if self.warning().is_some_and(|reason| !warnings.contains(reason)) {
                    return vec![format!("{self:?} is not warned of: {warnings}")];
                }
            }
        }
        let kinds: &[StoreKind] = match self.beside {
            Beside::PerSecond => &[StoreKind::PerSecond],
            _ => &[StoreKind::Memory, StoreKind::Server, StoreKind::Cluster],
        };
        in_paused_time(async {
            let mut broken = Vec::new();
            for kind in kinds {
                broken.extend(beside::findings(self, kind).await);
            }
            broken
        })
    }

    /// Returns what the cell does that it should not with a real store, whose failures and loans
    /// that take time are left out.
    ///
    /// # Panics
    /// If a call fails that cannot.
    pub async fn broken_with(self, url: &str) -> Vec<String> {
        let takes_time = matches!(self.form, Form::Process | Form::Proxy)
            || matches!(self.beside, Beside::Local | Beside::PerSecond);
        if takes_time || self.refusal().is_some() {
            return Vec::new();
        }
        let prefix = format!("{:?}-{:?}-{:?}:", self.algorithm, self.form, self.beside);
        beside::findings(self, &StoreKind::Real(url.to_owned(), prefix)).await
    }
}
