//! Policy files in a temporary directory.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory with policy files, deleted when dropped.
pub struct Policies(TempDir);

impl Policies {
    /// Creates an empty directory.
    pub fn none() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Creates a directory with one file, `policy.yaml`.
    pub fn of(text: &str) -> Self {
        let policies = Self::none();
        policies.write("policy.yaml", text);
        policies
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file in it, which need not exist.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file in place, and creates its parent folders.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.file(name).parent().unwrap()).unwrap();
        std::fs::write(self.file(name), text).unwrap();
    }

    /// Points `name` at `target` as Kubernetes does: a new symlink is renamed over the old one.
    pub fn link(&self, name: &str, target: &str) {
        let fresh = self.file("..fresh");
        std::os::unix::fs::symlink(target, &fresh).unwrap();
        std::fs::rename(fresh, self.file(name)).unwrap();
    }
}

/// Returns a policy for domain `test`: `amount` per year for every value of `key`. The window does
/// not end during a test, except at New Year.
pub fn yearly(key: &str, amount: u32) -> String {
    daily(key, amount).replace("unit: day", "unit: year")
}

/// Returns a policy for domain `test`: `amount` per day for every value of `key`.
pub fn daily(key: &str, amount: u32) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: {key}\n    rate_limit: {{ requests_per_unit: {amount}, unit: day }}\n"
    )
}
