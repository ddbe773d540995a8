//! The commands on hashes.

use std::collections::BTreeMap;

use super::data::{ScriptRun, StoredItem, StoredValue, WRONG_TYPE, number};
use super::resp::Resp;

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

impl ScriptRun {
    /// Returns the fields of a hash with its expiry; an error if the key has another type.
    fn hash(&mut self, key: &[u8]) -> Result<(Fields, Option<u64>), Resp> {
        match self.item(key) {
            Some(StoredItem { value: StoredValue::Hash(hash), expires_at }) => {
                Ok((hash, expires_at))
            }
            Some(_) => Err(Resp::error(WRONG_TYPE)),
            None => Ok((BTreeMap::new(), None)),
        }
    }

    pub(super) fn hash_set(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let (key, pairs) = match arguments {
            [key, pairs @ ..] if !pairs.is_empty() && pairs.len() % 2 == 0 => (key, pairs),
            _ => return Resp::error("ERR wrong number of arguments for 'hset' command"),
        };
        let (mut hash, expires_at) = match self.hash(key) {
            Ok(found) => found,
            Err(error) => return error,
        };
        let mut added = 0;
        for pair in pairs.chunks(2) {
            added += i64::from(hash.insert(pair[0].clone(), pair[1].clone()).is_none());
        }
        self.write(key, Some(StoredItem { value: StoredValue::Hash(hash), expires_at }));
        Resp::Integer(added)
    }

    pub(super) fn hash_delete(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let [key, fields @ ..] = arguments else { unreachable!() };
        if fields.is_empty() {
            return Resp::error("ERR wrong number of arguments for 'hdel' command");
        }
        let (mut hash, expires_at) = match self.hash(key) {
            Ok(found) => found,
            Err(error) => return error,
        };
        let before = hash.len();
        fields.iter().for_each(|field| drop(hash.remove(field)));
        let removed = before - hash.len();
        if removed > 0 {
            // A hash without fields is no key.
            let rest = (!hash.is_empty()).then_some(StoredValue::Hash(hash));
            self.write(key, rest.map(|value| StoredItem { value, expires_at }));
        }
        Resp::Integer(removed.try_into().unwrap())
    }

    pub(super) fn hash_get(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let [key, field] = arguments else {
            return Resp::error("ERR wrong number of arguments for 'hget' command");
        };
        match self.hash(key) {
            Ok((mut hash, _)) => hash.remove(field).map_or(Resp::Nil, Resp::Bulk),
            Err(error) => error,
        }
    }

    pub(super) fn hash_all(&mut self, key: &[u8]) -> Resp {
        match self.hash(key) {
            Ok((hash, _)) => flat(hash, true),
            Err(error) => error,
        }
    }

    pub(super) fn hash_length(&mut self, key: &[u8]) -> Resp {
        match self.hash(key) {
            Ok((hash, _)) => Resp::Integer(hash.len().try_into().unwrap()),
            Err(error) => error,
        }
    }

    /// Returns some fields: of a hash with more than are requested those that follow a place that
    /// the time chooses, since one seed is one history.
    pub(super) fn hash_sample(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let (key, count, rest) = match arguments {
            [key, count, rest @ ..] => (key, number::<usize>(count), rest),
            _ => return Resp::error("ERR wrong number of arguments for 'hrandfield' command"),
        };
        let with_values = match rest {
            [] => false,
            [word] if word.eq_ignore_ascii_case(b"WITHVALUES") => true,
            _ => return Resp::error("ERR syntax error"),
        };
        let place = self.circumstances.now;
        match self.hash(key) {
            Ok((hash, _)) => {
                let mut fields: Vec<_> = hash.into_iter().collect();
                let first = place.checked_rem(fields.len() as u64).unwrap_or_default();
                fields.rotate_left(first as usize);
                fields.truncate(count);
                flat(fields, with_values)
            }
            Err(error) => error,
        }
    }
}

fn flat(fields: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>, with_values: bool) -> Resp {
    let mut all = Vec::new();
    for (field, value) in fields {
        all.push(Resp::Bulk(field));
        if with_values {
            all.push(Resp::Bulk(value));
        }
    }
    Resp::Array(all)
}
