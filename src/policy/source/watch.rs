//! Policy files that change.

use std::sync::Arc;

use super::files::{self, Places};
use crate::policy::{Report, Source};

/// Reads `places` for ever and gives every settled change to `changed`, first of all if they differ from `known`.
pub async fn watch(places: Places, known: Vec<Source>, changed: impl FnMut(Result<Vec<Source>, Report>)) {
    let places = Arc::new(places);
    crate::watch::watch(Ok(known), move || files::read(&places), changed).await;
}
