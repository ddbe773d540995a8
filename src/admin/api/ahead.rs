//! Resets of all counters that are ahead of the store's clock.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, ApiError, ErrorBody};
use crate::operations::Backend;
use crate::operations::ahead::{ResetAhead, ScanPosition};
use crate::operations::audit::AuditEntry;

/// The counters to reset.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToResetAhead {
    /// Position at which to go on: `next` of the previous response. Absent: all counters.
    #[serde(default)]
    pub from: Option<PositionView>,
}

/// A position in the keys of a store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PositionView {
    /// `true` for the servers for limits of a second.
    pub per_second: bool,
    /// Address of the server; empty for counters in memory.
    pub address: String,
    /// Cursor of that server.
    pub cursor: u64,
}

/// The result of a reset of counters ahead of the store's clock.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ResetAheadView {
    /// Number of counters that were examined.
    pub examined: u64,
    /// Number of counters that were reset.
    pub reset: u64,
    /// Time in microseconds by which the farthest of them was ahead of the store's clock.
    pub farthest_us: u64,
    /// Position at which the next request goes on; absent at the end.
    pub next: Option<PositionView>,
}

/// Resets the counters that are ahead of the store's clock by a second or more.
///
/// Counters of the rules in force are examined for two seconds, at most 10,000 a second. With
/// counters in Redis, the user needs the permission `scan`.
#[utoipa::path(
    post,
    path = "/api/v1/counters/reset-ahead",
    request_body = ToResetAhead,
    responses(
        (status = 200, body = ResetAheadView),
        (status = 409, description = "the position is that of no master of the store, or the store cannot list its counters", body = ErrorBody),
        (status = 503, description = "store unavailable, or no policy loaded yet", body = ErrorBody)
    )
)]
pub(super) async fn reset_ahead<B: Backend>(
    State(api): State<Api<B>>,
    Extension(audit): Extension<AuditEntry>,
    Json(body): Json<ToResetAhead>,
) -> Result<Json<ResetAheadView>, ApiError> {
    let from = body.from.map(ScanPosition::from);
    let ResetAhead { examined, reset, farthest, next } =
        api.operations.reset_ahead(from, &audit).await?;
    let next = next.map(PositionView::from);
    Ok(Json(ResetAheadView { examined, reset, farthest_us: farthest.get(), next }))
}

impl From<PositionView> for ScanPosition {
    fn from(view: PositionView) -> Self {
        let PositionView { per_second, address, cursor } = view;
        Self { per_second, address, cursor }
    }
}

impl From<ScanPosition> for PositionView {
    fn from(position: ScanPosition) -> Self {
        let ScanPosition { per_second, address, cursor } = position;
        Self { per_second, address, cursor }
    }
}
