//! `tollgate explain --request`: the descriptors of an HTTP request, each with its rule.

use super::{Explain, ExplainedRules};
use crate::cli::{CommandError, load};
use crate::policy::explain;
use crate::policy::requests::GatewayRequest;
use crate::telemetry::journal::key::write_text;

/// An HTTP request, and what a gateway adds to it
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct RequestArgs {
    /// HTTP request: its method and target, such as `GET /orders?page=2`. DOMAIN is then the name
    /// of a mapping in `requests`.
    #[arg(long, value_name = "METHOD TARGET", requires = "policies")]
    pub(super) request: Option<String>,
    /// Header of the request: `NAME: VALUE`. May be repeated.
    #[arg(long, short = 'H', value_name = "NAME: VALUE", requires = "request")]
    header: Vec<String>,
    /// Address from which the gateway received the request.
    #[arg(long, value_name = "ADDRESS", requires = "request")]
    client: Option<String>,
}

impl Explain {
    /// Explains the descriptors of an HTTP request by policy files.
    pub(super) fn of_request(&self, request: &str) -> Result<ExplainedRules, CommandError> {
        let policies = load(&self.reading, &self.policies)?.1.policies;
        let name = &self.domain;
        let mapping = policies.mapping(name).ok_or_else(|| {
            let known: Vec<_> = policies.mappings().iter().map(|mapping| mapping.name()).collect();
            format!("no request mapping `{name}` (mappings: {})", known.join(", "))
        })?;
        let http = self.http.gateway_request(request)?;
        let attributes = mapping.read(http).map_err(|error| format!("denied: {error}"))?;
        let mapped = mapping.map(&attributes);
        let request = mapped.request();
        let descriptors = request.iter().flat_map(|request| &request.descriptors);
        let domain = mapping.domain();
        let count = descriptors.clone().count();
        let mut text = format!("request mapping {name} of domain {domain}: descriptors: {count}\n");
        let mut is_matched = false;
        for descriptor in descriptors {
            let mut line = String::new();
            write_text(&descriptor.entries, &mut line);
            let (explained, rule) = explain::explain(&policies, domain, &descriptor.entries);
            is_matched |= rule.is_some();
            text.push_str(&format!(
                "\n{line}, hits: {}\n{explained}",
                descriptor.hits.amount().unwrap_or(1)
            ));
        }
        Ok(ExplainedRules { text, is_matched })
    }
}

impl RequestArgs {
    /// Parses the request.
    fn gateway_request<'a>(&'a self, request: &'a str) -> Result<GatewayRequest<'a>, CommandError> {
        let (method, target) = request
            .trim()
            .split_once(' ')
            .ok_or_else(|| format!("--request must be a method and a target, found `{request}`"))?;
        let mut http = GatewayRequest {
            method: method.as_bytes(),
            target: target.trim().as_bytes(),
            peer: self.client.as_deref().map(str::as_bytes),
            ..GatewayRequest::default()
        };
        for header in &self.header {
            let (name, value) = header
                .split_once(':')
                .ok_or_else(|| format!("--header must be NAME: VALUE, found `{header}`"))?;
            if name.trim().eq_ignore_ascii_case("host") {
                http.host = value.trim().as_bytes();
            }
            http.headers.push((name.trim().as_bytes(), value.trim().as_bytes()));
        }
        Ok(http)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_that_of_a_header_in_any_case() {
        for header in ["Host: a.example", "host:a.example"].map(str::to_owned) {
            let arguments = RequestArgs { request: None, header: vec![header], client: None };
            assert_eq!(arguments.gateway_request("GET /").unwrap().host, b"a.example");
        }
    }
}
