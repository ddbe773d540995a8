//! A vocabulary as a JSON Schema (draft 2020-12), for editors.

use std::fmt;

use serde_json::{Map, Value, json};

use super::vocabulary::{Form, VocabularyLevel, Word};

/// Returns the definitions of levels by their names, for `$defs`.
pub fn definitions<L: VocabularyLevel>(levels: impl Iterator<Item = L>) -> Map<String, Value> {
    levels.map(|level| (level.definition().to_owned(), Value::Object(object(level)))).collect()
}

/// Returns the schema of the mappings of a level.
pub fn object<L: VocabularyLevel>(level: L) -> Map<String, Value> {
    let properties: Map<_, _> =
        level.words().map(|word| (word.name.to_owned(), described(word))).collect();
    let required: Vec<_> =
        level.words().filter(|word| word.required).map(|word| word.name).collect();
    let mut object = Map::new();
    object.insert("type".into(), json!("object"));
    object.insert("properties".into(), Value::Object(properties));
    // `<<` merges mappings in YAML; an editor that does not resolve it takes it for a property.
    object.insert("patternProperties".into(), json!({ "^<<$": {} }));
    object.insert("required".into(), json!(required));
    object.insert("additionalProperties".into(), json!(false));
    object
}

/// Returns a reference to the definition of a level.
pub fn reference<L: VocabularyLevel>(level: L) -> Value {
    json!({ "$ref": format!("#/$defs/{}", level.definition()) })
}

/// Returns the types of a text: YAML may parse it as a number, a boolean or null if it is not
/// quoted.
pub fn text_types() -> Value {
    json!(["string", "number", "boolean", "null"])
}

fn described<L: VocabularyLevel>(word: &Word<L>) -> Value {
    let mut value = form(word.form);
    if let Value::Object(map) = &mut value {
        map.insert("description".into(), json!(word.meaning));
    }
    value
}

fn form<L: VocabularyLevel>(form: Form<L>) -> Value {
    let text = text_types();
    match form {
        Form::Text => json!({ "type": text }),
        Form::Texts => json!({ "type": ["array", "null"], "items": { "type": text } }),
        Form::Truth => json!({ "type": ["boolean", "null"] }),
        Form::Count(most) => json!({ "type": ["integer", "null"], "minimum": 0, "maximum": most }),
        Form::OneOf(words) => {
            let words: Vec<_> = words().into_iter().map(Value::from).chain([Value::Null]).collect();
            json!({ "enum": words })
        }
        Form::Map(level) => json!({ "anyOf": [reference(level), { "type": "null" }] }),
        Form::Maps(level) => json!({ "type": ["array", "null"], "items": reference(level) }),
        Form::Other(schema) => schema(),
    }
}

/// Returns the faults of a vocabulary, for a test of its user: words that a level has twice, and
/// words that a schema does not have, or not with their meaning. There should be none.
pub fn faults<L: VocabularyLevel + fmt::Debug>() -> Vec<String> {
    let mut faults = Vec::new();
    let definitions = definitions(L::ALL.iter().copied());
    if definitions.len() != L::ALL.len() {
        faults.push("several levels have one definition".to_owned());
    }
    for level in L::ALL {
        let object = definitions.get(level.definition()).unwrap_or(&Value::Null);
        let required = object.get("required").and_then(Value::as_array);
        for Word { name, meaning, required: is_required, .. } in level.words() {
            if level.words().filter(|word| word.name == *name).count() > 1 {
                faults.push(format!("{level:?} has `{name}` twice"));
            }
            let description = object.pointer(&format!("/properties/{name}/description"));
            if description.and_then(Value::as_str) != Some(*meaning) {
                faults.push(format!("the schema of {level:?} has not the meaning of `{name}`"));
            }
            if required.is_none_or(|names| names.contains(&Value::from(*name)) != *is_required) {
                faults.push(format!("the schema of {level:?} is wrong about requiring `{name}`"));
            }
        }
    }
    faults
}
