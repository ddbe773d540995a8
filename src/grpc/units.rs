//! Time units of the protocol.

use super::proto::rate_limit_response::rate_limit::Unit;

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// The units of the protocol with their seconds, largest first.
pub const UNITS: [(Unit, u64); 7] = [
    (Unit::Year, 365 * DAY),
    (Unit::Month, 30 * DAY),
    (Unit::Week, 7 * DAY),
    (Unit::Day, DAY),
    (Unit::Hour, HOUR),
    (Unit::Minute, MINUTE),
    (Unit::Second, SECOND),
];
