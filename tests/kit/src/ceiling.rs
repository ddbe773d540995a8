//! The performance ceiling that tollgate is measured against: a server of the same protocol on the
//! same runtime, tonic over hyper, with a constant response and nothing else, not even pings.
//!
//! Run with `cargo run --release --example ceiling 127.0.0.1:9081`; `--bare` uses tonic's own loop,
//! `Server::serve_with_incoming`. It is also built into `cargo bench --bench compare`.

use std::error::Error;
use std::io;
use std::sync::Arc;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::app::listener::Bound;
use tollgate::app::workers::Workers;
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate::grpc::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tollgate::http2::Budget;
use tollgate::http2::observer::NoObserver;
use tollgate::http2::registry::{ConnectionBounds, Registry};
use tollgate::http2::socket::{Accepted, Carrier};
use tollgate::settings::Endpoint;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Maximum concurrent streams per connection: more than a load sends.
const STREAMS: u32 = 1024;

struct Constant;

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let status =
            DescriptorStatus { code: Code::Ok.into(), limit_remaining: 42, ..Default::default() };
        let answer = RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![status],
            ..Default::default()
        };
        Ok(Response::new(answer))
    }
}

/// Serves forever. Arguments are an address and optionally `--bare`.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (flags, addresses): (Vec<_>, Vec<_>) =
        arguments.partition(|argument| argument.starts_with("--"));
    let is_bare = flags.iter().any(|flag| flag == "--bare");
    let address = addresses.first().map_or("127.0.0.1:9081", String::as_str).parse()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = Bound::bind(&Endpoint::Tcp(address)).await?.listen()?;
        eprintln!("the ceiling listens on {}", listener.endpoint()?);
        let workers = if is_bare {
            Workers::start(cores, |incoming, _| bare(incoming))?
        } else {
            Workers::start(cores, |incoming, _| over_hyper(incoming))?
        };
        let bounds = ConnectionBounds { total: 1 << 10, per_address: None, leaving: 16 };
        let registry =
            Registry::new(bounds, Arc::new(Budget::new(256 << 20)), Arc::new(NoObserver));
        workers.accept(&listener, &registry).await;
        Ok(())
    })
}

/// Serves as tollgate does: tonic's service without tonic's server.
async fn over_hyper(mut incoming: Receiver<Accepted>) {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.max_concurrent_streams(STREAMS).auto_date_header(false);
    while let Some(accepted) = incoming.recv().await {
        if let Ok(stream) = stream(accepted) {
            let service = TowerToHyperService::new(RateLimitServiceServer::new(Constant));
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    }
}

/// Serves with tonic's own server.
async fn bare(incoming: Receiver<Accepted>) {
    let server = Server::builder()
        .max_concurrent_streams(STREAMS)
        .add_service(RateLimitServiceServer::new(Constant));
    let ended = server.serve_with_incoming(ReceiverStream::new(incoming).map(stream)).await;
    ended.unwrap_or_else(|error| eprintln!("tonic's server ended: {error}"));
}

fn stream(accepted: Accepted) -> io::Result<TcpStream> {
    match accepted.carrier {
        Carrier::Tcp(stream) => TcpStream::from_std(stream),
        Carrier::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}
