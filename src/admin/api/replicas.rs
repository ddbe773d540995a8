//! The processes that share the store.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, store};
use crate::operations::Backend;
use crate::operations::replicas::{Replica, ReplicaReport};

/// The processes that share the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplicasView {
    /// `true` if counters are in a store that other processes may share.
    pub is_shared: bool,
    /// The processes that have sent a heartbeat in the last 15 seconds, by name.
    pub replicas: Vec<ReplicaView>,
    /// The reason why processes may be missing; absent if none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// The reason why the process that answers rejected the last change of its policies; absent if
    /// it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<String>,
}

/// A process that shares the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaView {
    /// ID among the processes on the store, chosen at each start.
    pub id: String,
    /// `true` for the process that answers.
    pub is_this: bool,
    /// Time of its last heartbeat, RFC 3339.
    pub seen_at: String,
    /// Host name; absent, as all following fields, for releases before 1.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Start time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<String>,
    /// Release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Version of the policies in force; empty if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policies: Option<String>,
    /// Time at which they came into force, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded_at: Option<String>,
}

impl From<Replica> for ReplicaView {
    fn from(Replica { id, is_self, seen_at, info }: Replica) -> Self {
        let view = Self {
            id,
            is_this: is_self,
            seen_at: seen_at.to_string(),
            name: None,
            begun_at: None,
            release: None,
            policies: None,
            loaded_at: None,
        };
        let Some(info) = info else { return view };
        Self {
            name: Some(info.name),
            begun_at: Some(info.begun_at),
            release: Some(info.release),
            policies: Some(info.policies),
            loaded_at: Some(info.loaded_at),
            ..view
        }
    }
}

/// Returns the processes that share the store, with their releases and the versions of their
/// policies. With counters in memory, it is the process that answers.
#[utoipa::path(get, path = "/api/v1/replicas", responses((status = 200, body = ReplicasView)))]
pub(super) async fn replicas<B: Backend>(State(api): State<Api<B>>) -> Json<ReplicasView> {
    let ReplicaReport { is_shared, replicas, missing } = api.operations.replicas().await;
    let replicas = replicas.into_iter().map(ReplicaView::from).collect();
    let rejected = api.process.policies().last_error.as_deref().map(store::rejected);
    Json(ReplicasView { is_shared, replicas, missing, rejected })
}
