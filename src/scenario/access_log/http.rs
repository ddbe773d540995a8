//! Lines of an access log as HTTP requests, for the mappings in `requests` of policies.

use serde_json::Value;

use super::line::{LineRequest, text};
use super::{LogLineError, TextSource};
use crate::policy::PolicySet;
use crate::policy::requests::GatewayRequest;

/// The fields of an HTTP request, and the mapping of the policies that makes its descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpFields {
    /// Name of the mapping.
    pub mapping: String,
    /// Source of the method.
    pub method: TextSource,
    /// Source of the request target.
    pub target: TextSource,
    /// Source of the host.
    pub host: Option<TextSource>,
    /// Source of the address from which the gateway received the request.
    pub client: Option<TextSource>,
    /// Names of headers, and the sources of their values.
    pub headers: Vec<(String, TextSource)>,
}

/// The HTTP request of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedHttp {
    mapping: String,
    method: String,
    target: String,
    host: Option<String>,
    client: Option<String>,
    headers: Vec<(String, String)>,
}

impl HttpFields {
    /// Returns the request of a line; `None` if it has no method or no target.
    pub(super) fn request_of(&self, line: &Value) -> Option<LoggedHttp> {
        let headers = self.headers.iter();
        let headers = headers.filter_map(|(name, from)| Some((name.clone(), text(from, line)?)));
        Some(LoggedHttp {
            mapping: self.mapping.clone(),
            method: text(&self.method, line)?,
            target: text(&self.target, line)?,
            host: self.host.as_ref().and_then(|host| text(host, line)),
            client: self.client.as_ref().and_then(|client| text(client, line)),
            headers: headers.collect(),
        })
    }
}

impl LoggedHttp {
    /// Returns the request to a limiter, by the mapping of these policies; it may have no
    /// descriptor.
    ///
    /// # Errors
    /// There is no such mapping, or it denies the request.
    pub fn mapped(&self, policies: &PolicySet) -> Result<LineRequest, LogLineError> {
        let name = &self.mapping;
        let mapping = policies.mapping(name).ok_or_else(|| {
            let known = policies.mappings().iter().map(|mapping| mapping.name().to_owned());
            LogLineError::NoMapping { name: name.clone(), known: known.collect() }
        })?;
        let headers = self.headers.iter();
        let http = GatewayRequest {
            method: self.method.as_bytes(),
            host: self.host.as_deref().unwrap_or_default().as_bytes(),
            target: self.target.as_bytes(),
            headers: headers.map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect(),
            peer: self.client.as_deref().map(str::as_bytes),
            ..GatewayRequest::default()
        };
        let attributes = mapping.read(http)?;
        let mapped = mapping.map(&attributes);
        let request = mapped.request();
        Ok(LineRequest::of(mapping.domain(), request.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::policy::{CompileOptions, Source, load};
    use crate::scenario::access_log::{LineContents, read};

    const MAP: &str = "
time: { field: at }
http:
  mapping: shop
  method: { field: method }
  target: { field: path }
  host: { field: host }
  client_address: { field: peer, without: port }
  headers: { x-user: { field: user } }
";
    const POLICY: &str = "
domain: shop
requests:
- name: shop
  descriptors:
  - entries: { address: { attribute: client_address } }
  - match: { methods: [POST], hosts: [shop.example], paths: [/login] }
    entries: { user: { header: x-user } }
    hits: 3
";

    fn source(text: &str) -> Source {
        Source { name: "file.yaml".to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_line_has_the_descriptors_that_the_request_had() {
        let map = read(&source(MAP)).unwrap_or_else(|report| panic!("{report}"));
        let policies = load(&[source(POLICY)], &CompileOptions::default()).unwrap().policies;
        let line = json!({ "method": "POST", "path": "/x/../login?a", "host": "Shop.Example:443",
            "peer": "203.0.113.7:4711", "user": "ann" });
        let Some(LineContents::Http(http)) = map.request_of(&line).unwrap() else {
            panic!("an HTTP request");
        };
        let mapped = http.mapped(&policies).unwrap();
        let request = mapped.request();
        let values: Vec<_> = request
            .descriptors
            .iter()
            .map(|descriptor| (descriptor.entries[0].value, descriptor.hits.amount()))
            .collect();
        assert_eq!(request.domain, "shop");
        assert_eq!(values, [(b"203.0.113.7".as_slice(), Some(1)), (b"ann", Some(3))]);
        assert!(map.request_of(&json!({ "method": "GET" })).unwrap().is_none());
        let denied = json!({ "method": "GET", "path": "/a/..%2fb" });
        let Some(LineContents::Http(denied)) = map.request_of(&denied).unwrap() else {
            panic!("an HTTP request");
        };
        assert!(
            denied.mapped(&policies).is_err_and(|error| error.to_string().starts_with("denied"))
        );
    }

    #[test]
    fn a_map_has_descriptors_or_http() {
        let report = read(&source("time: { field: at }\n")).unwrap_err().to_string();
        assert!(
            report.contains("must have either `domain` and `descriptors`, or `http`"),
            "{report}"
        );
        let both = format!("{MAP}domain: d\ndescriptors: [{{ a: b }}]\n");
        let report = read(&source(&both)).unwrap_err().to_string();
        assert!(report.contains("must have either"), "{report}");
    }
}
