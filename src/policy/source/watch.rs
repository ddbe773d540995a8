//! Policy files that change.

use std::sync::Arc;

use super::files::{self, Places};
use crate::policy::{Report, Source};

/// Reads `places` for ever and gives every settled change to `changed`, first of all if they differ from `known`.
pub async fn watch(places: Places, known: Reading, changed: impl FnMut(Reading)) {
    let places = Arc::new(places);
    crate::watch::watch(known, move || files::read(&places), changed).await;
}

/// What was read, or why it could not be.
pub type Reading = Result<Vec<Source>, Report>;
