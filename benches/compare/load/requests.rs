//! Requests that differ in numbers, encoded once.

use prost::Message as _;
use tollgate::grpc::proto::rate_limit_descriptor::Entry;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

/// Number of reserves that are sent before their ends: more than there are calls in flight.
const HOLDS_AT_ONCE: usize = 1 << 10;

/// Placeholders of numbers in descriptors: the number of the request times a factor, modulo the
/// number of keys. The factors are primes that no number of keys is a multiple of, so that each key
/// is in as many requests as any other.
const PLACEHOLDERS: [(&str, usize); 3] = [("%n", 1), ("%p", 7919), ("%q", 104_729)];

/// Requests that differ in their numbers.
pub(crate) struct Requests {
    /// Set if the requests are sent in their order, and not at random.
    pub(super) is_in_order: bool,
    /// The request, or one that reserves and one that ends its hold.
    templates: Vec<Template>,
    keys: usize,
    /// Digits of each number.
    width: usize,
}

/// A message in gRPC framing, with places for numbers.
struct Template {
    bytes: Vec<u8>,
    /// Offsets of the numbers, each with its factor.
    places: Vec<(usize, usize)>,
}

impl Requests {
    /// Creates a request for each of `keys` numbers, with these descriptors (`key=value,key=value`,
    /// or with hits `key=value*8`). `%n`, `%p` and `%q` are replaced with numbers below `keys`, the
    /// first with that of the request, as `width` digits.
    pub(crate) fn new(
        domain: &str,
        descriptors: &[impl AsRef<str>],
        keys: usize,
        width: usize,
    ) -> Self {
        let templates = vec![Template::new(domain, descriptors, width)];
        Self { is_in_order: false, templates, keys, width }
    }

    /// Creates requests that reserve, and as many that end them, for at least `keys` numbers.
    pub(crate) fn holds(
        domain: &str,
        reserve: &[impl AsRef<str>],
        end: &[impl AsRef<str>],
        keys: usize,
        width: usize,
    ) -> Self {
        let templates =
            vec![Template::new(domain, reserve, width), Template::new(domain, end, width)];
        let keys = keys.next_multiple_of(HOLDS_AT_ONCE);
        Self { is_in_order: true, templates, keys, width }
    }

    pub(crate) fn len(&self) -> usize {
        self.templates.len() * self.keys
    }

    /// Writes a request to `message`.
    pub(super) fn write(&self, number: usize, message: &mut Vec<u8>) {
        let block = HOLDS_AT_ONCE * self.templates.len();
        let (template, number) = if self.is_in_order {
            let within = number % block;
            (within / HOLDS_AT_ONCE, number / block * HOLDS_AT_ONCE + within % HOLDS_AT_ONCE)
        } else {
            (0, number)
        };
        let Template { bytes, places } = &self.templates[template];
        message.clear();
        message.extend_from_slice(bytes);
        for (at, factor) in places {
            let mut rest = number * factor % self.keys;
            for digit in message[*at..*at + self.width].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

impl Template {
    fn new(domain: &str, descriptors: &[impl AsRef<str>], width: usize) -> Self {
        // Bytes that no other text has.
        let marks: Vec<String> = (1..)
            .zip(PLACEHOLDERS)
            .map(|(mark, _)| char::from(mark).to_string().repeat(width))
            .collect();
        let marked = |text: &str| {
            PLACEHOLDERS
                .iter()
                .zip(&marks)
                .fold(text.to_owned(), |text, ((name, _), mark)| text.replace(name, mark))
        };
        let descriptors =
            descriptors.iter().map(|text| descriptor(&marked(text.as_ref()))).collect();
        let request =
            RateLimitRequest { domain: domain.to_owned(), descriptors, ..Default::default() };
        let mut bytes = vec![0];
        bytes.extend((request.encoded_len() as u32).to_be_bytes());
        let header = bytes.len();
        request.encode(&mut bytes).expect("there is room");
        let place = |at: usize| {
            let found = marks.iter().position(|mark| bytes[at..].starts_with(mark.as_bytes()))?;
            Some((at, PLACEHOLDERS[found].1))
        };
        let places = (header..bytes.len()).filter_map(place).collect();
        Self { bytes, places }
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
