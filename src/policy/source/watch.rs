//! Watcher of policy files.

use std::sync::Arc;

use super::files::{self, Places};
use crate::policy::{Report, Source};

/// Reads `places` forever and passes every settled change to `changed`, including the first reading
/// if it differs from `known`.
pub async fn watch(places: Places, known: Reading, changed: impl FnMut(Reading)) {
    let places = Arc::new(places);
    crate::watch::watch(known, move || files::read(&places), changed).await;
}

/// The result of one reading.
pub type Reading = Result<Vec<Source>, Report>;
