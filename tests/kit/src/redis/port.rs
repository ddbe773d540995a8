//! Ports for servers that cannot bind port 0.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offset of a cluster node's bus port from its port.
pub(super) const BUS: u16 = 10_000;

/// First port of the range. Ports and bus ports stay below 32768, the start of the ephemeral range,
/// so that no other process takes a port while its server is down and about to be restarted.
const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;

/// Start of the next search; concurrent processes start at different offsets.
static NEXT: LazyLock<AtomicU32> =
    LazyLock::new(|| AtomicU32::new(std::process::id().wrapping_mul(7919)));

/// Returns a port that is free together with its bus port, and that this process has not handed
/// out. Another process may still take it first.
pub fn free() -> u16 {
    let candidates =
        std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed) % u32::from(COUNT));
    let mut ports =
        candidates.take(usize::from(COUNT)).map(|offset| FIRST + u16::try_from(offset).unwrap());
    ports.find(|port| is_free(*port) && is_free(port + BUS)).expect("there is no free port")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
