//! Clients that lose calls, and the processes that they call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::timeout;
use tollgate::descriptor::hold::{COMMIT, RESERVE};
use tollgate::grpc::client::RateLimitClient;
use tollgate::verify::history::{CallAction, HoldEnd};
use tollgate::verify::service::{ServiceDecision, VerifiedService, VerifyRequest};

use crate::support::policy::Policies;
use crate::support::random::Random;
use crate::support::tollgate::Tollgate;

/// Timeout of most calls.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Calls by which a client tries to end a hold.
pub(super) const TRIES: u32 = 3;

/// A process that can be replaced by another.
pub(super) struct Replica {
    policies: Arc<Policies>,
    store: String,
    running: Mutex<Option<Tollgate>>,
    client: Mutex<RateLimitClient>,
}

impl Replica {
    pub(super) async fn start(policies: Arc<Policies>, store: String) -> Self {
        let (service, client) = serve(Arc::clone(&policies), store.clone()).await;
        Self { policies, store, running: Mutex::new(Some(service)), client: Mutex::new(client) }
    }

    /// Kills the process by SIGKILL, and starts another.
    pub(super) async fn kill_and_restart(&self) {
        drop(self.running.lock().unwrap().take());
        let (service, client) = serve(Arc::clone(&self.policies), self.store.clone()).await;
        *self.client.lock().unwrap() = client;
        *self.running.lock().unwrap() = Some(service);
    }

    pub(super) fn client(&self) -> RateLimitClient {
        self.client.lock().unwrap().clone()
    }

    /// Returns a property of the process.
    pub(super) fn service<T>(&self, of: impl Fn(&Tollgate) -> T) -> T {
        of(self.running.lock().unwrap().as_ref().unwrap())
    }
}

async fn serve(policies: Arc<Policies>, store: String) -> (Tollgate, RateLimitClient) {
    let serve = move || {
        let policy = policies.path().to_str().unwrap();
        let flags = ["--policy", policy, "--store", &store, "--store-timeout", "5s"];
        Tollgate::serve_by(&[&flags[..], &["--replicas", "8", "--workers", "2"]].concat())
    };
    let service = tokio::task::spawn_blocking(serve).await.unwrap();
    let client = RateLimitClient::connect(&service.grpc.to_string(), None).await.unwrap();
    (service, client)
}

/// A client that cancels some of its calls.
pub(super) struct HoldClient {
    replicas: Arc<Vec<Replica>>,
    own: usize,
    random: Random,
}

impl HoldClient {
    pub(super) fn new(replicas: Arc<Vec<Replica>>, own: usize, random: Random) -> Self {
        Self { replicas, own, random }
    }

    /// Sends a request, by entries of descriptors if they can be. Some calls are cancelled so early
    /// that their outcome is unknown.
    async fn call(
        &mut self,
        replica: usize,
        mut request: VerifyRequest,
    ) -> Result<ServiceDecision, String> {
        let is_reserve = matches!(request.action, CallAction::Reserve { .. });
        let is_commit = request.action.end() == Some(HoldEnd::Commit);
        if (is_reserve || is_commit) && self.random.percent(50) {
            let word = if is_reserve { RESERVE } else { COMMIT };
            for entries in &mut request.descriptors {
                entries.push((word.to_owned(), request.hold.clone()));
            }
            request.action = CallAction::Charge;
        }
        let patience = if self.random.percent(2) {
            Duration::from_micros(500 * u64::try_from(self.random.below(20)).unwrap())
        } else {
            PATIENCE
        };
        let mut client = self.replicas[replica].client();
        match timeout(patience, client.decide(request, PATIENCE)).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("cancelled".to_owned()),
        }
    }
}

impl VerifiedService for HoldClient {
    type Error = String;

    /// Ends a hold by a few calls to any process, until one is answered; and now and then one that
    /// may never have been.
    async fn decide(
        &mut self,
        request: VerifyRequest,
        _: Duration,
    ) -> Result<ServiceDecision, String> {
        let mut answer = self.call(self.own, request.clone()).await;
        if request.action.end().is_some() {
            for _ in 1..TRIES {
                if answer.is_err() {
                    let replica = self.random.below(self.replicas.len());
                    answer = self.call(replica, request.clone()).await;
                }
            }
        } else if let CallAction::Reserve { hold } = request.action
            && answer.is_err()
            && self.random.percent(50)
        {
            let by = *self.random.one_of(&[HoldEnd::Settle, HoldEnd::Cancel]);
            let end = VerifyRequest { action: CallAction::End { hold, by }, hits: 0, ..request };
            let _ = self.call(self.own, end).await;
        }
        answer
    }
}
