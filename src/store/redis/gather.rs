//! What is asked of a node at the same time, sent together.
//!
//! A request that comes while nothing is under way goes as soon as the runtime has looked at everything that is ready, so that
//! all who came with it go too; one that comes while something is under way waits for the next batch, for as long as a reply
//! takes. Nobody waits for others to come.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use redis::aio::ConnectionLike as _;
use redis::{RedisError, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until};

use super::batch::{Asked, Batch};
use super::failure::Failure;
use super::node::{Link, Node};

/// Batches that may be under way at a time.
const UNDER_WAY: usize = 4;
/// Requests of one batch, and about the time that they may take of the server's, which nobody else has meanwhile.
const MOST: usize = 128;
const LONGEST_US: u32 = 500;
/// Bytes of the requests of one batch.
const MOST_BYTES: usize = 64 * 1024;

/// What has been sent, until its replies are here.
type UnderWay = BoxFuture<'static, (u64, Arc<Link>, Result<Vec<Value>, RedisError>)>;

/// Who waits, and what is under way.
struct Desk {
    waiting: VecDeque<Asked>,
    sent: Vec<(u64, Batch)>,
    replies: FuturesUnordered<UnderWay>,
    next: u64,
    /// When the first deadline may be.
    alarm: Pin<Box<Sleep>>,
    is_armed: bool,
}

/// Sends requests to a node until it is gone.
pub(super) async fn gather(node: Weak<Node>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let mut desk = Desk::new();
    let mut more = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some((number, link, replies)) = desk.replies.next(), if !desk.replies.is_empty() => {
                let Some(node) = node.upgrade() else { return };
                desk.spread(number, node.heard(replies, &link));
            }
            count = asked.recv_many(&mut more, MOST) => {
                if count == 0 {
                    return;
                }
            }
            () = desk.alarm.as_mut(), if desk.is_armed => {
                // Replies that are here already are read first: on a busy machine it is this task that is late.
                tokio::task::yield_now().await;
                let Some(node) = node.upgrade() else { return };
                while let Some(Some((number, link, replies))) = desk.replies.next().now_or_never() {
                    desk.spread(number, node.heard(replies, &link));
                }
                desk.expire(&node);
            }
        }
        if desk.may_send() && !(more.is_empty() && desk.waiting.is_empty()) {
            // All that is ready comes first.
            tokio::task::yield_now().await;
        }
        while let Ok(another) = asked.try_recv() {
            more.push(another);
        }
        more.drain(..).for_each(|asked| desk.add(asked));
        while desk.may_send() && !desk.waiting.is_empty() {
            let Some(node) = node.upgrade() else { return };
            desk.send(&node).await;
        }
    }
}

impl Desk {
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

    fn may_send(&self) -> bool {
        self.sent.len() < UNDER_WAY
    }

    fn add(&mut self, asked: Asked) {
        self.arm(asked.deadline);
        self.waiting.push_back(asked);
    }

    fn arm(&mut self, deadline: Instant) {
        if !self.is_armed || deadline < self.alarm.deadline() {
            self.alarm.as_mut().reset(deadline);
            self.is_armed = true;
        }
    }

    /// Sends those who wait, as many as go at once.
    async fn send(&mut self, node: &Node) {
        let mut batch = Batch::of(self.next_ones());
        let Some(link) = node.linked() else { return batch.answer(Err(Failure::NotSent)) };
        let (number, pipeline, replies) = (self.next, batch.pipeline(), batch.replies());
        if replies == 0 {
            return;
        }
        let (mut handle, by) = (link.handle(), Arc::clone(&link));
        let mut reply: UnderWay =
            Box::pin(async move { (number, by, handle.req_packed_commands(&pipeline, 0, replies).await) });
        match poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await {
            // No server answers while a call is only being handed over, on a runtime of one thread: the connection was closed
            // while nobody used it, and nothing was sent.
            Poll::Ready((.., Err(error))) if Failure::of(&error) == Failure::Lost => {
                node.lose(&link);
                batch.answer(Err(Failure::NotSent));
            }
            Poll::Ready((.., replies)) => batch.answer(node.heard(replies, &link)),
            Poll::Pending => {
                self.next = self.next.wrapping_add(1);
                self.sent.push((number, batch));
                self.replies.push(reply);
            }
        }
    }

    /// Those of who wait that go at once.
    fn next_ones(&mut self) -> Vec<Asked> {
        let (mut cost_us, mut bytes, mut count) = (0u32, 0usize, 0usize);
        for asked in &self.waiting {
            let question = &asked.question;
            cost_us = cost_us.saturating_add(question.cost_us);
            bytes = question.keys.iter().map(|key| key.len()).fold(bytes, usize::saturating_add);
            bytes = bytes.saturating_add(question.text.len());
            if count > 0 && (count >= MOST || cost_us > LONGEST_US || bytes > MOST_BYTES) {
                break;
            }
            count = count.saturating_add(1);
        }
        self.waiting.drain(..count).filter(Asked::is_wanted).collect()
    }

    /// Gives the requests of a batch their replies.
    fn spread(&mut self, number: u64, replies: Result<Vec<Value>, Failure>) {
        if let Some(place) = self.sent.iter().position(|(other, _)| *other == number) {
            let (_, mut batch) = self.sent.swap_remove(place);
            batch.answer(replies);
        }
    }

    /// Answers those whose time is over.
    fn expire(&mut self, node: &Node) {
        let now = Instant::now();
        self.is_armed = false;
        let mut first = None::<Instant>;
        for (asked, is_sent) in self
            .sent
            .iter_mut()
            .flat_map(|(_, batch)| batch.asked())
            .map(|asked| (asked, true))
            .chain(self.waiting.iter_mut().map(|asked| (asked, false)))
        {
            if !asked.is_wanted() {
                continue;
            }
            if asked.deadline > now {
                first = Some(first.map_or(asked.deadline, |first| first.min(asked.deadline)));
                continue;
            }
            node.is_late(asked.begun);
            asked.answer(Err(if is_sent { Failure::Late } else { Failure::Unavailable }));
        }
        self.waiting.retain(Asked::is_wanted);
        if let Some(first) = first {
            self.arm(first);
        }
    }
}
