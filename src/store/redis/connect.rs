//! One connection: the socket, TLS on it, and the greeting.

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::access::{Access, ConnectError};
use super::tls;
use super::url::Address;

/// A connection to one node, greeted. Calls on it have no time limit of its own.
pub(super) async fn connect(access: &Access, address: &Address) -> Result<MultiplexedConnection, ConnectError> {
    match address {
        Address::Unix(path) => greet(access, UnixStream::connect(path).await?).await,
        Address::Tcp(host, port) => {
            let stream = TcpStream::connect((host.as_str(), *port)).await?;
            stream.set_nodelay(true)?;
            if !access.tls {
                return greet(access, stream).await;
            }
            greet(access, tls::shake_hands(access, host, stream).await?).await
        }
    }
}

async fn greet(
    access: &Access,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<MultiplexedConnection, ConnectError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let (connection, driver) = MultiplexedConnection::new_with_config(&access.login()?, stream, config).await?;
    tokio::spawn(driver);
    Ok(connection)
}
