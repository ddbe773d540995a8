//! The variables of a container, as Kubernetes sets them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::config_maps::ConfigMaps;
use super::given::Given;
use super::manifest::{Container, text, text_at};

/// The variable of the store.
const STORE: &str = "REDIS_URL";

/// Collects the variables of a container: `envFrom`, then `env`, which takes precedence.
pub(super) fn read(found: &Container<'_>, maps: &ConfigMaps<'_>, given: &mut Given) {
    for source in items(found.container, "envFrom", given) {
        of_source(source, found.namespace, maps, given);
    }
    let mut names = BTreeSet::new();
    for (entry, number) in items(found.container, "env", given).iter().zip(1_u64..) {
        let name = match name_of(entry) {
            Ok(name) => name,
            Err(why) => {
                given.problems.push(format!("env of the container, item {number}: {why}"));
                continue;
            }
        };
        if !names.insert(name) {
            given.notes.push(format!("{name}: several times in env; the last one counts"));
        }
        given.keep_secrets_of(text_at(entry, "/value").unwrap_or_default());
        let value = match (entry.get("value"), entry.get("valueFrom")) {
            (None | Some(Value::Null), Some(from)) => of_reference(from, found.namespace, maps),
            (value, _) => expanded(&value.map(text).unwrap_or_default(), given),
        };
        match value {
            Ok(value) => given.set(name, value),
            Err(place) => given.refer(name, place),
        }
    }
    // The default of that service would be another Redis.
    if !given.unread_variables.is_empty() && !given.variables.contains_key(STORE) {
        given.refer(STORE, "envFrom, as nothing else sets it".to_owned());
    }
}

/// Returns the items of a list; reports a value that is none.
fn items<'m>(container: &'m Value, list: &str, given: &mut Given) -> &'m [Value] {
    match container.get(list) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(items)) => items,
        Some(other) => {
            given.problems.push(format!("{list} of the container: expected a list, found {}", shape(other)));
            &[]
        }
    }
}

/// Returns the name of an item of `env`.
///
/// # Errors
/// The item is not one that Kubernetes accepts. The error has no value, which may be a secret.
fn name_of(entry: &Value) -> Result<&str, String> {
    let Some(fields) = entry.as_object() else {
        return Err(format!("expected a mapping with name and value, found {}", shape(entry)));
    };
    let name = text_at(entry, "/name").filter(|name| !name.is_empty());
    let of = name.map(|name| format!(" of {name}")).unwrap_or_default();
    if let Some(key) = fields.keys().find(|key| !["name", "value", "valueFrom"].contains(&key.as_str())) {
        return Err(format!("expected name, value or valueFrom, found `{key}`{of}"));
    }
    let value = fields.get("value");
    let from = fields.get("valueFrom");
    match (name, value, from) {
        (None, _, _) => Err("expected a name, found none".to_owned()),
        (_, Some(value @ (Value::Array(_) | Value::Object(_))), _) => {
            Err(format!("expected text as value{of}, found {}", shape(value)))
        }
        (_, _, Some(from)) if !from.is_object() && !from.is_null() => {
            Err(format!("expected a mapping as valueFrom{of}, found {}", shape(from)))
        }
        (_, Some(Value::String(value)), Some(Value::Object(_))) if !value.is_empty() => {
            Err(format!("expected value or valueFrom{of}, found both"))
        }
        (Some(name), _, _) => Ok(name),
    }
}

/// Returns the kind of a YAML value.
fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
        Value::String(_) | Value::Bool(_) | Value::Number(_) => "text",
    }
}

/// Collects the variables of an item of `envFrom`.
fn of_source(source: &Value, namespace: Option<&str>, maps: &ConfigMaps<'_>, given: &mut Given) {
    let prefix = text_at(source, "/prefix").unwrap_or_default();
    let names = if prefix.is_empty() { "variables".to_owned() } else { format!("variables {prefix}*") };
    let why = match (text_at(source, "/configMapRef/name"), text_at(source, "/secretRef/name")) {
        (Some(map), _) => match maps.find(map, namespace) {
            Ok(map) => {
                map.texts().for_each(|(key, value)| given.set(&format!("{prefix}{key}"), value));
                return;
            }
            Err(why) => why,
        },
        (None, Some(secret)) => format!("their values are in Secret {secret}"),
        (None, None) => "expected configMapRef or secretRef with a name, found neither".to_owned(),
    };
    given.unread_variables.push(format!("{names} of envFrom: {why}"));
}

/// Returns the value of a reference, or its text if the manifest does not contain the value.
fn of_reference(from: &Value, namespace: Option<&str>, maps: &ConfigMaps<'_>) -> Result<String, String> {
    let part = |kind: &str| Some((text_at(from, &format!("/{kind}/name"))?, text_at(from, &format!("/{kind}/key"))?));
    if let Some((secret, key)) = part("secretKeyRef") {
        return Err(format!("Secret {secret}, {key}"));
    }
    let Some((map, key)) = part("configMapKeyRef") else {
        let field = text_at(from, "/fieldRef/fieldPath").or_else(|| text_at(from, "/resourceFieldRef/resource"));
        return Err(field.unwrap_or("another place").to_owned());
    };
    let value = maps.find(map, namespace).ok().and_then(|map| map.value(key));
    value.ok_or_else(|| format!("ConfigMap {map}, {key}"))
}

/// Replaces `$(NAME)` by the value of a variable that is set before, and `$$` by `$`. Returns the
/// reference instead if the value is not known here.
fn expanded(text: &str, given: &Given) -> Result<String, String> {
    let mut value = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        value.push_str(before);
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            value.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            let place = given.references.iter().find(|(other, _)| other == name).map(|(_, place)| place);
            match (place, given.variables.get(name)) {
                (Some(place), _) => return Err(format!("{place}, by $({name})")),
                (None, Some(known)) => value.push_str(known),
                (None, None) => return Err(format!("$({name}), which the manifest does not set before")),
            }
            rest = after;
        } else {
            value.push('$');
        }
    }
    value.push_str(rest);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_values_are_replaced_as_kubernetes_does() {
        let mut given = Given::default();
        given.set("HOST", "redis".to_owned());
        given.refer("SECRET", "Secret redis, key".to_owned());
        let expand = |text| expanded(text, &given);
        assert_eq!(expand("$(HOST):6379"), Ok("redis:6379".to_owned()));
        assert_eq!(expand("$$(HOST) $HOST $ $(HOST"), Ok("$(HOST) $HOST $ $(HOST".to_owned()));
        assert_eq!(expand("a$(SECRET)"), Err("Secret redis, key, by $(SECRET)".to_owned()));
        assert_eq!(expand("$(PORT)"), Err("$(PORT), which the manifest does not set before".to_owned()));
    }
}
