//! The variables of a container, as Kubernetes sets them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::config_maps::ConfigMaps;
use crate::container::{Container, text, text_at};
use crate::deployment::Deployment;
use crate::failure::UnreadablePart;

/// The variable of the store.
const STORE: &str = "REDIS_URL";

/// The value of a variable, or its source if the manifest does not contain the value.
#[derive(Debug, PartialEq, Eq)]
enum EnvValue {
    Known(String),
    Reference(String),
}

/// Collects the variables of a container: `envFrom`, then `env`, which takes precedence.
pub(crate) fn read(found: &Container<'_>, maps: &ConfigMaps<'_>, deployment: &mut Deployment) {
    for source in items(found.container, "envFrom", deployment) {
        of_source(source, found.namespace, maps, deployment);
    }
    let mut names = BTreeSet::new();
    for (entry, number) in items(found.container, "env", deployment).iter().zip(1_u64..) {
        let name = match name_of(entry) {
            Ok(name) => name,
            Err(why) => {
                deployment.problems.push(format!("env of the container, item {number}: {why}"));
                continue;
            }
        };
        if !names.insert(name) {
            let note = format!("{name}: set several times in env; the last value applies");
            deployment.notes.push(note);
        }
        deployment.keep_secrets_of(text_at(entry, "/value").unwrap_or_default());
        let value = match (entry.get("value"), entry.get("valueFrom")) {
            (None | Some(Value::Null), Some(from)) => of_reference(from, found.namespace, maps),
            (value, _) => expanded(&value.map(text).unwrap_or_default(), deployment),
        };
        match value {
            EnvValue::Known(value) => deployment.set(name, value),
            EnvValue::Reference(reference) => deployment.refer(name, reference),
        }
    }
    // The default of envoyproxy/ratelimit would be another Redis.
    if !deployment.unread_variables.is_empty() && !deployment.variables.contains_key(STORE) {
        deployment.refer(STORE, "envFrom, since no other source sets it".to_owned());
    }
}

/// Returns the items of a list; reports a value that is not a list.
fn items<'m>(container: &'m Value, list: &str, deployment: &mut Deployment) -> &'m [Value] {
    match container.get(list) {
        None | Some(Value::Null) => &[],
        Some(Value::Array(items)) => items,
        Some(other) => {
            let found = shape(other);
            let what = format!("{list} of the container: expected a list, found {found}");
            deployment.problems.push(what);
            &[]
        }
    }
}

/// Returns the name of an item of `env`.
///
/// # Errors
/// Kubernetes would reject the item.
fn name_of(entry: &Value) -> Result<&str, UnreadablePart> {
    let Some(fields) = entry.as_object() else {
        let found = shape(entry);
        let what = format!("expected a mapping with name and value, found {found}");
        return Err(UnreadablePart(what));
    };
    let name = text_at(entry, "/name").filter(|name| !name.is_empty());
    let known = ["name", "value", "valueFrom"];
    if let Some(key) = fields.keys().find(|key| !known.contains(&key.as_str())) {
        let of = name.map(|name| format!(" of {name}")).unwrap_or_default();
        let what = format!("expected name, value or valueFrom, found `{key}`{of}");
        return Err(UnreadablePart(what));
    }
    let name = name.ok_or_else(|| UnreadablePart("expected a name, found none".to_owned()))?;
    Err(UnreadablePart(match (fields.get("value"), fields.get("valueFrom")) {
        (Some(value @ (Value::Array(_) | Value::Object(_))), _) => {
            format!("expected text as value of {name}, found {}", shape(value))
        }
        (_, Some(from)) if !from.is_object() && !from.is_null() => {
            format!("expected a mapping as valueFrom of {name}, found {}", shape(from))
        }
        (Some(Value::String(value)), Some(Value::Object(_))) if !value.is_empty() => {
            format!("expected value or valueFrom of {name}, found both")
        }
        (_, _) => return Ok(name),
    }))
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
fn of_source(
    source: &Value,
    namespace: Option<&str>,
    maps: &ConfigMaps<'_>,
    deployment: &mut Deployment,
) {
    let prefix = text_at(source, "/prefix").unwrap_or_default();
    let names =
        if prefix.is_empty() { "variables".to_owned() } else { format!("variables {prefix}*") };
    let why = match (text_at(source, "/configMapRef/name"), text_at(source, "/secretRef/name")) {
        (Some(map), _) => match maps.find(map, namespace) {
            Ok(map) => {
                map.texts()
                    .for_each(|(key, value)| deployment.set(&format!("{prefix}{key}"), value));
                return;
            }
            Err(why) => why.to_string(),
        },
        (None, Some(secret)) => format!("the values are in Secret {secret}"),
        (None, None) => "expected configMapRef or secretRef with a name, found neither".to_owned(),
    };
    deployment.unread_variables.push(format!("{names} of envFrom: {why}"));
}

/// Returns the value of a reference, or its text if the manifest does not contain the value.
fn of_reference(from: &Value, namespace: Option<&str>, maps: &ConfigMaps<'_>) -> EnvValue {
    if let Some((secret, key)) = name_and_key(from, "secretKeyRef") {
        return EnvValue::Reference(format!("Secret {secret}, {key}"));
    }
    let Some((map, key)) = name_and_key(from, "configMapKeyRef") else {
        let field = text_at(from, "/fieldRef/fieldPath")
            .or_else(|| text_at(from, "/resourceFieldRef/resource"));
        return EnvValue::Reference(field.unwrap_or("an unsupported source").to_owned());
    };
    match maps.find(map, namespace).ok().and_then(|map| map.value(key)) {
        Some(value) => EnvValue::Known(value),
        None => EnvValue::Reference(format!("ConfigMap {map}, {key}")),
    }
}

/// Returns the object that a reference of this kind names, and the key in it.
fn name_and_key<'m>(from: &'m Value, kind: &str) -> Option<(&'m str, &'m str)> {
    let reference = from.get(kind)?;
    Some((text_at(reference, "/name")?, text_at(reference, "/key")?))
}

/// Replaces `$(NAME)` with the value of a variable that is set earlier, and `$$` with `$`. Returns
/// the reference if the manifest does not contain the value.
fn expanded(text: &str, deployment: &Deployment) -> EnvValue {
    let mut value = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        value.push_str(before);
        rest = after;
        if let Some(after) = after.strip_prefix('$') {
            value.push('$');
            rest = after;
        } else if let Some((name, after)) =
            after.strip_prefix('(').and_then(|inner| inner.split_once(')'))
        {
            let reference = deployment.references.iter().find(|(other, _)| other == name);
            match (reference, deployment.variables.get(name)) {
                (Some((_, reference)), _) => {
                    return EnvValue::Reference(format!("{reference}, through $({name})"));
                }
                (None, Some(known)) => value.push_str(known),
                (None, None) => {
                    return EnvValue::Reference(format!(
                        "$({name}), which is not set earlier in the manifest"
                    ));
                }
            }
            rest = after;
        } else {
            value.push('$');
        }
    }
    value.push_str(rest);
    EnvValue::Known(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_in_values_are_expanded_as_in_kubernetes() {
        let mut deployment = Deployment::default();
        deployment.set("HOST", "redis".to_owned());
        deployment.refer("SECRET", "Secret redis, key".to_owned());
        let expand = |text| expanded(text, &deployment);
        assert_eq!(expand("$(HOST):6379"), EnvValue::Known("redis:6379".to_owned()));
        assert_eq!(
            expand("$$(HOST) $HOST $ $(HOST"),
            EnvValue::Known("$(HOST) $HOST $ $(HOST".to_owned())
        );
        assert_eq!(
            expand("a$(SECRET)"),
            EnvValue::Reference("Secret redis, key, through $(SECRET)".to_owned())
        );
        assert_eq!(
            expand("$(PORT)"),
            EnvValue::Reference("$(PORT), which is not set earlier in the manifest".to_owned())
        );
    }
}
