//! Values that a request can have several times: lines of a header, parameters of a query.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::names::{LineNames, Repeated};
use super::target::decoded;
use super::{MAX_VALUE_BYTES, Unmappable};

/// The value of each of a list of names.
pub(super) type LineTexts<'a> = SmallVec<[Option<Cow<'a, [u8]>>; 4]>;

/// The values of a list of names, line by line.
#[derive(Debug)]
pub(super) struct LineValues<'n, 'a> {
    names: &'n LineNames,
    values: LineTexts<'a>,
}

impl<'n, 'a> LineValues<'n, 'a> {
    pub(super) fn new(names: &'n LineNames) -> Self {
        Self { names, values: names.list.iter().map(|_| None).collect() }
    }

    /// Adds a line of a name, which is made if a source reads it. `is_joined` is set if it can be
    /// several, joined by commas.
    ///
    /// # Errors
    /// [`Unmappable::Repeated`], [`Unmappable::TooLong`]
    fn add(
        &mut self,
        name: &[u8],
        line: impl Fn() -> Cow<'a, [u8]>,
        is_joined: bool,
    ) -> Result<(), Unmappable> {
        let names = &self.names.list;
        let begin = names.partition_point(|known| *known.name < *name);
        let values = names.iter().zip(&mut self.values).skip(begin);
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

    /// Adds a header, whose name is in lower case.
    ///
    /// # Errors
    /// [`Unmappable::Spelling`], and those of [`Self::add`].
    pub(super) fn add_header(
        &mut self,
        name: &[u8],
        value: &'a [u8],
        is_joined: bool,
    ) -> Result<(), Unmappable> {
        if self.names.are_spelled_by_header(name) {
            return Err(Unmappable::Spelling);
        }
        self.add(name, || value.into(), is_joined)
    }

    /// Adds a parameter of a query, as received.
    ///
    /// # Errors
    /// [`Unmappable::Spelling`], and those of [`Self::add`].
    pub(super) fn add_parameter(&mut self, parameter: &'a [u8]) -> Result<(), Unmappable> {
        if self.names.are_spelled_by_parameter(parameter) {
            return Err(Unmappable::Spelling);
        }
        let mut parts = parameter.splitn(2, |byte| *byte == b'=');
        let name = decoded(parts.next().unwrap_or_default());
        let value = parts.next().unwrap_or_default();
        self.add(&name, || decoded(value).into(), false)
    }

    /// Returns the value of each name.
    pub(super) fn finish(self) -> LineTexts<'a> {
        self.values
    }
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
