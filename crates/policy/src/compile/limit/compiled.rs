//! The result of compiling a limit: what it imposes, and its options.

use crate::rule::{Imposes, RuleLease};

/// A compiled limit with its options.
#[derive(Debug)]
pub(in crate::compile) struct CompiledLimit {
    pub(in crate::compile) imposes: Imposes,
    /// Name of the algorithm as written; empty without a limit.
    pub(in crate::compile) algorithm: &'static str,
    pub(in crate::compile) inherits_override: bool,
    pub(in crate::compile) name: Option<Box<str>>,
    pub(in crate::compile) record: Box<[Box<[u8]>]>,
    pub(in crate::compile) hashes_values: bool,
    pub(in crate::compile) lease: Option<RuleLease>,
}

impl CompiledLimit {
    /// Creates the result of a rule without a limit, to which the options of limits do not apply.
    /// An option that applies to an unlimited rule as well becomes an argument here, as its name
    /// is.
    pub(in crate::compile) fn without_options(imposes: Imposes, name: Option<Box<str>>) -> Self {
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
