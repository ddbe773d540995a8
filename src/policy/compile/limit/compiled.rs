//! The result of compiling a limit: what it imposes, and its options.

use crate::policy::rule::{Imposes, RuleLease};

/// A compiled limit with its options.
#[derive(Debug)]
pub(in crate::policy::compile) struct CompiledLimit {
    pub(in crate::policy::compile) imposes: Imposes,
    /// Name of the algorithm as written; empty without a limit.
    pub(in crate::policy::compile) algorithm: &'static str,
    pub(in crate::policy::compile) inherits_override: bool,
    pub(in crate::policy::compile) name: Option<Box<str>>,
    pub(in crate::policy::compile) record: Box<[Box<[u8]>]>,
    pub(in crate::policy::compile) hashes_values: bool,
    pub(in crate::policy::compile) lease: Option<RuleLease>,
}

impl CompiledLimit {
    /// Creates the result of a rule without a limit, to which the options of limits do not apply.
    /// An option that applies to an unlimited rule as well becomes an argument here, as its name
    /// is.
    pub(in crate::policy::compile) fn without_options(
        imposes: Imposes,
        name: Option<Box<str>>,
    ) -> Self {
        Self {
            imposes,
            algorithm: "",
            inherits_override: false,
            name,
            record: Box::default(),
            hashes_values: false,
            lease: None,
        }
    }
}
