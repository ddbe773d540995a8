//! Texts of faults and calls, for the table of a world.

use std::fmt;

use super::history::{CallRecord, Ending, PartStatus};
use super::plan::{Change, Fault, Part, PartHits};
use super::server::session::host_of;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = |server: &usize| host_of(*server);
        let ms = |us: &u64| us / 1_000;
        match self {
            Self::CutAll { server } => write!(f, "{}: all connections cut", host(server)),
            Self::CutOne { connection, is_request, bytes } => {
                let of = if *is_request { "request" } else { "reply" };
                write!(f, "connection {connection}: cut after {bytes} bytes of a {of}")
            }
            Self::Silence { process, server, us } => {
                write!(f, "p{process} to {}: silent for {} ms", host(server), ms(us))
            }
            Self::Slow { process, server, us, by_us } => {
                let by = by_us / 1_000;
                write!(f, "p{process} to {}: {by} ms slower for {} ms", host(server), ms(us))
            }
            Self::Flush { server } => write!(f, "{}: scripts flushed", host(server)),
            Self::Restart { server, us, keeps_data } => {
                let data = if *keeps_data { "with its data" } else { "without data" };
                write!(f, "{}: down for {} ms, restarts {data}", host(server), ms(us))
            }
            Self::Hang { server, us } => write!(f, "{}: stopped for {} ms", host(server), ms(us)),
            Self::Full { server, us } => write!(f, "{}: full for {} ms", host(server), ms(us)),
            Self::Busy { server, us } => write!(f, "{}: busy for {} ms", host(server), ms(us)),
            Self::Loading { server, us } => {
                write!(f, "{}: loading for {} ms", host(server), ms(us))
            }
            Self::Clock { server, by_us } => {
                write!(f, "{}: clock set by {} ms", host(server), by_us / 1_000)
            }
            Self::Lag { group, us } => write!(f, "group {group}: replica lags by {} ms", ms(us)),
            Self::Promote { group, stale_us: 0 } => write!(f, "group {group}: failover"),
            Self::Promote { group, stale_us } => {
                write!(f, "group {group}: failover, old master on for {} ms", ms(stale_us))
            }
            Self::MoveSlots { from, to, us, .. } => {
                write!(f, "group {from}: slots move to group {to} for {} ms", ms(us))
            }
            Self::Evict { server, of } => write!(f, "{}: evicts one key in {of}", host(server)),
            Self::Crash { process, us } => write!(f, "p{process}: killed for {} ms", ms(us)),
            Self::Reload { process, version } => {
                write!(f, "p{process}: reloads version {version} of the policy")
            }
            Self::Stop { process, us } => write!(f, "p{process}: stopped for {} ms", ms(us)),
            Self::EndHolder { holder } => write!(f, "holder {holder}: killed"),
            Self::StopHolder { holder, us } => {
                write!(f, "holder {holder}: stopped for {} ms", ms(us))
            }
            Self::EndProxy { proxy } => write!(f, "proxy {proxy}: killed"),
            Self::CutStream { proxy } => write!(f, "proxy {proxy}: stream cut"),
            Self::LoseStream { proxy } => write!(f, "proxy {proxy}: stream lost"),
            Self::BlockStream { proxy, us } => {
                write!(f, "proxy {proxy}: stream blocked for {} ms", ms(us))
            }
            Self::StopProxy { proxy, us } => write!(f, "proxy {proxy}: stopped for {} ms", ms(us)),
            Self::Amend { process, counter, change } => match change {
                Change::Reset => write!(f, "c{counter}: reset at p{process}"),
                Change::Refund { hits } => write!(f, "c{counter}: refund of {hits} at p{process}"),
                Change::Grant { hits, us } => {
                    write!(f, "c{counter}: grant of {hits} for {} ms at p{process}", ms(us))
                }
            },
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{} ", self.counter)?;
        match self.hits {
            PartHits::Charge(hits) => write!(f, "charge {hits}"),
            PartHits::Peek => write!(f, "peek"),
            PartHits::Refund(hits) => write!(f, "refund {hits}"),
            PartHits::Reserve { id, hits } => write!(f, "reserve {hits} as {id}"),
            PartHits::End { id, cost: Some(cost), .. } => write!(f, "commit {cost} as {id}"),
            PartHits::End { id, cost: None, .. } => write!(f, "settle {id}"),
        }
    }
}

impl fmt::Display for PartStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.standing)?;
        if let Some(left) = self.left {
            write!(f, ", {left} left")?;
        }
        f.write_str(if self.is_cached { " (cached)" } else { "" })
    }
}

impl fmt::Display for CallRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { call, begun, ended, ending } = self;
        let parts: Vec<String> = match ending {
            Ending::Decided(_, statuses) => {
                let parts = call.parts.iter().zip(statuses);
                parts.map(|(part, status)| format!("{part}: {status}")).collect()
            }
            Ending::Failed(_) | Ending::Cancelled => {
                call.parts.iter().map(ToString::to_string).collect()
            }
        };
        let took = (ended - begun) / 1_000;
        let place = format!("p{}.{}", call.process, call.worker);
        write!(f, "{place}  {took:>3} ms  {:<10}  {}", ending.name(), parts.join("; "))
    }
}
