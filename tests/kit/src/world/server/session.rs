//! Commands on a connection, and their replies.

use super::data::ScriptRun;
use super::fleet::{Arrangement, Fleet, Moment, RecordedScript};
use super::lua;
use super::resp::Resp;
use super::slot_of;

/// The state of a connection.
#[derive(Debug, Default)]
pub struct Session {
    /// Set by `ASKING`, for one command.
    is_asking: bool,
}

/// Script by which the store distinguishes servers.
const IDENTITY: &[u8] = b"return tostring(redis)";
const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const LOADING: &str = "LOADING Redis is loading the dataset in memory";
const TRY_AGAIN: &str = "TRYAGAIN Multiple keys request during rehashing of slot";
const BUSY: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

/// Returns the host of a server.
pub fn host_of(server: usize) -> String {
    format!("s{server}")
}

/// Runs one command at a server.
pub fn execute(
    fleet: &mut Fleet,
    server: usize,
    session: &mut Session,
    at: Moment,
    words: &[Vec<u8>],
) -> Resp {
    let reply = reply_to(fleet, server, session, at, words);
    if let Resp::Error(text) = &reply {
        let code = text.split(' ').next().unwrap_or_default().to_owned();
        fleet.count(&format!("reply {code}"));
    }
    reply
}

fn reply_to(
    fleet: &mut Fleet,
    server: usize,
    session: &mut Session,
    at: Moment,
    words: &[Vec<u8>],
) -> Resp {
    let state = &fleet.servers[server];
    if state.loading_until > at {
        return Resp::error(LOADING);
    }
    if state.busy_until > at {
        return Resp::error(BUSY);
    }
    let name = String::from_utf8_lossy(&words[0]).to_uppercase();
    let is_asking = std::mem::take(&mut session.is_asking);
    match name.as_str() {
        "PING" => Resp::Status("PONG"),
        "CLIENT" | "SELECT" | "AUTH" => Resp::Status("OK"),
        "ASKING" => {
            session.is_asking = true;
            Resp::Status("OK")
        }
        "INFO" => info(fleet, server, at),
        "CONFIG" => Resp::Array(vec![Resp::text("maxmemory-policy"), Resp::text("noeviction")]),
        "CLUSTER" => cluster(fleet, server, &words[1]),
        "SCRIPT" => {
            fleet.servers[server].scripts.clear();
            Resp::Status("OK")
        }
        "EVAL" | "EVALSHA" => {
            let count: usize = std::str::from_utf8(&words[2]).unwrap().parse().unwrap();
            let keys = &words[3..3 + count];
            match redirect(fleet, server, at, keys, is_asking) {
                Some(redirection) => redirection,
                None => script(fleet, server, (at, is_asking), &name, words, count),
            }
        }
        _ => match redirect(fleet, server, at, words.get(1..2).unwrap_or_default(), is_asking) {
            Some(redirection) if words.len() > 1 => redirection,
            _ => fleet.run(server, at, is_asking, |mut run| (run.call(words), run)),
        },
    }
}

/// Returns the error for keys that another node of a Cluster has. While their slot moves, its owner
/// serves the keys that it has, and the new owner those that a client [asks](Session) it for; none
/// of them serves a command of which it lacks some keys.
fn redirect(
    fleet: &mut Fleet,
    server: usize,
    at: Moment,
    keys: &[Vec<u8>],
    is_asking: bool,
) -> Option<Resp> {
    if fleet.arrangement != Arrangement::Cluster {
        return None;
    }
    let slot = slot_of(keys.first()?);
    if keys.iter().any(|key| slot_of(key) != slot) {
        return Some(Resp::error("CROSSSLOT Keys in request don't hash to the same slot"));
    }
    let migration = fleet.migration.as_ref().filter(|migration| migration.includes(slot));
    let new = migration.map(|migration| fleet.map.masters[migration.target()]);
    let map = fleet.map_of(server);
    let master = map.masters[usize::from(map.owners[usize::from(slot)])];
    if let Some(new) = new
        && (master == server || new == server && is_asking)
    {
        let known = keys.iter().filter(|key| fleet.has(server, at, key)).count();
        let is_whole = known == keys.len() || (new == server && keys.len() == 1);
        return match known {
            _ if is_whole => None,
            0 if master == server => Some(Resp::Error(format!("ASK {slot} {}:6379", host_of(new)))),
            _ => Some(Resp::error(TRY_AGAIN)),
        };
    }
    let moved = format!("MOVED {slot} {}:6379", host_of(master));
    (master != server).then_some(Resp::Error(moved))
}

fn script(
    fleet: &mut Fleet,
    server: usize,
    (at, is_asking): (Moment, bool),
    name: &str,
    words: &[Vec<u8>],
    count: usize,
) -> Resp {
    if words[1] == IDENTITY {
        return Resp::Bulk(format!("table: {}", host_of(server)).into_bytes());
    }
    let text = if name == "EVAL" {
        fleet.servers[server].scripts.insert(lua::digest(&words[1]), words[1].clone());
        words[1].clone()
    } else {
        let digest = String::from_utf8_lossy(&words[1]).to_lowercase();
        match fleet.servers[server].scripts.get(&digest) {
            Some(text) => text.clone(),
            None => return Resp::error(NO_SCRIPT),
        }
    };
    fleet.count_script(&text);
    let (keys, arguments) = words[3..].split_at(count);
    if fleet.scripts.is_some() {
        let now = fleet.clock(server, at).to_string().into_bytes();
        let mut arguments = arguments.to_vec();
        if let Some(given) = arguments.first_mut().filter(|given| given.is_empty()) {
            *given = now;
        }
        let script = RecordedScript { text: text.clone(), keys: keys.to_vec(), arguments };
        fleet.scripts.as_mut().unwrap().push(script);
    }
    fleet.run(server, at, is_asking, |run| {
        lua::run(ScriptRun { is_script: true, ..run }, &text, keys, arguments)
    })
}

fn info(fleet: &mut Fleet, server: usize, at: Moment) -> Resp {
    let now = fleet.clock(server, at);
    let state = &fleet.servers[server];
    let role = if state.is_replica { "slave" } else { "master" };
    Resp::Bulk(
        format!(
            "redis_version:7.2.0\r\nrun_id:{}-{}\r\nrole:{role}\r\nused_memory:1\r\nevicted_keys:0\r\n\
             uptime_in_seconds:1\r\nserver_time_usec:{now}\r\nmaxmemory_policy:noeviction\r\n",
            host_of(server),
            state.starts
        )
        .into_bytes(),
    )
}

fn cluster(fleet: &Fleet, server: usize, what: &[u8]) -> Resp {
    let map = fleet.map_of(server);
    if what.eq_ignore_ascii_case(b"INFO") {
        let epoch = map.epoch;
        return Resp::Bulk(
            format!("cluster_state:ok\r\ncluster_current_epoch:{epoch}\r\n").into_bytes(),
        );
    }
    let mut ranges = Vec::new();
    let mut first = 0;
    while first < map.owners.len() {
        let owner = map.owners[first];
        let length = map.owners[first..].iter().take_while(|other| **other == owner).count();
        let number = |number: usize| Resp::Integer(number.try_into().unwrap());
        let host = host_of(map.masters[usize::from(owner)]);
        let node = Resp::Array(vec![Resp::text(&host), Resp::Integer(6379), Resp::text("id")]);
        ranges.push(Resp::Array(vec![number(first), number(first + length - 1), node]));
        first += length;
    }
    Resp::Array(ranges)
}

/// Returns the reply of a sentinel. The last one is partitioned: it knows the first master only.
pub fn sentinel(fleet: &Fleet, number: usize, words: &[Vec<u8>]) -> Resp {
    let name = String::from_utf8_lossy(&words[0]).to_uppercase();
    if name != "SENTINEL" {
        return Resp::Status(if name == "PING" { "PONG" } else { "OK" });
    }
    let (master, epoch) =
        if number == 2 { (0, 1) } else { (fleet.map.masters[0], fleet.map.epoch) };
    let host = host_of(master);
    if words[1].eq_ignore_ascii_case(b"GET-MASTER-ADDR-BY-NAME") {
        return Resp::Array(vec![Resp::text(&host), Resp::text("6379")]);
    }
    let epoch = epoch.to_string();
    let fields = ["name", "main", "ip", &host, "port", "6379", "config-epoch", &epoch];
    Resp::Array(fields.iter().map(|field| Resp::text(field)).collect())
}
