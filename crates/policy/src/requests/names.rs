//! Names of headers and of parameters that sources read, and other spellings of them, under which
//! some servers read the same value. A client could leave the mapped name out, and have the value
//! read nevertheless.

use tollgate_core::algorithm::words;

use super::target::{decoded, is_wide_escape};

words! {
    /// Treatment of a value that a request has several times. Servers differ in which one they
    /// read, so that a client could choose one for its limit and another for the server.
    #[derive(Default, PartialOrd, Ord)]
    pub enum Repeated {
        /// The request is denied with 400.
        #[default]
        Refuse = "refuse",
        /// The first one counts, as in Envoy's filter.
        First = "first",
        /// All of them, joined by commas.
        Join = "join",
    }
}

/// A name that sources read. A list of them is sorted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineName {
    pub(crate) name: Box<[u8]>,
    pub(crate) repeated: Repeated,
}

/// The names that sources read of headers, or of a query.
#[derive(Debug)]
pub(crate) struct LineNames {
    /// The names, sorted.
    pub(crate) list: Box<[LineName]>,
    /// Folded names that must not occur twice, sorted.
    folded: Box<[Box<[u8]>]>,
}

impl LineNames {
    /// Creates the names of headers, in lower case.
    pub(crate) fn of_headers(names: Vec<LineName>) -> Self {
        Self::new(names, |name| folded_header(name).collect())
    }

    /// Creates the names of parameters of a query.
    pub(crate) fn of_queries(names: Vec<LineName>) -> Self {
        // A name with brackets is one of several below the same first name, which are others.
        Self::new(names, |name| {
            if name.contains(&b'[') { flat(name).collect() } else { first_of_path(name).collect() }
        })
    }

    fn new(mut names: Vec<LineName>, fold: impl Fn(&[u8]) -> Box<[u8]>) -> Self {
        names.sort_unstable();
        names.dedup();
        let refused = names.iter().filter(|known| known.repeated == Repeated::Refuse);
        let mut folded: Vec<_> = refused.map(|known| fold(&known.name)).collect();
        folded.sort_unstable();
        Self { list: names.into(), folded: folded.into() }
    }

    /// Returns `true` if servers of CGI, which make `_` of `-`, read a header in lower case as one
    /// of the names.
    pub(super) fn are_spelled_by_header(&self, name: &[u8]) -> bool {
        name.contains(&b'_') && !self.has(name) && self.is_folded(folded_header(name))
    }

    /// Returns `true` if some servers read a parameter as one of the names: those that also split
    /// at semicolons, and those that fold names.
    pub(super) fn are_spelled_by_parameter(&self, parameter: &[u8]) -> bool {
        let is_split = parameter.contains(&b';');
        !self.folded.is_empty()
            && parameter.split(|byte| *byte == b';').any(|piece| {
                let written = piece.split(|byte| *byte == b'=').next().unwrap_or_default();
                let name = decoded(written);
                let is_read = self.is_folded(first_of_path(&name)) || self.is_folded(flat(&name));
                let is_wide = has_wide_escape(written) || is_read && has_wide_escape(piece);
                is_wide || is_read && (is_split || !self.has(&name))
            })
    }

    fn has(&self, name: &[u8]) -> bool {
        self.list.iter().any(|known| *known.name == *name)
    }

    fn is_folded(&self, name: impl Iterator<Item = u8> + Clone) -> bool {
        self.folded.binary_search_by(|known| known.iter().copied().cmp(name.clone())).is_ok()
    }
}

fn folded_header(name: &[u8]) -> impl Iterator<Item = u8> + Clone + '_ {
    name.iter().map(|byte| if *byte == b'_' { b'-' } else { *byte })
}

/// Returns the first name of a path such as `[user][id]`, as PHP, Rack and qs read it: PHP leaves
/// out spaces before it and what follows a zero, and makes underscores of spaces and dots; ASP.NET
/// ignores case.
fn first_of_path(name: &[u8]) -> impl Iterator<Item = u8> + Clone + '_ {
    let is_bracket = |byte: &&u8| matches!(**byte, b'[' | b']');
    let begun = name.iter().skip_while(|byte| **byte == b' ').skip_while(is_bracket);
    begun.take_while(move |byte| !is_bracket(byte) && **byte != 0).map(folded)
}

/// Returns the name as PHP reads it if a bracket is not closed.
fn flat(name: &[u8]) -> impl Iterator<Item = u8> + Clone + '_ {
    let begun = name.iter().skip_while(|byte| **byte == b' ').take_while(|byte| **byte != 0);
    begun.map(|byte| if *byte == b'[' { b'_' } else { folded(byte) })
}

fn folded(byte: &u8) -> u8 {
    if matches!(byte, b' ' | b'.') { b'_' } else { byte.to_ascii_lowercase() }
}

/// Returns `true` if a text has an escape of 16 bits, which only some servers decode.
fn has_wide_escape(text: &[u8]) -> bool {
    let mut after = text.split(|byte| *byte == b'%').skip(1);
    after.any(is_wide_escape)
}
