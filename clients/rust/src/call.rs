//! Calls of gRPC with a deadline, and their options.

use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::connection::{Replicas, is_unprocessed};
use crate::decision::FailureMode;
use crate::throttle::Throttle;

/// Metadata of callers that are no proxies: these show the lowest number that remains, and a
/// missing wait as zero.
const CALLER: &str = "x-tollgate-caller";
/// Bound of a call without a timeout of its own.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_millis(250);
/// Bound of the attempts of a call that is repeated.
const ATTEMPTS: u32 = 4;
/// Time before the second attempt. It doubles with each.
const BACKOFF: Duration = Duration::from_millis(10);

/// Options of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallOptions {
    pub(crate) timeout: Duration,
    pub(crate) failure_mode: FailureMode,
    pub(crate) shadow: bool,
}

impl Default for CallOptions {
    fn default() -> Self {
        let failure_mode = FailureMode::default();
        Self { timeout: DEFAULT_TIMEOUT, failure_mode, shadow: false }
    }
}

/// Defines the methods that set the options of calls in the field `options`.
macro_rules! option_methods {
    () => {
        /// Bounds the time of a call; 250 ms by default.
        pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
            self.options.timeout = timeout;
            self
        }

        /// Sets the result of a call without a decision.
        pub fn failure_mode(mut self, mode: crate::FailureMode) -> Self {
            self.options.failure_mode = mode;
            self
        }

        /// Allows every request: it is counted and decided, and [`Decision::code`] has the answer.
        ///
        /// [`Decision::code`]: crate::Decision::code
        pub fn shadow(mut self, shadow: bool) -> Self {
            self.options.shadow = shadow;
            self
        }
    };
}
pub(crate) use option_methods;

/// Makes a call, which is processed at most once.
pub(crate) async fn unary<Q, R>(
    connection: &Replicas,
    path: &'static str,
    message: Q,
    timeout: Duration,
) -> Result<R, Status>
where
    Q: Message + Clone + 'static,
    R: Message + Default + 'static,
{
    let repeats = |_: &Result<R, Status>| false;
    attempts(connection, path, message, timeout, repeats).await
}

/// Makes a call that is not charged again with the same ID, and repeats it after `UNAVAILABLE`, as
/// often as the throttle permits.
pub(crate) async fn repeated<Q, R>(
    connection: &Replicas,
    throttle: &Throttle,
    path: &'static str,
    message: Q,
    timeout: Duration,
) -> Result<R, Status>
where
    Q: Message + Clone + 'static,
    R: Message + Default + 'static,
{
    let repeats = |answered: &Result<R, Status>| match answered {
        Ok(_) => {
            throttle.succeed();
            false
        }
        Err(status) => status.code() == Code::Unavailable && throttle.fail(),
    };
    attempts(connection, path, message, timeout, repeats).await
}

/// Makes a call until a deadline. It is repeated if it was not processed, at once, and if `repeats`
/// returns `true` for an attempt.
async fn attempts<Q, R>(
    connection: &Replicas,
    path: &'static str,
    message: Q,
    timeout: Duration,
    repeats: impl Fn(&Result<R, Status>) -> bool,
) -> Result<R, Status>
where
    Q: Message + Clone + 'static,
    R: Message + Default + 'static,
{
    let deadline = Instant::now() + timeout;
    let mut wait = BACKOFF;
    let mut left = ATTEMPTS;
    loop {
        left -= 1;
        let answered = attempt(connection, path, message.clone(), deadline).await;
        if left > 0 && answered.as_ref().is_err_and(is_unprocessed) {
            continue;
        }
        // The last attempt counts too.
        if !repeats(&answered) || left == 0 || Instant::now() + wait >= deadline {
            return answered;
        }
        sleep(wait.mul_f64(rand::random_range(0.8..1.2))).await;
        wait *= 2;
    }
}

async fn attempt<Q, R>(
    connection: &Replicas,
    path: &'static str,
    message: Q,
    deadline: Instant,
) -> Result<R, Status>
where
    Q: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = Grpc::with_origin(connection.clone(), connection.origin());
    let mut request = Request::new(message);
    request.metadata_mut().insert(CALLER, MetadataValue::from_static("service"));
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    let call = grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::default());
    match timeout_at(deadline, call).await {
        Ok(answered) => answered.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("no answer before the timeout")),
    }
}
