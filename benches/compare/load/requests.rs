//! Pre-encoded requests.

use prost::Message as _;
use tollgate::grpc::proto::rate_limit_descriptor::Entry;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

/// Length of a message's prefix: compressed flag (1 byte), message length (4).
const HEADER: usize = 5;

/// Number of reserves that are sent before their ends: more than there are calls in flight.
const HOLDS_AT_ONCE: usize = 1 << 10;

/// Primes that no number of keys is a multiple of: a number times one of them, modulo the number of
/// keys, is each key once.
const PRIMES: [usize; 2] = [7919, 104_729];

/// Requests that differ in their numbers.
pub(crate) struct Requests {
    /// Set if the requests are sent in their order, and not at random.
    pub(super) is_in_order: bool,
    /// Concatenated messages in gRPC framing.
    bytes: Vec<u8>,
    /// End offset of each message.
    ends: Vec<usize>,
}

impl Requests {
    /// Encodes `count` requests with these descriptors (`key=value,key=value`, or with hits
    /// `key=value*8`). `%n` is replaced with the request's number, `%p` and `%q` with two other
    /// numbers below `count`, each in one request as well, zero-padded to at least `width` digits.
    pub(crate) fn new(domain: &str, descriptors: &[&str], count: usize, width: usize) -> Self {
        let mut requests = Self { is_in_order: false, bytes: Vec::new(), ends: Vec::new() };
        let other = |number: usize, factor: usize| (number * factor + 1) % count;
        for number in 0..count {
            requests.add(domain, descriptors, |text| {
                text.replace("%n", &format!("{number:0width$}"))
                    .replace("%p", &format!("{:0width$}", other(number, PRIMES[0])))
                    .replace("%q", &format!("{:0width$}", other(number, PRIMES[1])))
            });
        }
        requests
    }

    /// Encodes `count` requests that reserve, and as many that end their holds.
    pub(crate) fn holds(
        domain: &str,
        [reserve, end]: [&[&str]; 2],
        count: usize,
        width: usize,
    ) -> Self {
        let mut requests = Self { is_in_order: true, bytes: Vec::new(), ends: Vec::new() };
        for first in (0..count).step_by(HOLDS_AT_ONCE) {
            for descriptors in [reserve, end] {
                for number in first..count.min(first + HOLDS_AT_ONCE) {
                    let number = format!("{number:0width$}");
                    requests.add(domain, descriptors, |text| text.replace("%n", &number));
                }
            }
        }
        requests
    }

    fn add(&mut self, domain: &str, descriptors: &[&str], filled: impl Fn(&str) -> String) {
        let descriptors = descriptors.iter().map(|text| descriptor(&filled(text))).collect();
        let request =
            RateLimitRequest { domain: domain.to_owned(), descriptors, ..Default::default() };
        self.bytes.push(0);
        self.bytes.extend((request.encoded_len() as u32).to_be_bytes());
        request.encode(&mut self.bytes).expect("there is room");
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn at(&self, number: usize) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        let bytes = &self.bytes[begin..self.ends[number]];
        debug_assert!(bytes.len() > HEADER);
        bytes
    }
}

fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |text: &str| {
        let (key, value) = text.split_once('=').expect("an entry is key=value");
        Entry { key: key.to_owned().into(), value: value.to_owned().into() }
    };
    let (text, hits) = text.split_once('*').map_or((text, None), |(text, hits)| (text, Some(hits)));
    let hits_addend = hits.map(|hits| hits.parse().expect("hits are a number"));
    let entries = text.split(',').map(entry).collect();
    RateLimitDescriptor { entries, hits_addend, ..Default::default() }
}
