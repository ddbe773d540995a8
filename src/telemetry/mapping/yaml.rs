//! YAML as a tree of values with line numbers. Mapping files need no more: no aliases, no tags.

use granit_parser::{Event, Parser};

/// Maximum nesting depth; a mapping file has four levels.
const MAX_NESTING: usize = 16;
/// Maximum number of values in a file.
const MAX_VALUES: usize = 100_000;

/// A value and the line on which it begins.
#[derive(Clone, Debug)]
pub(super) struct MappingValue {
    pub(super) line: usize,
    pub(super) content: ValueContent,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(super) enum ValueContent {
    Scalar(String),
    List(Vec<MappingValue>),
    Map(Vec<(MappingValue, MappingValue)>),
}

impl MappingValue {
    /// Returns the text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            ValueContent::Scalar(text) => Some(text),
            ValueContent::List(_) | ValueContent::Map(_) => None,
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Option<&[MappingValue]> {
        match &self.content {
            ValueContent::List(items) => Some(items),
            ValueContent::Scalar(_) | ValueContent::Map(_) => None,
        }
    }

    /// Returns the keys and values of a map, without keys that are not scalars.
    pub(super) fn pairs(&self) -> Option<impl Iterator<Item = (&str, &MappingValue)>> {
        match &self.content {
            ValueContent::Map(pairs) => Some(pairs.iter().filter_map(|(key, value)| Some((key.text()?, value)))),
            ValueContent::Scalar(_) | ValueContent::List(_) => None,
        }
    }

    /// Returns the value of a key in a map.
    pub(super) fn of(&self, key: &str) -> Option<&MappingValue> {
        self.pairs()?.find_map(|(name, value)| (name == key).then_some(value))
    }
}

/// A list or a map whose end event is still to come.
struct OpenValue {
    line: usize,
    is_map: bool,
    children: Vec<MappingValue>,
}

/// Parses the first document of a file. Returns `None` for an empty file.
///
/// # Errors
/// If the text is not YAML or exceeds the bounds of a mapping file; with the line.
pub(super) fn read(text: &str) -> Result<Option<MappingValue>, (usize, String)> {
    let mut open = Vec::<OpenValue>::new();
    let mut count = 0usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| (error.marker().line(), format!("not YAML: {}", error.info())))?;
        let line = span.start.line();
        count = count.saturating_add(1);
        if open.len() > MAX_NESTING || count > MAX_VALUES {
            return Err((line, format!("more than {MAX_NESTING} levels or {MAX_VALUES} values")));
        }
        let value = match event {
            Event::Scalar(text, ..) => MappingValue { line, content: ValueContent::Scalar(text.into_owned()) },
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let is_map = matches!(event, Event::MappingStart(..));
                open.push(OpenValue { line, is_map, children: Vec::new() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(ended) => ended.value(),
                None => continue,
            },
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return Err((line, "YAML aliases are not supported".into()));
            }
            Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(..)
            | Event::DocumentEnd
            | Event::Anchor(..) => {
                continue;
            }
            // Future parser versions may add events.
            _ => continue,
        };
        match open.last_mut() {
            Some(parent) => parent.children.push(value),
            None => return Ok(Some(value)),
        }
    }
    Ok(None)
}

impl OpenValue {
    fn value(self) -> MappingValue {
        let content = if self.is_map {
            let mut children = self.children.into_iter();
            let pairs = std::iter::from_fn(|| Some((children.next()?, children.next()?)));
            ValueContent::Map(pairs.collect())
        } else {
            ValueContent::List(self.children)
        };
        MappingValue { line: self.line, content }
    }
}
