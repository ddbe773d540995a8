//! Clients during an attack that open a new connection each time: the kubelet's probes, and gRPC
//! clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

use crate::support::rls::{Client, descriptor, request};

/// Pause between two probes of a kind.
const PAUSE: Duration = Duration::from_millis(20);
/// Timeout for an answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Running probes, on a thread of their own.
pub(super) struct Probes {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<(Duration, Duration)>,
}

impl Probes {
    /// Starts to probe.
    pub(super) fn start(grpc: SocketAddr, http: SocketAddr) -> Self {
        let ended = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let livez = mean(&is_over, || livez(http));
                let connect = mean(&is_over, || new_client(grpc));
                tokio::join!(livez, connect)
            })
        });
        Self { ended, thread }
    }

    /// Returns the mean times until `/livez` was answered, and until a new client was.
    pub(super) fn finish(self) -> (Duration, Duration) {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Returns the mean time until a probe succeeded, with retries until it did.
async fn mean<F: Future<Output = bool>>(is_over: &AtomicBool, probe: impl Fn() -> F) -> Duration {
    let mut total = Duration::ZERO;
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let succeeded = async { while !probe().await {} };
        let _ = tokio::time::timeout(TIMEOUT, succeeded).await;
        total += begun.elapsed();
        count += 1;
        tokio::time::sleep(PAUSE).await;
    }
    total / count.max(1)
}

async fn livez(http: SocketAddr) -> bool {
    let request = async {
        let mut stream = TcpStream::connect(http).await?;
        stream
            .write_all(b"GET /livez HTTP/1.1\r\nhost: tollgate\r\nconnection: close\r\n\r\n")
            .await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, io::Error>(answer)
    };
    request.await.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

async fn new_client(grpc: SocketAddr) -> bool {
    let Ok(channel) = Endpoint::from_shared(format!("http://{grpc}")).unwrap().connect().await
    else {
        return false;
    };
    Client::over(channel).decide(request(vec![descriptor(&[("user", "ann")])])).await.is_ok()
}
