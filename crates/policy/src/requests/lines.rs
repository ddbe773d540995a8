//! Values that a request can have several times: lines of a header, parameters of a query.

use std::borrow::Cow;

use smallvec::SmallVec;
use tollgate_core::algorithm::words;

use super::target::decoded;
use super::{MAX_VALUE_BYTES, Unmappable};

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

/// The value of each of a list of names.
pub(super) type LineTexts<'a> = SmallVec<[Option<Cow<'a, [u8]>>; 4]>;

/// The values of a list of names, line by line.
#[derive(Debug)]
pub(super) struct LineValues<'n, 'a> {
    names: &'n [LineName],
    values: LineTexts<'a>,
}

impl<'n, 'a> LineValues<'n, 'a> {
    pub(super) fn new(names: &'n [LineName]) -> Self {
        Self { names, values: names.iter().map(|_| None).collect() }
    }

    /// Adds a line of a name, which is made if a source reads it. `is_joined` is set if it can be
    /// several, joined by commas.
    ///
    /// # Errors
    /// [`Unmappable::Repeated`], [`Unmappable::TooLong`]
    pub(super) fn add(
        &mut self,
        name: &[u8],
        line: impl Fn() -> Cow<'a, [u8]>,
        is_joined: bool,
    ) -> Result<(), Unmappable> {
        let begin = self.names.partition_point(|known| *known.name < *name);
        let values = self.names.iter().zip(&mut self.values).skip(begin);
        for (known, value) in values.take_while(|(known, _)| *known.name == *name) {
            let line = line();
            let has_commas = is_joined && line.contains(&b',');
            match known.repeated {
                Repeated::Refuse if value.is_some() || has_commas => {
                    return Err(Unmappable::Repeated);
                }
                Repeated::First if value.is_some() => {}
                Repeated::First if has_commas => join(value, first_of(line))?,
                Repeated::Refuse | Repeated::First | Repeated::Join => join(value, line)?,
            }
        }
        Ok(())
    }

    /// Adds a parameter of a query, as received.
    ///
    /// # Errors
    /// [`Unmappable::Spelling`], and those of [`Self::add`].
    pub(super) fn add_parameter(&mut self, parameter: &'a [u8]) -> Result<(), Unmappable> {
        let mut parts = parameter.splitn(2, |byte| *byte == b'=');
        let name = decoded(parts.next().unwrap_or_default());
        let value = parts.next().unwrap_or_default();
        let refuses = |known: &&LineName| known.repeated == Repeated::Refuse;
        let is_known = self.names.iter().any(|known| *known.name == *name);
        let is_other_spelling = |known: &LineName| {
            !is_known && folded(&known.name).eq(folded(&name))
                || parameter.split(|byte| *byte == b';').skip(1).any(|piece| {
                    let end = piece.iter().position(|byte| *byte == b'=').unwrap_or(piece.len());
                    folded(&known.name).eq(folded(&decoded(piece.get(..end).unwrap_or(piece))))
                })
        };
        if self.names.iter().filter(refuses).any(is_other_spelling) {
            return Err(Unmappable::Spelling);
        }
        self.add(&name, || decoded(value).into(), false)
    }

    /// Returns the value of each name.
    pub(super) fn finish(self) -> LineTexts<'a> {
        self.values
    }
}

/// Returns the name under which some servers read a parameter: PHP leaves out spaces before it and
/// what follows a bracket or a zero, and reads spaces and dots as underscores; ASP.NET ignores case.
fn folded(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let name = name.iter().skip_while(|byte| **byte == b' ');
    name.take_while(|byte| !matches!(byte, b'[' | 0)).map(|byte| match byte {
        b' ' | b'.' => b'_',
        byte => byte.to_ascii_lowercase(),
    })
}

/// Returns the text before the first comma.
fn first_of(line: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let end = line.iter().position(|byte| *byte == b',').unwrap_or(line.len());
    match line {
        Cow::Borrowed(line) => Cow::Borrowed(line.get(..end).unwrap_or(line).trim_ascii_end()),
        Cow::Owned(mut line) => {
            line.truncate(end);
            line.trim_ascii_end().to_vec().into()
        }
    }
}

/// Appends a value to those of the same name.
pub(super) fn join<'a>(
    values: &mut Option<Cow<'a, [u8]>>,
    value: Cow<'a, [u8]>,
) -> Result<(), Unmappable> {
    let joined = match values.take() {
        None => value,
        Some(values) => {
            let mut values = values.into_owned();
            values.push(b',');
            values.extend_from_slice(&value);
            Cow::Owned(values)
        }
    };
    if joined.len() > MAX_VALUE_BYTES {
        return Err(Unmappable::TooLong);
    }
    *values = Some(joined);
    Ok(())
}
