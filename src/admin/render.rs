//! Rendering of expensive texts on a blocking thread, one at a time, with a bounded wait for the
//! others.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::telemetry::http::{HttpMetrics, HttpPort, HttpRefusal};

/// Maximum time that a request waits for its turn.
const WAIT: Duration = Duration::from_secs(5);

/// A renderer that serves one request of a listener at a time.
#[derive(Clone)]
pub(super) struct Renderer {
    turn: Arc<Semaphore>,
    wait: Duration,
    port: HttpPort,
    metrics: Arc<HttpMetrics>,
}

impl Renderer {
    pub(super) fn new(port: HttpPort, metrics: Arc<HttpMetrics>) -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), wait: WAIT, port, metrics }
    }

    /// Runs `work` on a blocking thread once no other rendering is in progress.
    ///
    /// # Errors
    /// An error response, if the wait for other requests timed out or `work` panicked.
    pub(super) async fn render<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Response> {
        let Ok(Ok(turn)) =
            tokio::time::timeout(self.wait, Arc::clone(&self.turn).acquire_owned()).await
        else {
            self.metrics.refused(self.port, HttpRefusal::Busy);
            let why = format!("busy with other requests for {:?}; try again\n", self.wait);
            return Err((StatusCode::SERVICE_UNAVAILABLE, why).into_response());
        };
        // The permit is released when the work ends, not when the client disconnects.
        let worked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        worked
            .await
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn one_is_rendered_at_a_time_and_another_waits_so_long_and_no_longer() {
        let metrics = Arc::<HttpMetrics>::default();
        let usual = Renderer::new(HttpPort::Public, Arc::clone(&metrics));
        let renderer = Renderer { wait: Duration::from_millis(1), ..usual };
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (finish, finished) = mpsc::channel::<()>();
        let first = tokio::spawn({
            let renderer = renderer.clone();
            let work = move || begin.send(()).is_ok() && finished.recv().is_ok();
            async move { renderer.render(work).await.is_ok_and(|ended| ended) }
        });
        begun.await.unwrap();
        let second = renderer.render(|| ()).await.map_err(|refused| refused.status());
        assert_eq!(second, Err(StatusCode::SERVICE_UNAVAILABLE));
        finish.send(()).unwrap();
        assert!(first.await.unwrap());
        assert!(renderer.render(|| 7).await.is_ok_and(|rendered| rendered == 7));
        assert_eq!(metrics.refusals(HttpPort::Public, HttpRefusal::Busy), 1);
    }
}
