//! Detection of checks of one request on the same counter, in linear rather than quadratic time.

use hashbrown::HashTable;
use tollgate_core::algorithm::judge::Few;
use tollgate_core::descriptor::CounterKey;

use super::Check;

/// Maximum number of keys that are compared pairwise; more are looked up in a hash table.
const FEW: usize = 8;

/// Returns for each key the index of the first key with the same bytes, possibly its own. For
/// `None`, that is its own index.
pub(super) fn firsts<'k>(
    keys: impl ExactSizeIterator<Item = Option<&'k CounterKey<'k>>>,
) -> Few<usize> {
    if keys.len() <= 1 {
        return (0..keys.len()).collect();
    }
    if keys.len() > FEW {
        return firsts_of_many(keys);
    }
    let keys: Few<_> = keys.collect();
    let mut firsts = Few::new();
    for (number, key) in keys.iter().enumerate() {
        let first = key.and_then(|key| {
            let mut earlier = keys.iter().take(number);
            earlier.position(|other| other.is_some_and(|other| other.bytes() == key.bytes()))
        });
        firsts.push(first.unwrap_or(number));
    }
    firsts
}

fn firsts_of_many<'k>(
    keys: impl ExactSizeIterator<Item = Option<&'k CounterKey<'k>>>,
) -> Few<usize> {
    let mut table: HashTable<(usize, &CounterKey<'_>)> = HashTable::with_capacity(keys.len());
    let mut firsts = Few::with_capacity(keys.len());
    for (number, key) in keys.enumerate() {
        let first = key.map(|key| {
            let found = table.entry(
                key.hash(),
                |(_, other)| other.bytes() == key.bytes(),
                |(_, other)| other.hash(),
            );
            found.or_insert((number, key)).get().0
        });
        firsts.push(first.unwrap_or(number));
    }
    firsts
}

/// Returns for each check `true` if no other check of the request has the same key bytes.
pub(super) fn are_alone(checks: &[Check<'_>]) -> Few<bool> {
    if let [_] = checks {
        return Few::from_slice(&[true]);
    }
    let firsts = firsts(checks.iter().map(|check| Some(&check.key)));
    let mut alone: Few<bool> = checks.iter().map(|_| true).collect();
    for (number, first) in firsts.into_iter().enumerate().filter(|(number, first)| number != first)
    {
        for of_several in [number, first] {
            if let Some(is_alone) = alone.get_mut(of_several) {
                *is_alone = false;
            }
        }
    }
    alone
}

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::{Charge, OnStoreError};

    use super::*;
    use crate::tests::{check, fixed};

    #[test]
    fn the_first_of_each_key_is_found_among_few_and_many() {
        for count in [1usize, 2, 3, FEW, FEW + 1, 100] {
            let names: Vec<String> =
                (0..count).map(|number| format!("key {}", number % 7)).collect();
            let keys: Vec<CounterKey<'_>> =
                names.iter().map(|name| CounterKey::of("d", name.as_bytes())).collect();
            let found = firsts(keys.iter().map(Some));
            assert_eq!(
                found.to_vec(),
                (0..count).map(|number| number % 7).collect::<Vec<_>>(),
                "{count}"
            );
            let without = firsts(keys.iter().map(|key| (key.bytes() != b"key 0").then_some(key)));
            assert_eq!(
                without.to_vec(),
                (0..count).map(|n| if n % 7 == 0 { n } else { n % 7 }).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn many_keys_are_compared_in_linear_time() {
        let names: Vec<String> = (0..200_000).map(|number| format!("key {number:06}")).collect();
        let keys: Vec<_> = names.iter().map(|name| CounterKey::of("d", name.as_bytes())).collect();
        let begun = std::time::Instant::now();
        assert!(firsts(keys.iter().map(Some)).into_iter().eq(0..keys.len()));
        // In pairs, they are compared 20,000,000,000 times.
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_check_is_alone_unless_another_has_its_key() {
        let limit = fixed(&[(1, 60)], Charge::Admitted, OnStoreError::Error);
        let alone = |names: &[&'static str]| {
            let checks: Vec<_> = names.iter().map(|name| check(name.as_bytes(), &limit)).collect();
            are_alone(&checks).to_vec()
        };
        assert!(alone(&[]).is_empty());
        assert_eq!(alone(&["a"]), [true]);
        assert_eq!(alone(&["a", "a"]), [false, false]);
        assert_eq!(alone(&["a", "b", "a", "c"]), [false, true, false, true]);
    }
}
