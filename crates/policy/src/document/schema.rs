//! The vocabulary as a JSON Schema, for editors.

use serde_json::{Map, Value, json};
use tollgate_yaml::schema::{definitions, object};
use tollgate_yaml::vocabulary::VocabularyLevel;

use super::vocabulary::DocumentLevel;

/// Returns the JSON Schema (draft 2020-12) of policy files. That of overlays is `#/$defs/overlay`.
pub fn json_schema() -> Value {
    let levels = DocumentLevel::ALL.iter().copied().filter(|level| *level != DocumentLevel::File);
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("tollgate policy"));
    schema.extend(object(DocumentLevel::File));
    schema.insert("$defs".into(), Value::Object(definitions(levels)));
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_yaml::schema::faults;

    #[test]
    fn every_word_is_in_the_schema_with_its_meaning() {
        let schema = json_schema();
        assert_eq!(faults::<DocumentLevel>(), [""; 0]);
        assert_eq!(schema["properties"]["descriptors"]["items"]["$ref"], "#/$defs/rule");
    }
}
