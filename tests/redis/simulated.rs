//! The simulated server of `world` behaves like a real one: by the calls that worlds make, and by
//! random commands and scripts.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::Value;

use crate::support::random::Random;
use crate::support::redis::Redis;
use crate::support::world::plan::Plan;
use crate::support::world::run::{Extras, run_with};
use crate::support::world::server::data::StoredValue;
use crate::support::world::server::fleet::{Arrangement, Fleet};
use crate::support::world::server::resp::Resp;
use crate::support::world::server::session::{Session, execute};

/// Number of worlds whose calls are repeated on a real server.
const WORLDS: u64 = 12;
/// Part of the script that lists open holds.
const RETURNS_FIELDS: &str = "redis.call('HRANDFIELD', KEYS[2], ARGV[1], 'WITHVALUES'),";
/// Number of random commands.
const COMMANDS: usize = 4_000;

/// A real server and a simulated one.
struct Twins {
    real: redis::aio::MultiplexedConnection,
    simulated: Fleet,
    session: Session,
    /// Time of the simulated server in microseconds, only for expiry.
    at: u64,
}

impl Twins {
    async fn new(redis: &Redis) -> Self {
        let client = redis::Client::open(format!("redis://{}", redis.address)).unwrap();
        let mut real = client.get_multiplexed_async_connection().await.unwrap();
        // On a busy machine a reply takes longer than the half second that a client waits.
        real.set_response_timeout(Duration::from_secs(30));
        let simulated = Fleet::new(Arrangement::Single, 1);
        Self { real, simulated, session: Session::default(), at: 0 }
    }

    /// Runs a command on both, and panics unless they reply the same.
    async fn same(&mut self, words: &[Vec<u8>]) {
        let mut command = redis::cmd(std::str::from_utf8(&words[0]).unwrap());
        words[1..].iter().for_each(|word| _ = command.arg(word.as_slice()));
        self.at += 1_000;
        let simulated = execute(&mut self.simulated, 0, &mut self.session, self.at, words);
        let mut error_text = String::new();
        let real = match command.query_async::<Value>(&mut self.real).await {
            Ok(value) => text_of(&in_order(value, words)),
            Err(error) => {
                error_text = error.to_string();
                format!("error {}", error.code().unwrap_or_default())
            }
        };
        let simulated = simulated_in_order(simulated, words);
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        assert_eq!(real, text_of_simulated(&simulated), "{error_text}: {simulated:?}: {words:?}");
    }

    /// Compares the fields of a key, and returns `true` if it is a hash.
    async fn same_fields(&mut self, key: &[u8]) -> bool {
        let Some(item) = self.simulated.servers[0].keys.get(key) else { return false };
        let StoredValue::Hash(fields) = item.value.clone() else { return false };
        self.same(&[words(&["HLEN"]), vec![key.to_vec()]].concat()).await;
        for field in fields.into_keys() {
            self.same(&[words(&["HGET"]), vec![key.to_vec(), field]].concat()).await;
        }
        true
    }

    /// Takes a sample of a hash from both: of as many fields, all of them in the hash.
    async fn same_sample(&mut self, key: &str, count: &str) {
        let words = words(&["HRANDFIELD", key, count, "WITHVALUES"]);
        self.at += 1_000;
        let simulated = execute(&mut self.simulated, 0, &mut self.session, self.at, &words);
        let mut command = redis::cmd("HRANDFIELD");
        command.arg(key).arg(count).arg("WITHVALUES");
        let real: Vec<(Vec<u8>, Vec<u8>)> = match command.query_async(&mut self.real).await {
            Ok(real) => real,
            Err(error) => {
                assert!(matches!(simulated, Resp::Error(_)), "{simulated:?}: {error}");
                return;
            }
        };
        let Resp::Array(parts) = simulated else { panic!("{simulated:?}") };
        assert_eq!(2 * real.len(), parts.len());
        let sampled: BTreeSet<_> = real.iter().map(|(field, _)| field.clone()).collect();
        assert_eq!(sampled.len(), real.len(), "distinct");
        let own: BTreeSet<_> = parts.chunks(2).map(|pair| text_of_simulated(&pair[0])).collect();
        assert_eq!(own.len(), real.len(), "distinct");
        for (field, value) in real {
            let words = [b"HGET".to_vec(), key.into(), field].to_vec();
            let reply = execute(&mut self.simulated, 0, &mut self.session, self.at, &words);
            assert_eq!(reply, Resp::Bulk(value));
        }
    }
}

/// Returns `true` for a script that returns fields of a hash, which have no order.
fn returns_fields(words: &[Vec<u8>]) -> bool {
    words.get(1).is_some_and(|text| String::from_utf8_lossy(text).contains(RETURNS_FIELDS))
}

/// Sorts the fields in the last part of a reply, if they have no order.
fn in_order(reply: Value, words: &[Vec<u8>]) -> Value {
    let Value::Array(mut parts) = reply else { return reply };
    if returns_fields(words)
        && let Some(Value::Array(fields)) = parts.last_mut()
    {
        let mut pairs: Vec<_> = fields.chunks(2).map(<[Value]>::to_vec).collect();
        pairs.sort_by_key(|pair| text_of(&pair[0]));
        *fields = pairs.concat();
    }
    Value::Array(parts)
}

fn simulated_in_order(reply: Resp, words: &[Vec<u8>]) -> Resp {
    let Resp::Array(mut parts) = reply else { return reply };
    if returns_fields(words)
        && let Some(Resp::Array(fields)) = parts.last_mut()
    {
        let mut pairs: Vec<_> = fields.chunks(2).map(<[Resp]>::to_vec).collect();
        pairs.sort_by_key(|pair| text_of_simulated(&pair[0]));
        *fields = pairs.concat();
    }
    Resp::Array(parts)
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => format!("{number}"),
        Value::BulkString(bytes) => format!("{bytes:?}"),
        Value::Okay => "status OK".to_owned(),
        Value::SimpleString(text) => format!("status {text}"),
        Value::Array(all) => format!("{:?}", all.iter().map(text_of).collect::<Vec<_>>()),
        other @ (Value::Map(_)
        | Value::Attribute { .. }
        | Value::Set(_)
        | Value::Double(_)
        | Value::Boolean(_)
        | Value::VerbatimString { .. }
        | Value::BigNumber(_)
        | Value::Push { .. }
        | Value::ServerError(_)
        | _) => format!("{other:?}"),
    }
}

fn text_of_simulated(reply: &Resp) -> String {
    match reply {
        Resp::Nil => "nil".to_owned(),
        Resp::Integer(number) => format!("{number}"),
        Resp::Bulk(bytes) => format!("{bytes:?}"),
        Resp::Status(text) => format!("status {text}"),
        Resp::Error(text) => format!("error {}", text.split(' ').next().unwrap()),
        Resp::Array(all) => {
            format!("{:?}", all.iter().map(text_of_simulated).collect::<Vec<_>>())
        }
    }
}

fn words(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[tokio::test]
async fn the_calls_of_worlds_do_the_same_on_a_real_server() {
    let redis = Redis::start().await;
    let mut calls = 0;
    let mut hashes = 0;
    for seed in 0..WORLDS {
        let plan = Plan::of(seed);
        let run = std::thread::spawn(move || {
            let extras = Extras { records_scripts: true, ..Extras::default() };
            run_with(&plan, extras).scripts
        });
        let scripts = run.join().unwrap();
        let mut twins = Twins::new(&redis).await;
        let _: Value = redis::cmd("FLUSHALL").query_async(&mut twins.real).await.unwrap();
        for script in &scripts {
            let count = script.keys.len().to_string();
            let mut call = words(&["EVAL"]);
            call.extend([script.text.clone(), count.into_bytes()]);
            call.extend(script.keys.iter().chain(&script.arguments).cloned());
            twins.same(&call).await;
            calls += 1;
        }
        let keys: Vec<Vec<u8>> = twins.simulated.servers[0].keys.keys().cloned().collect();
        for key in keys {
            twins.same(&[words(&["GET"]), vec![key.clone()]].concat()).await;
            hashes += usize::from(twins.same_fields(&key).await);
        }
    }
    assert!(calls > 1_000, "only {calls} calls");
    assert!(hashes > 10, "only {hashes} hashes");
}

#[tokio::test]
async fn random_commands_and_scripts_do_the_same_on_a_real_server() {
    let redis = Redis::start().await;
    let mut twins = Twins::new(&redis).await;
    let mut random = Random(20);
    for _ in 0..COMMANDS {
        let key = format!("key-{}", random.below(5));
        let value = format!("{}", random.next() % 1_000);
        // Also hashes where a string is expected, and the other way round.
        let hash =
            if random.percent(90) { format!("hash-{}", random.below(2)) } else { key.clone() };
        let field = format!("field-{}", random.below(8));
        let other = format!("field-{}", random.below(8));
        let command = match random.below(21) {
            0 => words(&["SET", &key, &value]),
            1 => words(&["SET", &key, &value, "PX", "600000"]),
            2 => words(&["SET", &key, &value, "KEEPTTL"]),
            3 => words(&["SET", &key, &value, "NOTHING"]),
            4 => words(&["GET", &key]),
            5 => words(&["DEL", &key]),
            6 => words(&["EXISTS", &key]),
            7 => words(&["HSET", &key, &value, "x"]),
            8 => words(&["PEXPIRE", &key, "600000"]),
            9 => words(&["ZADD", "sorted", &value, &key]),
            10 => words(&["ZREMRANGEBYSCORE", "sorted", "-inf", &value]),
            11 => words(&["ZCARD", "sorted"]),
            12 => words(&["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
            13 => words(&["HSET", &hash, &field, &value, &other, "y"]),
            14 => words(&["HSET", &hash, &field, &value, &other]),
            15 => words(&["HDEL", &hash, &field, &other]),
            16 => words(&["HGET", &hash, &field]),
            17 => words(&["HLEN", &hash]),
            18 => words(&["DEL", &hash]),
            19 => {
                twins.same_sample(&hash, &format!("{}", random.below(12))).await;
                continue;
            }
            _ => words(&["EVAL", random.one_of::<&str>(&SCRIPTS), "1", &key, &value]),
        };
        twins.same(&command).await;
    }
}

/// Scripts with the features of Redis' Lua that the store's scripts use.
const SCRIPTS: [&str; 15] = [
    "return redis.call('HSET', KEYS[1] .. 'h', '', ARGV[1], 'f' .. ARGV[1] % 5, 'x', 'g' .. ARGV[1] % 3, 'y')",
    "return { redis.pcall('HGET', KEYS[1] .. 'h', ''), redis.pcall('HGET', KEYS[1] .. 'h', 'f1'), redis.pcall('HDEL', KEYS[1] .. 'h', unpack({ 'f1', 'f2' })), redis.pcall('HLEN', KEYS[1] .. 'h'), redis.pcall('PEXPIRE', KEYS[1] .. 'h', '60000') }",
    "local all = redis.pcall('HRANDFIELD', KEYS[1] .. 'h', '128', 'WITHVALUES') local sum = 0 for i = 1, #all, 2 do sum = sum + #all[i] + #all[i + 1] end return { #all, sum }",
    "return redis.call('SET', KEYS[1], ARGV[1])",
    "return redis.call('GET', KEYS[1])",
    "local value = redis.pcall('GET', KEYS[1]) return type(value)",
    "local reply = redis.pcall('HSET', KEYS[1], 'a', ARGV[1]) return type(reply) == 'table' and reply.err:sub(1, 9) or reply",
    "return struct.pack('>I7BI2', ARGV[1] * 1000003, ARGV[1] % 256, -ARGV[1])",
    "return { struct.unpack('>I2I4c0', struct.pack('>I2I4', 7, #ARGV[1]) .. ARGV[1] .. 'rest') }",
    "return { struct.unpack('>I4I7', struct.pack('>I4I7', ARGV[1], 9007199254740991)) }",
    "return redis.sha1hex(ARGV[1])",
    "return { 1, 2.9, -2.9, 'text', false, true, nil, 5 }",
    "return redis.error_reply('READONLY as if ' .. KEYS[1])",
    "return redis.status_reply('OK')",
    "return string.format('%.0f', ARGV[1] / 3) .. tostring(ARGV[1] / 4) .. math.ceil(ARGV[1] / 7)",
];
