//! The descriptors of one request.

use std::borrow::Cow;

use tollgate_core::algorithm::judge::Hits;
use tollgate_core::descriptor::{Descriptor, Entry, Request};

use super::address::text_of;
use super::{
    DescriptorMapping, EntryMapping, RequestAttributes, RequestMapping, RequestMatch, ValueSource,
};
use crate::pattern::Pattern;

/// The descriptors of a request, with their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedRequest<'r> {
    domain: &'r str,
    descriptors: Vec<MappedDescriptor<'r>>,
}

/// Entries of a descriptor, keys and values, and its hits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MappedDescriptor<'r> {
    entries: Vec<(&'r [u8], Cow<'r, [u8]>)>,
    hits: u32,
}

impl MappedRequest<'_> {
    /// Returns the request; `None` if it has no descriptor, and so no limit.
    pub fn request(&self) -> Option<Request<'_>> {
        let descriptors = self.descriptors.iter().map(MappedDescriptor::descriptor);
        let request = Request { domain: self.domain, descriptors: descriptors.collect() };
        (!request.descriptors.is_empty()).then_some(request)
    }
}

impl MappedDescriptor<'_> {
    fn descriptor(&self) -> Descriptor<'_> {
        let entries = self.entries.iter().map(|(key, value)| Entry { key, value });
        let hits = if self.hits == 0 { Hits::Peek(0) } else { Hits::Charge(self.hits) };
        Descriptor::new(entries.collect(), hits, hits.amount(), None)
    }
}

/// Maps a request.
pub(super) fn map<'r>(
    mapping: &'r RequestMapping,
    attributes: &'r RequestAttributes<'_>,
) -> MappedRequest<'r> {
    let descriptors = mapping.descriptors.iter();
    let applying = descriptors.filter(|descriptor| descriptor.matches.is_for(attributes));
    let descriptors = applying.filter_map(|descriptor| attributes.descriptor(descriptor));
    MappedRequest { domain: mapping.domain(), descriptors: descriptors.collect() }
}

impl RequestMatch {
    fn is_for(&self, attributes: &RequestAttributes<'_>) -> bool {
        let Self { methods, hosts, paths } = self;
        (methods.is_empty() || methods.iter().any(|method| **method == *attributes.method))
            && is_any(hosts, &attributes.target.host)
            && is_any(paths, &attributes.target.path)
    }
}

/// Returns `true` if one of the patterns matches a text, or there are none.
fn is_any(patterns: &[Pattern], text: &[u8]) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(text))
}

impl RequestAttributes<'_> {
    /// Returns a descriptor; `None` if an entry has neither a value nor a default.
    fn descriptor<'r>(&'r self, mapping: &'r DescriptorMapping) -> Option<MappedDescriptor<'r>> {
        let entries = mapping.entries.iter().map(|EntryMapping { key, source, default }| {
            let default = default.as_deref().map(Cow::Borrowed);
            Some((&**key, self.value(source).or(default)?))
        });
        Some(MappedDescriptor { entries: entries.collect::<Option<_>>()?, hits: mapping.hits })
    }

    /// Returns the value of a source. An empty one counts as missing.
    fn value<'r>(&'r self, source: &'r ValueSource) -> Option<Cow<'r, [u8]>> {
        let value = match source {
            ValueSource::Literal(text) => Cow::Borrowed(&**text),
            ValueSource::Header(at) => Cow::Borrowed(self.headers.get(*at)?.as_deref()?),
            ValueSource::Query(at) => Cow::Borrowed(self.queries.get(*at)?.as_deref()?),
            ValueSource::Segment(number) => Cow::Borrowed(self.target.segment(*number)?),
            ValueSource::Metadata(at) => Cow::Borrowed(self.metadata.get(*at)?.as_deref()?),
            ValueSource::Method => Cow::Borrowed(&*self.method),
            ValueSource::Host => Cow::Borrowed(&*self.target.host),
            ValueSource::Path => Cow::Borrowed(&*self.target.path),
            ValueSource::ClientAddress { ipv4_prefix, ipv6_prefix } => {
                Cow::Owned(text_of(self.address?, *ipv4_prefix, *ipv6_prefix).into_bytes())
            }
            ValueSource::ClientCertificate => Cow::Borrowed(self.certificate?),
        };
        (!value.is_empty()).then_some(value)
    }
}
