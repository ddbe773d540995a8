//! YAML as a tree of values with line numbers. Mapping files need no more: no aliases, no tags.

use granit_parser::{Event, Parser};

/// Maximum nesting depth; a mapping file has four levels.
const MAX_NESTING: usize = 16;
/// Maximum number of values in a file.
const MAX_VALUES: usize = 100_000;

/// A value and the line on which it begins.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) line: usize,
    pub(super) content: Content,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// Returns the text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(text) => Some(text),
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Option<&[Value]> {
        match &self.content {
            Content::List(items) => Some(items),
            Content::Scalar(_) | Content::Map(_) => None,
        }
    }

    /// Returns the keys and values of a map, without keys that are not scalars.
    pub(super) fn pairs(&self) -> Option<impl Iterator<Item = (&str, &Value)>> {
        match &self.content {
            Content::Map(pairs) => Some(pairs.iter().filter_map(|(key, value)| Some((key.text()?, value)))),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    /// Returns the value of a key in a map.
    pub(super) fn of(&self, key: &str) -> Option<&Value> {
        self.pairs()?.find_map(|(name, value)| (name == key).then_some(value))
    }
}

/// A list or a map whose end event is still to come.
struct Open {
    line: usize,
    is_map: bool,
    children: Vec<Value>,
}

/// Parses the first document of a file. Returns `None` for an empty file.
///
/// # Errors
/// If the text is not YAML or exceeds the bounds of a mapping file; with the line.
pub(super) fn read(text: &str) -> Result<Option<Value>, (usize, String)> {
    let (mut open, mut count): (Vec<Open>, usize) = (Vec::new(), 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| (error.marker().line(), format!("not YAML: {}", error.info())))?;
        let line = span.start.line();
        count = count.saturating_add(1);
        if open.len() > MAX_NESTING || count > MAX_VALUES {
            return Err((line, format!("more than {MAX_NESTING} levels or {MAX_VALUES} values")));
        }
        let value = match event {
            Event::Scalar(text, ..) => Value { line, content: Content::Scalar(text.into_owned()) },
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let is_map = matches!(event, Event::MappingStart(..));
                open.push(Open { line, is_map, children: Vec::new() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(ended) => ended.value(),
                None => continue,
            },
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                return Err((line, "an alias, which is not read here".into()));
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

impl Open {
    fn value(self) -> Value {
        let content = if self.is_map {
            let mut children = self.children.into_iter();
            let pairs = std::iter::from_fn(|| Some((children.next()?, children.next()?)));
            Content::Map(pairs.collect())
        } else {
            Content::List(self.children)
        };
        Value { line: self.line, content }
    }
}
