//! Replies that consist of lines such as `role:master`: those of `INFO` and `CLUSTER INFO`.

use redis::Value;

/// A reply of such lines.
pub(in crate::redis) struct InfoReply(pub(in crate::redis) String);

impl InfoReply {
    /// Reads a reply; returns `None` if it is no text.
    pub(in crate::redis) fn read(reply: Value) -> Option<Self> {
        redis::from_redis_value(reply).ok().map(Self)
    }

    /// Returns the value of a field, if there is one.
    pub(in crate::redis) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    /// Returns the value of a field that is a number.
    pub(in crate::redis) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}
