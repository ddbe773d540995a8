//! State of the world: each response is the whole configuration, and is applied or rejected as a
//! whole.

use std::fmt::Display;

use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::resource::{self, TYPE_URL};
use super::{Acknowledgement, StreamFailure, Update, XdsProtocol, refusal};
use crate::grpc::proto::envoy::config::core::v3::Node;
use crate::grpc::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::grpc::proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

/// The state of a subscription: the version in force.
#[derive(Debug)]
pub(super) struct StateOfTheWorld {
    node: Node,
    version: String,
}

impl StateOfTheWorld {
    pub(super) fn new(node: Node) -> Self {
        Self { node, version: String::new() }
    }

    /// Returns a request without resource names, which subscribes to all.
    fn request(&self) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: self.version.clone(),
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..DiscoveryRequest::default()
        }
    }
}

impl XdsProtocol for StateOfTheWorld {
    type Request = DiscoveryRequest;
    type Response = DiscoveryResponse;

    fn open(&mut self) -> DiscoveryRequest {
        self.request()
    }

    fn take<E: Display>(
        &mut self,
        response: DiscoveryResponse,
        apply: &mut impl FnMut(Update) -> Result<(), E>,
    ) -> Result<Option<Acknowledgement<DiscoveryRequest>>, StreamFailure> {
        if response.type_url != TYPE_URL {
            return Ok(None);
        }
        let error_detail = apply(resource::read_all(&response.resources)).err().map(refusal);
        let is_refusal = error_detail.is_some();
        if !is_refusal {
            self.version = response.version_info;
        }
        let request =
            DiscoveryRequest { response_nonce: response.nonce, error_detail, ..self.request() };
        Ok(Some(Acknowledgement { request, is_refusal }))
    }

    async fn call(
        mut client: AggregatedDiscoveryServiceClient<Channel>,
        requests: Request<ReceiverStream<DiscoveryRequest>>,
    ) -> Result<Streaming<DiscoveryResponse>, Status> {
        Ok(client.stream_aggregated_resources(requests).await?.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(version: &str, type_url: &str) -> DiscoveryResponse {
        DiscoveryResponse {
            version_info: version.to_owned(),
            type_url: type_url.to_owned(),
            nonce: format!("nonce of {version}"),
            ..DiscoveryResponse::default()
        }
    }

    /// Returns the version and the nonce of a request.
    fn of(request: &DiscoveryRequest) -> (&str, &str) {
        (&request.version_info, &request.response_nonce)
    }

    #[test]
    fn the_version_is_that_of_the_last_response_that_was_taken() {
        let mut asking = StateOfTheWorld::new(Node::default());
        assert_eq!(of(&asking.open()), ("", ""));
        let taken =
            asking.take(response("1", TYPE_URL), &mut |_| Ok::<_, &str>(())).unwrap().unwrap();
        assert_eq!(of(&taken.request), ("1", "nonce of 1"));
        assert_eq!(taken.request.error_detail, None);

        let refused = asking.take(response("2", TYPE_URL), &mut |_| Err("no")).unwrap().unwrap();
        assert_eq!(of(&refused.request), ("1", "nonce of 2"));
        let detail = refused.request.error_detail.unwrap();
        assert_eq!((detail.code, detail.message.as_str()), (3, "no"));
        assert_eq!(of(&asking.open()), ("1", ""));
    }

    #[test]
    fn resources_of_another_type_are_ignored() {
        let mut asking = StateOfTheWorld::new(Node::default());
        let clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        let answer = asking
            .take(response("1", clusters), &mut |_| -> Result<(), &str> {
                unreachable!("nothing to apply")
            })
            .unwrap();
        assert!(answer.is_none());
    }

    #[test]
    fn a_long_reason_is_cut_at_a_line() {
        let reason = "a line of forty letters or thereabouts\n".repeat(100);
        let message = refusal(&reason).message;
        assert!(
            message.len() <= super::super::MAX_REASON && message.ends_with("thereabouts"),
            "{message}"
        );
    }
}
