//! The client of a request and its rights.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::guard::AdmittedClient;
use crate::admin::rights::Right;

/// The client of the request.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// Name of the client in the audit log.
    pub name: String,
    /// `true` if the client may write. Every admitted client may read.
    pub may_write: bool,
}

/// Returns the client of the request, and whether it may write.
#[utoipa::path(get, path = "/api/v1/me", responses((status = 200, body = Me)))]
pub(super) async fn me(Extension(who): Extension<AdmittedClient>) -> Json<Me> {
    Json(Me { may_write: who.right == Right::Write, name: who.name })
}
