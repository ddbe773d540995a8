//! Index of the rules with `*` of one level, if there are many: one search over a value instead of
//! one per rule.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tollgate_core::descriptor::Entry;

use super::pattern::Pattern;
use super::searcher::Searcher;

/// Hasher with a fixed seed. Requests look up and never insert, so clients cannot overfill a
/// bucket.
pub(super) const HASHER: FixedState = FixedState::with_seed(0x7011_6a7e);
/// Maximum number of rules that are tried one after the other: that many searches cost less than a
/// pass of an automaton.
const MAX_TRIED: usize = 8;

/// An index of the rules with `*`, by their positions in the order in which they are written.
#[derive(Debug)]
pub(super) struct WildcardIndex {
    /// Rules whose key has no `*`, by key.
    by_key: HashMap<Box<[u8]>, Values, FixedState>,
    /// Rules whose key has a `*`.
    open: Option<(Searcher, Values)>,
}

/// Rules by their values.
#[derive(Debug)]
struct Values {
    searcher: Searcher,
    /// Position of the rule of each pattern, ascending.
    positions: Box<[usize]>,
}

impl WildcardIndex {
    /// Builds the index of the rules' keys and values. Returns `None` if it is better to try the
    /// rules one after the other.
    pub(super) fn new(rules: &[(&Pattern, Option<&Pattern>)]) -> Option<Self> {
        if rules.len() <= MAX_TRIED {
            return None;
        }
        let mut by_key: HashMap<Box<[u8]>, Vec<(usize, Pattern)>, FixedState> =
            HashMap::with_hasher(HASHER);
        let mut keys = Vec::new();
        let mut open = Vec::new();
        for (position, (key, value)) in rules.iter().enumerate() {
            // A rule without a value matches any value.
            let value = value.cloned().unwrap_or_else(|| Pattern::new("*"));
            if key.is_wild() {
                keys.push(Pattern::clone(key));
                open.push((position, value));
            } else {
                by_key.entry(key.text().into()).or_default().push((position, value));
            }
        }
        let mut index = Self { by_key: HashMap::with_hasher(HASHER), open: None };
        for (key, values) in by_key {
            index.by_key.insert(key, Values::new(values)?);
        }
        if !keys.is_empty() {
            index.open = Some((Searcher::new(keys)?, Values::new(open)?));
        }
        Some(index)
    }

    /// Returns the position of the first rule that matches.
    pub(super) fn find(&self, entry: &Entry<'_>) -> Option<usize> {
        let fixed =
            self.by_key.get(entry.key).and_then(|values| values.first(entry.value, |_| true));
        let open = self.open.as_ref().and_then(|(keys, values)| {
            let matches = keys.all(entry.key);
            // Most keys match no pattern, and their values are not searched.
            if !matches.contains(&true) {
                return None;
            }
            values.first(entry.value, |number| {
                usize::try_from(number).is_ok_and(|at: usize| matches.get(at) == Some(&true))
            })
        });
        // The rule that is written first wins.
        fixed.into_iter().chain(open).min()
    }
}

impl Values {
    fn new(values: Vec<(usize, Pattern)>) -> Option<Self> {
        let (positions, patterns): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        Some(Self { searcher: Searcher::new(patterns)?, positions: positions.into() })
    }

    fn first(&self, value: &[u8], is_wanted: impl Fn(u32) -> bool) -> Option<usize> {
        let number = self.searcher.first(value, is_wanted)?;
        self.positions.get(usize::try_from(number).ok()?).copied()
    }
}
