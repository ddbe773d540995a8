//! YAML as a tree of values with the lines on which they stand. Of a mapping file nothing else is needed: no aliases, no tags.

use granit_parser::{Event, Parser};

/// Levels of nesting; a mapping file has four.
const MAX_NESTING: usize = 16;
/// Values in one file.
const MAX_VALUES: usize = 100_000;

/// A value and where it begins.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) line: usize,
    pub(super) content: Content,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Scalar(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// The text of a scalar.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(text) => Some(text),
            Content::List(_) | Content::Map(_) => None,
        }
    }

    /// The items of a list.
    pub(super) fn items(&self) -> Option<&[Value]> {
        match &self.content {
            Content::List(items) => Some(items),
            Content::Scalar(_) | Content::Map(_) => None,
        }
    }

    /// Keys and values of a map; the keys that are no text are left out.
    pub(super) fn pairs(&self) -> Option<impl Iterator<Item = (&str, &Value)>> {
        match &self.content {
            Content::Map(pairs) => Some(pairs.iter().filter_map(|(key, value)| Some((key.text()?, value)))),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    /// Of a map the value of a key.
    pub(super) fn of(&self, key: &str) -> Option<&Value> {
        self.pairs()?.find_map(|(name, value)| (name == key).then_some(value))
    }
}

/// A list or a map that has begun and not ended.
struct Open {
    line: usize,
    is_map: bool,
    children: Vec<Value>,
}

/// The first document of a file; `None` for an empty one.
///
/// # Errors
/// What is no YAML, or goes beyond what a mapping file can be, with its line.
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
            // The parser may learn to tell more about layout.
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
