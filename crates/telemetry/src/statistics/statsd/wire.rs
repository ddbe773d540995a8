//! Connection to a StatsD server: UDP packets, or a TCP stream that is reopened whenever it breaks.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use tracing::{info, warn};

/// Maximum packet size in bytes: fits an MTU of 1500 without fragmentation. A longer line is sent
/// as a packet of its own.
const MAX_PACKET: usize = 1_432;
/// Maximum number of bytes per write to a stream.
const MAX_WRITE: usize = 1 << 16;
/// Timeout for connecting, and for each write.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum time between two connection attempts, except when a flush is due.
const RETRY_EVERY: Duration = Duration::from_secs(1);

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsdTransport {
    /// Lines in packets.
    Udp,
    /// Lines in a stream.
    Tcp,
}

/// A StatsD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsdServer {
    /// Transport protocol.
    pub protocol: StatsdTransport,
    /// Host and port; a host name is resolved on every connect.
    pub address: String,
}

pub(super) struct StatsdWire {
    target: StatsdServer,
    link: Option<StatsdLink>,
    buffer: Vec<u8>,
    attempted: Option<Instant>,
    /// Set when an outage is logged, so that it is logged once; cleared when TCP reconnects.
    complained: bool,
}

enum StatsdLink {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl StatsdWire {
    pub(super) fn new(target: StatsdServer) -> Self {
        Self { target, link: None, buffer: Vec::new(), attempted: None, complained: false }
    }

    /// Returns `true` if lines can be sent, connecting if there is no connection. With `renew`, the
    /// name of a UDP server is resolved again, since its address may have changed; for TCP, that
    /// would cost the connection.
    pub(super) fn is_ready(&mut self, renew: bool) -> bool {
        let is_good = match &self.link {
            Some(StatsdLink::Udp(_)) => !renew,
            Some(StatsdLink::Tcp(stream)) => !is_closed(stream),
            None => false,
        };
        if is_good {
            return true;
        }
        self.link = None;
        if !renew && self.attempted.is_some_and(|attempted| attempted.elapsed() < RETRY_EVERY) {
            return false;
        }
        self.attempted = Some(Instant::now());
        match connect(&self.target) {
            Ok(link) => {
                // Opening a UDP socket does not prove that the server is reachable.
                if matches!(link, StatsdLink::Tcp(_)) && std::mem::take(&mut self.complained) {
                    info!(address = self.target.address, "StatsD reachable");
                }
                self.link = Some(link);
            }
            Err(error) => self.complain(&error),
        }
        self.is_open()
    }

    /// Returns `true` if pushed lines will be sent, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        self.link.is_some()
    }

    /// Buffers a line, and first sends the buffer if the line does not fit.
    pub(super) fn push(&mut self, line: &str) {
        let most = match self.target.protocol {
            StatsdTransport::Udp => MAX_PACKET,
            StatsdTransport::Tcp => MAX_WRITE,
        };
        if !self.buffer.is_empty() && self.buffer.len() + line.len() > most {
            self.send();
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
    }

    /// Sends the buffered lines. Lines that cannot be sent are lost.
    pub(super) fn send(&mut self) {
        let sent = match &mut self.link {
            None => Ok(()),
            Some(_) if self.buffer.is_empty() => Ok(()),
            Some(StatsdLink::Tcp(stream)) => stream.write_all(&self.buffer),
            Some(StatsdLink::Udp(socket)) => {
                let packet = self.buffer.strip_suffix(b"\n").unwrap_or(&self.buffer);
                socket.send(packet).map(drop)
            }
        };
        self.buffer.clear();
        if let Err(error) = sent {
            self.complain(&error);
            // A failed UDP packet does not affect the next one.
            if self.target.protocol == StatsdTransport::Tcp {
                self.link = None;
            }
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            warn!(address = self.target.address, %error, "StatsD unreachable; retrying");
        }
    }
}

fn connect(target: &StatsdServer) -> io::Result<StatsdLink> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in target.address.to_socket_addrs()? {
        let link = match target.protocol {
            StatsdTransport::Udp => udp(address).map(StatsdLink::Udp),
            StatsdTransport::Tcp => tcp(address).map(StatsdLink::Tcp),
        };
        match link {
            Ok(link) => return Ok(link),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(address)?;
    Ok(socket)
}

fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

/// Returns `true` if the server has closed the stream. A write would still succeed, and its data
/// would be lost.
fn is_closed(stream: &TcpStream) -> bool {
    let peeked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let is_quiet = matches!(&peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    let is_open = is_quiet || matches!(peeked, Ok(1));
    stream.set_nonblocking(false).is_err() || !is_open
}
