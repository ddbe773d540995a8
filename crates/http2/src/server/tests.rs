//! The ends of connections of a server, over Unix sockets.

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::*;
use crate::frame::{FrameHead, HEAD, Reason, kind};
use crate::fuzz::service::{Gate, Scripted};
use crate::registry::{ConnectionBounds, Registry};

const LIMITS: Limits = Limits {
    max_streams: 16,
    max_header_list: 16 << 10,
    message_timeout: Duration::from_secs(60),
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
};
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The cause of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServedEnd {
    Drain,
    Age,
    Eviction,
    Error,
}

/// Records why connections were closed.
#[derive(Debug, Default)]
struct Closed(Mutex<Vec<CloseReason>>);

impl ConnectionObserver for Closed {
    fn closed(&self, reason: CloseReason, _: Option<SocketAddr>) {
        self.0.lock().push(reason);
    }
}

/// Returns the reason of the first GOAWAY to a client, and why its connection was closed, if the
/// server closed it.
async fn ended_by(cause: ServedEnd) -> (Option<u32>, Vec<CloseReason>) {
    let budget = Arc::new(Budget::new(1 << 20));
    let observer = Arc::<Closed>::default();
    let bounds = ConnectionBounds { total: 1, per_address: None, leaving: 1 };
    let registry = Registry::new(bounds, Arc::clone(&budget), Arc::<Closed>::clone(&observer));
    let drain = CancellationToken::new();
    let max_age = (cause == ServedEnd::Age).then(|| Duration::from_secs(10));
    let server = TransportServer {
        lifetime: Lifetime { limits: LIMITS, max_age, max_age_grace: None },
        tls: None,
        budget,
        observer: Arc::<Closed>::clone(&observer),
        drain: drain.clone(),
    };
    let (accepted, incoming) = mpsc::channel(1);
    let served = tokio::spawn(server.serve(incoming, |_, _| Scripted(Gate::default())));
    let (mut client, socket) = UnixStream::pair().unwrap();
    let carrier = Carrier::Unix(socket.into_std().unwrap());
    let registration = registry.register(None).unwrap();
    accepted.send(Accepted { carrier, registration }).await.unwrap();
    client.write_all(PREFACE).await.unwrap();
    // SETTINGS, WINDOW_UPDATE and the acknowledgement.
    client.read_exact(&mut [0; HEAD + 18 + HEAD + 4 + HEAD]).await.unwrap();
    let mut next = None;
    match cause {
        ServedEnd::Drain => drain.cancel(),
        ServedEnd::Age => {}
        ServedEnd::Eviction => next = registry.register(None),
        ServedEnd::Error => {
            client.write_all(&[0, 0, 0, kind::PUSH_PROMISE, 0, 0, 0, 0, 1]).await.unwrap()
        }
    }
    let mut goaway = [0; HEAD + 8];
    client.read_exact(&mut goaway).await.unwrap();
    let head = FrameHead::read(goaway.first_chunk().unwrap());
    let reason = goaway.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    drop(client);
    drop((accepted, next));
    served.await.unwrap();
    let closed = observer.0.lock().clone();
    (reason.filter(|_| head.kind == kind::GOAWAY), closed)
}

#[tokio::test]
async fn a_connection_is_served_until_the_server_its_age_its_eviction_or_an_error_ends_it() {
    for (cause, reason, closed) in [
        (ServedEnd::Drain, Reason::NO_ERROR, vec![]),
        (ServedEnd::Eviction, Reason::NO_ERROR, vec![CloseReason::Evicted]),
        (ServedEnd::Error, Reason::PROTOCOL_ERROR, vec![CloseReason::Protocol]),
    ] {
        assert_eq!(ended_by(cause).await, (Some(reason.0), closed), "{cause:?}");
    }
    tokio::time::pause();
    assert_eq!(ended_by(ServedEnd::Age).await, (Some(Reason::NO_ERROR.0), vec![]));
}

#[tokio::test(start_paused = true)]
async fn the_ages_of_connections_differ_by_a_tenth_at_most() {
    let mut ages = Vec::new();
    for _ in 0..8 {
        let begun = tokio::time::Instant::now();
        ended_by(ServedEnd::Age).await;
        ages.push(begun.elapsed());
    }
    // Timers go off at whole milliseconds.
    let [least, most] = [8_999, 11_001].map(Duration::from_millis);
    assert!(ages.iter().all(|age| (least..=most).contains(age)), "{ages:?}");
    ages.dedup();
    assert!(ages.len() > 1, "{ages:?}");
}
