//! A language model in Python, as an upstream that counts its tokens, and a client that may leave
//! before its response is complete.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::process::Process;
use super::root;
use super::web::Web;
use super::{TEST_TIMEOUT, becomes};

/// A running `tests/envoy/model.py`.
pub struct Model {
    pub address: SocketAddr,
    _process: Process,
}

impl Model {
    pub fn start() -> Self {
        let python = root().join(".venv/bin/python");
        let mut command = Command::new(python);
        command.arg(root().join("tests/envoy/model.py"));
        let mut process = Process::start("model", &mut command);
        let port: u16 = process
            .wait_for_line("its port", |line| line.strip_prefix("listening on ")?.parse().ok());
        Self { address: ([127, 0, 0, 1], port).into(), _process: process }
    }

    /// Returns the counts and the requests so far.
    pub async fn ledger(&self) -> Value {
        serde_json::from_str(&Web::new(self.address).get("/ledger").await.body).unwrap()
    }

    /// Returns the tokens of all complete responses.
    pub async fn tokens(&self) -> u64 {
        self.ledger().await["tokens"].as_u64().unwrap()
    }

    /// Waits until this number of requests is in progress.
    pub async fn has_open(&self, count: u64) {
        let open = || async { self.ledger().await["open"].as_u64().unwrap() };
        becomes("requests are in progress", TEST_TIMEOUT, open, |open| *open == count).await;
    }

    /// Completes the responses that wait.
    pub async fn go(&self) {
        assert_eq!(Web::new(self.address).send("POST", "/go", "").await.status, 200);
    }
}

/// A request on a connection of its own. Dropping it closes the connection.
pub struct Prompt(TcpStream);

impl Prompt {
    /// Sends a request of a tenant, with additional lines in its head.
    pub async fn send(edge: SocketAddr, lines: &[&str], body: &str) -> Self {
        let mut stream = TcpStream::connect(edge).await.unwrap();
        let mut head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: edge\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        for line in lines {
            head.push_str(line);
            head.push_str("\r\n");
        }
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        Self(stream)
    }

    /// Reads until the connection ends, also by a reset. Returns the status, 0 if there is none.
    pub async fn status(mut self) -> u16 {
        let mut response = Vec::new();
        let _ = self.0.read_to_end(&mut response).await;
        let head = String::from_utf8_lossy(&response).into_owned();
        head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default()
    }
}
