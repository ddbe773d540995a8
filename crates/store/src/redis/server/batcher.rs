//! Batching: concurrent requests to a node are sent together.
//!
//! A request that arrives while the node is idle is sent as soon as the runtime has polled every
//! ready task, together with all requests that arrived meanwhile. A request that arrives while
//! batches are in flight joins the next batch, which is sent within the time of a reply. No request
//! waits for others to arrive.
#![allow(clippy::arithmetic_side_effects, reason = "numbers and lengths of requests in memory")]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::aio::ConnectionLike as _;
use redis::{RedisResult, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::Node;
use super::batch::{Batch, CommandSlots, PendingCall};
use super::connect::NodeLink;
use super::failure::CallFailure;

/// Maximum number of batches in flight.
const UNDER_WAY: usize = 4;
/// Maximum number of requests in a batch, and its approximate maximum server time in microseconds,
/// during which the server serves no other client.
const MOST: usize = 128;
const LONGEST_US: u32 = 500;
/// Maximum size of the requests in a batch, in bytes.
const MOST_BYTES: usize = 64 * 1024;

/// The number of a batch and the reply to it; `None` if there was none before the last deadline.
type Replied = (u64, Option<RedisResult<Vec<Value>>>);

/// Pending requests and batches in flight.
struct Batcher {
    waiting: VecDeque<PendingCall>,
    sent: Vec<SentBatch>,
    replies: FuturesUnordered<BoxFuture<'static, Replied>>,
    next: u64,
    /// Fires at the earliest deadline, or before.
    alarm: Pin<Box<Sleep>>,
    is_armed: bool,
}

/// A batch in flight.
struct SentBatch {
    number: u64,
    batch: Batch,
    link: Arc<NodeLink>,
    begun: Instant,
    /// Set if a deadline of it has expired: a late batch does not hold up others.
    is_late: bool,
}

/// Sends requests to a node until it is dropped.
pub(super) async fn run_batcher(node: Weak<Node>, mut calls: mpsc::UnboundedReceiver<PendingCall>) {
    let mut batcher = Batcher::new();
    let mut more = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(replied) = batcher.replies.next(), if !batcher.replies.is_empty() => {
                let Some(node) = node.upgrade() else { return };
                batcher.deliver_replies(&node, replied);
            }
            count = calls.recv_many(&mut more, MOST) => {
                if count == 0 {
                    return;
                }
            }
            () = batcher.alarm.as_mut(), if batcher.is_armed => {
                // Reads the replies that have already arrived first: on a busy machine it is this
                // task that is late.
                tokio::task::yield_now().await;
                let Some(node) = node.upgrade() else { return };
                while let Some(Some(replied)) = batcher.replies.next().now_or_never() {
                    batcher.deliver_replies(&node, replied);
                }
                batcher.expire(&node);
            }
        }
        let Some(node) = node.upgrade() else { return };
        if batcher.may_send(&node) && !(more.is_empty() && batcher.waiting.is_empty()) {
            // Lets all ready tasks run first.
            tokio::task::yield_now().await;
        }
        while let Ok(another) = calls.try_recv() {
            more.push(another);
        }
        more.drain(..).for_each(|call| batcher.add(call));
        while batcher.may_send(&node) && !batcher.waiting.is_empty() {
            batcher.send(&node).await;
        }
    }
}

impl SentBatch {
    fn holds_up(&self, node: &Node) -> bool {
        !self.is_late && node.is_linked_by(&self.link)
    }
}

impl Batcher {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            sent: Vec::new(),
            replies: FuturesUnordered::new(),
            next: 0,
            alarm: Box::pin(sleep_until(Instant::now())),
            is_armed: false,
        }
    }

    /// Returns `true` if another batch may be sent. Batches that are late, or were sent on a link
    /// that has been replaced, do not count.
    fn may_send(&self, node: &Node) -> bool {
        self.sent.len() < UNDER_WAY
            || self.sent.iter().filter(|sent| sent.holds_up(node)).count() < UNDER_WAY
    }

    fn add(&mut self, call: PendingCall) {
        self.arm(call.deadline);
        self.waiting.push_back(call);
    }

    fn arm(&mut self, deadline: Instant) {
        if !self.is_armed || deadline < self.alarm.deadline() {
            self.alarm.as_mut().reset(deadline);
            self.is_armed = true;
        }
    }

    /// Sends as many pending requests as fit in one batch.
    async fn send(&mut self, node: &Node) {
        let slots = if node.refuses_foreign_keys() { CommandSlots::Any } else { CommandSlots::One };
        let mut batch = Batch::of(self.next_ones(), slots);
        let Some(link) = node.linked() else { return batch.answer(Err(CallFailure::NotSent)) };
        let number = self.next;
        let pipeline = batch.pipeline();
        let replies = batch.replies();
        if replies == 0 {
            return;
        }
        let mut handle = link.handle();
        let until = batch.calls().map(|call| call.deadline).max().unwrap_or_else(Instant::now);
        let mut reply: BoxFuture<'static, Replied> = Box::pin(async move {
            (
                number,
                timeout_at(until, handle.req_packed_commands(&pipeline, 0, replies)).await.ok(),
            )
        });
        match poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await {
            // On a single-threaded runtime no server can reply while a call is still being handed
            // over: the connection was closed while idle, and nothing was sent.
            Poll::Ready((_, Some(Err(error)))) if CallFailure::of(&error) == CallFailure::Lost => {
                node.lose(&link);
                batch.answer(Err(CallFailure::NotSent));
            }
            replied @ (Poll::Ready(_) | Poll::Pending) => {
                self.next += 1;
                self.sent.push(SentBatch {
                    number,
                    batch,
                    link,
                    begun: Instant::now(),
                    is_late: false,
                });
                match replied {
                    Poll::Ready(replied) => self.deliver_replies(node, replied),
                    Poll::Pending => self.replies.push(reply),
                }
            }
        }
    }

    /// Takes the pending requests for the next batch.
    fn next_ones(&mut self) -> Vec<PendingCall> {
        let mut cost_us = 0u32;
        let mut bytes = 0;
        let mut count = 0;
        for call in &self.waiting {
            let request = &call.request;
            cost_us = cost_us.saturating_add(request.cost_us);
            bytes += request.keys.iter().map(|key| key.len()).sum::<usize>() + request.text.len();
            if count > 0 && (count >= MOST || cost_us > LONGEST_US || bytes > MOST_BYTES) {
                break;
            }
            count += 1;
        }
        self.waiting.drain(..count).filter(PendingCall::is_wanted).collect()
    }

    /// Delivers the replies to the requests of a batch.
    fn deliver_replies(&mut self, node: &Node, (number, replies): Replied) {
        let Some(place) = self.sent.iter().position(|sent| sent.number == number) else { return };
        let mut sent = self.sent.swap_remove(place);
        match replies {
            Some(replies) => {
                node.record_latency(sent.begun);
                sent.batch.answer(node.on_reply(replies, &sent.link));
            }
            None => drop(expire(sent.batch.calls(), node, &CallFailure::Late)),
        }
    }

    /// Fails the requests whose deadline has expired.
    fn expire(&mut self, node: &Node) {
        self.is_armed = false;
        // Requests that were not sent have charged nothing.
        let mut first = expire(&mut self.waiting, node, &CallFailure::Unavailable).first;
        if node.breaker.is_open() {
            // As later calls: nothing was sent. What was sent waits on, since a server that resumes
            // answers it, until failed probes drop the link.
            self.waiting.drain(..).for_each(|mut call| call.answer(Err(CallFailure::Unavailable)));
        }
        self.waiting.retain(PendingCall::is_wanted);
        for sent in &mut self.sent {
            let expired = expire(sent.batch.calls(), node, &CallFailure::Late);
            sent.is_late |= expired.any;
            first = first.into_iter().chain(expired.first).min();
        }
        if let Some(first) = first {
            self.arm(first);
        }
    }
}

/// The result of expiring requests: whether there were any, and the earliest deadline of the
/// others.
struct Expired {
    any: bool,
    first: Option<Instant>,
}

/// Fails the requests whose deadline has expired.
fn expire<'a>(
    all: impl IntoIterator<Item = &'a mut PendingCall>,
    node: &Node,
    failure: &CallFailure,
) -> Expired {
    let now = Instant::now();
    let mut expired = Expired { any: false, first: None };
    for call in all {
        if call.deadline <= now {
            expired.any = true;
            if call.is_wanted() {
                node.record_timeout(call.begun);
                call.answer(Err(failure.clone()));
            }
        } else if call.is_wanted() {
            expired.first = expired.first.into_iter().chain([call.deadline]).min();
        }
    }
    expired
}
