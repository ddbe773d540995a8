//! A node's view of all nodes.

/// A line of `CLUSTER NODES`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct View {
    pub(super) id: String,
    pub(super) flags: Vec<String>,
    pub(super) master: String,
    pub(super) epoch: u64,
    pub(super) slots: Vec<(u16, u16)>,
}

impl View {
    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Parses `id address flags master ping pong epoch link slots...`, where `[...]` are slots in
    /// migration.
    pub(super) fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            (first.parse().unwrap(), last.parse().unwrap())
        };
        let flags = words[2].split(',').map(str::to_owned).collect();
        let slots = words[8..].iter().filter(|word| !word.starts_with('[')).map(range).collect();
        Self {
            id: words[0].to_owned(),
            flags,
            master: words[3].to_owned(),
            epoch: words[6].parse().unwrap(),
            slots,
        }
    }
}
