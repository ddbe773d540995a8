//! Pre-encoded requests.

use prost::Message as _;
use tollgate::grpc::proto::rate_limit_descriptor::Entry;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

/// Length of a message's prefix: compressed flag (1 byte), message length (4).
const HEADER: usize = 5;

/// Requests that differ in one number.
pub(crate) struct Questions {
    /// Concatenated messages in gRPC framing.
    bytes: Vec<u8>,
    /// End offset of each message.
    ends: Vec<usize>,
}

impl Questions {
    /// Encodes `count` requests with these descriptors (`key=value,key=value`). `%n` is replaced
    /// with the request's number, zero-padded to at least `width` digits.
    pub(crate) fn new(domain: &str, descriptors: &[&str], count: usize, width: usize) -> Self {
        let mut questions = Self { bytes: Vec::new(), ends: Vec::new() };
        for number in 0..count {
            let number = format!("{number:0width$}");
            let descriptors =
                descriptors.iter().map(|text| descriptor(&text.replace("%n", &number))).collect();
            let request =
                RateLimitRequest { domain: domain.to_owned(), descriptors, ..Default::default() };
            questions.bytes.push(0);
            questions.bytes.extend((request.encoded_len() as u32).to_be_bytes());
            request.encode(&mut questions.bytes).expect("there is room");
            questions.ends.push(questions.bytes.len());
        }
        questions
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
    RateLimitDescriptor { entries: text.split(',').map(entry).collect(), ..Default::default() }
}
