//! A single server at one address.

use super::routes::{Routes, SlotMap};
use super::url::ServerAddress;

/// Sends all slots to one node.
pub(super) fn find(routes: &Routes, address: ServerAddress) {
    routes.replace(SlotMap { masters: vec![address], by_slot: Vec::new() });
}
