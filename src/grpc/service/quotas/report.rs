//! Reads usage reports without decoding them into messages: an empty report of a bucket has 2
//! bytes, and its message would take a hundred.

use std::str;

use prost::encoding::{self, DecodeContext, skip_field};
use smallvec::SmallVec;

use crate::descriptor::Entry;
use crate::grpc::request::{RequestError, bytes_of, fields};
use crate::rlqs::terms::BucketUsage;

/// Maximum length of a bucket's ID in bytes, and number of its pairs.
const MAX_ID: usize = 4 << 10;
const MAX_PAIRS: usize = 16;

/// Maximum number of requests in a report. A stream reports every few seconds; more is forged, and
/// would turn back counts of 64 bits.
const MAX_REQUESTS: u64 = u32::MAX as u64;

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageField<'a> {
    Domain(&'a str),
    /// The report of a bucket.
    Report(&'a [u8]),
    Other,
}

/// Takes the next field of a message; `None` at its end.
///
/// # Errors
/// The message is malformed.
pub(super) fn next_field<'a>(
    rest: &mut &'a [u8],
) -> Result<Option<MessageField<'a>>, RequestError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let (tag, wire_type) = encoding::decode_key(rest)?;
    Ok(Some(match tag {
        1 => {
            let domain = str::from_utf8(bytes_of(wire_type, rest)?);
            MessageField::Domain(domain.map_err(|_| RequestError::Domain)?)
        }
        2 => MessageField::Report(bytes_of(wire_type, rest)?),
        _ => {
            skip_field(wire_type, tag, rest, DecodeContext::default())?;
            MessageField::Other
        }
    }))
}

/// Reads the report of a bucket, and writes the canonical form of its ID to `id`: its pairs, sorted
/// by key, each with lengths. It stays empty for an ID beyond the bounds, or that is not UTF-8:
/// responses cannot name it. The second part is the ID as it was encoded.
///
/// # Errors
/// The message is malformed.
pub(super) fn read_usage<'a>(
    report: &'a [u8],
    id: &mut Vec<u8>,
) -> Result<(BucketUsage, &'a [u8]), RequestError> {
    let mut usage = BucketUsage::default();
    let mut bucket: &'a [u8] = &[];
    fields(report, |tag, wire_type, rest| {
        let context = DecodeContext::default();
        match tag {
            1 => bucket = bytes_of(wire_type, rest)?,
            3 => encoding::uint64::merge(wire_type, &mut usage.allowed, rest, context)?,
            4 => encoding::uint64::merge(wire_type, &mut usage.denied, rest, context)?,
            _ => skip_field(wire_type, tag, rest, context)?,
        }
        Ok(())
    })?;
    usage.allowed = usage.allowed.min(MAX_REQUESTS);
    usage.denied = usage.denied.min(MAX_REQUESTS);
    let mut pairs = SmallVec::<[Entry<'_>; 4]>::new();
    let mut is_bounded = bucket.len() <= MAX_ID;
    fields(bucket, |tag, wire_type, rest| {
        if tag != 1 {
            return Ok(skip_field(wire_type, tag, rest, DecodeContext::default())?);
        }
        let pair = read_pair(bytes_of(wire_type, rest)?)?;
        is_bounded &= pairs.len() < MAX_PAIRS;
        is_bounded &= [pair.key, pair.value].iter().all(|text| str::from_utf8(text).is_ok());
        if is_bounded {
            pairs.push(pair);
        }
        Ok(())
    })?;
    id.clear();
    if is_bounded {
        pairs.sort_unstable_by_key(|pair| pair.key);
        for text in pairs.iter().flat_map(|pair| [pair.key, pair.value]) {
            id.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
            id.extend_from_slice(text);
        }
    }
    Ok((usage, bucket))
}

fn read_pair(message: &[u8]) -> Result<Entry<'_>, RequestError> {
    let mut pair = Entry { key: &[], value: &[] };
    fields(message, |tag, wire_type, rest| {
        match tag {
            1 => pair.key = bytes_of(wire_type, rest)?,
            2 => pair.value = bytes_of(wire_type, rest)?,
            _ => skip_field(wire_type, tag, rest, DecodeContext::default())?,
        }
        Ok(())
    })?;
    Ok(pair)
}

/// Returns the pairs of an ID in its canonical form.
pub(super) fn pairs(mut id: &[u8]) -> Vec<Entry<'_>> {
    let mut pairs = Vec::new();
    while let Some((key, value)) = take(&mut id).zip(take(&mut id)) {
        pairs.push(Entry { key, value });
    }
    pairs
}

fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (text, after) = after.split_at_checked(length)?;
    *rest = after;
    Some(text)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::grpc::proto::quota::rate_limit_quota_usage_reports::BucketQuotaUsage;
    use crate::grpc::proto::quota::{BucketId, RateLimitQuotaUsageReports};

    fn usage(pairs: &[(&str, &str)]) -> BucketQuotaUsage {
        let bucket = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket: bucket.collect() }),
            time_elapsed: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
            num_requests_allowed: 7,
            num_requests_denied: 300,
        }
    }

    #[test]
    fn reports_are_read_as_they_are_encoded() {
        let message = RateLimitQuotaUsageReports {
            domain: "shop".to_owned(),
            bucket_quota_usages: vec![usage(&[("b", "2"), ("a", "")]), usage(&[])],
        };
        let message = message.encode_to_vec();
        let mut rest = &*message;
        let fields: Vec<_> = std::iter::from_fn(|| next_field(&mut rest).transpose())
            .collect::<Result<_, _>>()
            .unwrap();
        let [
            MessageField::Domain("shop"),
            MessageField::Report(first),
            MessageField::Report(second),
        ] = fields[..]
        else {
            panic!("{fields:?}");
        };
        let reports = [first, second];
        let mut id = Vec::new();
        let (usage, bucket) = read_usage(reports[0], &mut id).unwrap();
        assert_eq!(BucketId::decode(bucket).unwrap().bucket.len(), 2);
        assert_eq!(usage, BucketUsage { allowed: 7, denied: 300 });
        let expected = [("a", ""), ("b", "2")];
        let expected =
            expected.map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() });
        assert_eq!(pairs(&id), expected);
        read_usage(reports[1], &mut id).unwrap();
        assert!(id.is_empty());
    }

    #[test]
    fn the_order_of_the_pairs_does_not_matter() {
        let mut ids = [Vec::new(), Vec::new()];
        let [a, b] = [&b"\x0a\x06\x0a\x01a\x12\x011"[..], &b"\x0a\x06\x0a\x01b\x12\x012"[..]];
        for (id, order) in ids.iter_mut().zip([[a, b], [b, a]]) {
            let bucket = order.concat();
            let report = [&[0x0a, u8::try_from(bucket.len()).unwrap()][..], &bucket].concat();
            read_usage(&report, id).unwrap();
        }
        assert_eq!(ids[0], ids[1]);
        assert_eq!(pairs(&ids[0]).len(), 2);
    }

    #[test]
    fn an_id_beyond_the_bounds_is_empty_and_a_malformed_one_is_an_error() {
        let many: Vec<_> = (0..17).map(|number| (number.to_string(), String::new())).collect();
        let many: Vec<_> = many.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let long = "x".repeat(5_000);
        for report in [usage(&many), usage(&[("a", &long)])] {
            let mut id = vec![1];
            read_usage(&report.encode_to_vec(), &mut id).unwrap();
            assert!(id.is_empty());
        }
        let mut id = vec![1];
        read_usage(b"\x0a\x08\x0a\x06\x0a\x01a\x12\x01\xff", &mut id).unwrap();
        assert!(id.is_empty(), "not UTF-8");
        assert!(read_usage(b"\x0a\x05\x0a", &mut Vec::new()).is_err());
        assert!(next_field(&mut &b"\x12\x7f\x00"[..]).is_err());
    }
}
