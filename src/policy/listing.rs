//! All rules of a policy in the order in which they are written, with their paths as envoyproxy/ratelimit writes them.

use super::{Policy, Rule};

impl Policy {
    /// The rules with their composite paths: of each step the key, or `key_value`, with dots between, as in `plan_free.user`.
    pub fn composite_paths(&self) -> impl Iterator<Item = (String, &Rule)> {
        // The rules are in the order of a walk that goes down first. Of each rule above the present one: where its path ends,
        // and how many rules below it are to come.
        let (mut path, mut above): (String, Vec<(usize, usize)>) = (String::new(), Vec::new());
        self.rules.iter().map(move |rule| {
            while above.pop_if(|(_, to_come)| *to_come == 0).is_some() {}
            path.truncate(above.last().map_or(0, |(end, _)| *end));
            if let Some((_, to_come)) = above.last_mut() {
                *to_come = to_come.saturating_sub(1);
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(rule.key.text()));
            if let Some(value) = &rule.value {
                path.push('_');
                path.push_str(&String::from_utf8_lossy(value.text()));
            }
            above.push((path.len(), rule.children.len()));
            (path.clone(), rule)
        })
    }
}
