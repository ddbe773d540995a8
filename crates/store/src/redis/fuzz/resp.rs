//! Fuzz target for the data that a server sends: the redis crate parses the bytes, and every parser
//! of values in this module gets the result.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::redis::admin::{health, shared_denials, tallies};
use crate::redis::config::url::ServerAddress;
use crate::redis::script::ScriptNeeds;
use crate::redis::script::encode::ScriptRequest;
use crate::redis::script::slot::SLOTS;
use crate::redis::server::batch::{Batch, CommandSlots, PendingCall, SendOptions};
use crate::redis::server::failure::CallFailure;
use crate::redis::topology::{cluster, sentinel};

/// Number of requests in a batch.
const REQUESTS: u16 = 3;

/// Runs the target with the bytes parsed as one value.
pub fn run(bytes: &[u8]) {
    let Ok(value) = redis::parse_redis_value(bytes) else { return };
    if let Some(map) = cluster::read(&value, &ServerAddress::Tcp("127.0.0.1".to_owned(), 6379)) {
        assert_eq!(map.by_slot.len(), usize::from(SLOTS));
        assert!(
            map.by_slot.iter().flatten().all(|master| usize::from(*master) < map.masters.len())
        );
    }
    cluster::standing(value.clone());
    sentinel::read(&value);
    shared_denials::read(value.clone(), 1);
    if let Value::BulkString(bytes) = &value {
        tallies::read(bytes);
        health::online_replicas(&String::from_utf8_lossy(bytes)).for_each(drop);
    }
    CallFailure::of_reply(value.clone());
    batch(value);
}

/// Delivers the replies of a batch, which may be too few: each request gets one.
fn batch(value: Value) {
    let begun = Instant::now();
    let calls = (0..REQUESTS).map(|number| {
        let mut request =
            ScriptRequest::of(None, SmallVec::new(), SmallVec::new(), ScriptNeeds::default());
        request.checks = number;
        let options = SendOptions { alone: number == 0, ..SendOptions::default() };
        PendingCall::new(Arc::new(request), options, begun + Duration::from_secs(1))
    });
    let (calls, mut replies): (Vec<_>, Vec<_>) = calls.unzip();
    let mut batch = Batch::of(calls, CommandSlots::One);
    let values = if let Value::Array(values) = value { values } else { vec![value] };
    batch.answer(Ok(values));
    assert!(replies.iter_mut().all(|reply| reply.try_recv().is_ok()), "a request waits for ever");
}
