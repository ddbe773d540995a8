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
use redis::{RedisResult, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::batch::{Asked, Batch};
use super::connect::Link;
use super::failure::Failure;
use super::node::Node;

/// Batches that may be under way at a time.
const UNDER_WAY: usize = 4;
/// Requests of one batch, and about the time that they may take of the server's, which nobody else has meanwhile.
const MOST: usize = 128;
const LONGEST_US: u32 = 500;
/// Bytes of the requests of one batch.
const MOST_BYTES: usize = 64 * 1024;

/// The number of a batch and what was replied to it; `None` where nothing was before all deadlines were over.
type Replied = (u64, Option<RedisResult<Vec<Value>>>);

/// Who waits, and what is under way.
struct Desk {
    waiting: VecDeque<Asked>,
    sent: Vec<Sent>,
    replies: FuturesUnordered<BoxFuture<'static, Replied>>,
    next: u64,
    /// When the first deadline may be.
    alarm: Pin<Box<Sleep>>,
    is_armed: bool,
}

/// A batch that is under way.
struct Sent {
    number: u64,
    batch: Batch,
    link: Arc<Link>,
    begun: Instant,
    /// Whether somebody's time is over: such a one keeps nobody waiting.
    is_late: bool,
}

/// Sends requests to a node until it is gone.
pub(super) async fn gather(node: Weak<Node>, mut asked: mpsc::UnboundedReceiver<Asked>) {
    let mut desk = Desk::new();
    let mut more = Vec::new();
    loop {
        tokio::select! {
            biased;
            Some(replied) = desk.replies.next(), if !desk.replies.is_empty() => {
                let Some(node) = node.upgrade() else { return };
                desk.spread(&node, replied);
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
                while let Some(Some(replied)) = desk.replies.next().now_or_never() {
                    desk.spread(&node, replied);
                }
                desk.expire(&node);
            }
        }
        let Some(node) = node.upgrade() else { return };
        if desk.may_send(&node) && !(more.is_empty() && desk.waiting.is_empty()) {
            // All that is ready comes first.
            tokio::task::yield_now().await;
        }
        while let Ok(another) = asked.try_recv() {
            more.push(another);
        }
        more.drain(..).for_each(|asked| desk.add(asked));
        while desk.may_send(&node) && !desk.waiting.is_empty() {
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

    /// Whether another batch may go: what is late, or was sent by a link that has been replaced, is not waited for.
    fn may_send(&self, node: &Node) -> bool {
        let holds_up = |sent: &&Sent| !sent.is_late && node.is_linked_by(&sent.link);
        self.sent.len() < UNDER_WAY || self.sent.iter().filter(holds_up).count() < UNDER_WAY
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
        let mut batch = Batch::of(self.next_ones(), node.refuses_foreign_keys());
        let Some(link) = node.linked() else { return batch.answer(Err(Failure::NotSent)) };
        let (number, pipeline, replies) = (self.next, batch.pipeline(), batch.replies());
        if replies == 0 {
            return;
        }
        let mut handle = link.handle();
        let until = batch.asked().map(|asked| asked.deadline).max().unwrap_or_else(Instant::now);
        let mut reply: BoxFuture<'static, Replied> = Box::pin(async move {
            (number, timeout_at(until, handle.req_packed_commands(&pipeline, 0, replies)).await.ok())
        });
        match poll_fn(|context| Poll::Ready(reply.as_mut().poll(context))).await {
            // No server answers while a call is only being handed over, on a runtime of one thread: the connection was closed
            // while nobody used it, and nothing was sent.
            Poll::Ready((_, Some(Err(error)))) if Failure::of(&error) == Failure::Lost => {
                node.lose(&link);
                batch.answer(Err(Failure::NotSent));
            }
            replied @ (Poll::Ready(_) | Poll::Pending) => {
                self.next = self.next.wrapping_add(1);
                self.sent.push(Sent { number, batch, link, begun: Instant::now(), is_late: false });
                match replied {
                    Poll::Ready(replied) => self.spread(node, replied),
                    Poll::Pending => self.replies.push(reply),
                }
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
    fn spread(&mut self, node: &Node, (number, replies): Replied) {
        let Some(place) = self.sent.iter().position(|sent| sent.number == number) else { return };
        let mut sent = self.sent.swap_remove(place);
        match replies {
            Some(replies) => {
                node.took(sent.begun);
                sent.batch.answer(node.heard(replies, &sent.link));
            }
            None => drop(expire(sent.batch.asked(), node, &Failure::Late)),
        }
    }

    /// Answers those whose time is over.
    fn expire(&mut self, node: &Node) {
        self.is_armed = false;
        // What was not sent has charged nothing.
        let mut first = expire(&mut self.waiting, node, &Failure::Unavailable).first;
        self.waiting.retain(Asked::is_wanted);
        for sent in &mut self.sent {
            let expired = expire(sent.batch.asked(), node, &Failure::Late);
            sent.is_late |= expired.any;
            first = first.into_iter().chain(expired.first).min();
        }
        if let Some(first) = first {
            self.arm(first);
        }
    }
}

/// Whether there were any whose time is over, and the first deadline of the others.
struct Expired {
    any: bool,
    first: Option<Instant>,
}

/// Answers those whose time is over.
fn expire<'a>(all: impl IntoIterator<Item = &'a mut Asked>, node: &Node, failure: &Failure) -> Expired {
    let (now, mut expired) = (Instant::now(), Expired { any: false, first: None });
    for asked in all {
        if asked.deadline <= now {
            expired.any = true;
            if asked.is_wanted() {
                node.is_late(asked.begun);
                asked.answer(Err(failure.clone()));
            }
        } else if asked.is_wanted() {
            expired.first = expired.first.into_iter().chain([asked.deadline]).min();
        }
    }
    expired
}
