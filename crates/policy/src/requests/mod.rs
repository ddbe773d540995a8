//! Mappings of HTTP requests to descriptors, for gateways that do not know descriptors.
//!
//! A [`RequestMapping`] reads the attributes of a request that it needs, in one pass and normalized
//! ([`RequestAttributes`]), and makes descriptors of them ([`MappedRequest`]). Knows no protocol of
//! a gateway: each of them fills in a [`GatewayRequest`].
//!
//! | file | contents |
//! |---|---|
//! | `target` | normalization of host and path |
//! | `address` | the address of the client, behind trusted proxies |
//! | `lines` | headers and query parameters, once or several times |
//! | `names` | names that sources read, and other spellings of them |
//! | `mapped` | descriptors of one request |
//! | `text` | mappings as text |

mod address;
mod lines;
mod mapped;
mod names;
mod target;
mod text;

use std::borrow::Cow;
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::Value;
use smallvec::SmallVec;
use tollgate_core::algorithm::words;

use self::lines::{LineTexts, LineValues, join};
pub use self::mapped::MappedRequest;
pub use self::names::Repeated;
pub(crate) use self::names::{LineName, LineNames};
use self::target::{NormalTarget, in_lower_case};
pub(super) use self::target::{normal_host, normal_path};
use super::pattern::Pattern;

/// Maximum length of a value in bytes, and of a target: all headers that Envoy accepts by default.
pub const MAX_VALUE_BYTES: usize = 60 << 10;
/// Maximum number of headers of a request.
pub const MAX_HEADERS: usize = 1024;
/// Header with the addresses of the hops before a gateway.
const FORWARDED_FOR: &[u8] = b"x-forwarded-for";

/// A mapping of HTTP requests to descriptors of a domain.
#[derive(Debug)]
pub struct RequestMapping {
    pub(super) name: Box<str>,
    pub(super) domain: Arc<str>,
    pub(super) undecided: IfUndecided,
    pub(super) trusted_hops: usize,
    pub(super) names: SourceNames,
    pub(super) descriptors: Vec<DescriptorMapping>,
}

/// The names that the sources of a mapping read.
#[derive(Debug)]
pub(super) struct SourceNames {
    /// Headers, in lower case.
    pub(super) headers: LineNames,
    /// Query parameters.
    pub(super) queries: LineNames,
    /// Paths of keys in the metadata of the gateway.
    pub(super) metadata: Box<[Vec<String>]>,
}

words! {
    /// The answer while there is no decision.
    #[derive(Default)]
    pub enum IfUndecided {
        /// An error: the failure mode of the gateway applies.
        #[default]
        Error = "error",
        /// The request is admitted.
        Allow = "allow",
        /// The request is denied, whatever the failure mode of the gateway.
        Deny = "deny",
    }
}

/// A descriptor of the requests that match.
#[derive(Debug)]
pub(super) struct DescriptorMapping {
    pub(super) matches: RequestMatch,
    pub(super) hits: u32,
    pub(super) entries: Vec<EntryMapping>,
}

/// The requests that a descriptor is for; an empty list is any.
#[derive(Debug, Default)]
pub(super) struct RequestMatch {
    pub(super) methods: Vec<Box<[u8]>>,
    pub(super) hosts: Vec<Pattern>,
    pub(super) paths: Vec<Pattern>,
}

/// An entry: its key, the source of its value, and the value if the source has none.
#[derive(Debug)]
pub(super) struct EntryMapping {
    pub(super) key: Box<[u8]>,
    pub(super) source: ValueSource,
    pub(super) default: Option<Box<[u8]>>,
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ValueSource {
    Literal(Box<[u8]>),
    /// A header, by its position in [`SourceNames::headers`].
    Header(usize),
    /// A query parameter, by its position in [`SourceNames::queries`].
    Query(usize),
    /// A segment of the path, from 1.
    Segment(usize),
    /// A value in the metadata of the gateway, by its position in [`SourceNames::metadata`].
    Metadata(usize),
    Method,
    Host,
    Path,
    /// The client's address, or the network of these lengths.
    ClientAddress {
        ipv4_prefix: u32,
        ipv6_prefix: u32,
    },
    /// The name in the client's certificate.
    ClientCertificate,
}

/// An HTTP request for which a gateway asks for a decision, as received.
#[derive(Clone, Debug, Default)]
pub struct GatewayRequest<'a> {
    /// Method.
    pub method: &'a [u8],
    /// Host, with or without a port.
    pub host: &'a [u8],
    /// Request target: path and query, or in absolute form.
    pub target: &'a [u8],
    /// Names and values of headers, in order.
    pub headers: Vec<(&'a [u8], &'a [u8])>,
    /// `true` if the gateway has joined the lines of each header by commas.
    pub joins_lines: bool,
    /// Address of the sender that the gateway saw itself, if it reports it apart from
    /// `X-Forwarded-For`.
    pub peer: Option<&'a [u8]>,
    /// Name in the client's certificate that the gateway has verified.
    pub certificate: Option<&'a [u8]>,
    /// Findings of the filters of the gateway, such as the claims of a verified token.
    pub metadata: Option<&'a dyn ValueTree>,
}

/// A tree of values.
pub trait ValueTree: Debug + Sync {
    /// Returns the text of the value at a path of keys; `None` if there is none, or it is a list or
    /// a mapping.
    ///
    /// # Errors
    /// [`Unmappable`] if the tree is malformed or the text too long.
    fn text_at(&self, keys: &[String]) -> Result<Option<Vec<u8>>, Unmappable>;
}

impl ValueTree for Value {
    fn text_at(&self, keys: &[String]) -> Result<Option<Vec<u8>>, Unmappable> {
        let found = keys.iter().try_fold(self, |value, key| value.get(key));
        let text = found.and_then(scalar);
        match text {
            Some(text) if text.len() > MAX_VALUE_BYTES => Err(Unmappable::TooLong),
            text => Ok(text),
        }
    }
}

/// Reason why a request cannot be mapped. It is denied: no request passes a limit in this way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmappable {
    /// Servers would resolve the path differently.
    #[error("the path has a dot segment beside an escaped slash, a backslash or a parameter")]
    Ambiguous,
    /// Servers that resolve the target as a reference would take its path for a host.
    #[error("the path begins with two slashes")]
    TwoSlashes,
    /// The request has a value twice that the mapping reads once.
    #[error(
        "a header or query parameter occurs more than once, or has a comma where the gateway joins \
         lines; `repeated` of the source may allow it"
    )]
    Repeated,
    /// Some servers would read a header or a parameter as one that the mapping reads.
    #[error(
        "some servers read a header with `_`, or a query parameter with another case, a space, `.`, \
         `[`, `;` or `%u`, as one that the mapping reads; `repeated` of the source may allow it"
    )]
    Spelling,
    /// A value that the mapping reads is too long.
    #[error("a value is longer than {MAX_VALUE_BYTES} bytes")]
    TooLong,
    /// The mapping reads the client's address, and the gateway reports none.
    #[error("the gateway reports no address of the client: X-Forwarded-For is missing or has none")]
    NoAddress,
    /// The gateway's metadata cannot be decoded.
    #[error("the metadata of the gateway cannot be decoded")]
    Metadata,
    /// The request has too many headers.
    #[error("the request has more than {MAX_HEADERS} headers")]
    TooManyHeaders,
}

/// The attributes of a request that a mapping reads, normalized.
#[derive(Debug)]
pub struct RequestAttributes<'a> {
    method: Cow<'a, [u8]>,
    target: NormalTarget<'a>,
    address: Option<IpAddr>,
    certificate: Option<&'a [u8]>,
    /// Value at each path of [`SourceNames::metadata`].
    metadata: SmallVec<[Option<Vec<u8>>; 2]>,
    /// Value of each header in [`SourceNames::headers`].
    headers: LineTexts<'a>,
    /// Value of each parameter in [`SourceNames::queries`].
    queries: LineTexts<'a>,
}

impl RequestMapping {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the domain of the descriptors.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the answer while there is no decision.
    pub fn undecided(&self) -> IfUndecided {
        self.undecided
    }

    /// Reads the attributes of a request.
    ///
    /// # Errors
    /// [`Unmappable`]
    pub fn read<'a>(&self, http: GatewayRequest<'a>) -> Result<RequestAttributes<'a>, Unmappable> {
        if http.headers.len() > MAX_HEADERS {
            return Err(Unmappable::TooManyHeaders);
        }
        let single = [Some(http.method), Some(http.host), Some(http.target), http.certificate];
        if single.into_iter().flatten().any(|value| value.len() > MAX_VALUE_BYTES) {
            return Err(Unmappable::TooLong);
        }
        let mut headers = LineValues::new(&self.names.headers);
        let mut forwarded = None;
        for (name, value) in &http.headers {
            let name = in_lower_case(name);
            headers.add_header(&name, value, http.joins_lines)?;
            if *name == *FORWARDED_FOR {
                join(&mut forwarded, Cow::Borrowed(*value))?;
            }
        }
        let target = NormalTarget::of(http.host, http.target)?;
        let queries = self.queries(target.query)?;
        let peer = http.peer.and_then(address::address);
        let forwarded = forwarded.unwrap_or_default();
        let address = address::client_address(&forwarded, peer, self.trusted_hops);
        if address.is_none() && self.needs_address() {
            return Err(Unmappable::NoAddress);
        }
        let metadata = self
            .names
            .metadata
            .iter()
            .map(|keys| http.metadata.map_or(Ok(None), |metadata| metadata.text_at(keys)));
        let metadata = metadata.collect::<Result<SmallVec<[Option<Vec<u8>>; 2]>, Unmappable>>()?;
        let method = if http.method.iter().any(u8::is_ascii_lowercase) {
            Cow::Owned(http.method.to_ascii_uppercase())
        } else {
            Cow::Borrowed(http.method)
        };
        Ok(RequestAttributes {
            method,
            target,
            address,
            certificate: http.certificate.filter(|name| !name.is_empty()),
            metadata,
            headers: headers.finish(),
            queries,
        })
    }

    /// Returns `true` if a descriptor is left out without the client's address. A request must not
    /// lose its limit in this way.
    fn needs_address(&self) -> bool {
        let mut entries = self.descriptors.iter().flat_map(|descriptor| &descriptor.entries);
        entries.any(|entry| {
            entry.default.is_none() && matches!(entry.source, ValueSource::ClientAddress { .. })
        })
    }

    fn queries<'a>(&self, query: &'a [u8]) -> Result<LineTexts<'a>, Unmappable> {
        let mut values = LineValues::new(&self.names.queries);
        let parameters =
            query.split(|byte| *byte == b'&').filter(|_| !self.names.queries.list.is_empty());
        for parameter in parameters {
            values.add_parameter(parameter)?;
        }
        Ok(values.finish())
    }

    /// Returns the descriptors of a request.
    pub fn map<'r>(&'r self, attributes: &'r RequestAttributes<'_>) -> MappedRequest<'r> {
        mapped::map(self, attributes)
    }
}

/// Returns the text of a value; `None` for null, a list or a mapping.
pub fn scalar(value: &Value) -> Option<Vec<u8>> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    Some(text.into_bytes())
}
