//! The ceiling: the same protocol on the same runtimes with an answer that never changes. What tollgate costs beyond it is
//! what deciding costs.
//!
//! `cargo run --release --example ceiling 127.0.0.1:9081`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tollgate::app::listener::Listener;
use tollgate::app::workers::Workers;
use tollgate::grpc::health::Health;
use tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use tollgate::grpc::proto::rate_limit_service_server::RateLimitService;
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tollgate::grpc::server::{self, Connections};
use tollgate::settings::Endpoint;
use tollgate::telemetry::metrics::Metrics;
use tonic::{Request, Response, Status};

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
    let health = Health::new().await;
    health.set(true).await;
    let connections = Connections {
        max_message_bytes: 4 << 20,
        keepalive_interval: Duration::from_secs(60),
        keepalive_timeout: Duration::from_secs(20),
        max_streams: 1024,
        max_age: None,
        max_age_grace: None,
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let metrics = Metrics::new();
    let workers = Workers::start(cores, move |incoming, drain| {
        let (health, metrics) = (health.clone(), Arc::clone(&metrics));
        async move {
            let served = server::serve(incoming, Arc::new(Constant), &health, connections, None, metrics, drain).await;
            served.unwrap_or_else(|error| eprintln!("a worker failed: {error}"));
        }
    })?;
    workers.accept(&listener).await;
    Ok(())
}
