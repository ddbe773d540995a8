//! Ports for servers that cannot be asked to take any free one.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// How far above its port a node of a cluster listens for the other nodes.
pub(super) const BUS: u16 = 10_000;

/// Both a port and its bus stay below 32768, where the system begins to hand out ports by itself: nobody takes one of
/// ours while its server is dead and about to be restarted.
const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;

/// Where the next search begins; processes that run at the same time begin in different places.
static NEXT: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(std::process::id().wrapping_mul(7919)));

/// A port that is free with its bus, and that this process has not handed out. Another process may still be faster.
pub(super) fn free() -> u16 {
    let candidates = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT));
    let mut ports = candidates.take(usize::from(COUNT)).map(|offset| FIRST + u16::try_from(offset).unwrap());
    ports.find(|port| is_free(*port) && is_free(port + BUS)).expect("there is no free port")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
