//! The costs of committed holds relative to their reserved hits: a histogram for Prometheus, and
//! the same counts for a summary, which tells if the estimates of a rule are any good.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds of the buckets: finest around exact estimates.
const BOUNDS: [f64; 11] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0];
/// Fewest commits from which advice is given.
const FEWEST: u64 = 100;
/// Share of overruns from which a higher estimate is advised.
const MANY_OVERRUNS: f64 = 0.01;
/// Ratio below which, for nearly all commits, a lower estimate is advised.
const FAR_BELOW: f64 = 0.5;
/// The share of commits that counts as nearly all.
const NEARLY_ALL: f64 = 0.95;

const MILLION: f64 = 1e6;

/// A histogram of costs divided by reserved hits.
#[derive(Clone, Debug)]
pub struct CostRatio {
    histogram: Histogram,
    /// Number of commits by bucket; the last has those above all bounds.
    counts: Arc<[AtomicU64; BOUNDS.len() + 1]>,
    /// Sum of the ratios in millionths.
    sum: Arc<AtomicU64>,
}

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
        Self { histogram: Histogram::new(BOUNDS), counts: Arc::default(), sum: Arc::default() }
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
        self.histogram.observe(ratio);
        // Without hits reserved, a ratio is the cost: billions of them would overflow.
        let more = |sum: u64| Some(sum.saturating_add((ratio * MILLION) as u64));
        let _ = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        let bucket = BOUNDS.iter().position(|bound| ratio <= *bound).unwrap_or(BOUNDS.len());
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a summary of the commits so far; `None` if there are none.
    #[allow(clippy::cast_precision_loss, reason = "a summary has few digits")]
    pub fn summary(&self) -> Option<EstimateSummary> {
        let counts = self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let commits: u64 = counts.iter().sum();
        let share = |count: u64| count as f64 / commits as f64;
        let up_to = |bound: f64| {
            let below = BOUNDS.iter().zip(counts).filter(|(of, _)| **of <= bound);
            share(below.map(|(_, count)| count).sum())
        };
        (commits > 0).then(|| EstimateSummary {
            commits,
            mean: self.sum.load(Ordering::Relaxed) as f64 / MILLION / commits as f64,
            most: BOUNDS.into_iter().find(|bound| up_to(*bound) >= NEARLY_ALL),
            overruns: 1.0 - up_to(1.0),
        })
    }
}

impl EstimateSummary {
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

impl EncodeMetric for CostRatio {
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result {
        self.histogram.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for CostRatio {
    const TYPE: MetricType = MetricType::Histogram;
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
