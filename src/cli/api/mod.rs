//! Client of the admin port, for the subcommands that query or change a running service.

mod tls;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::output::print_stderr;
use crate::admin::api::ErrorBody;
use crate::admin::rights::Token;
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
    /// The request failed; the error is a text to print.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, String> {
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
    ) -> Result<T, String> {
        let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
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
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let all = [
            ("--admin", (!is_default).then(|| self.admin.clone())),
            ("--token-file", path(&self.token_file)),
            ("--ca", path(&self.ca)),
            ("--client-cert", path(&self.client_cert)),
            ("--client-key", path(&self.client_key)),
        ];
        let given = all
            .into_iter()
            .filter_map(|(flag, value)| Some(format!(" {flag} {}", shell_quoted(&value?))));
        given.collect()
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, String> {
        let failed = |error: &dyn std::fmt::Display| format!("--admin {}: {error}", self.admin);
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, self.send(method, path, body));
        let (status, body) = sent
            .await
            .map_err(|_| failed(&format!("no response within {REQUEST_TIMEOUT:?}")))??;
        if !(200..300).contains(&status) {
            let problem = serde_json::from_slice::<ErrorBody>(&body).map(|problem| problem.error);
            let problem =
                problem.unwrap_or_else(|_| String::from_utf8_lossy(&body).trim().to_owned());
            let hint = if status == 401 { "; set the token with --token-file FILE" } else { "" };
            return Err(failed(&format!("{status}: {problem}{hint}")));
        }
        serde_json::from_slice(&body)
            .map_err(|error| failed(&format!("not a response of a tollgate admin port: {error}")))
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<(u16, Bytes), String> {
        let failed = |error: &dyn std::fmt::Display| format!("--admin {}: {error}", self.admin);
        let uri: Uri = self.admin.parse().map_err(|error| failed(&error))?;
        let (is_tls, port) = match uri.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(failed(&"expected http://HOST:PORT or https://HOST:PORT")),
        };
        let authority = uri.authority().ok_or_else(|| failed(&"the URL has no host"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let address = (host.as_str(), authority.port_u16().unwrap_or(port));
        let mut request =
            Request::builder().method(method).uri(path).header(HOST, authority.as_str());
        request = request.header(CONTENT_TYPE, "application/json");
        if let Some(token) = self.token()? {
            if !is_tls && !is_loopback(&host) {
                self.warn_of_plain_token(&host);
            }
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(body)).map_err(|error| failed(&error))?;
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| {
            failed(&format!("{error}; set the address with --admin URL or TOLLGATE_ADMIN"))
        })?;
        (if is_tls {
            let identity = self.client_cert.as_deref().zip(self.client_key.as_deref());
            exchange(tls::connect(stream, &host, self.ca.as_deref(), identity).await?, request)
                .await
        } else {
            exchange(stream, request).await
        })
        .map_err(|error| failed(&error))
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

    fn token(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.token_file else { return Ok(self.token.clone()) };
        let failed =
            |error: &dyn std::fmt::Display| format!("--token-file {}: {error}", path.display());
        let text = crate::bounded_file::read_text(path).map_err(|error| failed(&error))?;
        Token::first_secret(&text)
            .map(|secret| Some(secret.to_owned()))
            .ok_or_else(|| failed(&"the file contains no token"))
    }
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<(u16, Bytes), Box<dyn std::error::Error + Send + Sync>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await?.to_bytes();
    connection.abort();
    Ok((status, body))
}

/// Returns `true` if a host is this machine, whatever its resolver returns.
fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Encodes a query value: everything but ASCII letters, digits, `-`, `.`, `_` and `~` as `%XX`.
fn encoded(value: &str) -> String {
    let part = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(part).collect()
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
