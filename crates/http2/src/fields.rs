//! Header lists and trailers from a client: validated, measured, and kept in one buffer.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

/// Bytes that each field counts in addition to its name and value (RFC 9113, 6.5.2).
const FIELD_OVERHEAD: usize = 32;
/// Bytes that a field takes in a [`HeaderMap`] in addition to its name and value: 104 in its list,
/// whose capacity may be twice its length, and two allocations.
const MAP_COST: usize = 256;
/// Capacity of the buffers kept from list to list, in bytes and in fields.
const KEPT_BYTES: usize = 2 << 10;
const KEPT_FIELDS: usize = 64;
/// HTTP/1 fields, which make a request malformed (RFC 9113, 8.2.2).
const CONNECTION_FIELDS: [&[u8]; 5] =
    [b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"];

/// The fields of one header block, in the order in which they were sent.
///
/// All names and values share one buffer, which is reused for the next block.
#[derive(Debug, Default)]
pub struct HeaderFields {
    bytes: Vec<u8>,
    ends: Vec<Ends>,
    pseudo: Pseudo,
    has_regular: bool,
    size: usize,
    verdict: FieldsVerdict,
    content_length: Option<u64>,
}

/// End positions of a field's name and value in the buffer.
#[derive(Clone, Copy, Debug)]
struct Ends {
    name: usize,
    value: usize,
}

/// Indices of pseudo-header fields in the list.
#[derive(Debug, Default)]
struct Pseudo {
    method: Option<usize>,
    scheme: Option<usize>,
    path: Option<usize>,
    authority: Option<usize>,
}

/// Result of validating a list, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FieldsVerdict {
    /// Valid as RFC 9113, section 8 requires.
    #[default]
    WellFormed,
    /// Larger than allowed. Its fields are not kept.
    TooLarge,
    /// Malformed (RFC 9113, 8.1.1): a stream error.
    Malformed,
}

impl HeaderFields {
    /// Clears the list, and keeps its buffers.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.pseudo = Pseudo::default();
        (self.has_regular, self.size) = (false, 0);
        self.verdict = FieldsVerdict::WellFormed;
        self.content_length = None;
    }

    /// Releases the memory of a long list.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to(KEPT_BYTES);
        self.ends.shrink_to(KEPT_FIELDS);
    }

    /// Returns the number of bytes that the result of [`Self::to_map`] and this list take together.
    pub(super) fn map_cost(&self) -> usize {
        self.bytes.len().saturating_mul(2).saturating_add(self.ends.len().saturating_mul(MAP_COST))
    }

    /// Returns the capacity of its buffers, in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity().saturating_add(self.ends.capacity().saturating_mul(size_of::<Ends>()))
    }

    /// Adds a field. `max_size` bounds the whole list, in bytes as RFC 9113, 6.5.2 counts.
    pub fn add(&mut self, name: &[u8], value: &[u8], max_size: usize) {
        self.size = self
            .size
            .saturating_add(name.len())
            .saturating_add(value.len())
            .saturating_add(FIELD_OVERHEAD);
        if self.size > max_size {
            self.verdict = FieldsVerdict::TooLarge;
        }
        if self.verdict != FieldsVerdict::WellFormed {
            return;
        }
        let is_well_formed = if name.first() == Some(&b':') {
            self.add_pseudo(name, value)
        } else {
            self.add_regular(name, value)
        };
        if !is_well_formed {
            self.verdict = FieldsVerdict::Malformed;
            return;
        }
        self.bytes.extend_from_slice(name);
        let name = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push(Ends { name, value: self.bytes.len() });
    }

    /// Adds a pseudo-header field. Returns `false` if it is malformed. The authority may be any
    /// value, since the route does not depend on it: Envoy sends the name of a cluster there,
    /// clients of a Unix socket its path.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> bool {
        let position = match name {
            b":method" => &mut self.pseudo.method,
            b":scheme" => &mut self.pseudo.scheme,
            b":path" => &mut self.pseudo.path,
            b":authority" => &mut self.pseudo.authority,
            _ => return false,
        };
        let is_repeated = position.replace(self.ends.len()).is_some();
        let is_valid = match name {
            b":method" => Method::from_bytes(value).is_ok(),
            b":scheme" => !value.is_empty() && is_value(value),
            _ => is_value(value),
        };
        !is_repeated && !self.has_regular && is_valid
    }

    /// Adds any other field. Returns `false` if it is malformed.
    fn add_regular(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.has_regular = true;
        if !is_name(name) || !is_value(value) {
            return false;
        }
        match name {
            b"te" => value.eq_ignore_ascii_case(b"trailers"),
            b"content-length" => {
                let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let is_same = self.content_length.is_none_or(|known| Some(known) == length);
                self.content_length = length;
                is_same && length.is_some() && value.iter().all(u8::is_ascii_digit)
            }
            _ => !CONNECTION_FIELDS.contains(&name),
        }
    }

    /// Validates a request's complete list.
    pub(super) fn request_verdict(&self) -> FieldsVerdict {
        let Pseudo { method, scheme, .. } = self.pseudo;
        let is_path = match self.path() {
            b"*" => self.method() == b"OPTIONS",
            path => path.first() == Some(&b'/'),
        };
        let is_whole = method.is_some() && scheme.is_some() && is_path;
        if self.verdict == FieldsVerdict::WellFormed && !is_whole {
            FieldsVerdict::Malformed
        } else {
            self.verdict
        }
    }

    /// Validates a list of trailers, which must not have pseudo-header fields.
    pub(super) fn trailers_verdict(&self) -> FieldsVerdict {
        let Pseudo { method, scheme, path, authority } = self.pseudo;
        let has_pseudo = method.or(scheme).or(path).or(authority).is_some();
        if self.verdict == FieldsVerdict::WellFormed && has_pseudo {
            FieldsVerdict::Malformed
        } else {
            self.verdict
        }
    }

    /// Returns the length of the body, if the client announced it.
    pub(super) fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    fn method(&self) -> &[u8] {
        self.pseudo.method.and_then(|at| self.at(at)).map_or(&[], |(_, value)| value)
    }

    /// Returns the path with its query.
    pub fn path(&self) -> &[u8] {
        self.pseudo.path.and_then(|at| self.at(at)).map_or(&[], |(_, value)| value)
    }

    /// Returns the first value of a field. `name` is in lower case.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Iterates over names and values, pseudo-header fields included.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.ends.len()).filter_map(|at| self.at(at))
    }

    fn at(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let begin = match at.checked_sub(1) {
            Some(before) => self.ends.get(before)?.value,
            None => 0,
        };
        let ends = self.ends.get(at)?;
        Some((self.bytes.get(begin..ends.name)?, self.bytes.get(ends.name..ends.value)?))
    }

    /// Converts the list to a request. Omits what `http` cannot represent: a field, or the path,
    /// which then is `/`.
    pub(super) fn to_request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::from_bytes(self.method()).unwrap_or(Method::POST);
        *request.uri_mut() =
            Uri::try_from(self.path()).ok().filter(|uri| uri.host().is_none()).unwrap_or_default();
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = self.to_map();
        request
    }

    /// Converts the regular fields that `http` can represent to a map.
    pub(super) fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in self.iter().filter(|(name, _)| name.first() != Some(&b':')) {
            if let Ok(name) = HeaderName::from_bytes(name)
                && let Ok(value) = HeaderValue::from_bytes(value)
            {
                // Fails above 32,768 fields, far beyond what the bound on the list's size admits.
                let _ = map.try_append(name, value);
            }
        }
        map
    }
}

/// Returns `true` if a name is valid (RFC 9113, 8.2.1): visible ASCII without upper case and colon.
fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|byte| matches!(byte, 0x21..=0x7e) && !matches!(byte, b'A'..=b'Z' | b':'))
}

/// Returns `true` if a value is valid (RFC 9113, 8.2.1): no NUL, CR or LF, and no white space at
/// either end.
fn is_value(value: &[u8]) -> bool {
    !matches!(value, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
        && !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: [(&[u8], &[u8]); 3] =
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a.B/C")];

    fn fields(list: &[(&[u8], &[u8])]) -> HeaderFields {
        let mut fields = HeaderFields::default();
        list.iter().for_each(|(name, value)| fields.add(name, value, 1 << 10));
        fields
    }

    fn verdict_of(field: (&[u8], &[u8])) -> FieldsVerdict {
        fields(&[&USUAL[..], &[field]].concat()).request_verdict()
    }

    #[test]
    fn a_malformed_list_is_distinguished_from_a_valid_one() {
        use FieldsVerdict::{Malformed, WellFormed};
        let cases: [(&[u8], &[u8], FieldsVerdict); 32] = [
            // An authority may be nearly any value.
            (b":authority", b"", WellFormed),
            (b":authority", b"outbound|80||a.b", WellFormed),
            (b":authority", b"/run/a.sock", WellFormed),
            (b":authority", b"a b", WellFormed),
            (b":authority", b"\xff\x01", WellFormed),
            (b":authority", b"%zz", WellFormed),
            (b":authority", b"a@b:c", WellFormed),
            (b"x", b"any \xff bytes", WellFormed),
            (b"x", b"", WellFormed),
            (b"te", b"trailers", WellFormed),
            (b"content-length", b"12", WellFormed),
            (b"X", b"v", Malformed),
            (b"", b"v", Malformed),
            (b"a b", b"v", Malformed),
            (b"a:b", b"v", Malformed),
            (b"x\x7f", b"v", Malformed),
            (b"x", b" v", Malformed),
            (b"x", b"v\t", Malformed),
            (b"x", b"a\rb", Malformed),
            (b"x", b"a\nb", Malformed),
            (b"x", b"a\0b", Malformed),
            (b"te", b"gzip", Malformed),
            (b"connection", b"close", Malformed),
            (b"transfer-encoding", b"chunked", Malformed),
            (b"content-length", b"+1", Malformed),
            (b"content-length", b"", Malformed),
            (b":status", b"200", Malformed),
            (b":path", b"/twice", Malformed),
            (b":authority", b"a\rb", Malformed),
            (b":authority", b"a\nb", Malformed),
            (b":authority", b"a\0b", Malformed),
            (b":authority", b" a", Malformed),
        ];
        for (name, value, expected) in cases {
            let name_text = String::from_utf8_lossy(name);
            assert_eq!(verdict_of((name, value)), expected, "{name_text:?}: {value:?}");
        }
    }

    #[test]
    fn pseudo_fields_come_first_and_each_that_is_needed_is_there() {
        for missing in 0..USUAL.len() {
            let mut list = USUAL.to_vec();
            list.remove(missing);
            assert_eq!(fields(&list).request_verdict(), FieldsVerdict::Malformed);
        }
        let late = fields(&[USUAL[0], USUAL[1], (b"x", b"y"), USUAL[2]]);
        assert_eq!(late.request_verdict(), FieldsVerdict::Malformed);
        assert_eq!(fields(&USUAL).trailers_verdict(), FieldsVerdict::Malformed);
        assert_eq!(fields(&[(b"x", b"y")]).trailers_verdict(), FieldsVerdict::WellFormed);
    }

    #[test]
    fn methods_schemes_and_paths_have_the_form_of_the_protocol() {
        use FieldsVerdict::{Malformed, WellFormed};
        for (method, scheme, path, expected) in [
            ("POST", "http", "/", WellFormed),
            ("OPTIONS", "http", "*", WellFormed),
            ("M-SEARCH", "grpc+x", "/a?b", WellFormed),
            ("POST", "http", "*", Malformed),
            ("POST", "http", "a.B/C", Malformed),
            ("POST", "http", "http://host/a.B/C", Malformed),
            ("OPTIONS", "http", "*/", Malformed),
            ("POST", "http", "", Malformed),
            ("POST", "", "/", Malformed),
            ("", "http", "/", Malformed),
            ("PO ST", "http", "/", Malformed),
        ] {
            let list = [(":method", method), (":scheme", scheme), (":path", path)]
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            assert_eq!(fields(&list).request_verdict(), expected, "{method} {scheme} {path}");
        }
    }

    #[test]
    fn content_lengths_that_differ_are_malformed() {
        let lengths = |first, second| {
            fields(
                &[&USUAL[..], &[(b"content-length", first), (b"content-length", second)]].concat(),
            )
            .request_verdict()
        };
        assert_eq!(lengths(b"1", b"1"), FieldsVerdict::WellFormed);
        assert_eq!(lengths(b"1", b"2"), FieldsVerdict::Malformed);
    }

    #[test]
    fn a_list_is_too_large_as_the_protocol_counts() {
        let mut list = HeaderFields::default();
        list.add(b"x", b"yy", 35);
        assert_eq!(list.trailers_verdict(), FieldsVerdict::WellFormed);
        list.add(b"", b"", 35 + 31);
        assert_eq!(list.trailers_verdict(), FieldsVerdict::TooLarge);
    }

    #[test]
    fn a_field_is_found_by_its_name_and_has_its_first_value() {
        let list = fields(&[(b"x", b"1"), (b"y", b"2"), (b"y", b"3")]);
        assert_eq!((list.get(b"y"), list.get(b"z")), (Some(&b"2"[..]), None));
    }

    #[test]
    fn fields_that_http_cannot_represent_are_omitted() {
        let odd: [(&[u8], &[u8]); 3] = [(b":authority", b"a|b"), (b"x", b"1"), (b"a(b", b"2")];
        let request = fields(&[&USUAL[..], &odd].concat()).to_request(());
        assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/a.B/C"));
        assert_eq!(request.headers().len(), 1);
        let path: [(&[u8], &[u8]); 1] = [(b":path", b"/no path")];
        assert_eq!(fields(&[&USUAL[..2], &path].concat()).to_request(()).uri().path(), "/");
    }
}
