//! Runs the cases of clients/conformance: reads calls as JSON lines from standard input, and writes
//! what is seen.

#![allow(clippy::expect_used, clippy::panic, reason = "a test program, which ends by its errors")]

mod serve;

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};
use tollgate_client::{
    Client, ClientBuilder, Decision, Descriptor, Error, FailureMode, Hold, rustls,
};

/// A call of a case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Call {
    op: String,
    target: String,
    ca: String,
    domain: Option<String>,
    descriptors: Vec<Vec<(String, String)>>,
    hits: Option<u32>,
    timeout_ms: Option<u64>,
    failure_mode: String,
    shadow: Option<bool>,
    count: usize,
    concurrency: usize,
    hold: String,
    id: String,
    ttl_ms: Option<u64>,
    fails: bool,
    integration: String,
    leases: bool,
    /// A file that gets a byte for each request of `many` that is admitted.
    log: Option<String>,
}

/// Sets the options of a call that it has.
macro_rules! with_options {
    ($call:expr, $made:expr) => {{
        let mut made = $made;
        if let Some(timeout) = $call.timeout_ms {
            made = made.timeout(std::time::Duration::from_millis(timeout));
        }
        if let Some(mode) = $call.mode() {
            made = made.failure_mode(mode);
        }
        if let Some(shadow) = $call.shadow {
            made = made.shadow(shadow);
        }
        made
    }};
}
pub(crate) use with_options;

impl Call {
    fn domain(&self) -> &str {
        self.domain.as_deref().unwrap_or("test")
    }

    fn descriptors(&self) -> Vec<Descriptor> {
        self.descriptors.iter().map(|entries| entries.iter().cloned().collect()).collect()
    }

    fn ttl(&self) -> Option<Duration> {
        self.ttl_ms.map(Duration::from_millis)
    }

    fn mode(&self) -> Option<FailureMode> {
        match self.failure_mode.as_str() {
            "" => None,
            "service" => Some(FailureMode::Service),
            "open" => Some(FailureMode::Open),
            "closed" => Some(FailureMode::Closed),
            other => panic!("failure mode {other}"),
        }
    }

    async fn should_rate_limit(&self, client: &Client) -> Result<Decision, Error> {
        let descriptors = self.descriptors();
        let mut request = client.should_rate_limit(self.domain(), &descriptors);
        if let Some(hits) = self.hits {
            request = request.hits(hits);
        }
        with_options!(self, request).await
    }

    async fn reserve(&self, client: &Client) -> Result<Hold, Error> {
        let descriptors = self.descriptors();
        let hits = self.hits.unwrap_or_default();
        let mut reserve = client.reserve(self.domain(), &descriptors, hits);
        if !self.id.is_empty() {
            reserve = reserve.id(self.id.clone());
        }
        if let Some(ttl) = self.ttl() {
            reserve = reserve.ttl(ttl);
        }
        with_options!(self, reserve).await
    }
}

/// The state between calls.
#[derive(Default)]
struct Program {
    client: Option<Client>,
    holds: HashMap<String, Hold>,
    servers: Vec<AbortHandle>,
    /// Requests of `many` that were admitted.
    admitted: Arc<AtomicU64>,
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut program = Program::default();
    for line in std::io::stdin().lines() {
        let call = serde_json::from_str(&line.expect("text")).expect("a call");
        println!("{}", runtime.block_on(program.run(&call)));
    }
}

impl Program {
    fn client(&self) -> &Client {
        self.client.as_ref().expect("an open client")
    }

    fn hold(&mut self, call: &Call) -> &mut Hold {
        self.holds.get_mut(&call.hold).expect("a hold")
    }

    async fn run(&mut self, call: &Call) -> Value {
        match call.op.as_str() {
            "open" => self.open(call),
            "close" => self.close().await,
            "should_rate_limit" => seen(call.should_rate_limit(self.client()).await),
            "many" => self.many(call).await,
            "reserve" => match call.reserve(self.client()).await {
                Ok(hold) => {
                    let decision = hold.decision().clone();
                    self.holds.insert(call.hold.clone(), hold);
                    seen(Ok(decision))
                }
                Err(error) => raised(&error),
            },
            "commit" => seen(self.hold(call).commit(call.hits.expect("hits")).await),
            "cancel" => seen(self.hold(call).cancel().await),
            "extend" => seen(self.hold(call).extend(call.ttl()).await),
            "leave" => self.leave(call).await,
            "in_memory" => {
                let stats = self.client().lease_stats();
                json!({ "decided": stats.decided, "lost": stats.lost })
            }
            "admitted" => json!({ "hits": self.admitted.load(Ordering::Relaxed) }),
            "serve" => {
                let (address, server) = serve::start(self.client().clone(), call).await;
                self.servers.push(server);
                json!({ "address": address })
            }
            other => panic!("unknown call {other}"),
        }
    }

    fn open(&mut self, call: &Call) -> Value {
        let mut builder: ClientBuilder = with_options!(call, Client::builder(call.target.clone()));
        if call.leases {
            builder = builder.leases();
        }
        if !call.ca.is_empty() {
            builder = builder.tls(trust(&call.ca));
        }
        self.client = Some(builder.build().expect("a client"));
        self.admitted = Arc::default();
        json!({})
    }

    async fn close(&mut self) -> Value {
        self.servers.drain(..).for_each(|server| server.abort());
        self.holds.clear();
        if let Some(client) = self.client.take() {
            client.close().await;
        }
        json!({})
    }

    /// Ends the scope of a hold, of which the work may have failed.
    async fn leave(&mut self, call: &Call) -> Value {
        let hold = self.holds.remove(&call.hold);
        // The drop of a hold cancels it in the background, for which `close` waits.
        drop(hold);
        self.client().close().await;
        if call.fails { json!({ "raised": "work" }) } else { json!({}) }
    }

    async fn many(&self, call: &Call) -> Value {
        let log = call
            .log
            .as_ref()
            .map(|path| OpenOptions::new().append(true).create(true).open(path).expect("a log"));
        let log: Arc<Option<File>> = Arc::new(log);
        let next = Arc::new(AtomicUsize::new(0));
        let mut callers = JoinSet::new();
        for _ in 0..call.concurrency {
            let client = self.client().clone();
            let call = call.clone();
            let next = Arc::clone(&next);
            let admitted = Arc::clone(&self.admitted);
            let log = Arc::clone(&log);
            callers.spawn(async move {
                let mut counts: BTreeMap<String, u64> = BTreeMap::new();
                while next.fetch_add(1, Ordering::Relaxed) < call.count {
                    let decision = call.should_rate_limit(&client).await;
                    if decision.as_ref().is_ok_and(|decision| decision.allowed) {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        if let Some(mut log) = log.as_ref().as_ref() {
                            log.write_all(b".").expect("a log");
                        }
                    }
                    let name = decision.map_or_else(
                        |error| error.to_string(),
                        |decision| decision.code.name().to_owned(),
                    );
                    *counts.entry(name).or_default() += 1;
                }
                counts
            });
        }
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for (name, count) in callers.join_all().await.into_iter().flatten() {
            *counts.entry(name).or_default() += count;
        }
        json!({ "counts": counts })
    }
}

/// Trusts the certificates of a file, also if a server has one of them.
fn trust(ca: &str) -> rustls::ClientConfig {
    let verifier = tollgate_tls::ServerVerifier::new(Some(ca.as_ref()), false);
    let verifier = verifier.expect("a certificate");
    tollgate_tls::client_config(verifier, None).expect("a configuration")
}

fn seen(decision: Result<Decision, Error>) -> Value {
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => return raised(&error),
    };
    let statuses = &decision.statuses;
    let headers: BTreeMap<String, &String> =
        decision.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
    json!({
        "allowed": decision.allowed,
        "code": decision.code.name(),
        "codes": statuses.iter().map(|status| status.code.name()).collect::<Vec<_>>(),
        "limit": statuses.iter().map(|status| status.limit).collect::<Vec<_>>(),
        "remaining": statuses.iter().map(|status| status.remaining).collect::<Vec<_>>(),
        "retry_after_ms": decision.retry_after.map(|wait| wait.as_millis()),
        "headers": headers,
        "error": decision.error.as_ref().map(code_name),
    })
}

fn raised(error: &Error) -> Value {
    match error {
        Error::Rejected(_) => json!({ "raised": "rejected", "status": code_name(error) }),
        Error::NoDecision(_) => json!({ "raised": "no_decision", "status": code_name(error) }),
        Error::NoHits | _ => json!({ "raised": "invalid" }),
    }
}

/// Returns the name of the code of an error, as in gRPC's specification.
fn code_name(error: &Error) -> String {
    let Some(status) = error.status() else { return String::new() };
    let mut name = String::new();
    for letter in format!("{:?}", status.code()).chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}
