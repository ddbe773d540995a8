//! Incremental xDS: a response contains the changes, which add up to the configuration.

use std::collections::BTreeMap;
use std::fmt::Display;

use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

use super::resource::{self, MAX_BYTES, MAX_RESOURCES, ResourceError, TYPE_URL};
use super::{Acknowledgement, StreamFailure, Update, XdsProtocol, refusal};
use crate::grpc::proto::envoy::config::core::v3::Node;
use crate::grpc::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use crate::grpc::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use crate::policy::Source;

/// Resources by name.
type Resources = BTreeMap<String, HeldResource>;

/// The state of an incremental subscription.
///
/// A rejected change is kept in `received`, since the control plane does not send it again: the
/// next response may add what it lacked. A new stream starts with the versions in force, so there
/// the control plane does send it again.
#[derive(Debug)]
pub(super) struct Delta {
    node: Node,
    in_force: Resources,
    received: Resources,
}

#[derive(Clone, Debug)]
struct HeldResource {
    version: String,
    /// The resource as a policy source, or the reason why it cannot be read.
    content: Result<Source, ResourceError>,
}

impl HeldResource {
    fn bytes(&self) -> usize {
        match &self.content {
            Ok(source) => source.text.len(),
            Err(reason) => reason.to_string().len(),
        }
    }
}

impl Delta {
    pub(super) fn new(node: Node) -> Self {
        Self { node, in_force: Resources::new(), received: Resources::new() }
    }

    fn request(&self) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: Some(self.node.clone()),
            type_url: TYPE_URL.to_owned(),
            ..DeltaDiscoveryRequest::default()
        }
    }

    /// Adds the changes of a response.
    fn receive(
        &mut self,
        resources: Vec<Resource>,
        removed: &[String],
    ) -> Result<(), ResourceError> {
        for name in removed {
            self.received.remove(name);
        }
        for Resource { name, version, resource } in resources {
            // A resource without content is only confirmed to exist.
            let Some(any) = resource else { continue };
            let content = resource::read(&any, &mut MAX_BYTES.clone());
            self.received.insert(name, HeldResource { version, content });
        }
        let bytes = self.received.values().map(HeldResource::bytes).fold(0, usize::saturating_add);
        match (self.received.len(), bytes) {
            (found, _) if found > MAX_RESOURCES => Err(ResourceError::TooMany { found }),
            (_, bytes) if bytes > MAX_BYTES => Err(ResourceError::TooLong),
            (_, _) => Ok(()),
        }
    }

    /// Returns all resources received, as one configuration.
    fn update(&self) -> Update {
        self.received.values().map(|held| held.content.clone()).collect()
    }
}

impl XdsProtocol for Delta {
    type Request = DeltaDiscoveryRequest;
    type Response = DeltaDiscoveryResponse;

    fn open(&mut self) -> DeltaDiscoveryRequest {
        self.received.clone_from(&self.in_force);
        let versions =
            self.in_force.iter().map(|(name, held)| (name.clone(), held.version.clone()));
        DeltaDiscoveryRequest { initial_resource_versions: versions.collect(), ..self.request() }
    }

    fn take<E: Display>(
        &mut self,
        response: DeltaDiscoveryResponse,
        apply: &mut impl FnMut(Update) -> Result<(), E>,
    ) -> Result<Option<Acknowledgement<DeltaDiscoveryRequest>>, StreamFailure> {
        if response.type_url != TYPE_URL {
            return Ok(None);
        }
        self.receive(response.resources, &response.removed_resources)?;
        let error_detail = apply(self.update()).err().map(refusal);
        let is_refusal = error_detail.is_some();
        if !is_refusal {
            self.in_force.clone_from(&self.received);
        }
        let request = DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            error_detail,
            ..self.request()
        };
        Ok(Some(Acknowledgement { request, is_refusal }))
    }

    async fn call(
        mut client: AggregatedDiscoveryServiceClient<Channel>,
        requests: Request<ReceiverStream<DeltaDiscoveryRequest>>,
    ) -> Result<Streaming<DeltaDiscoveryResponse>, Status> {
        Ok(client.delta_aggregated_resources(requests).await?.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
    use prost::Message as _;
    use prost_types::Any;

    fn resource(name: &str, version: &str) -> Resource {
        let config =
            RateLimitConfig { name: name.into(), domain: name.into(), descriptors: vec![] };
        let any = Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() };
        Resource { name: name.into(), version: version.into(), resource: Some(any) }
    }

    /// Handles a response, which is applied unless `refuse` is set. Returns the names of the
    /// sources to apply, or the error.
    fn take(
        delta: &mut Delta,
        resources: Vec<Resource>,
        removed: &[&str],
        refuse: bool,
    ) -> Result<Vec<String>, ResourceError> {
        let mut seen = Ok(vec![]);
        let response = DeltaDiscoveryResponse {
            resources,
            removed_resources: removed.iter().map(ToString::to_string).collect(),
            type_url: TYPE_URL.to_owned(),
            ..DeltaDiscoveryResponse::default()
        };
        let mut apply = |update: Update| {
            seen = update.map(|sources| sources.into_iter().map(|source| source.name).collect());
            if refuse { Err(ResourceError::TooLong) } else { seen.clone().map(|_| ()) }
        };
        let answer = delta.take(response, &mut apply).unwrap().unwrap();
        assert_eq!(answer.is_refusal, refuse || seen.is_err());
        seen
    }

    #[test]
    fn changes_add_up() {
        let mut delta = Delta::new(Node::default());
        assert_eq!(
            take(&mut delta, vec![resource("b", "1"), resource("a", "1")], &[], false).unwrap(),
            ["a", "b"]
        );
        assert_eq!(take(&mut delta, vec![resource("c", "1")], &["a"], false).unwrap(), ["b", "c"]);
        assert_eq!(take(&mut delta, vec![], &["b", "c", "unknown"], false).unwrap(), [""; 0]);
    }

    #[test]
    fn a_new_stream_begins_with_the_versions_in_force() {
        let mut delta = Delta::new(Node::default());
        assert!(delta.open().initial_resource_versions.is_empty());
        take(&mut delta, vec![resource("a", "1")], &[], false).unwrap();
        take(&mut delta, vec![resource("a", "2"), resource("b", "1")], &[], true).unwrap();
        assert_eq!(delta.open().initial_resource_versions, [("a".into(), "1".into())].into());
    }

    #[test]
    fn a_rejected_update_is_applied_with_the_next_valid_one() {
        let mut delta = Delta::new(Node::default());
        let broken = Any { type_url: TYPE_URL.to_owned(), value: vec![0xff] };
        let broken = Resource { name: "a".into(), version: "1".into(), resource: Some(broken) };
        let reason = take(&mut delta, vec![broken, resource("b", "1")], &[], false).unwrap_err();
        assert!(reason.to_string().contains("RateLimitConfig"), "{reason}");
        assert_eq!(take(&mut delta, vec![resource("a", "2")], &[], false).unwrap(), ["a", "b"]);
    }
}
