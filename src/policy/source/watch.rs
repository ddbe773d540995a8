//! Watcher of policy files.

use std::sync::Arc;

use super::files::{self, PolicyLocations};
use crate::policy::{ProblemReport, Source};

/// Reads `places` forever and passes every settled change to `changed`, including the first reading
/// if it differs from `known`.
pub async fn watch(
    places: PolicyLocations,
    known: SourceReading,
    changed: impl FnMut(SourceReading),
) {
    let places = Arc::new(places);
    crate::watch::watch(known, move || files::read(&places), changed).await;
}

/// Reads `places` forever and passes every settled reading to `settled`, changed or not.
pub async fn watch_settled(places: PolicyLocations, settled: impl FnMut(&SourceReading)) {
    let places = Arc::new(places);
    crate::watch::watch_settled(move || files::read(&places), settled).await;
}

/// The result of one reading.
pub type SourceReading = Result<Vec<Source>, ProblemReport>;
