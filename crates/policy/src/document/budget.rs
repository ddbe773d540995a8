//! Budget for the memory of policies, estimated before they are compiled.

use tollgate_yaml::report::{Finding, Findings, SourceSpan};

/// Bytes of a rule, parsed and compiled, without its texts; measured with a million rules.
const RULE: u64 = 2_900;
/// Copies of each text of a file that exist at once: in the tree, as written, and compiled.
const COPIES_OF_TEXT: u64 = 4;
/// Bytes of the tree per byte of text while a file is read: 20 MB of rules took 400 MB.
const TREE: u64 = 20;
/// Copies of a rule's path.
const COPIES_OF_PATH: u64 = 2;
/// Bytes of an automaton per byte of a pattern while it is built; 32 were measured.
const AUTOMATON: u64 = 40;

/// A budget for the memory of policies while they are compiled.
#[derive(Debug)]
pub(crate) struct DocumentBudget {
    /// Bytes that other policies hold; `max` is the maximum for all policies.
    held: u64,
    max: u64,
    left: u64,
    is_exceeded: bool,
}

impl DocumentBudget {
    /// Returns a budget of `max` bytes, of which other policies hold `held`.
    pub(crate) fn new(max: usize, held: usize) -> Self {
        let [max, held] = [max, held].map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        Self { held, max, left: max.saturating_sub(held), is_exceeded: false }
    }

    /// Returns the bytes that were charged.
    pub(crate) fn charged(&self) -> usize {
        let charged = self.max.saturating_sub(self.held).saturating_sub(self.left);
        usize::try_from(charged).unwrap_or(usize::MAX)
    }

    /// Returns `true` if the tree of a text fits while it is read. It is freed before rules are
    /// compiled, and not charged.
    pub(crate) fn fits_tree(
        &mut self,
        bytes: usize,
        span: SourceSpan,
        findings: &mut Findings,
    ) -> bool {
        let tree = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_mul(TREE);
        let fits = tree <= self.left;
        if !fits {
            let what = format!("reading {bytes} bytes of policies takes {tree} bytes,");
            self.report(&what, span, findings);
        }
        fits
    }

    /// Charges the texts of a document, in bytes. Returns `true` if they fit.
    pub(super) fn charge_text(
        &mut self,
        bytes: u64,
        span: SourceSpan,
        findings: &mut Findings,
    ) -> bool {
        self.charge(bytes.saturating_mul(COPIES_OF_TEXT), span, findings)
    }

    /// Charges a rule by the bytes of its path and its patterns. Returns `true` if it fits.
    pub(super) fn charge_rule(
        &mut self,
        path: usize,
        patterns: usize,
        span: SourceSpan,
        findings: &mut Findings,
    ) -> bool {
        let path = u64::try_from(path).unwrap_or(u64::MAX).saturating_mul(COPIES_OF_PATH);
        let patterns = u64::try_from(patterns).unwrap_or(u64::MAX).saturating_mul(AUTOMATON);
        self.charge(path.saturating_add(patterns).saturating_add(RULE), span, findings)
    }

    /// Charges bytes. Reports the first charge that does not fit.
    fn charge(&mut self, bytes: u64, span: SourceSpan, findings: &mut Findings) -> bool {
        if let Some(left) = self.left.checked_sub(bytes) {
            self.left = left;
            return true;
        }
        self.left = 0;
        self.report("policies need", span, findings);
        false
    }

    /// Reports once that the policies do not fit: `what` is too much for the bytes left.
    fn report(&mut self, what: &str, span: SourceSpan, findings: &mut Findings) {
        if !self.is_exceeded {
            self.is_exceeded = true;
            let Self { held, max, .. } = *self;
            let rest = max.saturating_sub(held);
            let error = Finding::error(span, format!("{what} more than {rest} bytes of memory"));
            findings.push(error.note(match held {
                0 => format!("--policy-memory-max is {max}; raise it to allow more"),
                _ => format!("active and candidate policies use {held} of the {max} bytes of --policy-memory-max; raise it to allow more"),
            }));
        }
    }
}
