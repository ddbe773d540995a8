//! Compilation of policies, one set at a time, within the memory left by the policies in force and
//! on trial. The memory bound thus applies to all sets together, old and new, and not to each set.

use std::sync::Arc;

use parking_lot::Mutex;
use tracing::warn;

use crate::limiter::InForce;
use crate::policy::{self, CompileOptions, Loaded, ProblemReport, Source};

/// A compiler shared by all sources of policies.
#[derive(Clone)]
pub struct PolicyCompiler {
    policies: Arc<InForce>,
    memory_max: usize,
    turn: Arc<Mutex<()>>,
}

impl PolicyCompiler {
    pub(super) fn new(policies: Arc<InForce>, options: &CompileOptions) -> Self {
        Self {
            policies,
            memory_max: options.memory_max.unwrap_or(policy::MEMORY_MAX),
            turn: Arc::default(),
        }
    }

    /// Warns if a second set of the same size does not fit beside the policies in force, as a
    /// change requires.
    pub(super) fn warn_if_nearly_full(&self) {
        let held = self.policies.memory();
        let max = self.memory_max;
        if held.saturating_mul(2) > max {
            warn!(
                "policies use {held} of {max} bytes (--policy-memory-max): a change of all of them would not fit \
                 next to those in force and would be rejected; raise --policy-memory-max"
            );
        }
    }

    /// Compiles `sources` and passes the result to `install` before any other set is compiled.
    /// Blocks while another set is compiled, so it must run on a thread that may block.
    ///
    /// # Errors
    /// All problems with the sources.
    pub fn load<T>(
        &self,
        sources: &[Source],
        options: &CompileOptions,
        install: impl FnOnce(Loaded) -> T,
    ) -> Result<T, ProblemReport> {
        let _turn = self.turn.lock();
        let options = CompileOptions { memory_held: self.policies.memory(), ..*options };
        policy::load(sources, &options).map(install)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    #[test]
    fn the_bound_is_of_all_policies_together() {
        let policies = InForce::new(Metrics::new());
        let options = CompileOptions { memory_max: Some(1 << 20), ..CompileOptions::default() };
        let compiler = PolicyCompiler::new(Arc::clone(&policies), &options);
        let source = |rules: usize| {
            let rules: String = (0..rules).map(|rule| format!("- {{key: a{rule}}}\n")).collect();
            [Source {
                name: "a.yaml".to_owned(),
                text: format!("domain: d\ndescriptors:\n{rules}"),
            }]
        };
        let in_force = |loaded: Loaded| policies.install(loaded.policies);
        let on_trial = |loaded: Loaded| policies.try_out(loaded.policies);
        compiler.load(&source(150), &options, in_force).unwrap();
        assert!((430_000..450_000).contains(&policies.memory()), "{}", policies.memory());
        compiler.load(&source(100), &options, on_trial).unwrap();
        let report = compiler.load(&source(150), &options, in_force).unwrap_err().to_string();
        assert!(
            report.contains("policies need more than 31") && report.contains("1048576"),
            "{report}"
        );
        assert!(
            report.contains("--policy-memory-max") && report.contains("active and candidate"),
            "{report}"
        );
        // A smaller set fits. Then the large one fits again, since the old set is gone.
        compiler.load(&source(1), &options, on_trial).unwrap();
        compiler.load(&source(150), &options, in_force).unwrap();
    }
}
