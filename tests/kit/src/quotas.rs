//! A scripted RLQS server and a client, with short constructors for their messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use prost_types::Duration as ProtoDuration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tollgate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use tollgate::grpc::proto::quota::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Action, QuotaAssignmentAction,
};
use tollgate::grpc::proto::quota::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
use tollgate::grpc::proto::quota::rate_limit_quota_service_server::{
    RateLimitQuotaService, RateLimitQuotaServiceServer,
};
use tollgate::grpc::proto::quota::rate_limit_quota_usage_reports::BucketQuotaUsage;
use tollgate::grpc::proto::quota::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use tollgate::grpc::proto::rate_limit_strategy::{BlanketRule, Strategy};
use tollgate::grpc::proto::{RateLimitStrategy, TokenBucket};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::{TEST_TIMEOUT, becomes};

/// Interval of a token bucket that never refills.
pub const NEVER: ProtoDuration = ProtoDuration { seconds: 1_000_000_000, nanos: 0 };

/// A running server, stopped when dropped.
pub struct QuotaServer {
    pub address: SocketAddr,
    script: Script,
    server: JoinHandle<()>,
}

/// A sender of the responses of a stream.
type Responses = mpsc::Sender<Result<RateLimitQuotaResponse, Status>>;

/// The reports received so far, and the open streams.
#[derive(Clone, Default)]
struct Script {
    reports: Arc<Mutex<Vec<(Instant, RateLimitQuotaUsageReports)>>>,
    streams: Arc<Mutex<Vec<Responses>>>,
    /// The assignment of each bucket that is reported; `None` if all are sent by hand.
    answer: Option<QuotaAssignmentAction>,
}

impl QuotaServer {
    pub async fn start() -> Self {
        Self::start_with(Script::default()).await
    }

    /// Starts a server that assigns the same to each bucket of each proxy, with every report.
    pub async fn that_assigns(ttl: i64, strategy: Option<Strategy>) -> Self {
        let answer = Some(assigned(Some((ttl, 0)), strategy));
        Self::start_with(Script { answer, ..Script::default() }).await
    }

    async fn start_with(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = RateLimitQuotaServiceServer::new(script.clone());
        let server = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move { server.await.unwrap() });
        Self { address, script, server }
    }

    /// Sends actions, in order and in one response, on each open stream.
    pub async fn send(&self, bucket_action: Vec<BucketAction>) {
        let streams = self.script.streams.lock().clone();
        for stream in streams {
            let response = RateLimitQuotaResponse { bucket_action: bucket_action.clone() };
            let _ = stream.send(Ok(response)).await;
        }
    }

    /// Returns the messages received so far.
    pub fn reports(&self) -> Vec<(Instant, RateLimitQuotaUsageReports)> {
        self.script.reports.lock().clone()
    }

    /// Returns the reports of a bucket, with the instants at which they arrived.
    pub fn reports_of(&self, bucket: &str) -> Vec<(Instant, BucketQuotaUsage)> {
        let id = bucket_id(bucket);
        let reports = self.reports();
        let usages = reports.iter().flat_map(|(at, report)| {
            report.bucket_quota_usages.iter().map(|usage| (*at, usage.clone()))
        });
        usages.filter(|(_, usage)| usage.bucket_id == Some(id.clone())).collect()
    }

    /// Waits for the first report of a bucket.
    pub async fn first_report(&self, bucket: &str) -> BucketQuotaUsage {
        let what = format!("the first report of {bucket}");
        let reports = async || self.reports_of(bucket);
        let reports = becomes(&what, TEST_TIMEOUT, reports, |reports| !reports.is_empty()).await;
        reports.into_iter().next().unwrap().1
    }
}

impl Drop for QuotaServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tonic::async_trait]
impl RateLimitQuotaService for Script {
    type StreamRateLimitQuotasStream = ReceiverStream<Result<RateLimitQuotaResponse, Status>>;

    async fn stream_rate_limit_quotas(
        &self,
        request: Request<Streaming<RateLimitQuotaUsageReports>>,
    ) -> Result<Response<Self::StreamRateLimitQuotasStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        self.streams.lock().push(sender.clone());
        let mut messages = request.into_inner();
        let reports = Arc::clone(&self.reports);
        let answer = self.answer;
        tokio::spawn(async move {
            while let Ok(Some(report)) = messages.message().await {
                let Some(answer) = answer else {
                    reports.lock().push((Instant::now(), report));
                    continue;
                };
                let bucket_action = |usage: BucketQuotaUsage| BucketAction {
                    bucket_id: usage.bucket_id,
                    bucket_action: Some(Action::QuotaAssignmentAction(answer)),
                };
                let usages = report.bucket_quota_usages.into_iter();
                let bucket_action = usages.map(bucket_action).collect();
                let _ = sender.send(Ok(RateLimitQuotaResponse { bucket_action })).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Returns the ID of the bucket of requests with this header.
pub fn bucket_id(name: &str) -> BucketId {
    BucketId { bucket: [("bucket".to_owned(), name.to_owned())].into() }
}

/// Returns an assignment; `ttl` as seconds and nanoseconds.
pub fn assignment(
    bucket: &str,
    ttl: Option<(i64, i32)>,
    strategy: Option<Strategy>,
) -> BucketAction {
    let bucket_action = Some(Action::QuotaAssignmentAction(assigned(ttl, strategy)));
    BucketAction { bucket_id: Some(bucket_id(bucket)), bucket_action }
}

fn assigned(ttl: Option<(i64, i32)>, strategy: Option<Strategy>) -> QuotaAssignmentAction {
    QuotaAssignmentAction {
        assignment_time_to_live: ttl.map(|(seconds, nanos)| ProtoDuration { seconds, nanos }),
        rate_limit_strategy: strategy
            .map(|strategy| RateLimitStrategy { strategy: Some(strategy) }),
    }
}

pub fn blanket(rule: BlanketRule) -> Option<Strategy> {
    Some(Strategy::BlanketRule(rule.into()))
}

/// Returns a bucket that is full again after each period.
pub fn whole_limit(limit: u32, period: i64) -> Option<Strategy> {
    let fill_interval = Some(ProtoDuration { seconds: period, nanos: 0 });
    Some(Strategy::TokenBucket(TokenBucket {
        max_tokens: limit,
        tokens_per_fill: Some(limit),
        fill_interval,
    }))
}

/// Returns a bucket that adds one token in each interval.
pub fn tokens(max_tokens: u32, fill_interval: ProtoDuration) -> Option<Strategy> {
    let fill_interval = Some(fill_interval);
    Some(Strategy::TokenBucket(TokenBucket { max_tokens, tokens_per_fill: Some(1), fill_interval }))
}

/// Returns the two actions that give a bucket exactly `hits` tokens.
pub fn loan(bucket: &str, ttl: i64, hits: u32) -> Vec<BucketAction> {
    let ttl = Some((ttl, 0));
    vec![
        assignment(bucket, ttl, blanket(BlanketRule::DenyAll)),
        assignment(bucket, ttl, tokens(hits, NEVER)),
    ]
}

/// Returns the action that makes Envoy forget a bucket.
pub fn abandon(bucket: &str) -> BucketAction {
    let bucket_action = Some(Action::AbandonAction(AbandonAction {}));
    BucketAction { bucket_id: Some(bucket_id(bucket)), bucket_action }
}

/// A proxy that speaks RLQS by a client library, which acknowledges pings.
pub struct QuotaClient {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    responses: Streaming<RateLimitQuotaResponse>,
}

impl QuotaClient {
    /// Opens a stream with a first report of a bucket with these pairs.
    pub async fn open(
        channel: Channel,
        domain: &str,
        pairs: &[(&str, &str)],
        allowed: u64,
        denied: u64,
    ) -> Result<Self, Status> {
        let (reports, receiver) = mpsc::channel(16);
        let mut client = RateLimitQuotaServiceClient::new(channel);
        let mut first = message(pairs, allowed, denied);
        first.domain = domain.to_owned();
        reports.send(first).await.unwrap();
        let opened = client.stream_rate_limit_quotas(ReceiverStream::new(receiver)).await?;
        Ok(Self { reports, responses: opened.into_inner() })
    }

    pub async fn report(&self, pairs: &[(&str, &str)], allowed: u64, denied: u64) {
        self.reports.send(message(pairs, allowed, denied)).await.unwrap();
    }

    /// Returns the assignments of the next response: times to live and strategies.
    pub async fn next(&mut self) -> Result<Vec<(i64, Strategy)>, Status> {
        let response = tokio::time::timeout(TEST_TIMEOUT, self.responses.message()).await;
        let response = response.expect("no response")?.expect("the stream ended");
        let actions = response.bucket_action.into_iter();
        Ok(actions
            .map(|action| match action.bucket_action {
                Some(Action::QuotaAssignmentAction(assignment)) => (
                    assignment.assignment_time_to_live.unwrap().seconds,
                    assignment.rate_limit_strategy.unwrap().strategy.unwrap(),
                ),
                other => panic!("{other:?}"),
            })
            .collect())
    }

    /// Returns the hits of the next response, which must be a loan.
    pub async fn next_loan(&mut self) -> (i64, u32) {
        let actions = self.next().await.unwrap();
        match actions.as_slice() {
            [(first, deny), (ttl, Strategy::TokenBucket(bucket))] => {
                assert_eq!((first, Some(deny)), (ttl, blanket(BlanketRule::DenyAll).as_ref()));
                assert_eq!(bucket.tokens_per_fill, Some(1));
                assert_eq!(bucket.fill_interval.as_ref().unwrap().seconds, NEVER.seconds);
                (*ttl, bucket.max_tokens)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn message(pairs: &[(&str, &str)], allowed: u64, denied: u64) -> RateLimitQuotaUsageReports {
    let bucket = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let usage = BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: bucket.collect() }),
        time_elapsed: Some(ProtoDuration { seconds: 5, nanos: 0 }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
    };
    RateLimitQuotaUsageReports { domain: String::new(), bucket_quota_usages: vec![usage] }
}
