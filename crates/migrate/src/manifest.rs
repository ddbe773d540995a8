//! A deployment in a Kubernetes manifest: the variables of its container, and the ConfigMaps that
//! it mounts.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate_policy::Source;
use tollgate_yaml::plain;

use crate::commands;
use crate::config_maps::{ConfigMap, ConfigMaps};
use crate::container::{Container, array, containers, shortest_name, text_at};
use crate::container_env;
use crate::deployment::Deployment;
use crate::failure::MigrationError;

/// Reads a manifest.
///
/// # Errors
/// The manifest cannot be read, or the container of the service cannot be identified.
pub(crate) fn read(path: &Path, container: Option<&str>) -> Result<Deployment, MigrationError> {
    let is_input = path == Path::new("-");
    let name = if is_input { "standard input".to_owned() } else { path.display().to_string() };
    let text =
        if is_input { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.map_err(|error| MigrationError::file(&name, error))?;
    let documents =
        plain::documents(&Source { name: name.clone(), text }).map_err(MigrationError::Yaml)?;
    let objects: Vec<&Value> = documents.iter().flat_map(objects).collect();
    let maps = ConfigMaps::among(&objects);
    let all: Vec<_> = objects.iter().flat_map(|object| containers(object)).collect();
    let found = select(&all, container, &name)?;
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
    container: Option<&str>,
    manifest: &str,
) -> Result<&'c Container<'m>, MigrationError> {
    let mut selected = all.iter().filter(|one| match container {
        Some(wanted) => one.is_named(wanted),
        None => all.len() == 1 || one.is_likely(),
    });
    match (selected.next(), selected.next()) {
        (Some(container), None) => Ok(container),
        _ if all.is_empty() => {
            Err(MigrationError::file(manifest, "no container; expected a Deployment"))
        }
        _ => {
            let names: Vec<_> = all.iter().map(|one| shortest_name(one, all)).collect();
            let names = names.join(", ");
            let what = "cannot detect the container; add `--container NAME`, one of";
            Err(MigrationError::file(manifest, format_args!("{what}: {names}")))
        }
    }
}

/// Collects the files of mounted ConfigMaps, with their paths in the container.
fn mounts(found: &Container<'_>, maps: &ConfigMaps<'_>, deployment: &mut Deployment) {
    for mount in array(found.container, "volumeMounts") {
        let Some(path) = text_at(mount, "/mountPath") else { continue };
        let Some(volume) = volume_of(mount, found.pod) else { continue };
        let projected =
            volume.get("projected").into_iter().flat_map(|projected| array(projected, "sources"));
        for source in projected.chain([volume]).filter_map(|source| source.get("configMap")) {
            let Some(map) = text_at(source, "/name") else { continue };
            match maps.find(map, found.namespace) {
                Ok(map) => mount_files(map, source, mount, path, deployment),
                Err(why) => deployment.unread.push(format!("files mounted at {path}: {why}")),
            }
        }
    }
}

/// Returns the volume of a mount.
fn volume_of<'m>(mount: &Value, pod: &'m Value) -> Option<&'m Value> {
    let name = text_at(mount, "/name")?;
    array(pod, "volumes").find(|volume| text_at(volume, "/name") == Some(name))
}

/// Collects the files of a ConfigMap.
fn mount_files(
    map: &ConfigMap<'_>,
    source: &Value,
    mount: &Value,
    mount_path: &str,
    deployment: &mut Deployment,
) {
    for key in map.binary_keys() {
        if path_of(key, source, mount, mount_path).is_some() {
            let file = format!("ConfigMap {}/{key}", map.name);
            deployment.unread.push(format!("{file}, mounted at {mount_path}: binaryData"));
        }
    }
    for (key, text) in map.texts() {
        if let Some(path) = path_of(key, source, mount, mount_path) {
            let name = format!("ConfigMap {}/{key}", map.name);
            deployment.mounts.push((path, Source { name, text }));
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
