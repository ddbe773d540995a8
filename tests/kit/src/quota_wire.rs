//! A TCP proxy between Envoy and the service: it withholds acknowledgements of PINGs, or all bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::http2::PING;

const ACK: u8 = 1;
const PREFACE: usize = 24;
const HEAD: usize = 9;

/// The bytes that a wire lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    All,
    /// All but the acknowledgements of PINGs by Envoy.
    NoAcknowledgements,
    Nothing,
}

/// The proxy. Closes with its connections when dropped.
pub struct QuotaWire {
    pub address: SocketAddr,
    service: Arc<Mutex<SocketAddr>>,
    passing: watch::Sender<Passing>,
    connections: Arc<Mutex<JoinSet<()>>>,
    listener: JoinHandle<()>,
}

impl QuotaWire {
    /// Creates a wire to a service.
    pub async fn to(service: SocketAddr, passing: Passing) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let passing = watch::Sender::new(passing);
        let connections = Arc::<Mutex<JoinSet<()>>>::default();
        let accepted = Arc::clone(&connections);
        let service = Arc::new(Mutex::new(service));
        let target = Arc::clone(&service);
        let sender = passing.clone();
        let listener = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let passing = sender.subscribe();
                let service = *target.lock();
                accepted.lock().spawn(async move {
                    let _ = connect(client, service, passing).await;
                });
            }
        });
        Self { address, service, passing, connections, listener }
    }

    /// Directs new connections to this service.
    pub fn lead_to(&self, service: SocketAddr) {
        *self.service.lock() = service;
    }

    pub fn pass(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }

    /// Closes all connections; the bytes that were withheld are lost.
    pub fn cut(&self) {
        self.connections.lock().abort_all();
    }
}

impl Drop for QuotaWire {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn connect(
    client: TcpStream,
    service: SocketAddr,
    passing: watch::Receiver<Passing>,
) -> std::io::Result<()> {
    let service = TcpStream::connect(service).await?;
    client.set_nodelay(true)?;
    service.set_nodelay(true)?;
    let (client_reads, client_writes) = client.into_split();
    let (service_reads, service_writes) = service.into_split();
    tokio::select! {
        ended = frames(client_reads, service_writes, passing.clone()) => ended,
        ended = bytes(service_reads, client_writes, passing) => ended,
    }
}

async fn frames(
    mut source: OwnedReadHalf,
    mut sink: OwnedWriteHalf,
    mut passing: watch::Receiver<Passing>,
) -> std::io::Result<()> {
    let mut preface = [0; PREFACE];
    source.read_exact(&mut preface).await?;
    sink.write_all(&preface).await?;
    loop {
        let mut frame = vec![0; HEAD];
        source.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]);
        frame.resize(HEAD + usize::try_from(length).unwrap(), 0);
        source.read_exact(&mut frame[HEAD..]).await?;
        let passing = *passing.wait_for(|passing| *passing != Passing::Nothing).await.unwrap();
        let is_acknowledgement = frame[3] == PING && frame[4] & ACK != 0;
        if passing == Passing::All || !is_acknowledgement {
            sink.write_all(&frame).await?;
        }
    }
}

async fn bytes(
    mut source: OwnedReadHalf,
    mut sink: OwnedWriteHalf,
    mut passing: watch::Receiver<Passing>,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = source.read(&mut bytes).await?;
        passing.wait_for(|passing| *passing != Passing::Nothing).await.unwrap();
        if count == 0 {
            return Ok(());
        }
        sink.write_all(&bytes[..count]).await?;
    }
}
