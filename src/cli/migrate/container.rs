//! The containers of a Kubernetes manifest.

use serde_json::Value;

/// A container, with its pod.
pub(super) struct Container<'m> {
    kind: &'m str,
    workload: &'m str,
    pub(super) namespace: Option<&'m str>,
    pub(super) pod: &'m Value,
    pub(super) container: &'m Value,
}

impl<'m> Container<'m> {
    /// Returns namespace, kind and name of the workload, and the name of the container.
    pub(super) fn path(&self) -> [&'m str; 4] {
        let name = text_at(self.container, "/name").unwrap_or("?");
        [self.namespace.unwrap_or("default"), self.kind, self.workload, name]
    }

    /// Returns `true` if a name, such as `limiter` or `ratelimit/limiter`, is the end of the path.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.path().ends_with(&name.split('/').collect::<Vec<_>>())
    }

    /// Returns `true` if the image or the command contains the name of the service.
    pub(super) fn is_likely(&self) -> bool {
        let words = array(self.container, "command").chain(self.container.get("image"));
        words.filter_map(Value::as_str).any(|word| word.contains("ratelimit"))
    }
}

/// Returns the containers of an object's pods.
pub(super) fn containers(object: &Value) -> Vec<Container<'_>> {
    let pod = object.pointer("/spec/template/spec").or_else(|| object.get("spec"));
    let kind = text_at(object, "/kind").unwrap_or("?");
    let workload = text_at(object, "/metadata/name").unwrap_or("?");
    let namespace = text_at(object, "/metadata/namespace");
    let of = |pod| {
        array(pod, "containers").map(move |container| Container {
            kind,
            workload,
            namespace,
            pod,
            container,
        })
    };
    pod.into_iter().flat_map(of).collect()
}

/// Returns the shortest name that no other container has.
pub(super) fn shortest_name(container: &Container<'_>, all: &[Container<'_>]) -> String {
    let path = container.path();
    let names = (0..path.len()).rev().filter_map(|from| Some(path.get(from..)?.join("/")));
    let is_unique = |name: &String| all.iter().filter(|other| other.is_named(name)).count() == 1;
    names.into_iter().find(is_unique).unwrap_or_else(|| path.join("/"))
}

/// Returns the items of a list; none if it is absent.
pub(super) fn array<'m>(value: &'m Value, name: &str) -> impl Iterator<Item = &'m Value> + use<'m> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the text at a JSON pointer.
pub(super) fn text_at<'m>(value: &'m Value, pointer: &str) -> Option<&'m str> {
    value.pointer(pointer)?.as_str()
}

/// Returns a scalar as text; nothing for null.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
