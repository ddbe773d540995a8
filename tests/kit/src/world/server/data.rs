//! The data of a server, and the commands on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fleet::Migration;
use super::resp::Resp;
use super::slot_of;

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredValue {
    Text(Vec<u8>),
    Hash(BTreeMap<Vec<u8>, Vec<u8>>),
    /// Members with their scores.
    Sorted(BTreeMap<Vec<u8>, f64>),
}

/// A key's value, and the time at which it expires, in milliseconds of the server's clock.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredItem {
    pub value: StoredValue,
    pub expires_at: Option<u64>,
}

/// The keys of a server.
pub type Keys = BTreeMap<Vec<u8>, StoredItem>;

/// A key that was written, and its item afterwards.
pub type Effect = (Vec<u8>, Option<StoredItem>);

/// Commands that may need more memory.
const GROWING: [&str; 3] = ["SET", "HSET", "ZADD"];
const WRITING: [&str; 8] =
    ["SET", "HSET", "HDEL", "ZADD", "DEL", "UNLINK", "PEXPIRE", "ZREMRANGEBYSCORE"];
pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const NO_PERMISSION: &str = "NOPERM this user has no permissions to access one of the keys";
/// Of so many keys, the writes of one are refused.
const REFUSED_BY: u32 = 3;
const FOREIGN: &str = "ERR Script attempted to access a non local key in a cluster node";

/// The circumstances of a command.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Time of the server's clock in microseconds.
    pub now: u64,
    pub is_replica: bool,
    pub is_full: bool,
    /// The user may not write keys whose bytes have a sum with this remainder.
    pub refused_rest: Option<u8>,
    /// The slots of the server; `None`: it serves all slots.
    pub slots: Option<ServedSlots>,
}

/// The slots that a server of a Cluster serves to a script.
#[derive(Clone, Debug)]
pub struct ServedSlots {
    /// The group of each slot.
    pub owners: Arc<Vec<u8>>,
    pub group: u8,
    /// Slots that leave the server, which serves the keys that it has.
    pub leaving: Option<Migration>,
    /// Slots whose keys the client requests with ASKING, since they move to it.
    pub arriving: Option<Migration>,
}

/// Data while commands or a script use it.
#[derive(Debug, Default)]
pub struct ScriptRun {
    pub keys: Keys,
    pub circumstances: Circumstances,
    pub effects: Vec<Effect>,
    /// Set after the first command that writes.
    pub has_written: bool,
    /// Set within a script, which may access the keys of its slots only.
    pub is_script: bool,
}

impl ScriptRun {
    /// Runs one command.
    pub fn call(&mut self, words: &[Vec<u8>]) -> Resp {
        let name = String::from_utf8_lossy(&words[0]).to_uppercase();
        let arguments = &words[1..];
        if WRITING.contains(&name.as_str()) {
            if self.circumstances.is_replica {
                return Resp::error(READ_ONLY);
            }
            // A script that has written goes on, so that it does not end half-way.
            if self.circumstances.is_full && GROWING.contains(&name.as_str()) && !self.has_written {
                return Resp::error(FULL);
            }
            // Of a counter's value and its holds, one can be refused.
            let sum: u32 = arguments.first().into_iter().flatten().copied().map(u32::from).sum();
            if self.circumstances.refused_rest.map(u32::from) == Some(sum % REFUSED_BY) {
                return Resp::error(NO_PERMISSION);
            }
            self.has_written = true;
        }
        if self.is_script
            && let Some(key) = arguments.first()
            && !self.serves(key)
        {
            return Resp::error(FOREIGN);
        }
        match name.as_str() {
            "TIME" => self.time(),
            "GET" => self.get(&arguments[0]),
            "SET" => self.set(arguments),
            "DEL" | "UNLINK" => self.delete(arguments),
            "EXISTS" => Resp::Integer(i64::from(self.item(&arguments[0]).is_some())),
            "PEXPIRE" => self.expire(arguments),
            "HSET" => self.hash_set(arguments),
            "HDEL" => self.hash_delete(arguments),
            "HGET" => self.hash_get(arguments),
            "HGETALL" => self.hash_all(&arguments[0]),
            "HLEN" => self.hash_length(&arguments[0]),
            "HRANDFIELD" => self.hash_sample(arguments),
            "ZADD" => self.sorted_add(arguments),
            "ZCARD" => Resp::Integer(self.sorted(&arguments[0]).len().try_into().unwrap()),
            "ZREMRANGEBYSCORE" => self.sorted_remove(arguments),
            other => Resp::Error(format!("ERR unknown command '{other}'")),
        }
    }

    /// Returns `true` if a script may access a key.
    fn serves(&mut self, key: &[u8]) -> bool {
        let Some(slots) = self.circumstances.slots.clone() else { return true };
        let slot = slot_of(key);
        let is_of = |migration: &Option<Migration>| {
            migration.as_ref().is_some_and(|migration| migration.includes(slot))
        };
        if slots.owners[usize::from(slot)] != slots.group {
            return is_of(&slots.arriving);
        }
        !is_of(&slots.leaving) || self.item(key).is_some()
    }

    fn time(&self) -> Resp {
        let now = self.circumstances.now;
        let parts = [now / 1_000_000, now % 1_000_000];
        Resp::Array(parts.iter().map(|part| Resp::text(&part.to_string())).collect())
    }

    /// Returns the item of a key, unless it has expired.
    pub(super) fn item(&mut self, key: &[u8]) -> Option<StoredItem> {
        let now_ms = self.circumstances.now / 1_000;
        let item = self.keys.get(key)?;
        if item.expires_at.is_some_and(|at| at <= now_ms) {
            // A replica leaves expired keys to its master.
            if !self.circumstances.is_replica {
                self.keys.remove(key);
                self.effects.push((key.to_vec(), None));
            }
            return None;
        }
        Some(item.clone())
    }

    pub(super) fn write(&mut self, key: &[u8], item: Option<StoredItem>) {
        match &item {
            Some(item) => self.keys.insert(key.to_vec(), item.clone()),
            None => self.keys.remove(key),
        };
        self.effects.push((key.to_vec(), item));
    }

    fn get(&mut self, key: &[u8]) -> Resp {
        match self.item(key).map(|item| item.value) {
            None => Resp::Nil,
            Some(StoredValue::Text(text)) => Resp::Bulk(text),
            Some(_) => Resp::error(WRONG_TYPE),
        }
    }

    fn set(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let [key, value, options @ ..] = arguments else {
            return Resp::error("ERR wrong number of arguments for 'set' command");
        };
        let options = match options {
            [nx, ..] if nx.eq_ignore_ascii_case(b"NX") => {
                if self.item(key).is_some() {
                    return Resp::Nil;
                }
                &options[1..]
            }
            options => options,
        };
        let expires_at = match options {
            [] => None,
            [keep] if keep.eq_ignore_ascii_case(b"KEEPTTL") => {
                self.item(key).and_then(|item| item.expires_at)
            }
            [px, ms] if px.eq_ignore_ascii_case(b"PX") => {
                Some(self.circumstances.now / 1_000 + number::<u64>(ms))
            }
            _ => return Resp::error("ERR syntax error"),
        };
        let value = StoredValue::Text(value.clone());
        self.write(key, Some(StoredItem { value, expires_at }));
        Resp::Status("OK")
    }

    fn delete(&mut self, keys: &[Vec<u8>]) -> Resp {
        let mut count = 0;
        for key in keys {
            if self.item(key).is_some() {
                self.write(key, None);
                count += 1;
            }
        }
        Resp::Integer(count)
    }

    fn expire(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let Some(item) = self.item(&arguments[0]) else { return Resp::Integer(0) };
        let expires_at = Some(self.circumstances.now / 1_000 + number::<u64>(&arguments[1]));
        self.write(&arguments[0], Some(StoredItem { expires_at, ..item }));
        Resp::Integer(1)
    }

    fn sorted(&mut self, key: &[u8]) -> BTreeMap<Vec<u8>, f64> {
        match self.item(key).map(|item| item.value) {
            Some(StoredValue::Sorted(members)) => members,
            _ => BTreeMap::new(),
        }
    }

    fn sorted_add(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let [key, score, member] = arguments else { return Resp::error("ERR syntax error") };
        let mut members = self.sorted(key);
        let is_new = members.insert(member.clone(), number(score)).is_none();
        let expires_at = self.item(key).and_then(|item| item.expires_at);
        self.write(key, Some(StoredItem { value: StoredValue::Sorted(members), expires_at }));
        Resp::Integer(i64::from(is_new))
    }

    fn sorted_remove(&mut self, arguments: &[Vec<u8>]) -> Resp {
        let mut members = self.sorted(&arguments[0]);
        let before = members.len();
        let most = number::<f64>(&arguments[2]);
        members.retain(|_, score| *score > most);
        let removed = before - members.len();
        if removed > 0 {
            let expires_at = self.item(&arguments[0]).and_then(|item| item.expires_at);
            let value = StoredValue::Sorted(members);
            self.write(&arguments[0], Some(StoredItem { value, expires_at }));
        }
        Resp::Integer(removed.try_into().unwrap())
    }
}

/// Parses a number of a command.
pub(super) fn number<T: std::str::FromStr>(word: &[u8]) -> T
where
    T::Err: std::fmt::Debug,
{
    std::str::from_utf8(word).unwrap().parse().unwrap()
}
