//! gRPC connections that take up slots and memory without calls.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

use super::client::{connect, held, run_clients};
use super::harness::Target;

/// Holds 9,000 connections without a call.
pub(super) fn idle(target: Target) -> BoxFuture<'static, ()> {
    held(9_000, move || connect(target.grpc))
}

/// Opens more idle connections than there are slots or file descriptors, of which these attacks
/// allow at most 1,000.
pub(super) fn more_than_places(target: Target) -> BoxFuture<'static, ()> {
    held(2_000, move || connect(target.grpc))
}

/// Holds connections whose client does not start HTTP/2.
pub(super) fn silent(target: Target) -> BoxFuture<'static, ()> {
    held(4_000, move || TcpStream::connect(target.grpc))
}

/// Closes connections as soon as they are open.
pub(super) fn closed_at_once(target: Target) -> BoxFuture<'static, ()> {
    async move { run_clients(8, || async { connect(target.grpc).await.map(drop) }).await }.boxed()
}
