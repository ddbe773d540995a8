//! A mapping as text, for people and for the version of a policy set.

use std::fmt;

use super::{
    DescriptorMapping, EntryMapping, IfUndecided, LineName, Repeated, RequestMapping, RequestMatch,
    SourceNames, ValueSource,
};

impl fmt::Display for RequestMapping {
    /// Writes the mapping in one line, and one for each descriptor. Texts are quoted, so that
    /// different mappings are different texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, domain, undecided, trusted_hops, names, descriptors } = self;
        let undecided = match undecided {
            IfUndecided::Error => "error",
            IfUndecided::Allow => "allow",
            IfUndecided::Deny => "deny",
        };
        writeln!(
            f,
            "{name:?} to domain {domain:?}, trusted hops: {trusted_hops}, undecided: {undecided}"
        )?;
        for DescriptorMapping { matches, hits, entries } in descriptors {
            write!(f, "  {matches}hits: {hits}")?;
            for entry in entries {
                let EntryMapping { key, source, default } = entry;
                write!(f, ", {} from ", quoted(key))?;
                source.write(names, f)?;
                if let Some(default) = default {
                    write!(f, " or {}", quoted(default))?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { methods, hosts, paths } = self;
        let hosts = hosts.iter().map(|host| host.text());
        let paths = paths.iter().map(|path| path.text());
        list("method", methods.iter().map(|method| &**method), f)?;
        list("host", hosts, f)?;
        list("path", paths, f)
    }
}

impl ValueSource {
    fn write(&self, names: &SourceNames, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SourceNames { headers, queries, metadata } = names;
        match self {
            Self::Literal(text) => write!(f, "text {}", quoted(text)),
            Self::Header(at) => write!(f, "header {}", line(&headers.list, *at)),
            Self::Query(at) => write!(f, "query parameter {}", line(&queries.list, *at)),
            Self::Segment(number) => write!(f, "segment {number}"),
            Self::Metadata(at) => {
                write!(f, "metadata {:?}", metadata.get(*at).unwrap_or(&Vec::new()))
            }
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::ClientAddress { ipv4_prefix, ipv6_prefix } => {
                write!(f, "client address /{ipv4_prefix} /{ipv6_prefix}")
            }
            Self::ClientCertificate => f.write_str("client certificate"),
        }
    }
}

/// Writes what one of several texts must match, unless there are none.
fn list<'t>(
    what: &str,
    texts: impl Iterator<Item = &'t [u8]>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let texts: Vec<_> = texts.map(quoted).collect();
    if texts.is_empty() { Ok(()) } else { write!(f, "{what} {}, ", texts.join(" or ")) }
}

/// Returns the name at a position, and what is done with several values unless they are refused.
fn line(names: &[LineName], at: usize) -> String {
    let Some(LineName { name, repeated }) = names.get(at) else { return String::new() };
    match repeated {
        Repeated::Refuse => quoted(name),
        Repeated::First | Repeated::Join => format!("{}, {}", quoted(name), repeated.word()),
    }
}

fn quoted(text: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(text))
}
