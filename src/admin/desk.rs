//! What administration asks of the part of the process that decides, and cannot know itself: the stores, and where policies come
//! from.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use super::api::Refusal;
use super::api::ask::{Peeked, Question, Who};
use super::api::counter::{Changed, CounterView};
use super::api::policies::Reloaded;
use super::api::store::Server;
use crate::algorithm::amend::Amendment;
use crate::journal::Told;

/// An answer that takes its time.
pub type Answering<T> = Pin<Box<dyn Future<Output = Result<T, Refusal>> + Send>>;

/// What a write does, beyond its path: told in the audit log, whatever comes of it. Said as soon as it is known.
#[derive(Clone, Debug, Default)]
pub struct Deed(Arc<Mutex<String>>);

impl Deed {
    /// Says more of it.
    pub fn add(&self, text: &str) {
        self.0.lock().push_str(text);
    }

    /// All that was said.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }
}

/// What the other processes on the store have told of their denials.
#[derive(Debug, Default)]
pub struct Others {
    /// Whether there is a store by which they tell.
    pub is_shared: bool,
    /// What they told.
    pub told: Vec<Told>,
    /// How many did.
    pub processes: usize,
    /// Why there may be more.
    pub missing: Option<String>,
}

/// Who is asked.
pub trait Desk: Send + Sync {
    /// What a request would be answered now; nothing is written and nothing counted.
    fn peek(&self, question: Question) -> Answering<Peeked>;

    /// Who used the counter up that the descriptor (`key=value,…`) of a domain leads to.
    fn who(&self, domain: String, descriptor: String) -> Answering<Who>;

    /// How the counter stands that the descriptor leads to; what the journal knows of it is not its own.
    fn counter(&self, domain: String, descriptor: String) -> Answering<CounterView>;

    /// Does something to the counter that the descriptor leads to.
    fn amend(&self, domain: String, descriptor: String, amendment: Amendment, deed: Deed) -> Answering<Changed>;

    /// Reads the policies again and puts them in force.
    fn reload(&self) -> Answering<Reloaded>;

    /// What other processes on the store have told of their denials in these minutes, numbered since the epoch.
    fn others(&self, minutes: RangeInclusive<u64>) -> Pin<Box<dyn Future<Output = Others> + Send>>;

    /// The servers of the store; none where counters live in this process.
    fn servers(&self) -> Vec<Server>;
}
