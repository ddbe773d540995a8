//! Client of the admin port, for the subcommands that query or change a running service.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::builder::{NonEmptyStringValueParser, TypedValueParser as _};
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, Uri};
use rustls::ClientConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::CommandError;
use super::output::print_stderr;
use crate::admin::api::ErrorBody;
use crate::admin::rights::Token;
use crate::http_client::{HttpClientError, HttpOrigin};
use crate::printable::shell_quoted;
use crate::tls::{ClientTlsError, ServerVerifier, client_config};

/// Default URL of the admin port.
const DEFAULT_URL: &str = "http://127.0.0.1:6070";
/// Timeout of a request, from connecting to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Advice for a response that is not one of an admin port.
const OTHER_PORT: &str = "is this the admin port (6070 by default)?";
/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 64 << 20;

/// The service to call, and the credentials for it.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct ServerArgs {
    /// URL of the admin port: http://HOST:PORT or https://HOST:PORT. HOST:PORT is plain HTTP.
    #[arg(
        long,
        env = "TOLLGATE_ADMIN",
        value_name = "URL",
        default_value = DEFAULT_URL,
        value_parser = NonEmptyStringValueParser::new().map(admin_url)
    )]
    admin: String,
    /// File with the token, in the format of --admin-token-file of the service. The first token is
    /// used. Alternative: TOLLGATE_ADMIN_TOKEN.
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Token for the admin port. Do not set it as a flag: command lines are visible to other users.
    #[arg(long, env = "TOLLGATE_ADMIN_TOKEN", hide = true, hide_env_values = true)]
    token: Option<String>,
    /// PEM file with the CA certificates to trust, instead of those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// PEM file with the client certificate.
    #[arg(long, value_name = "FILE", requires = "client_key")]
    client_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Set once the warning about a token over plain HTTP was printed.
    #[arg(skip)]
    is_warned: Arc<AtomicBool>,
}

impl ServerArgs {
    /// Gets a path below `/api/v1/`, with a query.
    ///
    /// # Errors
    /// The request failed.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, CommandError> {
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let suffix = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
        self.call(Method::GET, &format!("/api/v1/{path}{suffix}"), Bytes::new()).await
    }

    /// Posts `body` to a path below `/api/v1/`.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, CommandError> {
        let body = serde_json::to_vec(body)?;
        self.call(Method::POST, &format!("/api/v1/{path}"), body.into()).await
    }

    /// Returns the URL of the admin port.
    pub(super) fn url(&self) -> &str {
        &self.admin
    }

    /// Returns the flags that call this service with the same credentials, each preceded by a
    /// space.
    pub(super) fn flags(&self) -> String {
        let is_default = self.admin == DEFAULT_URL;
        let url = (!is_default).then(|| format!(" --admin {}", shell_quoted(&self.admin)));
        let paths = [
            ("--token-file", &self.token_file),
            ("--ca", &self.ca),
            ("--client-cert", &self.client_cert),
            ("--client-key", &self.client_key),
        ];
        let paths = paths.into_iter().filter_map(|(flag, path)| {
            Some(format!(" {flag} {}", shell_quoted(&path.as_ref()?.display().to_string())))
        });
        url.into_iter().chain(paths).collect()
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, CommandError> {
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, self.send(method, path, body)).await;
        let response =
            sent.map_err(|_| self.failed(format_args!("no response within {REQUEST_TIMEOUT:?}")))??;
        let body = response.body();
        if !response.status().is_success() {
            let status = response.status().as_u16();
            let Ok(ErrorBody { error }) = serde_json::from_slice(body) else {
                let text = String::from_utf8_lossy(body);
                return Err(self.failed(format_args!("{status}: {}; {OTHER_PORT}", text.trim())));
            };
            let advice = if status == 401 { "; set the token with --token-file FILE" } else { "" };
            // A report on policies has lines of its own.
            let separator = if error.contains('\n') { '\n' } else { ' ' };
            return Err(self.failed(format_args!("{status}:{separator}{error}{advice}")));
        }
        serde_json::from_slice(body).map_err(|error| {
            self.failed(format_args!("not a response of a tollgate admin port: {error}"))
        })
    }

    /// Returns the error of a call for a reason.
    fn failed(&self, reason: impl Display) -> CommandError {
        format!("--admin {}: {reason}", self.admin).into()
    }

    /// Returns the error of a call for a reason of the client of HTTP.
    fn not_exchanged(&self, host: &str, error: HttpClientError) -> CommandError {
        match error {
            HttpClientError::Connect(error) => self.failed(format_args!(
                "{error}; set the address with --admin URL or TOLLGATE_ADMIN"
            )),
            HttpClientError::Handshake(error) => format!("{host}: {error}").into(),
            HttpClientError::Http(_) => self.failed(format_args!("{error}; {OTHER_PORT}")),
            HttpClientError::Body(_) => self.failed(error),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Bytes>, CommandError> {
        let url = Uri::try_from(&self.admin).map_err(|error| self.failed(error))?;
        let server = HttpOrigin::of(&url).map_err(|error| self.failed(error))?;
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = self.token()? {
            if !server.is_tls && !is_loopback(&server.host) {
                self.warn_of_plain_token(&server.host);
            }
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|error| self.failed(error))?;
        let tls = if server.is_tls { Some(self.tls_config()?) } else { None };
        let sent = async { server.connect(tls).await?.send(request, MAX_RESPONSE).await };
        sent.await.map_err(|error| self.not_exchanged(&server.host, error))
    }

    fn tls_config(&self) -> Result<ClientConfig, ClientTlsError> {
        let verifier = ServerVerifier::new(self.ca.as_deref(), self.ca.is_none())?;
        client_config(verifier, self.client_cert.as_deref().zip(self.client_key.as_deref()))
    }

    /// Warns once that the token can be intercepted.
    fn warn_of_plain_token(&self, host: &str) {
        if !self.is_warned.swap(true, Ordering::Relaxed) {
            print_stderr(format_args!(
                "warning: --admin {}: the token is sent to {host} over plain HTTP and can be intercepted; use \
                 https://, which the service supports with --admin-tls-cert",
                self.admin
            ));
        }
    }

    fn token(&self) -> Result<Option<String>, CommandError> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let text = crate::bounded_file::read_text(path)
            .map_err(|error| format!("--token-file {}: {error}", path.display()))?;
        match Token::first_secret(&text) {
            Some(secret) => Ok(Some(secret.to_owned())),
            None => {
                Err(format!("--token-file {}: the file contains no token", path.display()).into())
            }
        }
    }
}

/// Returns a URL; `HOST:PORT` is one of plain HTTP.
fn admin_url(text: String) -> String {
    if text.contains("://") { text } else { format!("http://{text}") }
}

/// Returns `true` if a host is this machine, whatever its resolver returns.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Encodes a query value: everything but ASCII letters, digits, `-`, `.`, `_` and `~` as `%XX`.
fn encoded(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_addresses_of_this_machine_are_loopback() {
        assert!(
            ["localhost", "LocalHost", "127.0.0.1", "127.8.9.1", "::1"]
                .iter()
                .all(|host| super::is_loopback(host))
        );
        let others = ["localhost.example", "10.0.0.1", "0.0.0.0", "::", "tollgate"];
        assert!(!others.iter().any(|host| super::is_loopback(host)));
    }

    #[test]
    fn an_address_is_a_url_of_plain_http() {
        for (given, url) in [("a:6070", "http://a:6070"), ("https://a", "https://a")] {
            assert_eq!(super::admin_url(given.to_owned()), url);
        }
    }

    #[test]
    fn values_of_a_query_are_encoded() {
        assert_eq!(super::encoded("plan=5%,user=a b&ü"), "plan%3D5%25%2Cuser%3Da%20b%26%C3%BC");
    }
}
