//! Counters in real Redis servers.

mod faults;
