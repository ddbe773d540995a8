//! Text of a policy from a `RateLimitConfig`, to be compiled and read like any other policy.
//!
//! All texts are quoted, so that none is parsed as a number, a boolean or null. Invalid values are
//! written as received: the compiler reports the error, with its position.

use std::fmt::Write as _;

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::grpc::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use crate::policy::Source;
use crate::printable::is_invisible;

/// Maximum characters of a resource's name in messages.
const MAX_NAME: usize = 200;

/// Returns the policy of a resource under its name; `None` if the text has more than `room` bytes.
pub(super) fn source(config: &RateLimitConfig, room: usize) -> Option<Source> {
    let name = [&config.name, &config.domain].into_iter().find(|name| !name.is_empty());
    let name = name.map_or("unnamed resource", |name| name).chars().take(MAX_NAME);
    let name = name
        .map(|letter| if is_invisible(letter) { char::REPLACEMENT_CHARACTER } else { letter })
        .collect();
    let mut page = ConfigDocument { text: String::new(), room };
    page.line(0, &format!("domain: {}", quoted(&config.domain)));
    page.descriptors(0, &config.descriptors);
    (page.text.len() <= room).then_some(Source { name, text: page.text })
}

struct ConfigDocument {
    text: String,
    /// Maximum bytes. Lines are dropped once the text exceeds them.
    room: usize,
}

impl ConfigDocument {
    fn line(&mut self, indent: usize, words: &str) {
        if self.text.len() <= self.room {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "{:indent$}{words}", "");
        }
    }

    fn descriptors(&mut self, indent: usize, descriptors: &[RateLimitDescriptor]) {
        if descriptors.is_empty() {
            return;
        }
        self.line(indent, "descriptors:");
        for descriptor in descriptors {
            self.descriptor(indent.saturating_add(2), descriptor);
        }
    }

    fn descriptor(&mut self, indent: usize, descriptor: &RateLimitDescriptor) {
        self.line(indent, &format!("- key: {}", quoted(&descriptor.key)));
        let indent = indent.saturating_add(2);
        if !descriptor.value.is_empty() {
            self.line(indent, &format!("value: {}", quoted(&descriptor.value)));
        }
        // The protocol cannot express that a switch is off: one that is not on is not set, so that
        // other layers can set it.
        let switches = [
            ("shadow_mode", descriptor.shadow_mode),
            ("quota_mode", descriptor.quota_mode),
            ("detailed_metric", descriptor.detailed_metric),
        ];
        for (word, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
            self.line(indent, &format!("{word}: true"));
        }
        if let Some(limit) = &descriptor.rate_limit {
            self.limit(indent, limit);
        }
        if let Some(metadata) = &descriptor.metadata {
            self.mapping(indent, "metadata", metadata);
        }
        self.descriptors(indent, &descriptor.descriptors);
    }

    fn limit(&mut self, indent: usize, limit: &RateLimitPolicy) {
        self.line(indent, "rate_limit:");
        let indent = indent.saturating_add(2);
        let unit = RateLimitUnit::try_from(limit.unit);
        let unit = unit.map_or_else(
            |_| quoted(&limit.unit.to_string()),
            |unit| unit.as_str_name().to_lowercase(),
        );
        if limit.unlimited {
            self.line(indent, "unlimited: true");
        }
        if limit.unit != 0 || !limit.unlimited {
            self.line(indent, &format!("unit: {unit}"));
        }
        if limit.requests_per_unit != 0 || !limit.unlimited {
            self.line(indent, &format!("requests_per_unit: {}", limit.requests_per_unit));
        }
        if !limit.name.is_empty() {
            self.line(indent, &format!("name: {}", quoted(&limit.name)));
        }
        for (index, replaced) in limit.replaces.iter().enumerate() {
            if index == 0 {
                self.line(indent, "replaces:");
            }
            self.line(indent.saturating_add(2), &format!("- name: {}", quoted(&replaced.name)));
        }
    }

    fn mapping(&mut self, indent: usize, key: &str, content: &Struct) {
        if content.fields.is_empty() {
            return self.line(indent, &format!("{key}: {{}}"));
        }
        self.line(indent, &format!("{key}:"));
        let indent = indent.saturating_add(2);
        for (key, value) in &content.fields {
            if let Some(Kind::StructValue(below)) = &value.kind {
                self.mapping(indent, &quoted(key), below);
            } else {
                self.line(indent, &format!("{}: {}", quoted(key), in_line(value)));
            }
        }
    }
}

/// Returns a value as JSON, which is also YAML.
fn in_line(value: &Value) -> String {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "null".to_owned(),
        Some(Kind::BoolValue(truth)) => truth.to_string(),
        // The protocol has no integers: 20 is received as 20.0 and means 20.
        Some(Kind::NumberValue(number)) if number.is_finite() => number.to_string(),
        Some(Kind::NumberValue(_)) => "null".to_owned(),
        Some(Kind::StringValue(text)) => quoted(text),
        Some(Kind::ListValue(list)) => {
            let items: Vec<_> = list.values.iter().map(in_line).collect();
            format!("[{}]", items.join(", "))
        }
        Some(Kind::StructValue(map)) => {
            let pairs = map.fields.iter();
            let pairs: Vec<_> =
                pairs.map(|(key, value)| format!("{}: {}", quoted(key), in_line(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// Returns a text in double quotes, on one line, without invisible characters.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Besides control characters: line breaks of YAML, and characters that it does not
            // allow.
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                escape(&mut quoted, letter)
            }
            letter if letter.is_control() => escape(&mut quoted, letter),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

fn escape(text: &mut String, letter: char) {
    // Writing to a string cannot fail.
    let _ = write!(text, "\\u{:04x}", u32::from(letter));
}

#[cfg(test)]
mod tests;
