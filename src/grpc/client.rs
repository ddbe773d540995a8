//! A client of any rate limit service: one request, one answer.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::proto::rate_limit_service_client::RateLimitServiceClient;
use super::proto::{RateLimitRequest, RateLimitResponse};

/// Time to connect, and time for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a rate limit service.
#[derive(Clone, Debug)]
pub struct Client(RateLimitServiceClient<Channel>);

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none, or nobody listens there.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// What was called.
        address: String,
        /// Why not, down to the cause.
        reason: String,
    },
    /// The service answered with an error.
    #[error("{:?}: {}", .0.code(), .0.message())]
    Answer(#[from] Box<tonic::Status>),
}

impl Client {
    /// Connects to `host:port`, or a whole `http://` address.
    ///
    /// # Errors
    /// Where nobody answers there.
    pub async fn connect(address: &str) -> Result<Self, ClientError> {
        let uri = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let failed = |error: tonic::transport::Error| ClientError::Connect {
            address: address.to_owned(),
            reason: innermost(&error).to_string(),
        };
        let endpoint = Endpoint::from_shared(uri).map_err(failed)?.connect_timeout(PATIENCE).timeout(PATIENCE);
        Ok(Self(RateLimitServiceClient::new(endpoint.connect().await.map_err(failed)?)))
    }

    /// Asks once.
    ///
    /// # Errors
    /// The service's own, by its code.
    pub async fn should_rate_limit(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, ClientError> {
        let answer = self.0.should_rate_limit(request).await.map_err(Box::new)?;
        Ok(answer.into_inner())
    }
}

fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error)
}
