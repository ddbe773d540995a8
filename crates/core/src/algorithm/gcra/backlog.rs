//! Arithmetic of backlogs.

use super::Backlog;
use crate::algorithm::time::Micros;

impl Backlog {
    pub(super) fn plus(self, other: Self, parts: u32) -> Self {
        let whole = self.whole.saturating_add(other.whole);
        let part = u64::from(self.part).saturating_add(u64::from(other.part));
        match u32::try_from(part.saturating_sub(u64::from(parts))) {
            Ok(carried) if part >= u64::from(parts) => {
                Self { whole: whole.saturating_add(1), part: carried }
            }
            _ => Self { whole, part: u32::try_from(part).unwrap_or(u32::MAX) },
        }
    }

    /// Returns the difference; zero if `other` is larger.
    pub(super) fn minus(self, other: Self, parts: u32) -> Self {
        if self <= other {
            return Self::default();
        }
        let whole = self.whole.saturating_sub(other.whole);
        match self.part.checked_sub(other.part) {
            Some(part) => Self { whole, part },
            None => {
                let part = parts.saturating_sub(other.part).saturating_add(self.part);
                Self { whole: whole.saturating_sub(1), part }
            }
        }
    }

    /// Returns the backlog that is left after `elapsed`.
    pub(in crate::algorithm) fn drained(self, elapsed: Micros) -> Self {
        match self.whole.checked_sub(elapsed.get()) {
            Some(whole) => Self { whole, part: self.part },
            None => Self::default(),
        }
    }

    pub(super) fn rounded_up(self) -> Micros {
        Micros::new(self.whole) + Micros::new(u64::from(self.part > 0))
    }
}
