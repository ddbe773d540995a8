//! The service's end of a stream of RLQS: the real session, and what leaves it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Body as _;
use prost::Message as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tollgate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use tollgate::grpc::proto::quota::rate_limit_quota_response::bucket_action::BucketAction as Action;
use tollgate::grpc::proto::quota::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use tollgate::grpc::proto::rate_limit_strategy::Strategy;
use tollgate::http2::Delivery;
use tonic::body::Body;

use super::plan::Fault;
use super::process::QUOTA_CALL_US;
use super::proxies::{ServiceEnd, ToProxy, ToService, bucket_of};
use super::run::RunningWorld;
use super::server::fleet::Moment;
use crate::http2::framed;

/// Bytes before a message.
const PREFIX: usize = 5;

/// An item that leaves a session.
enum Leaving {
    Response(Bytes),
    Ping(u32),
    Ended,
}

/// The next step of a stream.
enum StreamStep {
    Arrived(Option<ToService>),
    Left(Leaving),
}

/// Returns the next item that leaves a session: each PING after the response before it.
fn poll_leaving(body: &mut Body, delivery: &Delivery, cx: &mut Context<'_>) -> Poll<Leaving> {
    let ping = || {
        let payload = delivery.take_ping(1)?;
        let (_, number) = payload.split_last_chunk::<4>()?;
        Some(Leaving::Ping(u32::from_be_bytes(*number)))
    };
    if let Some(ping) = ping() {
        return Poll::Ready(ping);
    }
    match Pin::new(body).poll_frame(cx) {
        Poll::Ready(Some(Ok(frame))) => {
            Poll::Ready(frame.into_data().map_or(Leaving::Ended, Leaving::Response))
        }
        Poll::Ready(_) => Poll::Ready(Leaving::Ended),
        Poll::Pending => ping().map_or(Poll::Pending, Poll::Ready),
    }
}

impl RunningWorld {
    /// Serves a stream until one of its ends is gone.
    pub(super) async fn serve_stream(self: Arc<Self>, end: ServiceEnd) {
        let ServiceEnd { proxy, process, process_number, worker, mut messages, .. } = end;
        let (reports, mut responses) = process.open_quotas(worker, end.delivery.clone());
        let mut is_open = true;
        let mut next = None;
        let mut arrival = 0;
        loop {
            let step = async {
                tokio::select! {
                    biased;
                    message = self.arriving(&mut messages, &mut next), if is_open => {
                        StreamStep::Arrived(message)
                    }
                    left = std::future::poll_fn(|cx| {
                        poll_leaving(&mut responses, &end.delivery, cx)
                    }) => StreamStep::Left(left),
                }
            };
            let step = tokio::select! {
                biased;
                () = end.cut.cancelled() => return,
                () = process.has_crashed() => break,
                step = self.shared.while_running(process_number, step) => step,
            };
            let message = match step {
                StreamStep::Arrived(Some(ToService::Report(report))) => {
                    self.note_report(proxy, process_number, &report);
                    reports.send(&framed(&report.encode_to_vec())).expect("a short message");
                    continue;
                }
                StreamStep::Arrived(Some(ToService::Acknowledgement(number))) => {
                    end.delivery.acknowledge(number, tokio::time::Instant::now().into_std());
                    continue;
                }
                StreamStep::Arrived(None) => {
                    reports.finish(None);
                    is_open = false;
                    continue;
                }
                StreamStep::Left(Leaving::Response(bytes)) => {
                    ToProxy::Response(self.note_response(proxy, process_number, &bytes))
                }
                StreamStep::Left(Leaving::Ping(number)) => ToProxy::Ping(number),
                StreamStep::Left(Leaving::Ended) => break,
            };
            arrival = self.arrival().max(arrival);
            let _ = end.to_proxy.send((arrival, message));
        }
        self.shared.fleet.lock().count("stream ended");
        let _ = end.to_proxy.send((self.arrival().max(arrival), ToProxy::Ended));
    }

    /// Returns the next message of the proxy once it arrives.
    async fn arriving(
        &self,
        messages: &mut UnboundedReceiver<(Moment, ToService)>,
        next: &mut Option<(Moment, ToService)>,
    ) -> Option<ToService> {
        if next.is_none() {
            *next = messages.recv().await;
        }
        self.shared.sleep_until(next.as_ref()?.0).await;
        next.take().map(|(_, message)| message)
    }

    fn note_report(&self, proxy: usize, process: usize, report: &RateLimitQuotaUsageReports) {
        let now = self.shared.now();
        let mut text = format!("report of proxy {proxy} at process {process}:");
        for usage in &report.bucket_quota_usages {
            let counter = self.counter_of(usage.bucket_id.as_ref());
            let allowed = usage.num_requests_allowed;
            text.push_str(&format!(" c{counter:?} {allowed} {};", usage.num_requests_denied));
        }
        self.shared.chronicle.lock().note(now, &text);
    }

    /// Records a response that leaves now, and returns its actions with the numbers of their loans.
    fn note_response(
        &self,
        proxy: usize,
        process: usize,
        bytes: &Bytes,
    ) -> Vec<(BucketAction, Option<usize>)> {
        let now = self.shared.now();
        let response = RateLimitQuotaResponse::decode(&bytes[PREFIX..]).unwrap();
        let mut text = format!("response of process {process} to proxy {proxy}:");
        // Its call began so long ago at most: a block is charged by up to two.
        let begun = now.saturating_sub(2 * QUOTA_CALL_US + self.stopped_us(process));
        let mut chronicle = self.shared.chronicle.lock();
        let mut actions = Vec::new();
        for action in response.bucket_action {
            let counter = self.counter_of(action.bucket_id.as_ref()).unwrap();
            let assigned = match &action.bucket_action {
                Some(Action::QuotaAssignmentAction(assignment)) => {
                    let ttl = assignment.assignment_time_to_live.as_ref().map(|ttl| ttl.seconds);
                    let strategy = assignment.rate_limit_strategy.as_ref();
                    Some((ttl.unwrap_or_default(), strategy.and_then(|one| one.strategy.as_ref())))
                }
                Some(Action::AbandonAction(_)) | None => None,
            };
            let mut loan = None;
            if let Some((ttl, Some(Strategy::TokenBucket(bucket)))) = assigned {
                let hits = bucket.max_tokens.into();
                loan = Some(chronicle.loans.lend_to_proxy(counter, hits, begun..now));
                text.push_str(&format!(" c{counter} {hits} for {ttl} s as loan {loan:?};"));
                self.shared.fleet.lock().count("stream lent");
            } else {
                text.push_str(&format!(" c{counter} {assigned:?};"));
            }
            actions.push((action, loan));
        }
        chronicle.note(now, &text);
        actions
    }

    fn counter_of(&self, id: Option<&BucketId>) -> Option<usize> {
        (0..self.plan.counters.len()).find(|counter| Some(&bucket_of(&self.plan, *counter)) == id)
    }

    /// Returns the time for which a process has been stopped so far.
    fn stopped_us(&self, number: usize) -> u64 {
        let chronicle = self.shared.chronicle.lock();
        let stops = chronicle.faults.iter().map(|(_, fault)| match fault {
            Fault::Stop { process, us } if *process == number => *us,
            _ => 0,
        });
        stops.sum()
    }
}
