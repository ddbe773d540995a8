//! Alerts on processes that differ in their policies or their release.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{CLOSED, Scene, soon};
use crate::support::policy::Policies;
use crate::support::tollgate::Tollgate;

impl Scene {
    /// Tests a process with other policies, and one of another release.
    pub(super) async fn another_release(&self) -> Vec<String> {
        let policies = Policies::of(CLOSED);
        let other = Tollgate::serve(policies.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let older = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await;
                let body = "tollgate_build_info{version=\"0.0.1\"} 1\n";
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close";
                let length = body.len();
                let answer = format!("{head}\r\ncontent-length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        self.scrape(&[("tollgate", other.http, "/metrics"), ("tollgate", older, "/metrics")]);
        let fired = self.fire(&["TollgatePoliciesDiffer", "TollgateReleasesDiffer"], soon).await;
        self.scrape(&[]);
        serving.abort();
        fired
    }
}
