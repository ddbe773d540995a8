//! The ConfigMaps of a manifest.

use serde_json::Value;

use crate::container::{text, text_at};
use crate::failure::UnreadablePart;

/// The text for a namespace that the manifest does not set.
const NO_NAMESPACE: &str = "(none)";

/// The ConfigMaps of a manifest, in order.
pub(crate) struct ConfigMaps<'m>(Vec<ConfigMap<'m>>);

/// A ConfigMap.
pub(crate) struct ConfigMap<'m> {
    pub(crate) name: &'m str,
    /// `None` if the manifest does not set it.
    namespace: Option<&'m str>,
    object: &'m Value,
}

impl<'m> ConfigMaps<'m> {
    /// Collects the ConfigMaps among the objects of a manifest.
    pub(crate) fn among(objects: &[&'m Value]) -> Self {
        let of_kind = objects.iter().filter(|object| text_at(object, "/kind") == Some("ConfigMap"));
        Self(of_kind.filter_map(|object| ConfigMap::of(object)).collect())
    }

    /// Returns the ConfigMap with a name for a workload: that of its own namespace, or one without
    /// a namespace.
    ///
    /// # Errors
    /// There is none, or the name is ambiguous.
    pub(crate) fn find(
        &self,
        name: &str,
        namespace: Option<&str>,
    ) -> Result<&ConfigMap<'m>, UnreadablePart> {
        let named: Vec<&ConfigMap<'m>> = self.0.iter().filter(|map| map.name == name).collect();
        let mut fitting: Vec<_> = named.iter().filter(|map| map.namespace == namespace).collect();
        if fitting.is_empty() {
            fitting =
                named.iter().filter(|map| map.namespace.is_none() || namespace.is_none()).collect();
        }
        if let [map] = fitting.as_slice() {
            return Ok(map);
        }
        let spaces = named.iter().map(|map| map.namespace.unwrap_or(NO_NAMESPACE));
        let spaces = spaces.collect::<Vec<_>>().join(", ");
        let expected = namespace.unwrap_or(NO_NAMESPACE);
        Err(UnreadablePart(match fitting.as_slice() {
            _ if named.is_empty() => format!("ConfigMap {name} is not in the manifest"),
            [] => format!(
                "ConfigMap {name} is in namespaces {spaces}, but the workload is in namespace {expected}"
            ),
            _ => format!(
                "ConfigMap {name} is ambiguous: defined in namespaces {spaces}; expected one for the workload"
            ),
        }))
    }
}

impl<'m> ConfigMap<'m> {
    /// Returns the ConfigMap of an object; `None` if it has no name.
    fn of(object: &'m Value) -> Option<Self> {
        let namespace = text_at(object, "/metadata/namespace");
        Some(Self { name: text_at(object, "/metadata/name")?, namespace, object })
    }

    /// Returns the keys and values that are text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'m str, String)> + use<'m> {
        let data = self.object.get("data").and_then(Value::as_object);
        data.into_iter().flatten().map(|(key, value)| (key.as_str(), text(value)))
    }

    /// Returns the keys of values that are not text.
    pub(crate) fn binary_keys(&self) -> impl Iterator<Item = &'m str> + use<'m> {
        let data = self.object.get("binaryData").and_then(Value::as_object);
        data.into_iter().flatten().map(|(key, _)| key.as_str())
    }

    /// Returns the value of a key, if it is text.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.texts().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the value of `key` in the ConfigMap `a`, for a workload in a namespace.
    fn found(spaces: &[Option<&str>], namespace: Option<&str>) -> Result<String, UnreadablePart> {
        let object = |space: &Option<&str>| {
            let value = space.unwrap_or("none");
            json!({ "kind": "ConfigMap", "metadata": { "name": "a", "namespace": space }, "data": { "key": value } })
        };
        let objects: Vec<Value> = spaces.iter().map(object).collect();
        let maps = ConfigMaps::among(&objects.iter().collect::<Vec<_>>());
        maps.find("a", namespace).map(|map| map.value("key").unwrap_or_default())
    }

    #[test]
    fn a_name_refers_to_the_config_map_of_the_same_namespace() {
        let both = [Some("prod"), Some("test")];
        assert_eq!(found(&both, Some("test")), Ok("test".to_owned()));
        assert_eq!(found(&[None, Some("prod")], Some("test")), Ok("none".to_owned()));
        assert_eq!(found(&[Some("prod")], None), Ok("prod".to_owned()));
        let refused =
            |spaces: &[Option<&str>], namespace| found(spaces, namespace).unwrap_err().to_string();
        assert_eq!(refused(&[], None), "ConfigMap a is not in the manifest");
        assert_eq!(
            refused(&both, None),
            "ConfigMap a is ambiguous: defined in namespaces prod, test; expected one for the workload"
        );
        assert_eq!(
            refused(&both, Some("shop")),
            "ConfigMap a is in namespaces prod, test, but the workload is in namespace shop"
        );
    }
}
