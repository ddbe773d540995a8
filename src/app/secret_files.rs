//! Warnings about secrets that every user of the machine can read.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tracing::warn;

use crate::settings::Settings;

/// Permission of a file to be read by every user.
const READABLE_BY_ALL: u32 = 0o004;

/// Logs a warning for each file with secrets that others can read.
pub(super) fn announce(settings: &Settings) {
    let files = settings.secret_files();
    let readable = files.into_iter().filter_map(|(path, secrets)| readable_by_all(path, secrets));
    readable.for_each(|warning| warn!("{warning}"));
}

/// Returns a warning if every user of the machine can read a file with secrets.
fn readable_by_all(path: &Path, secrets: &str) -> Option<String> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & READABLE_BY_ALL != 0).then(|| {
        format!(
            "{path}: every user can read {secrets}; run `chmod o-r {path}`, or set \
             `defaultMode: 0440` of the volume"
        )
    })
}
