//! A single server at one address.

use super::routes::{Routes, SlotMap};
use crate::redis::config::url::ServerAddress;

/// Sends all slots to one node.
pub(in crate::redis) fn find(routes: &Routes, address: ServerAddress) {
    routes.replace(SlotMap { masters: vec![address], by_slot: Vec::new() });
}
