//! Simulated servers of a trace: a network to them without delays, what they store, and faults.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::store::clock::{Clock as _, ManualClock};
use tollgate::store::redis::{
    BoxedStream, Environment, RedisOptions, RedisUrl, ServerAddress, Simulation,
};

use crate::world::server::data::{Keys, StoredItem, StoredValue};
use crate::world::server::fleet::{Arrangement, BASE_US, Fleet, SimServer};
use crate::world::server::resp::{CommandReader, Resp};
use crate::world::server::session::{Session, execute};

/// Masters of the Cluster.
const MASTERS: usize = 3;
/// Capacity of a connection.
const PIPE_BYTES: usize = 1 << 20;

/// A fault of all servers during a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServerFault {
    /// No memory is left.
    Full,
    /// Writes of some keys are refused: those with this remainder of the sum of their bytes.
    Refuses(u8),
    /// Items are not those that were written.
    Spoiled(SpoiledItems),
}

/// The difference of items from those that were written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpoiledItems {
    /// Values have this number of bytes at most.
    Cut(usize),
    /// Values lack this number of their last bytes.
    CutEnd(usize),
    /// The first byte of values is higher by this.
    OtherTag(u8),
    /// Heads of holds have this number of bytes at most.
    CutHeads(usize),
    /// Values are hashes.
    WrongType,
}

impl SpoiledItems {
    fn spoil(self, item: &mut StoredItem) {
        match (self, &mut item.value) {
            (Self::Cut(most), StoredValue::Text(text)) => text.truncate(most),
            (Self::CutEnd(by), StoredValue::Text(text)) => {
                text.truncate(text.len().saturating_sub(by));
            }
            (Self::OtherTag(by), StoredValue::Text(text)) => {
                text.iter_mut().take(1).for_each(|tag| *tag = tag.wrapping_add(by));
            }
            (Self::CutHeads(most), StoredValue::Hash(fields)) => {
                fields.get_mut(&b""[..]).into_iter().for_each(|head| head.truncate(most));
            }
            (Self::WrongType, value @ StoredValue::Text(_)) => {
                *value = StoredValue::Hash([(b"field".to_vec(), b"value".to_vec())].into());
            }
            _ => {}
        }
    }
}

/// Servers without delays.
struct CalmServers {
    fleet: Fleet,
    /// The latest time of requests, in microseconds. Clocks of requests may step back; keys that
    /// have expired do not return.
    latest: u64,
    /// The time that a script takes, in microseconds.
    takes: u64,
    /// Errors of scripts themselves.
    broken: Vec<String>,
    /// Digest of all replies and items so far.
    trail: Sha1,
    /// Replies of scripts, without errors.
    replies: Vec<Resp>,
}

/// The network to such servers.
pub(crate) struct CalmNetwork {
    servers: Arc<Mutex<CalmServers>>,
    clock: Arc<ManualClock>,
    process_clock: Arc<ManualClock>,
}

impl CalmNetwork {
    /// Creates servers with a clock. The process may have another one.
    pub(crate) fn new(
        arrangement: Arrangement,
        clock: &Arc<ManualClock>,
        process_clock: &Arc<ManualClock>,
    ) -> Arc<Self> {
        let groups = if arrangement == Arrangement::Cluster { MASTERS } else { 1 };
        let mut fleet = Fleet::new(arrangement, groups);
        for server in 0..fleet.servers.len() {
            // Moments are microseconds since the epoch.
            fleet.step_clock(server, -i64::try_from(BASE_US).unwrap());
        }
        let servers = CalmServers {
            fleet,
            latest: 0,
            takes: 0,
            broken: Vec::new(),
            trail: Sha1::default(),
            replies: Vec::new(),
        };
        Arc::new(Self {
            servers: Arc::new(Mutex::new(servers)),
            clock: Arc::clone(clock),
            process_clock: Arc::clone(process_clock),
        })
    }

    pub(crate) fn options(self: &Arc<Self>, url: &str) -> RedisOptions {
        let mut options = RedisOptions::at(RedisUrl::parse(url).unwrap().unwrap());
        options.access.environment = Environment::Simulated(Arc::clone(self) as _);
        options
    }

    /// Sets the time that a script takes from now on, in microseconds.
    pub(crate) fn take(&self, time: u64) {
        self.servers.lock().takes = time;
    }

    /// Returns the latest time of requests in milliseconds.
    pub(crate) fn latest_ms(&self) -> u64 {
        self.servers.lock().latest / 1_000
    }

    /// Passes each item of the masters that has not expired to a function.
    fn each_item(&self, mut function: impl FnMut(&[u8], &StoredItem)) {
        let CalmServers { fleet, latest, .. } = &mut *self.servers.lock();
        *latest = self.clock.now().as_micros().max(*latest);
        let is_live = |item: &StoredItem| item.expires_at.is_none_or(|at| at > *latest / 1_000);
        let items = fleet.map.masters.iter().flat_map(|master| &fleet.servers[*master].keys);
        items.filter(|(_, item)| is_live(item)).for_each(|(name, item)| function(name, item));
    }

    /// Returns the values of counters, and no value for each other key.
    pub(crate) fn values(&self) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let mut values = BTreeMap::new();
        self.each_item(|name, item| {
            let StoredItem { value, .. } = item;
            let text = if let StoredValue::Text(text) = value { Some(text.clone()) } else { None };
            values.insert(name.to_vec(), text);
        });
        values
    }

    /// Returns the items that have changed since `digests` were those of all items, and renews
    /// these.
    pub(crate) fn changed_items(&self, digests: &mut BTreeMap<Vec<u8>, u64>) -> Keys {
        let mut changed = Keys::new();
        self.each_item(|name, item| {
            let digest = digest_of(item);
            if digests.get(name) != Some(&digest) {
                digests.insert(name.to_vec(), digest);
                changed.insert(name.to_vec(), item.clone());
            }
        });
        changed
    }

    /// Adds an item that was written to the digest of what happened.
    pub(crate) fn note(&self, name: &[u8], item: &StoredItem) {
        let trail = &mut self.servers.lock().trail;
        trail.update(name);
        trail.update(item.expires_at.unwrap_or_default().to_be_bytes());
        match &item.value {
            StoredValue::Text(text) => trail.update(text),
            StoredValue::Hash(fields) => fields.iter().for_each(|(field, value)| {
                trail.update(field);
                trail.update(value);
            }),
            StoredValue::Sorted(members) => members.keys().for_each(|member| trail.update(member)),
        }
    }

    /// Adds all items to that digest.
    pub(crate) fn note_all(&self) {
        let mut items = Keys::new();
        self.each_item(|name, item| drop(items.insert(name.to_vec(), item.clone())));
        items.iter().for_each(|(name, item)| self.note(name, item));
    }

    /// Returns the digest of what happened.
    pub(crate) fn trail(&self) -> String {
        let digest = self.servers.lock().trail.clone().finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Passes the replies of scripts to a function.
    pub(crate) fn with_replies<T>(&self, function: impl FnOnce(&[Resp]) -> T) -> T {
        function(&self.servers.lock().replies)
    }

    /// Returns an error of a script itself, if there was one.
    pub(crate) fn broken(&self) -> Option<String> {
        self.servers.lock().broken.first().cloned()
    }

    /// Begins a fault of all servers. Returns their keys before it.
    pub(crate) fn begin(&self, fault: ServerFault) -> Vec<Keys> {
        let mut servers = self.servers.lock();
        let begin = |server: &mut SimServer| {
            let before = server.keys.clone();
            match fault {
                ServerFault::Full => server.full_until = u64::MAX,
                ServerFault::Refuses(rest) => server.refused_rest = Some(rest),
                ServerFault::Spoiled(how) => {
                    server.keys.values_mut().for_each(|item| how.spoil(item));
                }
            }
            before
        };
        let servers = servers.fleet.servers.iter_mut();
        servers.filter(|server| !server.is_replica).map(begin).collect()
    }

    /// Ends all faults: the keys are as before them.
    pub(crate) fn end(&self, before: Vec<Keys>) {
        let mut servers = self.servers.lock();
        let masters = servers.fleet.servers.iter_mut().filter(|server| !server.is_replica);
        for (server, keys) in masters.zip(before) {
            (server.keys, server.full_until, server.refused_rest) = (keys, 0, None);
        }
    }
}

impl Simulation for CalmNetwork {
    fn open(&self, address: &ServerAddress) -> BoxFuture<'static, io::Result<BoxedStream>> {
        let ServerAddress::Tcp(host, _) = address else { unreachable!() };
        let server = host.strip_prefix('s').and_then(|number| number.parse().ok());
        let (client, connection) = tokio::io::duplex(PIPE_BYTES);
        let servers = Arc::clone(&self.servers);
        let clock = Arc::clone(&self.clock);
        async move {
            tokio::spawn(serve(servers, clock, server.unwrap_or(0), connection));
            Ok(Box::new(client) as BoxedStream)
        }
        .boxed()
    }

    fn now(&self) -> Timestamp {
        self.process_clock.now()
    }

    fn random(&self) -> f64 {
        0.5
    }
}

async fn serve(
    servers: Arc<Mutex<CalmServers>>,
    clock: Arc<ManualClock>,
    server: usize,
    mut connection: DuplexStream,
) {
    let mut commands = CommandReader::default();
    let mut session = Session::default();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = connection.read(&mut buffer).await {
        commands.add(&buffer[..count]);
        let mut replies = Vec::new();
        while let Some(words) = commands.next() {
            let mut servers = servers.lock();
            let CalmServers { fleet, latest, takes, broken, trail, replies: all } = &mut *servers;
            *latest = clock.now().as_micros().max(*latest);
            // Several calls at one instant.
            fleet.step_clock(server, 0);
            let reply = execute(fleet, server, &mut session, *latest, &words);
            let mut bytes = Vec::new();
            reply.write(&mut bytes);
            // With keys and arguments: others are checks of the server.
            if words[0].starts_with(b"EVAL") && words.len() > 5 {
                trail.update(&bytes);
                if let Resp::Error(text) = reply {
                    broken.extend(text.starts_with("ERR ").then_some(text));
                } else {
                    all.push(reply);
                }
                clock.set(clock.now() + Micros::new(*takes));
            }
            replies.extend(bytes);
        }
        if connection.write_all(&replies).await.is_err() {
            return;
        }
    }
}

fn digest_of(item: &StoredItem) -> u64 {
    let mut digest = DefaultHasher::new();
    item.expires_at.hash(&mut digest);
    match &item.value {
        StoredValue::Text(text) => text.hash(&mut digest),
        StoredValue::Hash(fields) => fields.hash(&mut digest),
        StoredValue::Sorted(members) => members.keys().for_each(|name| name.hash(&mut digest)),
    }
    digest.finish()
}
