//! Faults, as they are injected into a world that runs.

use std::sync::Arc;

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;

use super::network::Target;
use super::plan::{Change, Fault};
use super::run::RunningWorld;
use super::server::fleet::{Arrangement, Fleet, Moment};

impl RunningWorld {
    /// Injects a fault, which ends by `end`.
    pub(super) fn inject(self: &Arc<Self>, fault: &Fault, end: Moment) {
        let now = self.shared.now();
        match *fault {
            Fault::CutAll { server } => self.cut_all(server),
            Fault::CutOne { connection, is_request, bytes } => {
                let open = self.shared.open_connections();
                if let Some(number) = connection.checked_rem(open.len()) {
                    open[number].cut_within(is_request, bytes);
                }
            }
            Fault::Silence { process, server, us } => {
                self.shared.path_mut(process, Target::Server(server)).silent_until = now + us;
            }
            Fault::Slow { process, server, us, by_us } => {
                self.shared.path_mut(process, Target::Server(server)).slow = (now + us, by_us);
            }
            Fault::Restart { server, us, keeps_data } => self.restart(server, now + us, keeps_data),
            Fault::Crash { process, us } => self.crash(process, now + us),
            Fault::Reload { process, version } => self.reload(process, version),
            Fault::Stop { process, us } => self.shared.stop(process, (now + us).min(end)),
            Fault::EndHolder { holder } => self.end_holder(holder),
            Fault::StopHolder { holder, us } => self.stop_holder(holder, (now + us).min(end)),
            Fault::EndProxy { proxy } => self.end_proxy(proxy),
            Fault::CutStream { proxy } => self.cut_stream(proxy),
            Fault::LoseStream { proxy } => self.lose_stream(proxy),
            Fault::BlockStream { proxy, us } => self.block_stream(proxy, us),
            Fault::StopProxy { proxy, us } => self.stop_proxy(proxy, (now + us).min(end)),
            Fault::Amend { process, counter, change } => self.amend(process, counter, change),
            Fault::Promote { group, stale_us } => self.promote(group, stale_us, end),
            Fault::MoveSlots { from, to, first, us } => {
                self.move_slots([from, to], first, (now + us).min(end));
            }
            ref fault => inject_at_servers(&mut self.shared.fleet.lock(), fault, now),
        }
    }

    fn cut_all(&self, server: usize) {
        let open = self.shared.open_connections();
        let of_server = open.iter().filter(|open| open.target == Target::Server(server));
        of_server.for_each(|connection| connection.cut());
    }

    fn restart(&self, server: usize, until: Moment, keeps_data: bool) {
        let now = self.shared.now();
        let mut fleet = self.shared.fleet.lock();
        fleet.servers[server].down_until = until;
        fleet.servers[server].starts += 1;
        fleet.servers[server].scripts.clear();
        if !keeps_data {
            fleet.drop_keys(server, now, |_| true);
        }
        drop(fleet);
        self.cut_all(server);
    }

    fn promote(self: &Arc<Self>, group: usize, stale_us: u64, end: Moment) {
        let now = self.shared.now();
        let mut fleet = self.shared.fleet.lock();
        let old = fleet.map.masters[group];
        let new = fleet.replica_of(group);
        // A server that is a master already, though without replicas, is not promoted.
        if fleet.servers[new].stale.is_some() {
            return;
        }
        fleet.promote(group, now, stale_us > 0);
        let until = (now + stale_us).min(end);
        drop(fleet);
        if stale_us > 0 {
            let world = Arc::clone(self);
            tokio::spawn(async move {
                world.shared.sleep_until(until).await;
                world.shared.fleet.lock().demote_stale(old);
            });
        }
    }

    /// Moves slots: half of the keys at once, some later, the rest and the slots themselves at a
    /// moment.
    fn move_slots(self: &Arc<Self>, [from, to]: [usize; 2], first: usize, until: Moment) {
        let now = self.shared.now();
        let mut fleet = self.shared.fleet.lock();
        if fleet.arrangement != Arrangement::Cluster || fleet.migration.is_some() {
            return;
        }
        fleet.begin_migration(from, to, first);
        fleet.migrate_keys(now, |number| number % 2 == 0);
        if until <= now {
            fleet.finish_migration(now);
            return;
        }
        drop(fleet);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            for at in [now.midpoint(until), until] {
                world.shared.sleep_until(at).await;
                world.shared.fleet.lock().migrate_keys(at, |number| number % 2 == 0);
            }
            world.shared.fleet.lock().finish_migration(until);
        });
    }

    fn crash(self: &Arc<Self>, number: usize, until: Moment) {
        let Some(process) = self.processes.lock()[number].0.take() else { return };
        process.crash();
        self.crashed.lock().push(process);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            world.shared.sleep_until(until).await;
            world.start(number);
        });
    }

    fn reload(&self, number: usize, version: usize) {
        let mut processes = self.processes.lock();
        let (process, known) = &mut processes[number];
        *known = version;
        if let Some(process) = process {
            process.install(&self.plan, version);
        }
    }

    fn amend(self: &Arc<Self>, process: usize, counter: usize, change: Change) {
        // The records of holds end with a reset, which the checker of holds does not know.
        if self.plan.rule_of(counter).hold.is_some() {
            return;
        }
        let Some(process) = self.processes.lock()[process].0.clone() else { return };
        let amendment = match change {
            Change::Reset => Amendment::Reset,
            Change::Refund { hits } => Amendment::Refund(hits),
            Change::Grant { hits, us } => Amendment::Grant { hits, length: Micros::new(us) },
        };
        let world = Arc::clone(self);
        tokio::spawn(async move { process.amend(&world.plan, counter, amendment).await });
    }
}

/// Injects a fault that only servers feel.
fn inject_at_servers(fleet: &mut Fleet, fault: &Fault, now: Moment) {
    match *fault {
        Fault::Flush { server } => fleet.servers[server].scripts.clear(),
        Fault::Hang { server, us } => fleet.servers[server].hung_until = now + us,
        Fault::Full { server, us } => fleet.servers[server].full_until = now + us,
        Fault::Busy { server, us } => fleet.servers[server].busy_until = now + us,
        Fault::Loading { server, us } => fleet.servers[server].loading_until = now + us,
        Fault::Clock { server, by_us } => fleet.step_clock(server, by_us),
        Fault::Lag { group, us } => {
            let replica = fleet.replica_of(group);
            fleet.servers[replica].lag_us = us;
        }
        Fault::Evict { server, of } => fleet.drop_keys(server, now, |number| number % of == 0),
        _ => {}
    }
}
