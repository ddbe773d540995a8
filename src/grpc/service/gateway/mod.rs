//! Decisions on HTTP requests for gateways: a mapping of `requests` makes the descriptors, and the
//! answer is an HTTP status with headers.
//!
//! `Check` of Envoy's ext_authz is served here; `/auth/NAME` over HTTP uses the same function.
//! Whatever a client of the gateway sends, the answer is a decision or a denial, never an error,
//! since gateways may admit requests after errors.
//!
//! | file | subject |
//! |---|---|
//! | `check` | calls of `Check`: their messages, and tonic's trait |
//! | `check_request` | decoding of a `CheckRequest` |
//! | `metadata` | values in the metadata of the gateway |
//! | `trusted` | the peers whose attributes are trusted |

mod check;
mod check_request;
mod metadata;
mod trusted;

use std::time::Instant;

use tonic::{Code, Status};
use tracing::warn;

pub use self::check::CheckCaller;
pub(in crate::grpc) use self::check::{CheckMethod, MAPPING, PATH};
pub use self::trusted::{InvalidGateway, TrustedGateways};
use super::{Caller, Rls, describe};
use crate::descriptor::Request;
use crate::grpc::large_request;
use crate::grpc::response;
use crate::limiter::{Decision, Snapshot, Undecided};
use crate::policy::requests::{GatewayRequest, IfUndecided, RequestMapping, Unmappable};
use crate::problem::{GatewayAnswer, HttpProblem, StatusCode};
use crate::store::Store;
use crate::store::clock::instant;
use crate::telemetry::spans::SpanAttributes;

/// A request of a gateway, with what the gateway is.
#[derive(Debug)]
pub struct GatewayCall<'a> {
    /// Name of the mapping. `None` for the only one.
    pub mapping: Option<&'a str>,
    /// The request.
    pub http: GatewayRequest<'a>,
    /// The gateway.
    pub caller: Caller<'a>,
}

impl<S: Store> Rls<S> {
    /// Decides an HTTP request.
    ///
    /// # Errors
    /// NOT_FOUND if there is no such mapping, PERMISSION_DENIED if the gateway may not use its
    /// domain, UNAVAILABLE if no decision could be made and the mapping leaves it to the gateway.
    pub async fn decide_http(
        &self,
        call: GatewayCall<'_>,
        mut attributes: Option<&mut SpanAttributes>,
    ) -> Result<GatewayAnswer, Status> {
        let now = instant();
        let GatewayCall { mapping, http, caller } = call;
        let deadline = self.deadline(now, caller.time);
        let snapshot = self.limiter.snapshot();
        let mapping = self.mapping(&snapshot, mapping)?;
        if let Some(attributes) = attributes.as_deref_mut() {
            mapping.domain().clone_into(&mut attributes.domain);
        }
        if !caller.rights.include(mapping.domain()) {
            return Err(self.forbidden(mapping.domain(), caller.rights));
        }
        let read = match mapping.read(http) {
            Ok(read) => read,
            Err(unmappable) => return Ok(self.unmappable(mapping, unmappable)),
        };
        let mapped = mapping.map(&read);
        let answered = match mapped.request() {
            None => Ok(GatewayAnswer::admitted()),
            Some(request) => match large_request::hold_mapped(caller.account, &request) {
                Ok(_held) => self.decide_mapped(&snapshot, &request, deadline, attributes).await,
                Err(status) => Err(status),
            },
        };
        self.latency.record(now.elapsed());
        answered.or_else(|status| if_undecided(mapping.undecided(), status))
    }

    async fn decide_mapped(
        &self,
        snapshot: &Snapshot,
        request: &Request<'_>,
        deadline: Instant,
        mut attributes: Option<&mut SpanAttributes>,
    ) -> Result<GatewayAnswer, Status> {
        let store_time = attributes.as_mut().map(|attributes| &mut attributes.store_time);
        let decision = self.limiter.decide_timed(snapshot, request, deadline, store_time).await;
        if let Some(log) = &self.request_log {
            log.log(snapshot, request, decision.as_ref());
        }
        let decision = decision.map_err(|undecided| self.unavailable(&undecided))?;
        if let Some(attributes) = attributes {
            describe(&decision, attributes);
        }
        Ok(self.answer_of(&decision))
    }

    fn answer_of(&self, decision: &Decision<'_>) -> GatewayAnswer {
        let mut answer = GatewayAnswer::admitted();
        if decision.is_over_limit() {
            let seconds = response::retry_seconds(decision);
            let detail = match seconds {
                Some(seconds) => format!("over limit; retry after {seconds} s"),
                None => "over limit; a retry is never admitted".to_owned(),
            };
            answer = GatewayAnswer::denied(HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, detail));
            let retry_after =
                seconds.map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
            answer.headers.extend(retry_after);
        }
        let headers = response::headers(decision, &self.style);
        answer.headers.extend(headers.into_iter().map(|header| (header.key, header.value)));
        answer
    }

    /// Returns the mapping with a name, or the only one.
    fn mapping<'p>(
        &self,
        snapshot: &'p Snapshot,
        name: Option<&str>,
    ) -> Result<&'p RequestMapping, Status> {
        let live = snapshot.as_deref().ok_or_else(|| self.unavailable(&Undecided::NoPolicy))?;
        let policies = live.policies();
        match (name, policies.mappings()) {
            (Some(name), _) => policies
                .mapping(name)
                .ok_or_else(|| Status::not_found(format!("no request mapping \"{name}\""))),
            (None, [only]) => Ok(only),
            (None, all) => Err(Status::not_found(format!(
                "the policies have {} request mappings; name one of them: {MAPPING}",
                all.len()
            ))),
        }
    }

    /// Denies a request that cannot be mapped.
    fn unmappable(&self, mapping: &RequestMapping, unmappable: Unmappable) -> GatewayAnswer {
        self.metrics.requests.invalid.inc();
        if let Some(times) = self.invalid.due() {
            warn!(mapping = mapping.name(), reason = %unmappable, times, "invalid requests of gateways denied");
        }
        let status = match unmappable {
            Unmappable::Ambiguous
            | Unmappable::TwoSlashes
            | Unmappable::Repeated
            | Unmappable::Spelling
            | Unmappable::NoAddress
            | Unmappable::Metadata => StatusCode::BAD_REQUEST,
            Unmappable::TooLong | Unmappable::TooManyHeaders => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
        };
        GatewayAnswer::denied(HttpProblem::new(status, unmappable.to_string()))
    }
}

/// Returns an error as a problem, for gateways that call by HTTP.
pub fn problem_of(status: &Status) -> HttpProblem {
    let known =
        [(Code::NotFound, StatusCode::NOT_FOUND), (Code::PermissionDenied, StatusCode::FORBIDDEN)];
    problem(status, &known)
}

/// Returns an error as a problem, for clients without gRPC.
pub fn json_problem_of(status: &Status) -> HttpProblem {
    let known = [
        (Code::InvalidArgument, StatusCode::BAD_REQUEST),
        (Code::NotFound, StatusCode::NOT_FOUND),
        (Code::AlreadyExists, StatusCode::CONFLICT),
    ];
    problem(status, &known)
}

fn problem(status: &Status, known: &[(Code, StatusCode)]) -> HttpProblem {
    let found = known.iter().find(|(code, _)| *code == status.code());
    let http = found.map_or(StatusCode::SERVICE_UNAVAILABLE, |(_, http)| *http);
    HttpProblem::new(http, status.message())
}

/// Returns the answer of a mapping while there is no decision.
fn if_undecided(undecided: IfUndecided, status: Status) -> Result<GatewayAnswer, Status> {
    match undecided {
        IfUndecided::Error => Err(status),
        IfUndecided::Allow => Ok(GatewayAnswer::admitted()),
        IfUndecided::Deny => Ok(GatewayAnswer::denied(HttpProblem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            status.message(),
        ))),
    }
}

#[cfg(test)]
mod tests;
