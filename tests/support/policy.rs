//! Policy files in a directory of their own.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A directory with policy files; gone with the test.
pub(crate) struct Policies(TempDir);

impl Policies {
    /// A directory with nothing in it.
    pub(crate) fn none() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A directory with one file, `policy.yaml`.
    pub(crate) fn of(text: &str) -> Self {
        let policies = Self::none();
        policies.write("policy.yaml", text);
        policies
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file in it, which may not be there yet.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file in place, with the folders above it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.file(name).parent().unwrap()).unwrap();
        std::fs::write(self.file(name), text).unwrap();
    }

    /// Points `name` at `target`, as Kubernetes does: a new link, renamed over the old one.
    pub(crate) fn link(&self, name: &str, target: &str) {
        let fresh = self.file("..fresh");
        std::os::unix::fs::symlink(target, &fresh).unwrap();
        std::fs::rename(fresh, self.file(name)).unwrap();
    }
}

/// A policy for domain `test`: `amount` a year for every value of `key`. Its window ends in no test that does not run at New Year.
pub(crate) fn yearly(key: &str, amount: u32) -> String {
    daily(key, amount).replace("unit: day", "unit: year")
}

/// A policy for domain `test`: `amount` a day for every value of `key`.
pub(crate) fn daily(key: &str, amount: u32) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: {key}\n    rate_limit: {{ requests_per_unit: {amount}, unit: day }}\n"
    )
}
