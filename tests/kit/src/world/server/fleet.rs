//! All servers of a world: their groups of a master and its replica, clocks, and faults.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::data::{Circumstances, Effect, Keys, ScriptRun, ServedSlots};
use super::{SLOTS, slot_of};
use crate::world::coverage::parts_of;

/// Microseconds since the world began.
pub type Moment = u64;

/// Time of all clocks without skew when a world begins, in microseconds since the epoch: ten past
/// an hour, so that no hour ends while a world runs.
pub const BASE_US: u64 = 1_780_481_400_000_000;

/// Most slots that move at once.
const MOVED_SLOTS: usize = 4_096;

/// The arrangement of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// One master behind a name.
    Single,
    /// One master that sentinels name.
    Sentinels,
    /// Several masters with slots.
    Cluster,
}

/// A server.
#[derive(Debug, Default)]
pub struct SimServer {
    pub group: usize,
    pub keys: Keys,
    pub scripts: BTreeMap<String, Vec<u8>>,
    /// `true` if it believes to be a replica.
    pub is_replica: bool,
    /// Time after which a write of the master has arrived here.
    pub lag_us: u64,
    /// Microseconds by which its clock is ahead.
    pub skew_us: i64,
    last_us: u64,
    /// Ends of faults; 0 if there was none.
    pub down_until: Moment,
    pub hung_until: Moment,
    pub busy_until: Moment,
    pub loading_until: Moment,
    pub full_until: Moment,
    /// Set while it refuses the writes of some keys: the remainder of the sum of their bytes.
    pub refused_rest: Option<u8>,
    /// The map that it knows; set while it acts as the master although another server is.
    pub stale: Option<ClusterMap>,
    /// Keys that it wrote meanwhile.
    stale_keys: BTreeSet<Vec<u8>>,
    /// Number of its starts.
    pub starts: u64,
}

/// The masters of all slots, as a node of a Cluster knows them.
#[derive(Clone, Debug)]
pub struct ClusterMap {
    pub epoch: u64,
    pub owners: Arc<Vec<u8>>,
    /// The master of each group.
    pub masters: Vec<usize>,
}

/// Slots that move from one group to another.
#[derive(Clone, Debug)]
pub struct Migration {
    from: usize,
    to: usize,
    slots: Arc<BTreeSet<u16>>,
}

impl Migration {
    /// Returns `true` if a slot moves.
    pub fn includes(&self, slot: u16) -> bool {
        self.slots.contains(&slot)
    }

    /// Returns the group that imports the slots.
    pub fn target(&self) -> usize {
        self.to
    }
}

/// A write of a master that its replica may lack.
#[derive(Debug)]
struct Replicated {
    at: Moment,
    effect: Effect,
}

/// Keys that lost writes.
#[derive(Clone, Debug)]
pub struct LostWrites {
    pub keys: BTreeSet<Vec<u8>>,
}

/// A call of a script, with the time at which it ran.
#[derive(Clone, Debug)]
pub struct RecordedScript {
    pub text: Vec<u8>,
    pub keys: Vec<Vec<u8>>,
    pub arguments: Vec<Vec<u8>>,
}

/// All servers: those of group `g` are `2 * g` and `2 * g + 1`.
#[derive(Debug)]
pub struct Fleet {
    pub arrangement: Arrangement,
    pub servers: Vec<SimServer>,
    pub map: ClusterMap,
    /// Slots whose keys move from one group to another.
    pub migration: Option<Migration>,
    /// Writes of each group's master.
    logs: Vec<Vec<Replicated>>,
    pub losses: Vec<LostWrites>,
    /// Scripts and commands that ran, and errors returned, by name.
    pub counts: BTreeMap<String, u64>,
    /// The parts of each script that ran.
    parts: BTreeMap<Vec<u8>, Vec<String>>,
    /// Calls of scripts, if they are recorded.
    pub scripts: Option<Vec<RecordedScript>>,
}

impl Fleet {
    /// Creates groups of two servers each.
    pub fn new(arrangement: Arrangement, groups: usize) -> Self {
        let server = |number: usize| SimServer {
            group: number / 2,
            is_replica: number % 2 == 1,
            lag_us: 1_000,
            starts: 1,
            ..SimServer::default()
        };
        let owner = |slot: u16| usize::from(slot) * groups / usize::from(SLOTS);
        let owners = (0..SLOTS).map(|slot| u8::try_from(owner(slot)).unwrap()).collect();
        let masters = (0..groups).map(|group| 2 * group).collect();
        Self {
            arrangement,
            servers: (0..2 * groups).map(server).collect(),
            map: ClusterMap { epoch: 1, owners: Arc::new(owners), masters },
            migration: None,
            logs: (0..groups).map(|_| Vec::new()).collect(),
            losses: Vec::new(),
            counts: BTreeMap::new(),
            parts: BTreeMap::new(),
            scripts: None,
        }
    }

    /// Counts an event, for coverage.
    pub fn count(&mut self, name: &str) {
        *self.counts.entry(name.to_owned()).or_default() += 1;
    }

    /// Counts the parts of a script that runs, for coverage.
    pub fn count_script(&mut self, text: &[u8]) {
        if !self.parts.contains_key(text) {
            self.parts.insert(text.to_vec(), parts_of(text));
        }
        for part in &self.parts[text] {
            match self.counts.get_mut(part) {
                Some(count) => *count += 1,
                None => drop(self.counts.insert(part.clone(), 1)),
            }
        }
    }

    /// Returns the time of a server's clock. Two commands at one moment may have one time.
    pub fn clock(&mut self, server: usize, at: Moment) -> u64 {
        let server = &mut self.servers[server];
        let now = (BASE_US + at).saturating_add_signed(server.skew_us);
        let is_same_millisecond = server.last_us >= now && server.last_us < now + 1_000;
        server.last_us =
            if is_same_millisecond { server.last_us + (server.last_us & 1) } else { now };
        server.last_us
    }

    /// Moves a server's clock.
    pub fn step_clock(&mut self, server: usize, by_us: i64) {
        self.servers[server].skew_us += by_us;
        self.servers[server].last_us = 0;
    }

    /// Runs commands on the data of a server.
    pub fn run<T>(
        &mut self,
        server: usize,
        at: Moment,
        is_asking: bool,
        run: impl FnOnce(ScriptRun) -> (T, ScriptRun),
    ) -> T {
        let now = self.clock(server, at);
        let slots = (self.arrangement == Arrangement::Cluster).then(|| {
            let group = self.servers[server].group;
            let migration = || self.migration.clone();
            ServedSlots {
                owners: Arc::clone(&self.map_of(server).owners),
                group: u8::try_from(group).unwrap(),
                leaving: migration().filter(|migration| migration.from == group),
                arriving: migration().filter(|migration| migration.to == group && is_asking),
            }
        });
        self.catch_up(server, at);
        let state = &mut self.servers[server];
        let circumstances = Circumstances {
            now,
            is_replica: state.is_replica,
            is_full: state.full_until > at,
            refused_rest: state.refused_rest,
            slots,
        };
        let keys = std::mem::take(&mut state.keys);
        let (result, ran) = run(ScriptRun { keys, circumstances, ..ScriptRun::default() });
        state.keys = ran.keys;
        let group = state.group;
        if self.map.masters[group] == server {
            let replicated = ran.effects.into_iter().map(|effect| Replicated { at, effect });
            self.logs[group].extend(replicated);
        } else if state.stale.is_some() {
            state.stale_keys.extend(ran.effects.into_iter().map(|(key, _)| key));
        }
        result
    }

    /// Returns the map that a server knows.
    pub fn map_of(&self, server: usize) -> &ClusterMap {
        self.servers[server].stale.as_ref().unwrap_or(&self.map)
    }

    /// Returns `true` if a server has a key that has not expired.
    pub fn has(&mut self, server: usize, at: Moment, key: &[u8]) -> bool {
        let now_ms = self.clock(server, at) / 1_000;
        let item = self.servers[server].keys.get(key);
        item.is_some_and(|item| item.expires_at.is_none_or(|expires_at| expires_at > now_ms))
    }

    /// Returns the replica of a group.
    pub fn replica_of(&self, group: usize) -> usize {
        self.map.masters[group] ^ 1
    }

    /// Applies the writes of its master that have arrived at a replica.
    fn catch_up(&mut self, server: usize, at: Moment) {
        let group = self.servers[server].group;
        if self.replica_of(group) != server || self.servers[server].stale.is_some() {
            return;
        }
        let lag = self.servers[server].lag_us;
        // Writes arrive in their order, also while the lag changes.
        let arrived = self.logs[group].iter().take_while(|write| write.at + lag <= at).count();
        for Replicated { effect: (key, item), .. } in self.logs[group].drain(..arrived) {
            match item {
                Some(item) => self.servers[server].keys.insert(key, item),
                None => self.servers[server].keys.remove(&key),
            };
        }
    }

    /// Promotes the replica of a group. The old master becomes its replica at once, or goes on as a
    /// stale master until [`demote_stale`](Self::demote_stale).
    pub fn promote(&mut self, group: usize, at: Moment, is_stale: bool) {
        self.finish_migration(at);
        let old = self.map.masters[group];
        let new = self.replica_of(group);
        self.catch_up(new, at);
        let lost = std::mem::take(&mut self.logs[group]).into_iter();
        let lost: BTreeSet<_> = lost.map(|write| write.effect.0).collect();
        if !lost.is_empty() {
            self.losses.push(LostWrites { keys: lost });
        }
        if is_stale {
            self.servers[old].stale = Some(self.map.clone());
        }
        self.servers[new].is_replica = false;
        self.map.masters[group] = new;
        self.map.epoch += 1;
        if !is_stale {
            self.follow(old, new);
        }
    }

    /// Ends the time of a stale master: it becomes a replica, and loses its writes.
    pub fn demote_stale(&mut self, server: usize) {
        if self.servers[server].stale.take().is_none() {
            return;
        }
        let keys = std::mem::take(&mut self.servers[server].stale_keys);
        if !keys.is_empty() {
            self.losses.push(LostWrites { keys });
        }
        let master = self.map.masters[self.servers[server].group];
        self.follow(server, master);
    }

    /// Makes a server a replica that has all data of its master.
    fn follow(&mut self, server: usize, master: usize) {
        self.servers[server].is_replica = true;
        self.servers[server].keys = self.servers[master].keys.clone();
        self.logs[self.servers[master].group].clear();
    }

    /// Begins to move slots with their keys from one group to another: until
    /// [`finish_migration`](Self::finish_migration), the old group serves the keys that it has.
    pub fn begin_migration(&mut self, from: usize, to: usize, first: usize) {
        if from == to || self.servers.iter().any(|server| server.stale.is_some()) {
            return;
        }
        let own = u8::try_from(from).unwrap();
        // The slots around one with a key, if there is any: a change of others has no visible
        // effect.
        let keys = &self.servers[self.map.masters[from]].keys;
        let slot = |number: usize| keys.keys().nth(number).map_or(0, |key| slot_of(key));
        let near = usize::from(slot(first.checked_rem(keys.len()).unwrap_or_default()));
        let range = near.saturating_sub(MOVED_SLOTS / 2)..near + MOVED_SLOTS / 2;
        let slots = self
            .map
            .owners
            .iter()
            .zip(0..)
            .filter(|(owner, slot)| **owner == own && range.contains(&usize::from(*slot)));
        let slots = Arc::new(slots.map(|(_, slot)| slot).collect());
        self.migration = Some(Migration { from, to, slots });
    }

    /// Moves some of the keys of the slots that move: those with these numbers.
    pub fn migrate_keys(&mut self, at: Moment, is_moved: impl Fn(usize) -> bool) {
        let Some(Migration { from, to, slots }) = self.migration.clone() else { return };
        let source = self.map.masters[from];
        let sink = self.map.masters[to];
        let mut number = 0;
        let moved: Vec<_> = self.servers[source]
            .keys
            .extract_if(.., |key, _| {
                let is_of_slots = slots.contains(&slot_of(key));
                number += usize::from(is_of_slots);
                is_of_slots && is_moved(number)
            })
            .collect();
        for (key, item) in moved {
            self.logs[from].push(Replicated { at, effect: (key.clone(), None) });
            self.logs[to].push(Replicated { at, effect: (key.clone(), Some(item.clone())) });
            // An expired key may have been created anew.
            self.servers[sink].keys.entry(key).or_insert(item);
        }
    }

    /// Moves the keys that are left, and makes the new group the owner of the slots.
    pub fn finish_migration(&mut self, at: Moment) {
        self.migrate_keys(at, |_| true);
        let Some(migration) = self.migration.take() else { return };
        let to = u8::try_from(migration.to).unwrap();
        let owners = Arc::make_mut(&mut self.map.owners).iter_mut().zip(0..);
        owners.filter(|(_, slot)| migration.includes(*slot)).for_each(|(owner, _)| *owner = to);
        self.map.epoch += 1;
    }

    /// Removes keys of a server, as a restart without persistence or an eviction does.
    pub fn drop_keys(&mut self, server: usize, at: Moment, is_lost: impl Fn(usize) -> bool) {
        let keys = self.servers[server].keys.keys().cloned().enumerate();
        let lost: BTreeSet<_> =
            keys.filter(|(number, _)| is_lost(*number)).map(|(_, key)| key).collect();
        if lost.is_empty() {
            return;
        }
        self.servers[server].keys.retain(|key, _| !lost.contains(key));
        let group = self.servers[server].group;
        if self.map.masters[group] == server {
            let gone = lost.iter().map(|key| Replicated { at, effect: (key.clone(), None) });
            self.logs[group].extend(gone);
        }
        self.losses.push(LostWrites { keys: lost });
    }

    /// Ends all faults of all servers.
    pub fn heal(&mut self, at: Moment) {
        self.finish_migration(at);
        for number in 0..self.servers.len() {
            self.demote_stale(number);
            let server = &mut self.servers[number];
            server.down_until = server.down_until.min(at);
            server.hung_until = server.hung_until.min(at);
            server.busy_until = server.busy_until.min(at);
            server.loading_until = server.loading_until.min(at);
            server.full_until = server.full_until.min(at);
        }
    }
}
