//! The policies in force, their last loads, and reload.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, ApiError, ErrorBody};
use crate::operations::Backend;
use crate::operations::audit::AuditEntry;
use crate::operations::loads::{LoadOutcome, PolicyLoad};
use crate::operations::policies::ReloadedPolicies;
use crate::operations::process_state::PolicySummary;

/// The policies in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Policies {
    /// Digest of their content; empty before the first load.
    pub version: String,
    /// Time of the load, RFC 3339.
    pub loaded_at: String,
    /// Files or resources that they were loaded from.
    pub files: Vec<String>,
    /// Domains.
    pub domains: Vec<String>,
    /// Total number of rules.
    pub rules: usize,
    /// Error of the last change, if it was rejected.
    pub last_error: Option<LoadError>,
}

/// A rejected change; the policies in force stay.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadError {
    /// Time of the rejection, RFC 3339.
    pub at: String,
    /// Description of the problems, with files and lines.
    pub report: String,
}

/// The result of a reload.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// `true` if the new policies differ from the previous ones.
    pub is_changed: bool,
    /// Differences from the previous policies as text.
    pub changes: Option<String>,
    /// The policies now in force.
    pub policies: Policies,
}

/// The last policy loads.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct RecentLoads {
    /// The loads, latest first.
    pub reloads: Vec<LoadView>,
    /// Total number of loads since the start of the process.
    pub total: u64,
}

/// One attempt to load policies.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Time of the load, RFC 3339.
    pub at: String,
    /// Trigger of the load: `start`, `files` (a file changed), `admin` (a request to the admin API)
    /// or `control plane`.
    pub by: String,
    /// `true` if the policies were put in force.
    pub is_loaded: bool,
    /// Version in force after the load; empty if there is none yet.
    pub version: String,
    /// Previous version, if there was one.
    pub before: Option<String>,
    /// Differences from the previous policies, in the format of `tollgate diff`.
    pub changes: Option<String>,
    /// The reason why the policies were rejected.
    pub report: Option<String>,
}

impl From<PolicyLoad> for LoadView {
    fn from(PolicyLoad { at, by, version, outcome }: PolicyLoad) -> Self {
        let view = Self {
            at,
            by: by.name().to_owned(),
            is_loaded: true,
            version,
            before: None,
            changes: None,
            report: None,
        };
        match outcome {
            LoadOutcome::First => view,
            LoadOutcome::Changed { before, changes } => {
                Self { before: Some(before), changes: Some(changes), ..view }
            }
            LoadOutcome::Refused(report) => Self { is_loaded: false, report: Some(report), ..view },
        }
    }
}

impl From<PolicySummary> for Policies {
    fn from(process: PolicySummary) -> Self {
        let last_error = process
            .last_error
            .map(|report| LoadError { at: process.last_error_at.unwrap_or_default(), report });
        Self {
            version: process.version,
            loaded_at: process.loaded_at,
            files: process.files,
            domains: process.domains,
            rules: process.rules,
            last_error,
        }
    }
}

/// Returns the policies in force, and the error of the last change if it was rejected.
#[utoipa::path(get, path = "/api/v1/policies", responses((status = 200, body = Policies)))]
pub(super) async fn policies<B: Backend>(State(api): State<Api<B>>) -> Json<Policies> {
    Json(api.process.policies().into())
}

/// Returns the last policy loads, at most 20: the time, the trigger, and either the differences and
/// the callers that they affect or the reason for the rejection.
#[utoipa::path(get, path = "/api/v1/reloads", responses((status = 200, body = RecentLoads)))]
pub(super) async fn reloads<B: Backend>(State(api): State<Api<B>>) -> Json<RecentLoads> {
    let (loads, total) = api.process.loads();
    Json(RecentLoads { reloads: loads.into_iter().map(LoadView::from).collect(), total })
}

/// Reloads the policy files and puts them in force. They are also reloaded whenever they change;
/// this endpoint reports the outcome immediately.
#[utoipa::path(
    post,
    path = "/api/v1/policies/reload",
    responses(
        (status = 200, body = Reloaded),
        (status = 409, description = "policies come from a control plane", body = ErrorBody),
        (status = 422, description = "report on the errors in the policies; those in force remain", body = ErrorBody)
    )
)]
pub(super) async fn reload<B: Backend>(
    State(api): State<Api<B>>,
    Extension(audit): Extension<AuditEntry>,
) -> Result<Json<Reloaded>, ApiError> {
    let reloaded = api.operations.reload().await;
    let version = api.process.policies().version;
    audit.add(&match &reloaded {
        Ok(reloaded) if reloaded.is_changed => format!("policies {version} are in force"),
        Ok(_) => format!("unchanged: policies {version} are in force"),
        Err(_) => format!("rejected: policies {version} are in force"),
    });
    let ReloadedPolicies { is_changed, changes, policies } = reloaded?;
    Ok(Json(Reloaded { is_changed, changes, policies: policies.into() }))
}
