//! Cases with simulated servers: memory, which judges in Rust, and the scripts of one server and of
//! a Cluster must agree. They run in one thread without sockets, in milliseconds.

use std::io;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tollgate::algorithm::time::Timestamp;
use tollgate::store::clock::{Clock as _, ManualClock};
use tollgate::store::redis::{
    BoxedStream, Environment, RedisOptions, RedisUrl, ServerAddress, Simulation,
};

use super::sides::Sides;
use super::{TraceCase, cases, hold_cases, run};
use crate::world::server::fleet::{Arrangement, BASE_US, Fleet};
use crate::world::server::resp::CommandReader;
use crate::world::server::session::{Session, execute};

/// Number of cases in which nearly every line of the scripts runs.
pub const CASES: u64 = 32;
/// Masters of the Cluster.
const MASTERS: usize = 3;
/// Capacity of a connection.
const PIPE_BYTES: usize = 1 << 20;

/// Servers without delays or faults.
struct CalmServers {
    fleet: Fleet,
    /// The latest time of requests, in microseconds. Clocks of requests may step back; keys that
    /// have expired do not return.
    latest: u64,
}

/// The network to such servers.
struct CalmNetwork {
    servers: Arc<Mutex<CalmServers>>,
    clock: Arc<ManualClock>,
}

impl CalmNetwork {
    fn new(arrangement: Arrangement, clock: &Arc<ManualClock>) -> Arc<Self> {
        let groups = if arrangement == Arrangement::Cluster { MASTERS } else { 1 };
        let mut fleet = Fleet::new(arrangement, groups);
        for server in 0..fleet.servers.len() {
            // Moments are microseconds since the epoch.
            fleet.step_clock(server, -i64::try_from(BASE_US).unwrap());
        }
        let servers = Arc::new(Mutex::new(CalmServers { fleet, latest: 0 }));
        Arc::new(Self { servers, clock: Arc::clone(clock) })
    }

    fn options(self: &Arc<Self>, url: &str) -> RedisOptions {
        let mut options = RedisOptions::at(RedisUrl::parse(url).unwrap().unwrap());
        options.access.environment = Environment::Simulated(Arc::clone(self) as _);
        options
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
        self.clock.now()
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
            let CalmServers { fleet, latest } = &mut *servers;
            *latest = clock.now().as_micros().max(*latest);
            execute(fleet, server, &mut session, *latest, &words).write(&mut replies);
        }
        if connection.write_all(&replies).await.is_err() {
            return;
        }
    }
}

/// Runs the case of a seed. Returns the difference that it shows, if there is any.
pub fn difference(seed: u64) -> Option<String> {
    difference_of(&case_of(seed))
}

/// Runs a case.
pub fn difference_of(case: &TraceCase) -> Option<String> {
    // Timers end at once when nothing else happens.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let clock = Arc::default();
        let servers =
            [(Arrangement::Single, "redis://redis"), (Arrangement::Cluster, "redis-cluster://s0")];
        let servers = servers.map(|(arrangement, url)| {
            (url.to_owned(), CalmNetwork::new(arrangement, &clock).options(url))
        });
        let sides = Sides::with(clock, servers.into(), case.modes).await;
        run(&sides, case).await.err()
    })
}

/// Returns the case of a seed: kinds of cases take turns.
pub fn case_of(seed: u64) -> TraceCase {
    let kinds: [fn() -> BoxedStrategy<TraceCase>; 8] = [
        || cases::decided().boxed(),
        || hold_cases::in_one_slot().boxed(),
        || cases::with_other_amounts().boxed(),
        || cases::lent().boxed(),
        || hold_cases::across_slots().boxed(),
        || cases::tallied().boxed(),
        || cases::decided_later().boxed(),
        || hold_cases::merging_marks().boxed(),
    ];
    let kind = kinds[(seed % 8) as usize];
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    kind().new_tree(&mut runner).unwrap().current()
}
