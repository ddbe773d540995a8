//! The names that a certificate is issued for, from its subjectAltName (RFC 5280, 4.2.1.6).
//!
//! webpki, which has verified the certificate, ignores wildcards followed by a single label, such
//! as `*.gateway`, which Envoy Gateway's certificates have. A full parser of X.509 would add
//! fifteen crates for this one list.

/// DER tags on the path to the names.
const SEQUENCE: u8 = 0x30;
const OID: u8 = 0x06;
const OCTET_STRING: u8 = 0x04;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
/// Object identifier 2.5.29.17.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// A name that a certificate is issued for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateName<'a> {
    /// A DNS name; wildcards are kept as written.
    Dns(&'a str),
    /// A URI.
    Uri(&'a str),
}

impl<'a> CertificateName<'a> {
    /// Returns the name as written.
    pub fn text(self) -> &'a str {
        match self {
            Self::Dns(text) | Self::Uri(text) => text,
        }
    }
}

/// Returns the DNS names and URIs of a certificate in DER.
pub fn names(certificate: &[u8]) -> impl Iterator<Item = CertificateName<'_>> {
    elements(alternative_names(certificate).unwrap_or_default()).filter_map(|(tag, text)| {
        let text = std::str::from_utf8(text).ok()?;
        match tag {
            DNS_NAME => Some(CertificateName::Dns(text)),
            URI => Some(CertificateName::Uri(text)),
            _ => None,
        }
    })
}

/// Returns `true` if a certificate is issued for `name`: as a URI, as a DNS name, or by a wildcard.
/// A wildcard matches one label, the first.
pub fn is_for(certificate: &[u8], name: &str) -> bool {
    names(certificate).any(|found| match found {
        CertificateName::Dns(dns) => covers(dns, name),
        CertificateName::Uri(uri) => uri == name,
    })
}

fn covers(dns: &str, name: &str) -> bool {
    if let Some(parent) = dns.strip_prefix("*.")
        && let Some((label, rest)) = name.split_once('.')
        && !label.is_empty()
        && rest.eq_ignore_ascii_case(parent)
    {
        return true;
    }
    dns.eq_ignore_ascii_case(name)
}

/// Returns the list of general names.
fn alternative_names(certificate: &[u8]) -> Option<&[u8]> {
    let to_be_signed = find(find(certificate, SEQUENCE)?, SEQUENCE)?;
    let extensions = find(find(to_be_signed, EXTENSIONS)?, SEQUENCE)?;
    let (_, extension) = elements(extensions)
        .find(|(_, extension)| find(extension, OID) == Some(SUBJECT_ALT_NAME))?;
    find(find(extension, OCTET_STRING)?, SEQUENCE)
}

/// Returns the content of the first element with a tag.
fn find(bytes: &[u8], wanted: u8) -> Option<&[u8]> {
    elements(bytes).find(|(tag, _)| *tag == wanted).map(|(_, content)| content)
}

/// Iterates over tags and contents, up to the first bytes that are not DER.
fn elements(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[tag, first], rest) = bytes.split_first_chunk()?;
        // Below 128, this is the length; above, the number of bytes that hold it.
        let (length, rest) = match first.checked_sub(0x80) {
            None => (usize::from(first), rest),
            Some(count) => {
                let (length, rest) =
                    rest.split_at_checked(count.into()).filter(|_| (1..=4).contains(&count))?;
                (
                    length
                        .iter()
                        .fold(0, |sum: usize, byte| sum.wrapping_shl(8) | usize::from(*byte)),
                    rest,
                )
            }
        };
        let (content, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        Some((tag, content))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn certificate(names: &[&str], uri: Option<&str>) -> Vec<u8> {
        let mut params =
            CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())
                .unwrap();
        params.subject_alt_names.extend(uri.map(|uri| SanType::URI(uri.try_into().unwrap())));
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn names_wildcards_and_uris_count_and_nothing_near_them() {
        let certificate = certificate(&["a.example", "*.gateway"], Some("spiffe://mesh/ns/edge"));
        let all = [
            CertificateName::Dns("a.example"),
            CertificateName::Dns("*.gateway"),
            CertificateName::Uri("spiffe://mesh/ns/edge"),
        ];
        assert_eq!(names(&certificate).collect::<Vec<_>>(), all);
        for name in
            ["a.example", "A.Example", "envoy.gateway", "*.gateway", "spiffe://mesh/ns/edge"]
        {
            assert!(is_for(&certificate, name), "{name}");
        }
        for name in
            ["", "example", "b.example", "gateway", ".gateway", "a.b.gateway", "spiffe://mesh/ns"]
        {
            assert!(!is_for(&certificate, name), "{name}");
        }
    }

    #[test]
    fn a_certificate_without_names_matches_no_name() {
        assert!(!is_for(&certificate(&[], None), "a.example"));
        assert!(!is_for(b"", "a.example"));
    }

    #[test]
    fn lengths_beyond_127_bytes_are_read() {
        let names: Vec<String> = (0..100).map(|number| format!("host-{number}.example")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(is_for(&certificate(&names, None), "host-99.example"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0usize..300, byte: u8) {
            let _ = is_for(&bytes, "a.example");
            let mut broken = certificate(&["a.example"], None);
            broken[at] = byte;
            let _ = is_for(&broken, "a.example");
        }
    }
}
