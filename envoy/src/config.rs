//! The configuration of the filter: a JSON object, as Envoy passes a `google.protobuf.Struct`. Its
//! words are those of Envoy's rate limit filter. What the filter does not support is an error with
//! its name: it would otherwise charge other counters than the rate limit filter does.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::action::Action;
use crate::host::MetadataSource;
use crate::matcher::{Condition, HeaderMatcher, Part};

/// Maximum number of descriptors of a request, and of actions of each.
const MAX_ITEMS: usize = 16;
/// Actions of Envoy that are supported here.
const ACTIONS: &str = "generic_key, request_headers, remote_address, destination_cluster, \
                       header_value_match, metadata";

/// A configuration.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Config {
    /// Domain of the policy.
    pub(crate) domain: String,
    /// The cluster of the service.
    pub(crate) cluster: String,
    /// The descriptors of requests whose route has none.
    pub(crate) rate_limits: RateLimits,
    /// Sets the headers `x-ratelimit-*`.
    pub(crate) shows_limits: bool,
    /// Sets `retry-after` in denials.
    pub(crate) shows_retry_after: bool,
    /// Sets `x-envoy-ratelimited` in denials.
    pub(crate) shows_ratelimited: bool,
}

/// The actions of each descriptor.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RateLimits(pub(crate) Vec<Vec<Action>>);

/// An error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Error {
    #[error("the configuration is not a JSON object: {0}")]
    Json(String),
    #[error("{path} is missing")]
    Missing { path: String },
    #[error("{path} is not {expected}")]
    Invalid { path: String, expected: &'static str },
    #[error("{path}.{found} is not supported; supported is: {allowed}")]
    Unsupported { path: String, found: String, allowed: String },
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    ///
    /// The first that is found.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Error> {
        let value = json(text)?;
        let object = Object::of("filter_config", &value)?;
        object.only(&[
            "domain",
            "cluster",
            "rate_limits",
            "enable_x_ratelimit_headers",
            "enable_retry_after_header",
            "disable_x_envoy_ratelimited_header",
        ])?;
        let shows_limits = match object.text_or("enable_x_ratelimit_headers", "OFF")? {
            "OFF" => false,
            "DRAFT_VERSION_03" => true,
            _ => {
                let path = object.path("enable_x_ratelimit_headers");
                return Err(Error::Invalid { path, expected: "OFF or DRAFT_VERSION_03" });
            }
        };
        Ok(Self {
            domain: object.text("domain")?.to_owned(),
            cluster: object.text("cluster")?.to_owned(),
            rate_limits: RateLimits::of(&object)?,
            shows_limits,
            shows_retry_after: object.flag("enable_retry_after_header", false)?,
            shows_ratelimited: !object.flag("disable_x_envoy_ratelimited_header", false)?,
        })
    }
}

impl RateLimits {
    /// Reads the configuration of a route.
    ///
    /// # Errors
    ///
    /// The first that is found.
    pub(crate) fn read(text: &[u8]) -> Result<Self, Error> {
        let value = json(text)?;
        let object = Object::of("filter_config", &value)?;
        object.only(&["rate_limits"])?;
        Self::of(&object)
    }

    fn of(object: &Object<'_>) -> Result<Self, Error> {
        if !object.members.contains_key("rate_limits") {
            return Ok(Self::default());
        }
        object.list("rate_limits")?.iter().map(rate_limit).collect::<Result<_, _>>().map(Self)
    }
}

fn json(text: &[u8]) -> Result<Value, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Json(error.to_string()))
}

fn rate_limit(item: &Item<'_>) -> Result<Vec<Action>, Error> {
    let object = item.object()?;
    object.only(&["actions"])?;
    object.list("actions")?.iter().map(action).collect()
}

fn action(item: &Item<'_>) -> Result<Action, Error> {
    let object = item.object()?;
    let Some((name, value)) = object.members.iter().next().filter(|_| object.members.len() == 1)
    else {
        return Err(Error::Invalid { path: object.path, expected: "an object with one action" });
    };
    let inner = Object::of(&object.path(name), value);
    match name.as_str() {
        "generic_key" => generic_key(&inner?),
        "request_headers" => request_headers(&inner?),
        "remote_address" => inner?.only(&[]).map(|()| Action::RemoteAddress),
        "destination_cluster" => inner?.only(&[]).map(|()| Action::DestinationCluster),
        "header_value_match" => header_value_match(&inner?),
        "metadata" => metadata(&inner?),
        _ => Err(Error::Unsupported {
            path: object.path,
            found: name.clone(),
            allowed: ACTIONS.to_owned(),
        }),
    }
}

fn generic_key(object: &Object<'_>) -> Result<Action, Error> {
    object.only(&["descriptor_key", "descriptor_value"])?;
    Ok(Action::GenericKey {
        key: object.text_or("descriptor_key", "generic_key")?.to_owned(),
        value: object.constant("descriptor_value")?.to_owned(),
    })
}

fn request_headers(object: &Object<'_>) -> Result<Action, Error> {
    object.only(&["header_name", "descriptor_key", "skip_if_absent"])?;
    Ok(Action::RequestHeaders {
        header: object.text("header_name")?.to_ascii_lowercase(),
        key: object.text("descriptor_key")?.to_owned(),
        skip_if_absent: object.flag("skip_if_absent", false)?,
    })
}

fn header_value_match(object: &Object<'_>) -> Result<Action, Error> {
    object.only(&["descriptor_key", "descriptor_value", "expect_match", "headers"])?;
    Ok(Action::HeaderValueMatch {
        key: object.text_or("descriptor_key", "header_match")?.to_owned(),
        value: object.constant("descriptor_value")?.to_owned(),
        expects: object.flag("expect_match", true)?,
        headers: object.list("headers")?.iter().map(header_matcher).collect::<Result<_, _>>()?,
    })
}

fn header_matcher(item: &Item<'_>) -> Result<HeaderMatcher, Error> {
    let object = item.object()?;
    object.only(&["name", "string_match", "present_match", "range_match", "invert_match"])?;
    let conditions = ["string_match", "present_match", "range_match"];
    let given: Vec<_> =
        conditions.into_iter().filter(|name| object.members.contains_key(*name)).collect();
    let condition = match given.as_slice() {
        // A matcher with a name alone is one for its presence.
        [] => Condition::Present(true),
        ["present_match"] => Condition::Present(object.flag("present_match", true)?),
        ["string_match"] => text_condition(&object.object("string_match")?)?,
        ["range_match"] => {
            let range = object.object("range_match")?;
            range.only(&["start", "end"])?;
            Condition::Range(range.number("start")?, range.number("end")?)
        }
        _ => {
            let expected = "a matcher with one condition";
            return Err(Error::Invalid { path: object.path, expected });
        }
    };
    Ok(HeaderMatcher {
        name: object.text("name")?.to_ascii_lowercase(),
        condition,
        inverts: object.flag("invert_match", false)?,
    })
}

fn text_condition(object: &Object<'_>) -> Result<Condition, Error> {
    object.only(&["exact", "prefix", "suffix", "contains", "ignore_case"])?;
    let parts = [
        ("exact", Part::Whole),
        ("prefix", Part::Prefix),
        ("suffix", Part::Suffix),
        ("contains", Part::Contained),
    ];
    let mut given = parts.into_iter().filter(|(name, _)| object.members.contains_key(*name));
    let expected = "one of exact, prefix, suffix, contains";
    let invalid = || Error::Invalid { path: object.path.clone(), expected };
    let (name, part) = given.next().ok_or_else(invalid)?;
    if given.next().is_some() {
        return Err(invalid());
    }
    let text = object.text_or(name, "")?.as_bytes().to_vec();
    Ok(Condition::Text { part, text, ignores_case: object.flag("ignore_case", false)? })
}

fn metadata(object: &Object<'_>) -> Result<Action, Error> {
    object.only(&[
        "descriptor_key",
        "metadata_key",
        "default_value",
        "source",
        "skip_if_absent",
    ])?;
    let key = object.object("metadata_key")?;
    key.only(&["key", "path"])?;
    let path = key.list("path")?;
    // Envoy's interface for modules reads one level.
    let [segment] = path.as_slice() else {
        return Err(Error::Invalid { path: key.path("path"), expected: "a list of one key" });
    };
    let segment = segment.object()?;
    segment.only(&["key"])?;
    let source = match object.text_or("source", "DYNAMIC")? {
        "DYNAMIC" => MetadataSource::Dynamic,
        "ROUTE_ENTRY" => MetadataSource::Route,
        _ => {
            let path = object.path("source");
            return Err(Error::Invalid { path, expected: "DYNAMIC or ROUTE_ENTRY" });
        }
    };
    Ok(Action::Metadata {
        source,
        namespace: key.text("key")?.to_owned(),
        path: segment.text("key")?.to_owned(),
        key: object.text("descriptor_key")?.to_owned(),
        default: object.text_or("default_value", "")?.to_owned(),
        skip_if_absent: object.flag("skip_if_absent", false)?,
    })
}

/// An object with its path, for errors.
struct Object<'a> {
    path: String,
    members: &'a Map<String, Value>,
}

/// A member of a list with its path.
struct Item<'a> {
    path: String,
    value: &'a Value,
}

impl<'a> Item<'a> {
    fn object(&self) -> Result<Object<'a>, Error> {
        Object::of(&self.path, self.value)
    }
}

impl<'a> Object<'a> {
    fn of(path: &str, value: &'a Value) -> Result<Self, Error> {
        let members = value.as_object();
        let invalid = || Error::Invalid { path: path.to_owned(), expected: "an object" };
        Ok(Self { path: path.to_owned(), members: members.ok_or_else(invalid)? })
    }

    fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    fn invalid(&self, name: &str, expected: &'static str) -> Error {
        Error::Invalid { path: self.path(name), expected }
    }

    /// Accepts no other members than these.
    fn only(&self, allowed: &[&str]) -> Result<(), Error> {
        match self.members.keys().find(|name| !allowed.contains(&name.as_str())) {
            None => Ok(()),
            Some(found) => Err(Error::Unsupported {
                path: self.path.clone(),
                found: found.clone(),
                allowed: if allowed.is_empty() { "{}".to_owned() } else { allowed.join(", ") },
            }),
        }
    }

    fn text_or(&self, name: &str, default: &'a str) -> Result<&'a str, Error> {
        match self.members.get(name) {
            None => Ok(default),
            Some(value) => value.as_str().ok_or_else(|| self.invalid(name, "a text")),
        }
    }

    fn text(&self, name: &str) -> Result<&'a str, Error> {
        let text = self.text_or(name, "")?;
        if text.is_empty() { Err(Error::Missing { path: self.path(name) }) } else { Ok(text) }
    }

    /// Returns a text without substitutions, which newer versions of Envoy may perform.
    fn constant(&self, name: &str) -> Result<&'a str, Error> {
        let text = self.text(name)?;
        if text.contains('%') { Err(self.invalid(name, "a text without %")) } else { Ok(text) }
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        match self.members.get(name) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| self.invalid(name, "true or false")),
        }
    }

    fn number(&self, name: &str) -> Result<i64, Error> {
        // A Struct has numbers with a fraction only, and a JSON text of proto an int64 as text.
        match self.members.get(name) {
            None => Some(0),
            Some(Value::String(text)) => text.parse().ok(),
            Some(value) => value.as_i64().or_else(|| whole(value.as_f64()?)),
        }
        .ok_or_else(|| self.invalid(name, "a whole number"))
    }

    fn object(&self, name: &str) -> Result<Object<'a>, Error> {
        let path = self.path(name);
        match self.members.get(name) {
            None => Err(Error::Missing { path }),
            Some(value) => Object::of(&path, value),
        }
    }

    fn list(&self, name: &str) -> Result<Vec<Item<'a>>, Error> {
        let path = self.path(name);
        let Some(value) = self.members.get(name) else { return Err(Error::Missing { path }) };
        match value.as_array() {
            Some(values) if (1..=MAX_ITEMS).contains(&values.len()) => Ok(values
                .iter()
                .enumerate()
                .map(|(index, value)| Item { path: format!("{path}[{index}]"), value })
                .collect()),
            _ => Err(Error::Invalid { path, expected: "a list with 1 to 16 items" }),
        }
    }
}

/// Returns a number without a fraction.
#[allow(clippy::cast_possible_truncation, reason = "the number is checked to be in the range")]
fn whole(number: f64) -> Option<i64> {
    // All whole numbers below 2^53 are exact.
    (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64)
}
