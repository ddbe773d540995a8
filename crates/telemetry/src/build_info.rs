//! The build of this program.

use std::fmt;

/// The build of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo {
    /// Version of the release.
    pub version: &'static str,
    /// Revision of the sources; empty unless `TOLLGATE_REVISION` was set during the build.
    pub revision: &'static str,
    /// Version of the Rust compiler.
    pub rust: &'static str,
}

impl BuildInfo {
    /// The build of this program. All packages of the workspace have one version.
    pub const OF_PROGRAM: Self = Self {
        version: env!("CARGO_PKG_VERSION"),
        revision: match option_env!("TOLLGATE_REVISION") {
            Some(revision) => revision,
            None => "",
        },
        rust: env!("TOLLGATE_RUSTC"),
    };
}

/// The version, and the revision if it is known.
impl fmt::Display for BuildInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.version)?;
        if !self.revision.is_empty() {
            write!(out, " ({})", self.revision)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_is_not_known_is_left_out() {
        let build = BuildInfo { version: "1.0.0", revision: "", rust: "1.95.0" };
        assert_eq!(build.to_string(), "1.0.0");
        assert_eq!(BuildInfo { revision: "8059f3a5", ..build }.to_string(), "1.0.0 (8059f3a5)");
        assert!(BuildInfo::OF_PROGRAM.rust.starts_with("1."), "{}", BuildInfo::OF_PROGRAM.rust);
    }
}
