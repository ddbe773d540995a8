//! The HTTP servers of the process.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::connection_limits::ConnectionLimits;
use super::decisions::DecisionThread;
use super::parts::ProcessParts;
use super::{forward_auth, json, openapi, plain_pages, threads};
use crate::admin::api::Api;
use crate::admin::rights::AdminRights;
use crate::admin::server::{AdminHandshake, Secured};
use crate::admin::{self, Administration, PublicDecisions};
use crate::grpc::json::prepare;
use crate::http2::Budget;
use crate::http2::tls::{ServerTls, client_name};
use crate::operations::workers::WorkerService;
use crate::operations::{Backend, Operations};
use crate::settings::Settings;

/// The parts of the admin server.
pub(super) struct Web<B> {
    pub(super) shared: ProcessParts<B>,
    pub(super) operations: Operations<B>,
    pub(super) rights: Arc<AdminRights>,
    pub(super) connections: ConnectionLimits,
    /// TLS of the admin port; `None` for plaintext.
    pub(super) tls: Option<ServerTls>,
}

/// Starts the threads of decisions over HTTP, and returns their handlers. Bodies are charged to
/// `budget`.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn decisions(
    service: &Arc<WorkerService<impl Backend>>,
    settings: &Settings,
    budget: Arc<Budget>,
) -> io::Result<PublicDecisions> {
    let clients_have_rights = !settings.allowances.is_empty();
    // Apart from each other: JSON takes time to parse, for which gateways must not wait.
    let gateway_thread = DecisionThread::start("auth", || ())?;
    let thread = DecisionThread::start("json", prepare)?;
    let gateways = settings.gateways.clone();
    Ok(PublicDecisions {
        auth: forward_auth::decide(service, gateway_thread, gateways, clients_have_rights),
        decide: json::decide(service, thread, &settings.limits, budget, clients_have_rights),
        document: openapi::document().map_err(io::Error::other)?,
    })
}

/// Serves probes, metrics and decisions until `end` completes. Runs on a thread of its own, so that
/// probes do not wait for other work.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn serve_public(
    shared: &ProcessParts<impl Backend>,
    listener: TcpListener,
    connections: usize,
    decisions: PublicDecisions,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let process = Arc::clone(&shared.process);
    let metrics = Arc::clone(&shared.metrics);
    threads::serve("http", listener, move |listener| {
        admin::serve_public(listener, connections, process, metrics, decisions, end)
    })
}

impl<B: Backend> Web<B> {
    /// Serves the admin port until `end` completes.
    pub(super) fn serve_admin(
        self,
        listener: TcpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let ProcessParts { metrics, policies, process, observation, .. } = self.shared;
        let administration = Administration {
            pages: plain_pages::all(&policies, &metrics),
            metrics: Arc::clone(&metrics.http),
            connections: self.connections.admin,
            api: Api {
                metrics,
                process,
                policies,
                journal: observation.journal,
                rates: observation.rates,
                undecided: observation.undecided,
                instance: Arc::clone(&self.operations.replicas.name),
                begun: self.operations.replicas.begun,
                operations: Arc::new(self.operations),
            },
            rights: self.rights,
            handshake: self.tls.map(handshake),
        };
        tokio::spawn(admin::serve_admin(listener, administration, end))
    }
}

fn handshake(tls: ServerTls) -> AdminHandshake {
    Arc::new(move |stream: TcpStream| {
        let tls = tls.clone();
        Box::pin(async move {
            let stream = tls.accept(stream).await?;
            let name = client_name(&stream);
            Ok(Secured { stream: Box::pin(stream), name })
        })
    })
}
