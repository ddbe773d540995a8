//! How the process ends.

use std::time::Duration;

use super::{Problems, parse};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Shutdown")]
pub(super) struct Flags {
    /// After SIGTERM, time in which the process serves on while health says NOT_SERVING, so that callers go elsewhere.
    #[arg(long, env = "TOLLGATE_DRAIN_DELAY", value_name = "DURATION", default_value = "3s")]
    drain_delay: String,
    /// After that, time for what is under way. What is not done then is cut off.
    #[arg(long, env = "TOLLGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s")]
    drain_timeout: String,
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// Time in which it serves on, and says that it will not.
    pub delay: Duration,
    /// Time for what is under way.
    pub timeout: Duration,
}

impl Flags {
    pub(super) fn resolve(&self, problems: &mut Problems) -> ShutdownSettings {
        ShutdownSettings {
            delay: problems.read("--drain-delay", &self.drain_delay, parse::duration),
            timeout: problems.read("--drain-timeout", &self.drain_timeout, parse::duration),
        }
    }
}
