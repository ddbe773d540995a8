//! Reader of `metadata`: content without a vocabulary, as JSON.
//!
//! Keys become text. Booleans are those of YAML 1.1, also as keys (`y: 2` is `"true": 2`), as in
//! envoyproxy/ratelimit.

use serde_json::{Map, Number, Value};
use tollgate_yaml::mapping::MappingFields;
use tollgate_yaml::report::Finding;
use tollgate_yaml::scalar;
use tollgate_yaml::tree::{NodeContent, NodeId};

use super::DocumentReader;
use super::vocabulary::DocumentLevel;

/// The key of the metadata that holds options for Tollgate.
pub(super) const TOLLGATE: &str = "tollgate";

impl DocumentReader<'_> {
    /// Returns the rule's metadata, without the options for Tollgate.
    pub(super) fn metadata(&mut self, fields: &MappingFields<DocumentLevel>) -> Option<Value> {
        let id = fields.get(&self.yaml, "metadata")?;
        let node = self.yaml.node(id)?;
        if node.pairs().is_none() {
            self.yaml.wrong_form(node, "`metadata`", "a mapping");
            return None;
        }
        let Value::Object(mut map) = self.json(id)? else { return None };
        let had_ours = map.shift_remove(TOLLGATE).is_some();
        (!(had_ours && map.is_empty())).then_some(Value::Object(map))
    }

    /// Returns a node as JSON. The depth of the tree bounds the recursion.
    fn json(&mut self, id: NodeId) -> Option<Value> {
        let node = self.yaml.node(id)?;
        match &node.content {
            NodeContent::Scalar { text, plain } => {
                Some(if *plain { plain_value(text) } else { Value::from(text.as_str()) })
            }
            NodeContent::List(items) => items.iter().map(|item| self.json(*item)).collect(),
            NodeContent::Map(pairs) => {
                let mut map = Map::new();
                self.pairs(pairs, &mut map, true)?;
                Some(Value::Object(map))
            }
        }
    }

    fn pairs(
        &mut self,
        pairs: &[(NodeId, NodeId)],
        map: &mut Map<String, Value>,
        own: bool,
    ) -> Option<()> {
        let mut merges = Vec::new();
        for (key, value) in pairs {
            let node = self.yaml.node(*key)?;
            match &node.content {
                NodeContent::Scalar { text, plain: true } if text == "<<" => merges.push(*value),
                NodeContent::Scalar { text, plain } => {
                    let name = if *plain { key_text(text) } else { text.clone() };
                    match map.get(&name) {
                        Some(_) if own => {
                            let error = format!("duplicate key `{}`", super::shown(&name));
                            self.yaml.report(Finding::error(node.span, error));
                        }
                        Some(_) => {}
                        None => {
                            let value = self.json(*value)?;
                            map.insert(name, value);
                        }
                    }
                }
                NodeContent::List(_) | NodeContent::Map(_) => {
                    self.yaml.wrong_form(node, "a key of `metadata`", "a string");
                }
            }
        }
        merges.into_iter().try_for_each(|merge| self.merged(merge, map))
    }

    fn merged(&mut self, id: NodeId, map: &mut Map<String, Value>) -> Option<()> {
        let node = self.yaml.node(id)?;
        match &node.content {
            NodeContent::Map(pairs) => self.pairs(pairs, map, false),
            NodeContent::List(items) => items.iter().try_for_each(|item| self.merged(*item, map)),
            NodeContent::Scalar { .. } => {
                self.yaml.wrong_form(node, "the value of `<<`", "a mapping");
                None
            }
        }
    }
}

fn key_text(text: &str) -> String {
    let value = plain_value(text);
    if value.is_boolean() || value.is_number() { value.to_string() } else { text.to_owned() }
}

fn plain_value(text: &str) -> Value {
    if scalar::is_null(text) {
        return Value::Null;
    }
    if let Some(truth) = scalar::boolean(text) {
        return Value::Bool(truth);
    }
    let whole = scalar::integer(text).and_then(Number::from_i128);
    let number = whole.or_else(|| scalar::float(text).and_then(Number::from_f64));
    number.map_or_else(|| Value::from(text), Value::Number)
}
