//! Details of a write, for the audit log.

use std::sync::Arc;

use parking_lot::Mutex;

/// Details of a write for the audit log, beyond its path. Each detail is added as soon as it is
/// known, so that the log entry is complete even if the write fails later.
#[derive(Clone, Debug, Default)]
pub struct AuditEntry(Arc<Mutex<String>>);

impl AuditEntry {
    /// Appends `text`.
    pub fn add(&self, text: &str) {
        self.0.lock().push_str(text);
    }

    /// Returns all details added so far.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }
}
