//! The vocabulary as a JSON Schema, for editors.

use serde_json::{Map, Value, json};

use super::vocabulary::{DocumentLevel, Form, Word};

/// Returns the JSON Schema (draft 2020-12) of policy files. Those of overlays, tests and mappings
/// of access logs are `#/$defs/overlay`, `#/$defs/tests` and `#/$defs/access_log`.
pub fn json_schema() -> Value {
    let levels = DocumentLevel::ALL.into_iter().filter(|level| *level != DocumentLevel::File);
    let definitions: Map<_, _> =
        levels.map(|level| (name(level).to_owned(), object(level))).collect();
    let mut schema = Map::new();
    schema.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".into(), json!("tollgate policy"));
    if let Value::Object(file) = object(DocumentLevel::File) {
        schema.extend(file);
    }
    schema.insert("$defs".into(), Value::Object(definitions));
    Value::Object(schema)
}

fn object(level: DocumentLevel) -> Value {
    let words = || level.words();
    let properties: Map<_, _> =
        words().map(|word| (word.name.to_owned(), described(word))).collect();
    let required: Vec<_> = words().filter(|word| word.required).map(|word| word.name).collect();
    // `<<` merges mappings in YAML; an editor that does not resolve it takes it for a property.
    let merges = json!({ "^<<$": {} });
    json!({
        "type": "object",
        "properties": properties,
        "patternProperties": merges,
        "required": required,
        "additionalProperties": false,
    })
}

fn described(word: &Word) -> Value {
    let mut value = form(word.form);
    if let Value::Object(map) = &mut value {
        map.insert("description".into(), json!(word.meaning));
    }
    value
}

fn form(form: Form) -> Value {
    // YAML may parse an unquoted text as a number, a boolean or null.
    let text = json!(["string", "number", "boolean", "null"]);
    let source = json!({ "anyOf": [{ "type": text }, reference(DocumentLevel::Field)] });
    match form {
        Form::Text => json!({ "type": text }),
        Form::Texts => json!({ "type": ["array", "null"], "items": { "type": text } }),
        Form::Truth => json!({ "type": ["boolean", "null"] }),
        Form::Count(most) => json!({ "type": ["integer", "null"], "minimum": 0, "maximum": most }),
        Form::OneOf(words) => {
            let words: Vec<_> = words().into_iter().map(Value::from).chain([Value::Null]).collect();
            json!({ "enum": words })
        }
        Form::Unit => json!({
            "type": ["string", "null"],
            "anyOf": [
                { "enum": ["second", "minute", "hour", "day", "week", "month", "year", null] },
                { "pattern": unit_pattern() },
            ],
        }),
        Form::Size => {
            json!({ "type": ["string", "integer"], "pattern": "^[0-9]+([.][0-9]{1,2})?%?$" })
        }
        Form::Length => json!({ "type": "string", "pattern": "^([0-9]+(us|ms|s|m|h|d)|never)$" }),
        Form::Instant => json!({ "type": "string" }),
        Form::Descriptors => {
            let one = json!([{ "type": text }, { "type": "object", "additionalProperties": { "type": text } }]);
            json!({ "anyOf": [{ "type": "array", "items": { "anyOf": one } }, { "anyOf": one }] })
        }
        Form::Source => source,
        Form::Sources => {
            json!({ "type": "array", "items": { "type": "object", "additionalProperties": source } })
        }
        Form::Map(level) => json!({ "anyOf": [reference(level), { "type": "null" }] }),
        Form::Maps(level) => json!({ "type": ["array", "null"], "items": reference(level) }),
        // Only metadata has this form, and `tollgate` is its only known property.
        Form::Anything => {
            json!({ "type": ["object", "null"], "properties": { "tollgate": reference(DocumentLevel::Tollgate) } })
        }
    }
}

/// Returns a pattern for units in any case, in syntax that every regular expression dialect
/// supports.
fn unit_pattern() -> String {
    let any_case = |letter: char| format!("[{letter}{}]", letter.to_ascii_uppercase());
    let words = ["second", "minute", "hour", "day", "week", "month", "year"];
    let words: Vec<String> =
        words.iter().map(|word| word.chars().map(any_case).collect()).collect();
    format!("^([0-9]+(ms|s|m|h|d)|{})$", words.join("|"))
}

fn reference(level: DocumentLevel) -> Value {
    json!({ "$ref": format!("#/$defs/{}", name(level)) })
}

fn name(level: DocumentLevel) -> &'static str {
    match level {
        DocumentLevel::File => "file",
        DocumentLevel::Defaults => "defaults",
        DocumentLevel::Rule => "rule",
        DocumentLevel::Limit => "rate_limit",
        DocumentLevel::Candidate => "candidate",
        DocumentLevel::Window => "window",
        DocumentLevel::Replaced => "replaced",
        DocumentLevel::Lease => "lease",
        DocumentLevel::Hold => "hold",
        DocumentLevel::Overlay => "overlay",
        DocumentLevel::Entry => "entry",
        DocumentLevel::Overlaid => "overlaid",
        DocumentLevel::Tollgate => "tollgate",
        DocumentLevel::TestFile => "tests",
        DocumentLevel::Case => "test",
        DocumentLevel::Step => "step",
        DocumentLevel::Expected => "each",
        DocumentLevel::AccessLog => "access_log",
        DocumentLevel::Time => "time",
        DocumentLevel::Field => "field",
    }
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::WORDS;
    use super::*;

    #[test]
    fn every_word_is_in_the_schema_with_its_meaning() {
        let schema = json_schema();
        for word in WORDS {
            for level in word.levels {
                let object = if *level == DocumentLevel::File {
                    &schema
                } else {
                    &schema["$defs"][name(*level)]
                };
                assert_eq!(object["properties"][word.name]["description"], word.meaning);
                let required = object["required"].as_array().unwrap().contains(&json!(word.name));
                assert_eq!(required, word.required, "{}", word.name);
            }
        }
        assert_eq!(schema["properties"]["descriptors"]["items"]["$ref"], "#/$defs/rule");
    }
}
