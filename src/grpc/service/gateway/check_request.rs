//! Decoding of a `CheckRequest`, without copies.
//!
//! Texts are read as bytes: headers need not be UTF-8. Fields that no mapping reads are skipped,
//! the body of the request among them.

use prost::encoding::{DecodeContext, skip_field};

use crate::grpc::request::{RequestError, bytes_of, fields};
use crate::policy::requests::{GatewayRequest, MAX_HEADERS};

/// Key in the context extensions of a route that names its mapping.
const MAPPING: &[u8] = b"mapping";

/// The parts of a `CheckRequest` that are read.
#[derive(Debug, Default)]
pub(super) struct CheckedRequest<'a> {
    /// Name of the mapping, if the route sets it.
    pub(super) mapping: Option<&'a [u8]>,
    pub(super) http: GatewayRequest<'a>,
    /// Encoded metadata; empty if there is none.
    pub(super) metadata: &'a [u8],
}

/// Decodes a message.
///
/// # Errors
/// The message is malformed.
pub(super) fn read(message: &[u8]) -> Result<CheckedRequest<'_>, RequestError> {
    let mut checked = CheckedRequest::default();
    each(
        message,
        |tag, attributes| if tag == 1 { checked.attributes(attributes) } else { Ok(()) },
    )?;
    Ok(checked)
}

impl<'a> CheckedRequest<'a> {
    fn attributes(&mut self, message: &'a [u8]) -> Result<(), RequestError> {
        each(message, |tag, field| match tag {
            1 => self.source(field),
            4 => each(field, |tag, http| if tag == 2 { self.http(http) } else { Ok(()) }),
            10 => {
                let (key, value) = pair(field)?;
                if key == MAPPING {
                    self.mapping = Some(value);
                }
                Ok(())
            }
            11 => {
                self.metadata = field;
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn source(&mut self, message: &'a [u8]) -> Result<(), RequestError> {
        each(message, |tag, field| match tag {
            1 => each(field, |tag, socket| match tag {
                1 => each(socket, |tag, address| {
                    if tag == 2 {
                        self.http.peer = Some(address);
                    }
                    Ok(())
                }),
                _ => Ok(()),
            }),
            4 => {
                self.http.certificate = Some(field);
                Ok(())
            }
            _ => Ok(()),
        })
    }

    fn http(&mut self, message: &'a [u8]) -> Result<(), RequestError> {
        each(message, |tag, field| {
            match tag {
                2 => self.http.method = field,
                3 => {
                    self.http.joins_lines = true;
                    self.header(pair(field)?);
                }
                4 => self.http.target = field,
                5 => self.http.host = field,
                13 => {
                    return each(field, |tag, header| {
                        if tag == 1 {
                            self.header(raw_header(header)?);
                        }
                        Ok(())
                    });
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// Adds a header. Beyond the maximum, one more shows that there are too many.
    fn header(&mut self, header: (&'a [u8], &'a [u8])) {
        if self.http.headers.len() <= MAX_HEADERS {
            self.http.headers.push(header);
        }
    }
}

/// Calls `see` for each length-delimited field of a message, and skips the others.
pub(super) fn each<'a>(
    message: &'a [u8],
    mut see: impl FnMut(u32, &'a [u8]) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    fields(message, |tag, wire_type, rest| match wire_type {
        prost::encoding::WireType::LengthDelimited => see(tag, bytes_of(wire_type, rest)?),
        prost::encoding::WireType::Varint
        | prost::encoding::WireType::SixtyFourBit
        | prost::encoding::WireType::ThirtyTwoBit
        | prost::encoding::WireType::StartGroup
        | prost::encoding::WireType::EndGroup => {
            Ok(skip_field(wire_type, tag, rest, DecodeContext::default())?)
        }
    })
}

/// Returns the key and the value of an entry of a map.
pub(super) fn pair(message: &[u8]) -> Result<(&[u8], &[u8]), RequestError> {
    let mut key = &[][..];
    let mut value = &[][..];
    each(message, |tag, field| {
        match tag {
            1 => key = field,
            2 => value = field,
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, value))
}

/// Returns the name and the value of a `HeaderValue`, of which one form of the value is set.
fn raw_header(message: &[u8]) -> Result<(&[u8], &[u8]), RequestError> {
    let mut key = &[][..];
    let mut value = &[][..];
    each(message, |tag, field| {
        match tag {
            1 => key = field,
            2 | 3 if !field.is_empty() => value = field,
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::grpc::proto::auth::attribute_context::{HttpRequest, Peer, Request};
    use crate::grpc::proto::auth::{AttributeContext, CheckRequest};
    use crate::grpc::proto::envoy::config::core::v3 as core;

    fn peer(address: &str) -> Peer {
        let socket = core::SocketAddress { address: address.to_owned(), ..Default::default() };
        let address =
            core::Address { address: Some(core::address::Address::SocketAddress(socket)) };
        Peer { address: Some(address), principal: "spiffe://mesh/a".into(), ..Default::default() }
    }

    fn encoded(attributes: AttributeContext) -> Vec<u8> {
        CheckRequest { attributes: Some(attributes) }.encode_to_vec()
    }

    /// Returns a message with an address only.
    fn of_a_peer() -> Vec<u8> {
        let source = Some(peer("203.0.113.7"));
        encoded(AttributeContext { source, ..Default::default() })
    }

    #[test]
    fn a_message_is_read_as_its_type_says() {
        let raw = core::HeaderValue {
            key: "x-raw".into(),
            raw_value: vec![0xff, b'a'],
            ..Default::default()
        };
        let http = HttpRequest {
            method: "GET".into(),
            path: "/a?b".into(),
            host: "shop".into(),
            size: -1,
            body: "never read".into(),
            headers: [("x-user".to_owned(), "ann".to_owned())].into(),
            header_map: Some(core::HeaderMap { headers: vec![raw] }),
            ..Default::default()
        };
        let attributes = AttributeContext {
            source: Some(peer("203.0.113.7")),
            destination: Some(peer("192.0.2.1")),
            request: Some(Request { http: Some(http), ..Default::default() }),
            context_extensions: [("mapping", "shop"), ("other", "x")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            metadata_context: Some(core::Metadata::default()),
            ..Default::default()
        };
        let message = encoded(attributes);
        let checked = read(&message).unwrap();
        assert_eq!(checked.mapping, Some(b"shop".as_slice()));
        assert_eq!(checked.http.peer, Some(b"203.0.113.7".as_slice()));
        assert_eq!(checked.http.certificate, Some(b"spiffe://mesh/a".as_slice()));
        assert_eq!(
            [checked.http.method, checked.http.host, checked.http.target],
            [b"GET".as_slice(), b"shop", b"/a?b"]
        );
        assert_eq!(
            checked.http.headers,
            [(b"x-user".as_slice(), b"ann".as_slice()), (b"x-raw", b"\xffa")]
        );
    }

    #[test]
    fn a_cut_message_is_an_error_and_no_panic() {
        let message = of_a_peer();
        for length in 1..message.len() {
            assert!(read(&message[..length]).is_err(), "{length}");
        }
        assert!(read(&[]).is_ok_and(|checked| checked.http.headers.is_empty()));
    }

    proptest! {
        /// Whatever the bytes are, they are read or refused.
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
            at in any::<prop::sample::Index>(),
        ) {
            let mut message = of_a_peer();
            let at = at.index(message.len());
            message.splice(at..at, bytes.iter().copied());
            let _ = read(&message);
            let _ = read(&bytes);
        }
    }

    #[test]
    fn too_many_headers_take_no_more_memory() {
        let header = core::HeaderValue { key: "a".into(), ..Default::default() };
        let headers = vec![header; MAX_HEADERS + 7];
        let http =
            HttpRequest { header_map: Some(core::HeaderMap { headers }), ..Default::default() };
        let request = Some(Request { http: Some(http), ..Default::default() });
        let message = encoded(AttributeContext { request, ..Default::default() });
        assert_eq!(read(&message).unwrap().http.headers.len(), MAX_HEADERS + 1);
    }
}
