//! Authorization: domains that a client may request, by the subject alternative names of its
//! certificate.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::tls::names::{self, CertificateName};

/// Domains granted to the clients whose certificates match a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    client: ClientPattern,
    /// Domain names, or prefixes that end in `*`.
    domains: Vec<Box<str>>,
}

/// Pattern that a certificate must match.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClientPattern {
    /// Any verified certificate.
    Any,
    /// A DNS name or a URI of the certificate; its wildcard names match, too.
    Named(Box<str>),
    /// Any single label below this parent domain.
    Below(Box<str>),
    /// Any URI with this prefix, which ends in a slash.
    Under(Box<str>),
}

/// Reason why an allowance is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAllowance {
    /// Not a name with domains.
    #[error("expected NAME=DOMAIN[,DOMAIN…], found `{0}`")]
    Form(String),
    /// A `*` is not at the end of a domain.
    #[error("`*` is allowed only at the end of a domain, found `{0}`")]
    Domain(String),
    /// The name is none of a client.
    #[error("expected a DNS name, *.parent, a URI, or a URI that ends in /*, found `{0}`")]
    Client(String),
}

/// `true` for a client that is a gateway, whose attributes of requests are trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct IsGateway(pub(super) bool);

/// Domains that the client of one connection may request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DomainRights {
    /// Any domain: no allowance is configured, or the client may request all.
    #[default]
    All,
    /// Only these domains.
    Only(Arc<AllowedDomains>),
}

/// The domains of a client, and the client's identity.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AllowedDomains {
    domains: Vec<Box<str>>,
    /// Names in the certificate, for logs.
    client: Vec<Box<str>>,
    /// Address of the client, for logs; `None` for a Unix socket.
    peer: Option<SocketAddr>,
}

impl Allowance {
    /// Parses `SAN=domain,…`.
    ///
    /// # Errors
    /// The text found and the form expected.
    pub fn parse(text: &str) -> Result<Self, InvalidAllowance> {
        let (name, domains) = text.trim().split_once('=').unwrap_or_default();
        let domains: Vec<Box<str>> =
            domains.split(',').map(|domain| domain.trim().into()).collect();
        if domains.iter().any(|domain| domain.is_empty()) {
            return Err(InvalidAllowance::Form(text.to_owned()));
        }
        if let Some(domain) =
            domains.iter().find(|domain| domain.trim_end_matches('*').contains('*'))
        {
            return Err(InvalidAllowance::Domain(domain.to_string()));
        }
        if name.trim().is_empty() {
            return Err(InvalidAllowance::Form(text.to_owned()));
        }
        Ok(Self { client: ClientPattern::parse(name.trim())?, domains })
    }
}

impl ClientPattern {
    fn parse(name: &str) -> Result<Self, InvalidAllowance> {
        match (name.strip_prefix("*."), name.strip_suffix("/*")) {
            _ if name == "*" => Ok(Self::Any),
            (Some(parent), _) if is_exact(parent) => Ok(Self::Below(parent.into())),
            (_, Some(above)) if is_exact(above) && above.contains("://") => {
                Ok(Self::Under(format!("{above}/").into()))
            }
            _ if is_exact(name) => Ok(Self::Named(name.into())),
            _ => Err(InvalidAllowance::Client(name.to_owned())),
        }
    }

    fn is(&self, certificate: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Named(name) => names::is_for(certificate, name),
            Self::Below(parent) => names::names(certificate).any(|name| match name {
                CertificateName::Dns(dns) => dns.split_once('.').is_some_and(|(label, rest)| {
                    !label.is_empty() && rest.eq_ignore_ascii_case(parent)
                }),
                CertificateName::Uri(_) => false,
            }),
            Self::Under(above) => names::names(certificate).any(|name| match name {
                CertificateName::Dns(_) => false,
                CertificateName::Uri(uri) => uri
                    .strip_prefix(&**above)
                    .is_some_and(|rest| !rest.is_empty() && !is_upwards(rest)),
            }),
        }
    }
}

/// Returns `true` for a name without wildcards.
fn is_exact(name: &str) -> bool {
    !name.is_empty() && !name.contains('*')
}

/// Returns `true` if a path has a `.` or `..` segment, which a resolver could use to leave the
/// prefix.
fn is_upwards(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "." | ".."))
}

impl DomainRights {
    /// Returns the rights of a client with this DER certificate: all domains if there are no
    /// allowances.
    pub(super) fn of(
        allowances: &[Allowance],
        certificate: &[u8],
        peer: Option<SocketAddr>,
    ) -> Self {
        if allowances.is_empty() {
            return Self::All;
        }
        let own = allowances.iter().filter(|allowance| allowance.client.is(certificate));
        let domains: Vec<Box<str>> =
            own.flat_map(|allowance| allowance.domains.iter().cloned()).collect();
        if domains.iter().any(|domain| &**domain == "*") {
            return Self::All;
        }
        let client = names::names(certificate).map(|name| name.text().into()).collect();
        Self::Only(Arc::new(AllowedDomains { domains, client, peer }))
    }

    /// Returns the client's address, if the rights are restricted and it has one.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::All => None,
            Self::Only(allowed) => allowed.peer,
        }
    }

    /// Returns rights to no domain.
    pub(super) fn none() -> Self {
        Self::Only(Arc::default())
    }

    /// Returns `true` if the rights include a domain.
    pub(super) fn include(&self, domain: &str) -> bool {
        let Self::Only(allowed) = self else { return true };
        allowed.domains.iter().any(|own| match own.strip_suffix('*') {
            Some(beginning) => domain.starts_with(beginning),
            None => domain == &**own,
        })
    }
}

impl fmt::Display for DomainRights {
    /// Writes the names of the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("any client"),
            Self::Only(allowed) => f.write_str(&allowed.client.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    fn certificate(name: &str) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![if name.contains("://") {
            SanType::URI(name.try_into().unwrap())
        } else {
            SanType::DnsName(name.try_into().unwrap())
        }];
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn may(allowances: &[&str], client: &str, domain: &str) -> bool {
        let allowances: Vec<_> =
            allowances.iter().map(|text| Allowance::parse(text).unwrap()).collect();
        DomainRights::of(&allowances, &certificate(client), None).include(domain)
    }

    #[test]
    fn a_name_may_request_only_its_domains() {
        let allowed = ["edge.example=edge,shop", "spiffe://mesh/ns/pay=pay", "edge.example=more"];
        for (client, domain, is_allowed) in [
            ("edge.example", "edge", true),
            ("EDGE.example", "shop", true),
            ("edge.example", "more", true),
            ("edge.example", "pay", false),
            ("edge.example", "edge2", false),
            ("spiffe://mesh/ns/pay", "pay", true),
            ("spiffe://mesh/ns/pay/more", "pay", false),
            ("other.example", "edge", false),
        ] {
            assert_eq!(may(&allowed, client, domain), is_allowed, "{client} {domain}");
        }
        assert!(may(&[], "other.example", "edge"), "nothing is set");
    }

    #[test]
    fn stars_stand_for_one_label_for_the_rest_of_a_uri_for_anybody_and_for_the_rest_of_a_domain() {
        let allowed = ["*.edge=edge/*", "spiffe://mesh/ns/pay/*=pay", "*=all", "root.example=*"];
        for (client, domain, is_allowed) in [
            ("a.edge", "edge/eg/http", true),
            ("a.edge", "edge", false),
            ("*.edge", "edge/", true),
            ("a.b.edge", "edge/eg", false),
            ("edge", "edge/eg", false),
            ("spiffe://mesh/ns/pay/sa/one", "pay", true),
            ("spiffe://mesh/ns/pay/", "pay", false),
            ("spiffe://mesh/ns/pay/../shop", "pay", false),
            ("spiffe://mesh/ns/payments/sa", "pay", false),
            ("unknown.example", "all", true),
            ("unknown.example", "pay", false),
            ("root.example", "pay", true),
        ] {
            assert_eq!(may(&allowed, client, domain), is_allowed, "{client} {domain}");
        }
    }

    #[test]
    fn invalid_rights_are_reported() {
        for text in [
            "",
            "edge",
            "=edge",
            "edge=",
            "edge=a,,b",
            "e*ge=a",
            "spiffe://mesh*=a",
            "*.*=a",
            "a=b*c",
        ] {
            assert!(Allowance::parse(text).unwrap_err().to_string().contains("found `"), "{text}");
        }
    }
}
