//! The task that borrows and returns blocks, with one exchange at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

use super::LeaseCounts;
use super::demand::micros_of;
use super::key::{LeasedKey, LentBlock, Moment};
use crate::call::unary;
use crate::connection::Replicas;
use crate::decision::duration;
use crate::generated::tollgate::v1::lease_answer::Answer;
use crate::generated::tollgate::v1::{
    ExchangeRequest, ExchangeResponse, LeaseAnswer, LeaseReturn, LeaseWant,
};

const EXCHANGE: &str = "/tollgate.v1.LeaseService/Exchange";
/// Least time between two rounds of exchanges.
const INTERVAL: Duration = Duration::from_millis(50);
/// Bound of an exchange. A block that comes late is usable for less time.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which a descriptor that is never lent is not requested: policies may change.
const NOT_LEASABLE_FOR: Duration = Duration::from_secs(10);
/// Bounds of an exchange; those of the service are 256 of each and 64 KiB.
const MAX_ITEMS: usize = 256;
const MAX_BYTES: usize = 48 << 10;
/// More than the size of an item without its descriptor and receipt.
const ITEM_BYTES: usize = 32;

/// A message to the task.
#[derive(Debug)]
pub(super) enum ExchangeOrder {
    /// Borrow a block.
    Want(Arc<LeasedKey>),
    /// Return all blocks, and end.
    Close(oneshot::Sender<()>),
}

/// The state of the task.
#[derive(Debug)]
pub(super) struct Exchanger {
    connection: Replicas,
    orders: mpsc::UnboundedReceiver<ExchangeOrder>,
    counts: Arc<LeaseCounts>,
    start: Instant,
    wants: Vec<Arc<LeasedKey>>,
    /// Returns of blocks that another generation has ended.
    returns: Vec<(Arc<LeasedKey>, LeaseReturn)>,
    /// Keys with blocks.
    held: Vec<Arc<LeasedKey>>,
}

/// A want of a key, or a return of its block.
type ExchangeItem = (Arc<LeasedKey>, Option<LeaseReturn>);

impl Exchanger {
    pub(super) fn new(
        connection: Replicas,
        orders: mpsc::UnboundedReceiver<ExchangeOrder>,
        counts: Arc<LeaseCounts>,
        start: Instant,
    ) -> Self {
        let (wants, returns, held) = Default::default();
        Self { connection, orders, counts, start, wants, returns, held }
    }

    /// Exchanges blocks until the client is closed or dropped; then it returns all.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_idle = self.wants.is_empty() && self.returns.is_empty() && self.held.is_empty();
            let order = tokio::select! {
                biased;
                order = self.orders.recv() => order,
                _ = ticks.tick(), if !is_idle => {
                    self.exchange(false).await;
                    continue;
                }
            };
            match order {
                Some(ExchangeOrder::Want(key)) => self.wants.push(key),
                Some(ExchangeOrder::Close(done)) => {
                    self.wants.clear();
                    self.exchange(true).await;
                    // The caller may have stopped to wait.
                    let _ = done.send(());
                    return;
                }
                None => {
                    self.wants.clear();
                    return self.exchange(true).await;
                }
            }
        }
    }

    /// Sends wants and returns, in as many calls as domains and bounds need. It returns the blocks
    /// that have ended, or `all`.
    async fn exchange(&mut self, all: bool) {
        let now = Moment::now();
        let mut items: Vec<ExchangeItem> =
            std::mem::take(&mut self.wants).into_iter().map(|key| (key, None)).collect();
        let ended = std::mem::take(&mut self.returns).into_iter();
        items.extend(ended.map(|(key, back)| (key, Some(back))));
        for key in &self.held {
            let ended = key.close_ended(now, all).into_iter();
            items.extend(ended.map(|back| (Arc::clone(key), Some(back))));
        }
        self.held.retain(|key| key.has_blocks());
        let mut domains: BTreeMap<Box<str>, Vec<ExchangeItem>> = BTreeMap::new();
        for item in items {
            domains.entry(item.0.domain.clone()).or_default().push(item);
        }
        for (domain, items) in domains {
            let mut items = items.into_iter().peekable();
            while items.peek().is_some() {
                let mut call = Exchange::default();
                while let Some((key, back)) = items.next_if(|item| call.has_room_for(item)) {
                    call.add(key, back);
                }
                self.call(&domain, call).await;
            }
        }
    }

    /// Makes one exchange, which is never repeated: what a lost one may have lent counts until it
    /// expires.
    async fn call(&mut self, domain: &str, call: Exchange) {
        let Exchange { wanting, wants, returns, bytes: _ } = call;
        let request = ExchangeRequest { domain: domain.to_owned(), wants, returns };
        let sent = Moment::now();
        let response = unary::<_, ExchangeResponse>(&self.connection, EXCHANGE, request, TIMEOUT);
        let mut answers = match response.await {
            Ok(response) => response.answers.into_iter(),
            Err(_) => {
                self.counts.lost.fetch_add(1, Relaxed);
                Vec::new().into_iter()
            }
        };
        for key in wanting {
            self.answered(&key, answers.next(), sent);
        }
    }

    fn answered(&mut self, key: &Arc<LeasedKey>, answer: Option<LeaseAnswer>, sent: Moment) {
        let mut wait = Duration::from_micros(key.window());
        if let Some(LeaseAnswer { generation, answer }) = answer {
            let ended = key.begin_generation(generation).into_iter();
            self.returns.extend(ended.map(|back| (Arc::clone(key), back)));
            match answer {
                Some(Answer::Loan(loan)) => {
                    wait = Duration::ZERO;
                    self.counts.lent.fetch_add(loan.hits.into(), Relaxed);
                    key.lent(LentBlock::new(loan, sent, Instant::now()));
                    if !self.held.iter().any(|held| Arc::ptr_eq(held, key)) {
                        self.held.push(Arc::clone(key));
                    }
                }
                // The service denies requests, with the time to wait.
                Some(Answer::Denial(denial)) => {
                    wait = duration(denial.valid_for.as_ref()).max(INTERVAL);
                }
                Some(Answer::NotLeasable(_)) => wait = NOT_LEASABLE_FOR,
                Some(Answer::AskEachRequest(_)) | None => {}
            }
        }
        let sent = sent.monotonic.saturating_duration_since(self.start);
        key.answered(micros_of(sent.saturating_add(wait)));
    }
}

/// The wants and returns of one call.
#[derive(Default)]
struct Exchange {
    wanting: Vec<Arc<LeasedKey>>,
    wants: Vec<LeaseWant>,
    returns: Vec<LeaseReturn>,
    bytes: usize,
}

impl Exchange {
    fn has_room_for(&self, (key, back): &ExchangeItem) -> bool {
        let is_full = self.wants.len().max(self.returns.len()) >= MAX_ITEMS;
        let is_empty = self.wants.is_empty() && self.returns.is_empty();
        is_empty || !is_full && self.bytes + size(key, back.as_ref()) <= MAX_BYTES
    }

    fn add(&mut self, key: Arc<LeasedKey>, back: Option<LeaseReturn>) {
        self.bytes += size(&key, back.as_ref());
        match back {
            Some(back) => {
                let descriptor = Some(key.descriptor.message());
                self.returns.push(LeaseReturn { descriptor, ..back });
            }
            None => {
                self.wants.push(key.want());
                self.wanting.push(key);
            }
        }
    }
}

fn size(key: &LeasedKey, back: Option<&LeaseReturn>) -> usize {
    let receipt = back.map_or(0, |back| back.encoded_len());
    key.descriptor.message().encoded_len() + receipt + ITEM_BYTES
}
