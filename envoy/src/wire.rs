//! The messages of `tollgate.v1.LeaseService/Exchange`, and the frame of gRPC around one.
//!
//! They are those of `proto/tollgate/v1/lease.proto` with the fields that are used here. They are
//! written by hand, so that the module builds without a compiler of protos. The values of entries
//! are bytes: Envoy forwards headers that are not UTF-8.

use std::time::Duration;

use prost::{Message, Oneof};
use tollgate_lease::holder;

/// Path of the method.
pub(crate) const EXCHANGE: &str = "/tollgate.v1.LeaseService/Exchange";
/// Length of the frame's head: a flag, and the length of the message.
const HEAD: usize = 5;

/// A request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExchangeRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) wants: Vec<Want>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) returns: Vec<Return>,
}

/// A block that is wanted.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Want {
    #[prost(message, optional, tag = "1")]
    pub(crate) descriptor: Option<Descriptor>,
    #[prost(uint32, tag = "2")]
    pub(crate) hits: u32,
}

/// A block that has ended.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Return {
    #[prost(message, optional, tag = "1")]
    pub(crate) descriptor: Option<Descriptor>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) receipt: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub(crate) unused: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) used: u32,
}

/// A descriptor of Envoy's rate limit protocol.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
}

/// An entry of a descriptor.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Entry {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// A response: an answer to each want, in order. The results of returns are not used.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExchangeResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) answers: Vec<LeaseAnswer>,
}

/// The answer to a want.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseAnswer {
    #[prost(uint64, tag = "1")]
    pub(crate) generation: u64,
    #[prost(oneof = "Answer", tags = "2, 3, 4, 5")]
    pub(crate) answer: Option<Answer>,
}

/// The kinds of answers.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Answer {
    #[prost(message, tag = "2")]
    Loan(Loan),
    #[prost(message, tag = "3")]
    AskEachRequest(Empty),
    #[prost(message, tag = "4")]
    Denial(Denial),
    #[prost(message, tag = "5")]
    NotLeasable(Empty),
}

/// A message of which no field is used.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Empty {}

/// A block of hits.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Loan {
    #[prost(uint32, tag = "1")]
    pub(crate) hits: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) receipt: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    pub(crate) usable_for: Option<prost_types::Duration>,
    #[prost(message, optional, tag = "4")]
    pub(crate) counter: Option<CounterReport>,
}

/// A denial of requests of one hit.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Denial {
    #[prost(message, optional, tag = "1")]
    pub(crate) valid_for: Option<prost_types::Duration>,
    #[prost(message, optional, tag = "2")]
    pub(crate) counter: Option<CounterReport>,
}

/// The state of a counter.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CounterReport {
    #[prost(uint32, tag = "1")]
    pub(crate) limit: u32,
    #[prost(message, optional, tag = "2")]
    pub(crate) period: Option<prost_types::Duration>,
    #[prost(uint64, tag = "3")]
    pub(crate) remaining: u64,
    #[prost(message, optional, tag = "4")]
    pub(crate) reset_after: Option<prost_types::Duration>,
}

impl LeaseAnswer {
    /// Returns the answer without its wire.
    pub(crate) fn into_holder(self) -> holder::LeaseAnswer {
        let answer = match self.answer {
            Some(Answer::Loan(loan)) => holder::WantAnswer::Loan {
                hits: loan.hits,
                receipt: loan.receipt,
                usable_for: duration(loan.usable_for),
                counter: loan.counter.map(CounterReport::state),
            },
            Some(Answer::Denial(denial)) => holder::WantAnswer::Denial {
                valid_for: duration(denial.valid_for),
                counter: denial.counter.map(CounterReport::state),
            },
            Some(Answer::NotLeasable(_)) => holder::WantAnswer::NotLeasable,
            Some(Answer::AskEachRequest(_)) | None => holder::WantAnswer::AskEachRequest,
        };
        holder::LeaseAnswer { generation: self.generation, answer }
    }
}

impl CounterReport {
    fn state(self) -> holder::LeasedCounter {
        holder::LeasedCounter {
            limit: self.limit,
            period: duration(self.period),
            remaining: self.remaining,
            reset_after: duration(self.reset_after),
        }
    }
}

/// Returns a duration, or zero if it is absent or negative.
fn duration(value: Option<prost_types::Duration>) -> Duration {
    value.and_then(|value| Duration::try_from(value).ok()).unwrap_or_default()
}

/// Returns a message in the frame of gRPC, uncompressed.
pub(crate) fn frame(message: &impl Message) -> Vec<u8> {
    let length = message.encoded_len();
    let mut bytes = Vec::with_capacity(length.saturating_add(HEAD));
    bytes.push(0);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(&message.encode_to_vec());
    bytes
}

/// Returns the message of a response, or the reason for which there is none.
pub(crate) fn unframe<M: Message + Default>(body: &[u8]) -> Result<M, &'static str> {
    let (head, message) = body.split_at_checked(HEAD).ok_or("the response has no message")?;
    let [compressed, length @ ..] = head else { return Err("the response has no message") };
    let Ok(length) = <[u8; 4]>::try_from(length).map(u32::from_be_bytes) else {
        return Err("the response has no message");
    };
    if *compressed != 0 {
        return Err("the response is compressed");
    }
    if usize::try_from(length) != Ok(message.len()) {
        return Err("the response is not one message");
    }
    M::decode(message).map_err(|_| "the message of the response cannot be decoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_a_frame_is_read_again_and_a_damaged_one_is_refused() {
        let request = ExchangeRequest { domain: "shop".to_owned(), ..Default::default() };
        let framed = frame(&request);
        assert_eq!(&framed[..7], [0, 0, 0, 0, 6, 10, 4]);
        assert_eq!(unframe(&framed), Ok(request));
        let read = |bytes: &[u8]| unframe::<ExchangeRequest>(bytes).unwrap_err();
        assert_eq!(read(&framed[..4]), "the response has no message");
        assert_eq!(read(&framed[..8]), "the response is not one message");
        assert_eq!(read(&[1, 0, 0, 0, 0]), "the response is compressed");
        let undecodable = read(&[0, 0, 0, 0, 1, 255]);
        assert_eq!(undecodable, "the message of the response cannot be decoded");
    }
}
