//! The memory that policies take, estimated before they are compiled.

use crate::policy::report::{Finding, Findings, Span};

/// Bytes of a rule as written and as compiled, without its texts: what a million of them took, measured.
const RULE: u64 = 2_900;
/// Copies of each text of a file that are held at once: of the tree, as written, and as compiled.
const COPIES_OF_TEXT: u64 = 4;
/// Copies of a rule's path.
const COPIES_OF_PATH: u64 = 2;
/// Bytes of an automaton for each byte of a pattern, while it is built: 32 measured.
const AUTOMATON: u64 = 40;

/// Rest of the memory that policies may take while they are compiled.
#[derive(Debug)]
pub(in crate::policy) struct Budget {
    max: u64,
    left: u64,
    is_exceeded: bool,
}

impl Budget {
    /// A budget of so many bytes.
    pub(in crate::policy) fn new(max: usize) -> Self {
        let max = u64::try_from(max).unwrap_or(u64::MAX);
        Self { max, left: max, is_exceeded: false }
    }

    /// Charges the texts of a document, in bytes. Returns if they fit.
    pub(super) fn charge_text(&mut self, bytes: u64, span: Span, findings: &mut Findings) -> bool {
        self.charge(bytes.saturating_mul(COPIES_OF_TEXT), span, findings)
    }

    /// Charges a rule by the bytes of its path and of its patterns. Returns if it fits.
    pub(super) fn charge_rule(&mut self, path: usize, patterns: usize, span: Span, findings: &mut Findings) -> bool {
        let path = u64::try_from(path).unwrap_or(u64::MAX).saturating_mul(COPIES_OF_PATH);
        let patterns = u64::try_from(patterns).unwrap_or(u64::MAX).saturating_mul(AUTOMATON);
        self.charge(path.saturating_add(patterns).saturating_add(RULE), span, findings)
    }

    /// Reports the first charge that does not fit.
    fn charge(&mut self, bytes: u64, span: Span, findings: &mut Findings) -> bool {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return true;
        }
        self.left = 0;
        if !self.is_exceeded {
            self.is_exceeded = true;
            let error = Finding::error(span, format!("policies take more than {} bytes of memory", self.max));
            findings.push(error.note("--policy-memory-max allows more"));
        }
        false
    }
}
