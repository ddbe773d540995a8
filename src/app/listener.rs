//! Where gRPC is listened for: an address, or a socket in the file system.

use std::fs;
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, UnixListener, UnixStream};
use tracing::debug;

use crate::settings::Endpoint;
use crate::transport::socket::Carrier;

/// Accepts connections until dropped.
#[derive(Debug)]
pub enum Listener {
    /// At an address.
    Tcp(TcpListener),
    /// At a path. The file goes first, so that it never leads to a listener that is gone.
    Unix(SocketFile, UnixListener),
}

impl Listener {
    /// Listens. A socket that another process left behind is replaced; one that somebody listens on is not.
    ///
    /// # Errors
    /// Where the endpoint cannot be had.
    pub async fn bind(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
            Endpoint::Unix(path) => {
                remove_leftover(path).await?;
                let listener = UnixListener::bind(path)?;
                Ok(Self::Unix(SocketFile::at(path)?, listener))
            }
        }
    }

    /// Where it listens, with the port that was taken.
    ///
    /// # Errors
    /// Where the system does not say.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Endpoint::Tcp),
            Self::Unix(file, _) => Ok(Endpoint::Unix(file.path.clone())),
        }
    }

    /// The next connection, which any runtime may take.
    pub(super) async fn accept(&self) -> io::Result<Carrier> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                debug!(%peer, "accepted");
                // Without it answers wait for the peer's delayed acknowledgement, 40 ms.
                stream.set_nodelay(true)?;
                stream.into_std().map(Carrier::Tcp)
            }
            Self::Unix(_, listener) => listener.accept().await?.0.into_std().map(Carrier::Unix),
        }
    }
}

/// A socket in the file system, removed when dropped.
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
        // Another process may have put its own in the place of ours.
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
            return Err(Error::new(ErrorKind::AlreadyExists, "a file is there that is no socket"));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(Error::new(ErrorKind::AddrInUse, "another process listens there")),
        Err(error) => Err(error),
    }
}
