//! The containers of a Kubernetes manifest.

use serde_json::Value;

/// A container, with its pod.
pub(crate) struct Container<'m> {
    kind: &'m str,
    workload: &'m str,
    pub(crate) namespace: Option<&'m str>,
    pub(crate) pod: &'m Value,
    pub(crate) container: &'m Value,
}

impl<'m> Container<'m> {
    /// Returns namespace, kind and name of the workload, and the name of the container.
    pub(crate) fn path(&self) -> [&'m str; 4] {
        let name = text_at(self.container, "/name").unwrap_or("?");
        [self.namespace.unwrap_or("default"), self.kind, self.workload, name]
    }

    /// Returns `true` if a name, such as `limiter` or `ratelimit/limiter`, is the end of the path.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.path().ends_with(&name.split('/').collect::<Vec<_>>())
    }

    /// Returns `true` if the image or the command contains the name of the service.
    pub(crate) fn is_likely(&self) -> bool {
        let words = array(self.container, "command").chain(self.container.get("image"));
        words.filter_map(Value::as_str).any(|word| word.contains("ratelimit"))
    }
}

/// Returns the containers of an object's pods.
pub(crate) fn containers(object: &Value) -> Vec<Container<'_>> {
    let pod = object.pointer("/spec/template/spec").or_else(|| object.get("spec"));
    let kind = text_at(object, "/kind").unwrap_or("?");
    let workload = text_at(object, "/metadata/name").unwrap_or("?");
    let namespace = text_at(object, "/metadata/namespace");
    let Some(pod) = pod else { return Vec::new() };
    let containers = array(pod, "containers");
    containers.map(|container| Container { kind, workload, namespace, pod, container }).collect()
}

/// Returns the shortest name that no other container has.
pub(crate) fn shortest_name(container: &Container<'_>, all: &[Container<'_>]) -> String {
    let path = container.path();
    for from in (0..path.len()).rev() {
        let name = path.get(from..).unwrap_or_default().join("/");
        if all.iter().filter(|other| other.is_named(&name)).count() == 1 {
            return name;
        }
    }
    path.join("/")
}

/// Returns the items of a list; none if it is absent.
pub(crate) fn array<'m>(value: &'m Value, name: &str) -> impl Iterator<Item = &'m Value> + use<'m> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the text at a JSON pointer.
pub(crate) fn text_at<'m>(value: &'m Value, pointer: &str) -> Option<&'m str> {
    value.pointer(pointer)?.as_str()
}

/// Returns a scalar as text; nothing for null.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
