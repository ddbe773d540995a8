//! The costs of committed holds relative to their reserved hits: a histogram for Prometheus, and
//! the same counts for a summary, which tells if the estimates of a rule are any good.

use std::fmt;
use std::sync::Arc;

use crate::histogram::{Histogram, HistogramReading, MILLION, millionths};
use crate::snapshot::SampleValue;

/// Upper bounds of the buckets in millionths: finest around exact estimates.
const BOUNDS: [u64; 11] = [
    100_000, 250_000, 500_000, 750_000, 900_000, 1_000_000, 1_100_000, 1_250_000, 1_500_000,
    2_000_000, 4_000_000,
];
/// Fewest commits from which advice is given.
const FEWEST: u64 = 100;
/// Share of overruns from which a higher estimate is advised.
const MANY_OVERRUNS: f64 = 0.01;
/// Ratio below which, for nearly all commits, a lower estimate is advised.
const FAR_BELOW: f64 = 0.5;
/// The share of commits that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;

/// The bound of commits that cost what was reserved.
const EXACT: u64 = 1_000_000;

/// A histogram of costs divided by reserved hits.
#[derive(Clone, Debug)]
pub struct CostRatio(Arc<Histogram>);

/// A summary of the costs of a rule relative to their reserved hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimateSummary {
    /// Number of commits.
    pub commits: u64,
    /// Mean of cost divided by reserved hits.
    pub mean: f64,
    /// Bound that 95 % of the commits do not exceed; `None` if it is above the largest bound.
    pub most: Option<f64>,
    /// Share of the commits that cost more than was reserved.
    pub overruns: f64,
}

impl Default for CostRatio {
    fn default() -> Self {
        Self(Arc::new(Histogram::new(&BOUNDS)))
    }
}

impl CostRatio {
    /// Records a commit.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a ratio of two u32 is not negative, and its millionths fit"
    )]
    pub fn observe(&self, ratio: f64) {
        let millionths = ratio * MILLION;
        // The smallest overrun is above a ratio of 1.
        self.0.observe_rounded(millionths.ceil() as u64, millionths.round() as u64);
    }

    /// Returns a summary of the commits so far; `None` if there are none.
    pub fn summary(&self) -> Option<EstimateSummary> {
        EstimateSummary::of(&self.0.read())
    }
}

impl EstimateSummary {
    #[allow(clippy::cast_precision_loss, reason = "a summary has few digits")]
    fn of(read: &HistogramReading) -> Option<Self> {
        let commits = read.count();
        if commits == 0 {
            return None;
        }
        let mut most = None;
        let mut overruns = 1.0;
        for (bound, count) in read.bounds.iter().zip(read.cumulative()) {
            let share = count as f64 / commits as f64;
            if share >= NEARLY_ALL && most.is_none() {
                most = Some(millionths(*bound));
            }
            if *bound == EXACT {
                overruns = 1.0 - share;
            }
        }
        Some(Self { commits, mean: millionths(read.sum) / commits as f64, most, overruns })
    }

    /// Returns how to change the estimate; `None` if it is good, or if there are too few commits.
    pub fn advice(&self) -> Option<&'static str> {
        if self.commits < FEWEST {
            None
        } else if self.overruns >= MANY_OVERRUNS {
            Some("raise the estimate: costs beyond it can exceed the limit")
        } else if self.most.is_some_and(|most| most <= FAR_BELOW) {
            Some("lower the estimate: it denies requests that would fit")
        } else {
            None
        }
    }
}

impl fmt::Display for EstimateSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, mean, most, overruns } = self;
        write!(f, "mean cost {mean:.2} of the reservation (")?;
        match most {
            Some(most) => write!(f, "95% of {commits} commits at most {most}; ")?,
            None => write!(f, "more than 5% of {commits} commits above 4; ")?,
        }
        write!(f, "{:.1}% above 1)", overruns * 100.0)?;
        self.advice().map_or(Ok(()), |advice| write!(f, "; {advice}"))
    }
}

impl From<&CostRatio> for SampleValue {
    fn from(ratio: &CostRatio) -> Self {
        Self::from(&ratio.0.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: impl IntoIterator<Item = f64>) -> CostRatio {
        let ratio = CostRatio::default();
        ratios.into_iter().for_each(|one| ratio.observe(one));
        ratio
    }

    #[test]
    fn advice_follows_from_costs_and_estimates() {
        let text = |ratios: Vec<f64>| of(ratios).summary().map(|summary| summary.to_string());
        let below = text([vec![0.2; 96], vec![0.9; 4]].concat());
        assert_eq!(
            below.as_deref(),
            Some(
                "mean cost 0.23 of the reservation (95% of 100 commits at most 0.25; 0.0% above 1); \
                 lower the estimate: it denies requests that would fit"
            )
        );
        let above = text([vec![0.5; 96], vec![1.01; 4]].concat());
        assert_eq!(
            above.as_deref(),
            Some(
                "mean cost 0.52 of the reservation (95% of 100 commits at most 0.5; 4.0% above 1); \
                 raise the estimate: costs beyond it can exceed the limit"
            )
        );
        assert_eq!(text(Vec::new()), None);
    }

    #[test]
    fn the_mean_of_small_costs_is_not_rounded_up() {
        let summary = of(vec![0.000_000_25; 100]).summary().unwrap();
        assert_eq!((summary.mean, summary.most), (0.0, Some(0.1)));
        let summary = of(vec![1.000_000_000_2; 100]).summary().unwrap();
        assert_eq!((summary.mean, summary.overruns), (1.0, 1.0));
    }

    #[test]
    fn good_estimates_and_few_commits_get_no_advice() {
        let advice = |ratios: Vec<f64>| of(ratios).summary().and_then(|summary| summary.advice());
        assert_eq!(advice(vec![0.8; 1000]), None);
        // Exactly what was reserved is no overrun.
        assert_eq!(advice(vec![1.0; 1000]), None);
        assert_eq!(advice(vec![0.1; 99]), None);
        assert!(advice(vec![0.1; 100]).is_some());
        assert_eq!(advice([vec![0.6; 999], vec![9.0]].concat()), None);
        let far_above = of(vec![9.0; 100]).summary().unwrap();
        assert_eq!((far_above.most, far_above.overruns), (None, 1.0));
        assert!(far_above.to_string().contains("5% of 100 commits above 4"), "{far_above}");
    }
}
