//! A service as a Kubernetes manifest deploys it: the variables of its container, and the
//! ConfigMaps that it mounts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::given::Given;
use crate::policy::{Source, yaml_documents};
use crate::settings::envoyproxy::is_known;

type ConfigMaps<'m> = BTreeMap<&'m str, &'m Map<String, Value>>;

/// A container, with its pod.
struct Container<'m> {
    workload: String,
    pod: &'m Value,
    container: &'m Value,
}

/// Reads a manifest.
///
/// # Errors
/// The manifest cannot be read, or the container of the service cannot be identified.
pub(super) fn read(path: &Path, container: Option<&str>) -> Result<Given, String> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let documents = yaml_documents(&Source { name: name.clone(), text }).map_err(|report| report.to_string())?;
    let objects: Vec<&Value> = documents.iter().flat_map(objects).collect();
    let of_map = |object: &&'_ Value| object.get("kind").and_then(Value::as_str) == Some("ConfigMap");
    let named = |object| Some((text_at(object, "/metadata/name")?, object));
    let maps: BTreeMap<&str, &Value> = objects.iter().copied().filter(of_map).filter_map(named).collect();
    let data: ConfigMaps<'_> =
        maps.iter().filter_map(|(name, map)| Some((*name, map.get("data")?.as_object()?))).collect();
    let found = choose(objects.iter().flat_map(|object| containers(object)).collect(), container)
        .map_err(|error| format!("{name}: {error}"))?;
    let from =
        format!("container {} of {} in {name}", text_at(found.container, "/name").unwrap_or("?"), found.workload);
    let mut given = Given { from, ..Given::default() };
    variables(&found, &data, &mut given);
    mounts(&found, &data, &mut given);
    given.unknown = given.variables.keys().filter(|name| !is_known(name)).cloned().collect();
    Ok(given)
}

/// Returns the objects of a document, which may be a list.
fn objects(document: &Value) -> Vec<&Value> {
    match document.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![document],
    }
}

fn containers(object: &Value) -> Vec<Container<'_>> {
    let pod = object.pointer("/spec/template/spec").or_else(|| object.get("spec"));
    let list = pod.and_then(|pod| pod.get("containers")).and_then(Value::as_array);
    let (kind, name) = (text_at(object, "/kind").unwrap_or("?"), text_at(object, "/metadata/name").unwrap_or("?"));
    let of = |container| Some(Container { workload: format!("{kind} {name}"), pod: pod?, container });
    list.into_iter().flatten().filter_map(of).collect()
}

fn choose<'m>(mut all: Vec<Container<'m>>, wanted: Option<&str>) -> Result<Container<'m>, String> {
    let name = |container: &Container<'_>| text_at(container.container, "/name").unwrap_or("?").to_owned();
    let names: Vec<String> = all.iter().map(name).collect();
    match wanted {
        Some(wanted) => all.retain(|container| name(container) == wanted),
        None if all.len() > 1 => all.retain(is_likely),
        None => {}
    }
    match (all.len(), all.pop()) {
        (1, Some(container)) => Ok(container),
        (0, _) if names.is_empty() => Err("no container; expected a Deployment".to_owned()),
        _ => Err(format!("which container is it? Add `--container NAME`, one of: {}", names.join(", "))),
    }
}

/// Returns `true` if the image or the command contains the name of the service.
fn is_likely(container: &Container<'_>) -> bool {
    let command = container.container.get("command").and_then(Value::as_array);
    let words = command.into_iter().flatten().chain(container.container.get("image"));
    words.filter_map(Value::as_str).any(|word| word.contains("ratelimit"))
}

fn variables(found: &Container<'_>, data: &ConfigMaps<'_>, given: &mut Given) {
    for whole in array(found.container, "envFrom") {
        if let Some(map) = text_at(whole, "/configMapRef/name") {
            match data.get(map) {
                Some(data) => given.variables.extend(data.iter().map(|(name, value)| (name.clone(), text(value)))),
                None => given.missing.push(map.to_owned()),
            }
        } else if let Some(secret) = text_at(whole, "/secretRef/name") {
            given.elsewhere.push(("all variables".to_owned(), format!("Secret {secret}")));
        }
    }
    for entry in array(found.container, "env") {
        let Some(name) = text_at(entry, "/name") else { continue };
        let value = match (entry.get("value"), entry.get("valueFrom")) {
            (None | Some(Value::Null), Some(from)) => of_reference(name, from, data, given),
            (value, _) => value.map(text).unwrap_or_default(),
        };
        given.variables.insert(name.to_owned(), value);
    }
}

/// Returns the value of a reference, or a placeholder for it.
fn of_reference(name: &str, from: &Value, data: &ConfigMaps<'_>, given: &mut Given) -> String {
    let part = |kind: &str| Some((text_at(from, &format!("/{kind}/name"))?, text_at(from, &format!("/{kind}/key"))?));
    if let Some((map, key)) = part("configMapKeyRef")
        && let Some(value) = data.get(map).and_then(|map| map.get(key))
    {
        return text(value);
    }
    let place = match (part("secretKeyRef"), part("configMapKeyRef")) {
        (Some((secret, key)), _) => format!("Secret {secret}, {key}"),
        (None, Some((map, key))) => format!("ConfigMap {map}, {key}"),
        (None, None) => text_at(from, "/fieldRef/fieldPath").unwrap_or("another place").to_owned(),
    };
    let placeholder = Given::placeholder(name, &place);
    given.elsewhere.push((name.to_owned(), place));
    placeholder
}

/// Collects the files of mounted ConfigMaps, with their paths in the container.
fn mounts(found: &Container<'_>, data: &ConfigMaps<'_>, given: &mut Given) {
    for mount in array(found.container, "volumeMounts") {
        let (Some(volume), Some(place)) = (text_at(mount, "/name"), text_at(mount, "/mountPath")) else { continue };
        let volume = array(found.pod, "volumes").find(|one| text_at(one, "/name") == Some(volume));
        let Some((map, volume)) = volume.and_then(|one| Some((text_at(one, "/configMap/name")?, one))) else {
            continue;
        };
        let Some(files) = data.get(map) else {
            given.missing.push(map.to_owned());
            continue;
        };
        let items = volume.pointer("/configMap/items").and_then(Value::as_array);
        for (key, value) in files.iter() {
            let item = items.map(|items| items.iter().find(|item| text_at(item, "/key") == Some(key)));
            let below = match item {
                None => key.as_str(),
                Some(None) => continue,
                Some(Some(item)) => text_at(item, "/path").unwrap_or(key),
            };
            // With a `subPath`, the mount path is the path of the single file.
            let path = match text_at(mount, "/subPath") {
                Some(only) if only == below => PathBuf::from(place),
                Some(_) => continue,
                None => Path::new(place).join(below),
            };
            given.mounts.push((path, Source { name: format!("ConfigMap {map}/{key}"), text: text(value) }));
        }
    }
}

fn array<'m>(value: &'m Value, name: &str) -> impl Iterator<Item = &'m Value> + use<'m> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text_at<'m>(value: &'m Value, pointer: &str) -> Option<&'m str> {
    value.pointer(pointer)?.as_str()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
