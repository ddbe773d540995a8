//! Client of the admin port, for the subcommands that query or change a running service.

mod error;
mod tls;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::http::uri::InvalidUri;
use hyper::{Method, Request, Response, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) use self::error::AdminCallError;
use self::error::{AdminCallFailure, ClientTlsError, Unconnected};
use super::output::print_stderr;
use crate::admin::api::ErrorBody;
use crate::admin::rights::Token;
use crate::http_client::{HttpClientError, HttpOrigin};
use crate::printable::shell_quoted;

/// Default URL of the admin port.
const DEFAULT_URL: &str = "http://127.0.0.1:6070";
/// Timeout of a request, from connecting to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 64 << 20;

/// The service to call, and the credentials for it.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct ServerArgs {
    /// URL of the admin port: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, env = "TOLLGATE_ADMIN", value_name = "URL", default_value = DEFAULT_URL)]
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
    ) -> Result<T, AdminCallError> {
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
    ) -> Result<T, AdminCallError> {
        let body = serde_json::to_vec(body).map_err(AdminCallError::Body)?;
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
    ) -> Result<T, AdminCallError> {
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, self.send(method, path, body)).await;
        let response = sent.map_err(|_| self.failed(AdminCallFailure::Late(REQUEST_TIMEOUT)))??;
        let body = response.body();
        if !response.status().is_success() {
            let problem = serde_json::from_slice::<ErrorBody>(body).map(|problem| problem.error);
            let problem =
                problem.unwrap_or_else(|_| String::from_utf8_lossy(body).trim().to_owned());
            let status = response.status().as_u16();
            return Err(self.failed(AdminCallFailure::Refused { status, problem }));
        }
        serde_json::from_slice(body).map_err(|error| self.failed(AdminCallFailure::Response(error)))
    }

    /// Returns the error of a call for a reason.
    fn failed(&self, failure: impl Into<AdminCallFailure>) -> AdminCallError {
        AdminCallError::Call { url: self.admin.clone(), failure: failure.into() }
    }

    /// Returns the error of a call for a reason of the client of HTTP.
    fn not_exchanged(&self, host: &str, error: HttpClientError) -> AdminCallError {
        match error {
            HttpClientError::Connect(error) => self.failed(AdminCallFailure::Connect(error)),
            error @ (HttpClientError::ServerName(_) | HttpClientError::Handshake(_)) => {
                ClientTlsError::Host { host: host.to_owned(), error }.into()
            }
            error @ (HttpClientError::Http(_) | HttpClientError::Body(_)) => {
                self.failed(AdminCallFailure::Exchange(error))
            }
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Bytes>, AdminCallError> {
        let url: Uri = self.admin.parse().map_err(|error: InvalidUri| self.failed(error))?;
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
        let identity = self.client_cert.as_deref().zip(self.client_key.as_deref());
        let connected =
            server.connect(|| Ok::<_, Unconnected>(tls::configure(self.ca.as_deref(), identity)?));
        let mut connection = connected.await.map_err(|error| match error {
            Unconnected::Tls(error) => error.into(),
            Unconnected::Client(error) => self.not_exchanged(&server.host, error),
        })?;
        let sent = connection.send(request, MAX_RESPONSE).await;
        sent.map_err(|error| self.not_exchanged(&server.host, error))
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

    fn token(&self) -> Result<Option<String>, AdminCallError> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let text = crate::bounded_file::read_text(path)
            .map_err(|error| AdminCallError::TokenFile { path: path.clone(), error })?;
        match Token::first_secret(&text) {
            Some(secret) => Ok(Some(secret.to_owned())),
            None => Err(AdminCallError::NoToken { path: path.clone() }),
        }
    }
}

/// Returns `true` if a host is this machine, whatever its resolver returns.
fn is_loopback(host: &str) -> bool {
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
    fn values_of_a_query_are_encoded() {
        assert_eq!(super::encoded("plan=free,user=a b&ü"), "plan%3Dfree%2Cuser%3Da%20b%26%C3%BC");
    }
}
