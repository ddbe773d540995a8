//! The policies in force, and putting others in force.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, Problem, Refusal};
use crate::admin::PolicyFacts;
use crate::admin::desk::Deed;
use crate::admin::loads::{Load, Outcome};

/// The policies in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Policies {
    /// A digest of what they mean; empty before there are any.
    pub version: String,
    /// When they were put in force, RFC 3339.
    pub loaded_at: String,
    /// The files or resources that they came from.
    pub files: Vec<String>,
    /// Their domains.
    pub domains: Vec<String>,
    /// Rules in all.
    pub rules: usize,
    /// The last change, if it was refused.
    pub last_error: Option<LoadError>,
}

/// A change that was refused; what was in force stays.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadError {
    /// When, RFC 3339.
    pub at: String,
    /// What is wrong with it, with files and lines.
    pub report: String,
}

/// What came of reading the policies again.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reloaded {
    /// Whether they mean something else than before.
    pub is_changed: bool,
    /// What differs from those before, in words.
    pub changes: Option<String>,
    /// What is in force now.
    pub policies: Policies,
}

/// The last loads of policies.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Reloads {
    /// The latest first.
    pub reloads: Vec<LoadView>,
    /// How many there were since the process began.
    pub total: u64,
}

/// One attempt to put policies in force.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// When, RFC 3339.
    pub at: String,
    /// What brought it: `start`, `files` (one is another than before), `admin` (somebody asked for it), `control plane`.
    pub by: String,
    /// Whether they were put in force.
    pub is_loaded: bool,
    /// The version in force from then on; empty before there is any.
    pub version: String,
    /// The version before, where another was in force.
    pub before: Option<String>,
    /// What differs from those before, in words, as `tollgate diff` tells it.
    pub changes: Option<String>,
    /// Why they were refused.
    pub report: Option<String>,
}

impl From<Load> for LoadView {
    fn from(Load { at, by, version, outcome }: Load) -> Self {
        let view =
            Self { at, by: by.word().to_owned(), is_loaded: true, version, before: None, changes: None, report: None };
        match outcome {
            Outcome::First => view,
            Outcome::Changed { before, changes } => Self { before: Some(before), changes: Some(changes), ..view },
            Outcome::Refused(report) => Self { is_loaded: false, report: Some(report), ..view },
        }
    }
}

impl From<PolicyFacts> for Policies {
    fn from(facts: PolicyFacts) -> Self {
        let last_error =
            facts.last_error.map(|report| LoadError { at: facts.last_error_at.unwrap_or_default(), report });
        Self {
            version: facts.version,
            loaded_at: facts.loaded_at,
            files: facts.files,
            domains: facts.domains,
            rules: facts.rules,
            last_error,
        }
    }
}

/// The policies in force, and why the last change was refused, if it was.
#[utoipa::path(get, path = "/api/v1/policies", responses((status = 200, body = Policies)))]
pub(super) async fn policies(State(api): State<Api>) -> Json<Policies> {
    Json(api.facts.policies().into())
}

/// The last loads of policies, at most 20: when, what brought them, what differs for whom, or why they were refused.
#[utoipa::path(get, path = "/api/v1/reloads", responses((status = 200, body = Reloads)))]
pub(super) async fn reloads(State(api): State<Api>) -> Json<Reloads> {
    let (loads, total) = api.facts.loads();
    Json(Reloads { reloads: loads.into_iter().map(LoadView::from).collect(), total })
}

/// Reads the policy files again and puts them in force. They are read whenever they change, so this is for those who want to
/// know at once what comes of it.
#[utoipa::path(
    post,
    path = "/api/v1/policies/reload",
    responses(
        (status = 200, body = Reloaded),
        (status = 409, description = "they come from a control plane", body = Problem),
        (status = 422, description = "the report on what is wrong with them; what was in force stays", body = Problem)
    )
)]
pub(super) async fn reload(
    State(api): State<Api>,
    Extension(deed): Extension<Deed>,
) -> Result<Json<Reloaded>, Refusal> {
    let reloaded = api.desk.reload().await?;
    deed.add(&format!("policies {} are in force", reloaded.policies.version));
    Ok(Json(reloaded))
}
