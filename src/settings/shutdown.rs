//! Delays of a graceful shutdown.

use std::time::Duration;

use super::{FlagValue, Problems, deferred, parse};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Shutdown")]
pub(super) struct Flags {
    /// Time after SIGTERM in which requests are still served while health checks report
    /// NOT_SERVING, so that callers move to other replicas.
    #[arg(long, env = "TOLLGATE_DRAIN_DELAY", value_name = "DURATION", default_value = "3s", value_parser = deferred(parse::duration))]
    drain_delay: FlagValue<Duration>,
    /// Time for requests in flight after the drain delay. Those that do not finish in time are
    /// aborted.
    #[arg(long, env = "TOLLGATE_DRAIN_TIMEOUT", value_name = "DURATION", default_value = "10s", value_parser = deferred(parse::duration))]
    drain_timeout: FlagValue<Duration>,
}

/// Delays of a graceful shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// Time in which the process still serves while it reports NOT_SERVING.
    pub delay: Duration,
    /// Time for requests in flight.
    pub timeout: Duration,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> ShutdownSettings {
        ShutdownSettings {
            delay: problems.take(self.drain_delay),
            timeout: problems.take(self.drain_timeout),
        }
    }
}
