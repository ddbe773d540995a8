//! The listener for gRPC: a TCP address or a Unix socket.

use std::fmt;
use std::fs;
use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpSocket, UnixListener, UnixStream};
use tracing::{debug, info};

use crate::http2::socket::Carrier;
use crate::settings::Endpoint;

/// Maximum number of connections that wait to be accepted: the default of `net.core.somaxconn`, by
/// which the kernel bounds it, as in Go and Envoy. A client whose connection meets a full queue
/// tries again only after a second, and a burst fills one of 1,024 within 20 ms. The queue of a
/// Unix socket has the bound of the kernel.
pub(super) const BACKLOG: u32 = 4096;

/// A bound endpoint. A TCP socket does not listen yet, so that clients are refused and try another
/// replica.
#[derive(Debug)]
pub enum Bound {
    /// A TCP address.
    Tcp(TcpSocket),
    /// A path. Clients already wait here, since a Unix socket cannot exist in the file system
    /// without listening.
    Unix(SocketFile, UnixListener),
}

/// A listener that accepts connections until dropped.
#[derive(Debug)]
pub enum Listener {
    /// A TCP address.
    Tcp(TcpListener),
    /// A path. The file is dropped first, so that it never refers to a closed listener.
    Unix(SocketFile, UnixListener),
}

impl Bound {
    /// Binds an endpoint. Replaces a socket left behind by another process, unless a process still
    /// listens on it.
    ///
    /// # Errors
    /// The endpoint cannot be bound.
    pub async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => bind(*address).map(Self::Tcp),
            Endpoint::Unix(path) => {
                remove_leftover(path).await?;
                let listener = UnixListener::bind(path)?;
                Ok(Self::Unix(SocketFile::at(path)?, listener))
            }
        }
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// Another process bound the same address in the meantime and listens on it.
    pub fn listen(self) -> io::Result<Listener> {
        match self {
            Self::Tcp(socket) => socket.listen(BACKLOG).map(Listener::Tcp),
            Self::Unix(file, listener) => Ok(Listener::Unix(file, listener)),
        }
    }
}

/// Binds an address without listening.
///
/// # Errors
/// The address cannot be bound.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections left over from a previous process must not block the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

impl Listener {
    /// Returns the local endpoint, with the actual port.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Endpoint::Tcp),
            Self::Unix(file, _) => Ok(Endpoint::Unix(file.path.clone())),
        }
    }

    /// Accepts the next connection. It can be moved to any runtime.
    pub(super) async fn accept(&self) -> io::Result<Carrier> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                debug!(%peer, "accepted");
                // Without `TCP_NODELAY`, responses wait for the delayed ACK of the peer, 40 ms.
                stream.set_nodelay(true)?;
                stream.into_std().map(Carrier::Tcp)
            }
            Self::Unix(_, listener) => listener.accept().await?.0.into_std().map(Carrier::Unix),
        }
    }
}

/// A socket file, removed when dropped.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), inode: fs::symlink_metadata(path)?.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have replaced the file with its own.
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

async fn remove_leftover(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                "the path exists and is not a socket",
            ));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another process listens on this path")),
        Err(error) => Err(error),
    }
}

pub(super) fn announce(protocol: &str, address: std::io::Result<impl fmt::Display>) {
    if let Ok(address) = address {
        info!(protocol, %address, "listening");
    }
}
