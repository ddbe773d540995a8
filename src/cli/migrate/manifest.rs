//! A deployment in a Kubernetes manifest: the variables of its container, and the ConfigMaps that
//! it mounts.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::commands;
use super::config_maps::ConfigMaps;
use super::container::{Container, array, containers, shortest_name, text_at};
use super::container_env;
use super::deployment::Deployment;
use crate::policy::Source;
use crate::yaml::plain;

/// Reads a manifest.
///
/// # Errors
/// The manifest cannot be read, or the container of the service cannot be identified.
pub(super) fn read(path: &Path, container: Option<&str>) -> Result<Deployment, String> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let text =
        if is_input { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    let documents = plain::documents(&Source { name: name.clone(), text })
        .map_err(|report| report.to_string())?;
    let objects: Vec<&Value> = documents.iter().flat_map(objects).collect();
    let maps = ConfigMaps::among(&objects);
    let all: Vec<_> = objects.iter().flat_map(|object| containers(object)).collect();
    let found = select(&all, container).map_err(|error| format!("{name}: {error}"))?;
    let [_, kind, workload, own] = found.path();
    let mut deployment = Deployment {
        from: format!("container {own} of {kind} {workload} in {name}"),
        ..Deployment::default()
    };
    container_env::read(found, &maps, &mut deployment);
    mounts(found, &maps, &mut deployment);
    commands::read(found, &mut deployment);
    Ok(deployment)
}

/// Returns the objects of a document, which may be a list.
fn objects(document: &Value) -> Vec<&Value> {
    match document.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().collect(),
        None => vec![document],
    }
}

/// Returns the container with a name, or the one that is likely to be the service.
fn select<'c, 'm>(
    all: &'c [Container<'m>],
    name: Option<&str>,
) -> Result<&'c Container<'m>, String> {
    let is_selected = |container: &&Container<'_>| match name {
        Some(name) => container.is_named(name),
        None => all.len() == 1 || container.is_likely(),
    };
    let selected: Vec<_> = all.iter().filter(is_selected).collect();
    match (selected.as_slice(), all) {
        ([container], _) => Ok(container),
        (_, []) => Err("no container; expected a Deployment".to_owned()),
        _ => {
            let names = all
                .iter()
                .map(|container| shortest_name(container, all))
                .collect::<Vec<_>>()
                .join(", ");
            Err(format!("cannot detect the container; add `--container NAME`, one of: {names}"))
        }
    }
}

/// Collects the files of mounted ConfigMaps, with their paths in the container.
fn mounts(found: &Container<'_>, maps: &ConfigMaps<'_>, deployment: &mut Deployment) {
    for mount in array(found.container, "volumeMounts") {
        let (Some(name), Some(mount_path)) =
            (text_at(mount, "/name"), text_at(mount, "/mountPath"))
        else {
            continue;
        };
        let Some(volume) =
            array(found.pod, "volumes").find(|one| text_at(one, "/name") == Some(name))
        else {
            continue;
        };
        let projected =
            volume.get("projected").into_iter().flat_map(|projected| array(projected, "sources"));
        for source in projected.chain([volume]).filter_map(|source| source.get("configMap")) {
            let Some(map) = text_at(source, "/name") else { continue };
            match maps.find(map, found.namespace) {
                Ok(map) => {
                    let binary = map
                        .binary_keys()
                        .filter(|key| path_of(key, source, mount, mount_path).is_some());
                    let unread = |key| {
                        format!("ConfigMap {}/{key}, mounted at {mount_path}: binaryData", map.name)
                    };
                    deployment.unread.extend(binary.map(unread));
                    let files = map.texts().filter_map(|(key, text)| {
                        let name = format!("ConfigMap {}/{key}", map.name);
                        Some((path_of(key, source, mount, mount_path)?, Source { name, text }))
                    });
                    deployment.mounts.extend(files);
                }
                Err(why) => deployment.unread.push(format!("files mounted at {mount_path}: {why}")),
            }
        }
    }
}

/// Returns the path in the container of a key of a ConfigMap; `None` if the key is not mounted.
fn path_of(key: &str, source: &Value, mount: &Value, mount_path: &str) -> Option<PathBuf> {
    let below = match source.get("items").and_then(Value::as_array) {
        None => key,
        Some(items) => {
            let item = items.iter().find(|item| text_at(item, "/key") == Some(key))?;
            text_at(item, "/path").unwrap_or(key)
        }
    };
    // With a `subPath`, the mount path is the path of the single file.
    match text_at(mount, "/subPath") {
        Some(only) => (only == below).then(|| PathBuf::from(mount_path)),
        None => Some(Path::new(mount_path).join(below)),
    }
}
