//! The ceiling: the same protocol on the same runtimes by tonic, with an answer that never changes and nothing else, not
//! even pings. What tollgate is measured against.
//!
//! `cargo run --release --example ceiling 127.0.0.1:9081`

use std::error::Error;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tollgate::app::listener::Listener;
use tollgate::app::workers::Workers;
use tollgate::grpc::places::Places;
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate::grpc::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tollgate::grpc::socket::Carrier;
use tollgate::settings::Endpoint;
use tollgate::telemetry::metrics::Metrics;
use tonic::{Request, Response, Status};

// As the binary has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Constant;

#[tonic::async_trait]
impl RateLimitService for Constant {
    async fn should_rate_limit(&self, _: Request<RateLimitRequest>) -> Result<Response<RateLimitResponse>, Status> {
        let status = DescriptorStatus { code: Code::Ok.into(), limit_remaining: 42, ..Default::default() };
        let answer = RateLimitResponse { overall_code: Code::Ok.into(), statuses: vec![status], ..Default::default() };
        Ok(Response::new(answer))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9081".to_owned());
    let listener = Listener::bind(&Endpoint::Tcp(address.parse()?)).await?;
    println!("the ceiling listens on {}", listener.endpoint()?);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = Workers::start(cores, |mut incoming, _| async move {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.max_concurrent_streams(1024).auto_date_header(false);
        while let Some(accepted) = incoming.recv().await {
            let Carrier::Tcp(stream) = accepted.carrier else { continue };
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let service = TowerToHyperService::new(RateLimitServiceServer::new(Constant));
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    })?;
    workers.accept(&listener, &Places::new(1 << 10, Metrics::new())).await;
    Ok(())
}
