//! What is served over HTTP.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tracing::error;

use super::desk::Everybody;
use super::{Shared, pages, threads};
use crate::admin::api::Api;
use crate::admin::rights::Rights;
use crate::admin::server::{Handshake, Secured};
use crate::admin::{self, Administration, Decide};
use crate::transport::tls::{Tls, client_name};

/// What is told over HTTP.
pub(super) struct Web {
    pub(super) shared: Shared,
    pub(super) desk: Everybody,
    pub(super) rights: Arc<Rights>,
    /// What administration shakes hands by; `None`: it speaks in the clear.
    pub(super) tls: Option<Tls>,
}

impl Web {
    /// Probes, metrics and decisions, until `end`: by a thread of their own, so that probes wait for nothing else.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn serve_public(
        &self,
        listener: TcpListener,
        decide: Decide,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let (facts, metrics) = (Arc::clone(&self.shared.facts), Arc::clone(&self.shared.metrics));
        let listener = listener.into_std()?;
        threads::spawn("http", move || async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => admin::serve_public(listener, facts, metrics, decide, end).await,
                Err(error) => error!(%error, "HTTP is not served"),
            }
        })
    }

    /// Administration, until `end`.
    pub(super) fn serve_admin(
        self,
        listener: TcpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let Shared { metrics, policies, facts, observation, .. } = self.shared;
        let administration = Administration {
            pages: pages::all(&policies, &metrics),
            api: Api {
                facts,
                policies,
                journal: observation.journal,
                rates: observation.rates,
                desk: Arc::new(self.desk),
                begun: jiff::Timestamp::now(),
            },
            rights: self.rights,
            handshake: self.tls.map(handshake),
        };
        tokio::spawn(admin::serve_admin(listener, administration, end))
    }
}

fn handshake(tls: Tls) -> Handshake {
    Arc::new(move |stream: TcpStream| {
        let tls = tls.clone();
        Box::pin(async move {
            let stream = tls.accept(stream).await?;
            let name = client_name(&stream);
            Ok(Secured { stream: Box::pin(stream), name })
        })
    })
}
