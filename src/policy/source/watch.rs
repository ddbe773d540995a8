//! Policy files that change.

use std::path::PathBuf;
use std::sync::Arc;

use super::files;
use crate::policy::{Report, Source};

/// Reads `paths` for ever and gives every settled change to `changed`, first of all if they differ from `known`.
pub async fn watch(paths: Vec<PathBuf>, known: Vec<Source>, changed: impl FnMut(Result<Vec<Source>, Report>)) {
    let paths = Arc::new(paths);
    crate::watch::watch(Ok(known), move || files::read(&paths), changed).await;
}
