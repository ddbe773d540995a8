//! Who asks, and what they may do.

use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::admin::guard::Who;
use crate::admin::rights::Right;

/// Who asks.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// As the audit log calls them.
    pub name: String,
    /// Whether they may write; everybody who is answered may read.
    pub may_write: bool,
}

/// Who asks, and whether they may write.
#[utoipa::path(get, path = "/api/v1/me", responses((status = 200, body = Me)))]
pub(super) async fn me(Extension(who): Extension<Who>) -> Json<Me> {
    Json(Me { may_write: who.right == Right::Write, name: who.name })
}
