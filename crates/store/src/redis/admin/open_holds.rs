//! The open holds of a counter, read from its value or the hash beside it, in the formats that the
//! heads of `lua/concurrency.lua` and `lua/holds.lua` define.

use std::collections::HashMap;
use std::time::Duration;

use redis::Value;
use tollgate_core::algorithm::concurrency::Permit;
use tollgate_core::algorithm::hold::{HoldList, MAX_ID};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::CounterKey;

use super::tallies::{EXTENDED, TALLIED, number};
use crate::StoreError;
use crate::redis::RedisStore;
use crate::redis::calls::within;
use crate::redis::script::key::{hold_key_of, key_of};

/// Timeout for the reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of records to read: a counter may have 100,000, and Redis serves no one else
/// while it reads.
const MAX_READ: u64 = 500;
/// Reads the value of a counter and some records in one step: records count only together with the
/// value that their head names.
const LIST: &str = "\
    return {
      redis.call('GET', KEYS[1]),
      redis.call('HGET', KEYS[2], ''),
      redis.call('HLEN', KEYS[2]),
      redis.call('HRANDFIELD', KEYS[2], ARGV[1], 'WITHVALUES'),
    }";
/// First byte of the value of a `concurrency` limit, without flags.
const PERMITS: u8 = 16 + 2 * 5;
/// Offset of the instant of a reset, after a grant.
const RESET_AT: usize = 3 * 7;
/// Format of the head of the hash.
const FORMAT: u8 = 1;
/// Number of bytes at each end of a value by which the head names it.
const FINGERPRINT: usize = 24;

/// A counter and its records, as stored.
#[derive(Debug, Default)]
struct Stored {
    value: Vec<u8>,
    /// The head of the hash; `None` without one.
    head: Option<Vec<u8>>,
    /// Number of fields of the hash, its head included.
    fields: u64,
    /// Some of the fields, or all.
    read: Vec<(Vec<u8>, Vec<u8>)>,
}

impl RedisStore {
    /// Returns the open holds of a counter at `now`, the oldest first. Of a counter with more than
    /// 500 records, a random sample of that size is read.
    ///
    /// # Errors
    /// If the store is unreachable or refuses, or the counter or its holds are malformed.
    pub(in crate::redis) async fn open_holds(
        &self,
        key: &CounterKey<'_>,
        now: Timestamp,
    ) -> Result<HoldList, StoreError> {
        for core in self.cores() {
            let mut command = redis::cmd("EVAL");
            command
                .arg(LIST)
                .arg(2)
                .arg(key_of(&core.prefix, key).as_slice())
                .arg(hold_key_of(&core.prefix, key).as_slice())
                // One field may be the head.
                .arg(MAX_READ + 1);
            let reply = core.call(core.slot(key), &command, within(REPLY_TIMEOUT)).await;
            let reply = reply.inspect_err(|failure| core.complain_of(failure))?;
            // A counter that is not here may be on the servers for limits of a second.
            if let Some(stored) = stored(reply).ok_or(StoreError::Unreadable)? {
                return open(&stored, now).ok_or(StoreError::Unreadable);
            }
        }
        Ok(HoldList::default())
    }
}

/// Parses the reply of [`LIST`]; the inner `None` if there is no counter.
fn stored(reply: Value) -> Option<Option<Stored>> {
    let (value, head, fields, read) = redis::from_redis_value(reply).ok()?;
    let value: Option<Vec<u8>> = value;
    Some(value.map(|value| Stored { value, head, fields, read }))
}

/// Returns the holds that are open at `now`; `None` if the counter or its holds are malformed.
fn open(stored: &Stored, now: Timestamp) -> Option<HoldList> {
    let tag = stored.value.first()?;
    if tag & !(TALLIED | EXTENDED) == PERMITS {
        let permits = permits(&stored.value)?;
        let live = permits.into_iter().filter(|permit| permit.ends_at > now && permit.hits > 0);
        return Some(HoldList::oldest_first(live.collect(), 0));
    }
    let Some(head) = &stored.head else { return Some(HoldList::default()) };
    if !counts(head, &stored.value)? {
        return Some(HoldList::default());
    }
    let fields = stored.read.iter().filter(|(name, _)| !name.is_empty());
    let (wholes, parts): (Vec<_>, Vec<_>) = fields.partition(|(name, _)| name.len() > MAX_ID);
    // All fields but the head that were not read.
    let read = wholes.len().saturating_add(parts.len()) as u64;
    let unread = stored.fields.saturating_sub(1).saturating_sub(read);
    let mut permits = HashMap::new();
    for (id, record) in parts {
        permits.insert(id.as_slice(), (record_of(id, record)?, is_stored_twice(record)));
    }
    // Of a record that is stored twice, its whole has all of its holds.
    for (name, record) in wholes {
        let id = whole_id(name)?;
        if permits.get(id).is_none_or(|(_, is_twice)| *is_twice) {
            permits.insert(id, (record_of(id, record)?, true));
        }
    }
    let live = permits.into_values().filter_map(|(permit, _)| permit);
    let live = live.filter(|permit| permit.ends_at > now);
    Some(HoldList::oldest_first(live.collect(), unread))
}

/// Parses the value of a `concurrency` limit.
fn permits(value: &[u8]) -> Option<Vec<Permit>> {
    let (_, mut rest) = split(value)?;
    let _last = number(&mut rest, 7)?;
    let count = number(&mut rest, 2)?;
    (0..count).map(|_| permit(&mut rest)).collect()
}

/// Returns the instant of a reset of a value, 0 without one, and the state after its tag.
fn split(value: &[u8]) -> Option<(u64, &[u8])> {
    let (tag, mut rest) = value.split_first()?;
    if tag & TALLIED != 0 {
        let length = number(&mut rest, 4)?;
        rest = rest.get(usize::try_from(length).ok()?..)?;
    }
    let mut reset_at = 0;
    if tag & EXTENDED != 0 {
        rest = rest.get(RESET_AT..)?;
        reset_at = number(&mut rest, 7)?;
        rest = rest.get(7..)?;
    }
    Some((reset_at, rest))
}

fn permit(rest: &mut &[u8]) -> Option<Permit> {
    let taken_at = Timestamp::from_micros(number(rest, 7)?);
    let ends_at = Timestamp::from_micros(number(rest, 7)?);
    let hits = u32::try_from(number(rest, 4)?).ok()?;
    let length = usize::try_from(number(rest, 1)?).ok()?;
    let (id, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(Permit { id: id.into(), hits, taken_at, ends_at })
}

/// Returns `true` if the records of a hash with this head count: the value is that of the head, or
/// was written under a limit without holds since, and is no later reset.
fn counts(head: &[u8], value: &[u8]) -> Option<bool> {
    let (format, mut rest) = head.split_first()?;
    if *format != FORMAT {
        return None;
    }
    let length = usize::try_from(number(&mut rest, 1)?).ok()?;
    let (named, mut rest) = rest.split_at_checked(length)?;
    let part = value.len().min(FINGERPRINT);
    let first = value.get(..part)?;
    let last = value.get(value.len().checked_sub(part)?..)?;
    let since = number(&mut rest, 7)?;
    Some(named == [first, last].concat() || since > split(value)?.0)
}

/// Returns the ID of a field that has a record as a whole.
fn whole_id(name: &[u8]) -> Option<&[u8]> {
    let (length, rest) = name.split_first()?;
    rest.get(..usize::from(*length))
}

/// Returns `true` if another field has the whole of a record.
fn is_stored_twice(record: &[u8]) -> bool {
    record.get(7).is_some_and(|flags| *flags >= 2)
}

/// Parses the record of an ID; the inner `None` if all its holds have ended.
fn record_of(id: &[u8], mut record: &[u8]) -> Option<Option<Permit>> {
    let ends_at = Timestamp::from_micros(number(&mut record, 7)?);
    let _has_ended = number(&mut record, 1)?;
    let mut open: Option<Permit> = None;
    for _ in 0..number(&mut record, 1)? {
        let taken_at = Timestamp::from_micros(number(&mut record, 7)?);
        let hits = u32::try_from(number(&mut record, 4)?).ok()?;
        let permit =
            open.get_or_insert_with(|| Permit { id: id.into(), hits: 0, taken_at, ends_at });
        permit.hits = permit.hits.saturating_add(hits);
    }
    Some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_000);

    fn number7(number: u64) -> Vec<u8> {
        number.to_be_bytes()[1..].to_vec()
    }

    fn head_of(value: &[u8]) -> Vec<u8> {
        let part = value.len().min(FINGERPRINT);
        let last = value.len().saturating_sub(FINGERPRINT);
        let ends = [&value[..part], &value[last..]].concat();
        let length = u8::try_from(ends.len()).unwrap();
        [vec![FORMAT, length], ends, number7(1), number7(2_000), vec![0], vec![0; 20]].concat()
    }

    fn record(until: u64, receipts: &[(u64, u32)]) -> Vec<u8> {
        let count = u8::try_from(receipts.len()).unwrap();
        let receipts = receipts
            .iter()
            .flat_map(|(at, hits)| [number7(*at), hits.to_be_bytes().to_vec()].concat());
        [number7(until), vec![0, count]].concat().into_iter().chain(receipts).collect()
    }

    fn permit_bytes(taken_at: u64, ends_at: u64, hits: u32, id: &str) -> Vec<u8> {
        let length = u8::try_from(id.len()).unwrap();
        let hits = hits.to_be_bytes().to_vec();
        [number7(taken_at), number7(ends_at), hits, vec![length], id.as_bytes().to_vec()].concat()
    }

    fn of(id: &str, hits: u32, taken_at: u64, ends_at: u64) -> Permit {
        let [taken_at, ends_at] = [taken_at, ends_at].map(Timestamp::from_micros);
        Permit { id: id.as_bytes().into(), hits, taken_at, ends_at }
    }

    /// Returns a rate limit's counter with these records.
    fn counter(value: &[u8], records: &[(&str, Vec<u8>)]) -> Stored {
        let head = head_of(value);
        let read = records.iter().map(|(id, record)| (id.as_bytes().to_vec(), record.clone()));
        let read: Vec<_> = std::iter::once((Vec::new(), head.clone())).chain(read).collect();
        let fields = u64::try_from(read.len()).unwrap();
        Stored { value: value.to_vec(), head: Some(head), fields, read }
    }

    #[test]
    fn open_records_are_listed_oldest_first_with_the_sum_of_their_hits() {
        let records = [
            ("late", record(2_000, &[(500, 1)])),
            ("early", record(1_500, &[(100, 7), (200, 8)])),
            ("expired", record(1_000, &[(50, 1)])),
            ("ended", record(2_000, &[])),
        ];
        let expected = vec![of("early", 15, 100, 1_500), of("late", 1, 500, 2_000)];
        for value in [&b"\x18short"[..], &[24; 100]] {
            let open = open(&counter(value, &records), NOW);
            assert_eq!(open, Some(HoldList { holds: expected.clone(), unread: 0 }));
        }
    }

    #[test]
    fn a_record_that_is_stored_twice_is_listed_by_its_whole() {
        let mut name = vec![0; 129];
        name[..2].copy_from_slice(b"\x01a");
        let whole = (name, record(2_000, &[(100, 7), (200, 8)]));
        for (flags, expected) in [(2, of("a", 15, 100, 2_000)), (0, of("a", 8, 200, 2_000))] {
            let mut part = (b"a".to_vec(), record(2_000, &[(200, 8)]));
            part.1[7] = flags;
            let fields = vec![part, whole.clone()];
            let stored = Stored { read: fields, fields: 3, ..counter(b"\x18value", &[]) };
            let holds = vec![expected];
            assert_eq!(open(&stored, NOW), Some(HoldList { holds, unread: 0 }));
        }
    }

    #[test]
    fn records_that_were_not_read_are_counted() {
        let mut many = counter(b"\x18value", &[("a", record(2_000, &[(1, 1)]))]);
        many.fields = 1_000;
        assert_eq!(open(&many, NOW).unwrap().unread, 998);
        // A sample may have the head, or not.
        many.read.remove(0);
        assert_eq!(open(&many, NOW).unwrap().unread, 998);
    }

    /// A replica whose policy has no `hold` writes the counter, and its head is of an older value.
    #[test]
    fn records_are_listed_after_another_write_and_not_after_a_reset() {
        let stored = |value: &[u8]| {
            let record = record(2_000, &[(1, 1)]);
            Stored { value: value.to_vec(), ..counter(&[25; 60], &[("a", record)]) }
        };
        let reset = |at| [vec![25 | EXTENDED], vec![0; 21], number7(at), vec![24; 30]].concat();
        // The head is of an instant of 1.
        for (value, count) in [(vec![24; 60], 1), (reset(0), 1), (reset(1), 0), (reset(2), 0)] {
            assert_eq!(open(&stored(&value), NOW).unwrap().holds.len(), count, "{value:?}");
        }
        let none = Stored { value: vec![24; 60], ..Stored::default() };
        assert_eq!(open(&none, NOW), Some(HoldList::default()));
    }

    #[test]
    fn permits_are_listed_with_tallies_and_a_grant_before_them() {
        let permits = [
            permit_bytes(300, 2_000, 1, "b"),
            permit_bytes(200, 1_000, 1, "expired"),
            permit_bytes(100, 1_800, 2, ""),
        ];
        let body = [number7(300), vec![0, 3], permits.concat()].concat();
        let tallies = [&3u32.to_be_bytes()[..], b"any"].concat();
        let expected = vec![of("", 2, 100, 1_800), of("b", 1, 300, 2_000)];
        for (flags, before) in [
            (0, Vec::new()),
            (TALLIED, tallies.clone()),
            (EXTENDED, vec![9; 35]),
            (TALLIED | EXTENDED, [tallies, vec![9; 35]].concat()),
        ] {
            let value = [vec![PERMITS | flags], before, body.clone()].concat();
            let stored = Stored { value, ..Stored::default() };
            let open = open(&stored, NOW);
            assert_eq!(open, Some(HoldList { holds: expected.clone(), unread: 0 }), "{flags}");
        }
    }

    #[test]
    fn a_truncated_value_head_or_record_is_malformed() {
        let body = [number7(300), vec![0, 1], permit_bytes(1, 2_000, 1, "id")].concat();
        let value = [vec![PERMITS], body].concat();
        for length in 0..value.len() {
            let stored = Stored { value: value[..length].to_vec(), ..Stored::default() };
            assert_eq!(open(&stored, NOW), None, "{length}");
        }
        let whole = record(2_000, &[(1, 1)]);
        for length in 0..whole.len() {
            let stored = counter(b"\x18value", &[("a", whole[..length].to_vec())]);
            assert_eq!(open(&stored, NOW), None, "{length}");
        }
        for head in [&[][..], &[2, 0], &[FORMAT], &[FORMAT, 9, 1]] {
            let stored = Stored {
                head: Some(head.to_vec()),
                ..counter(b"\x18value", &[("a", whole.clone())])
            };
            assert_eq!(open(&stored, NOW), None, "{head:?}");
        }
    }
}
