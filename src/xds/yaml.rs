//! A `RateLimitConfig` as the text of a policy, to be compiled and read by people like any other.
//!
//! All texts are between quotes, so that none is taken for a number, a truth or nothing. What cannot work is written down as
//! it came: the compiler says what is wrong with it, at its place.

use std::fmt::Write as _;

use prost_types::value::Kind;
use prost_types::{Struct, Value};

use crate::grpc::proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use crate::policy::Source;

/// Letters of a resource's name that messages show.
const MAX_NAME: usize = 200;

/// The policy of a resource under its name; `None` where the text has more than `room` bytes.
pub(super) fn source(config: &RateLimitConfig, room: usize) -> Option<Source> {
    let name = [&config.name, &config.domain].into_iter().find(|name| !name.is_empty());
    let printable = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    let name = name.map_or("a resource without a name", |name| name).chars().take(MAX_NAME).map(printable).collect();
    let mut page = Page { text: String::new(), room };
    page.line(0, &format!("domain: {}", quoted(&config.domain)));
    page.descriptors(0, &config.descriptors);
    (page.text.len() <= room).then_some(Source { name, text: page.text })
}

struct Page {
    text: String,
    /// Bytes that there may be; a little beyond them the page is full and takes no more.
    room: usize,
}

impl Page {
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
        // The protocol cannot say that a switch is off: what is not on is not said, and may be by others.
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
        let unit = unit.map_or_else(|_| quoted(&limit.unit.to_string()), |unit| unit.as_str_name().to_lowercase());
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

/// A value as JSON, which is YAML.
fn in_line(value: &Value) -> String {
    let joined = |items: Vec<String>| items.join(", ");
    match &value.kind {
        None | Some(Kind::NullValue(_)) => "null".to_owned(),
        Some(Kind::BoolValue(truth)) => truth.to_string(),
        // The protocol has no whole numbers: 20 comes as 20.0, and is meant as 20.
        Some(Kind::NumberValue(number)) if number.is_finite() => number.to_string(),
        Some(Kind::NumberValue(_)) => "null".to_owned(),
        Some(Kind::StringValue(text)) => quoted(text),
        Some(Kind::ListValue(list)) => format!("[{}]", joined(list.values.iter().map(in_line).collect())),
        Some(Kind::StructValue(map)) => {
            let pair = |(key, value): (&String, &Value)| format!("{}: {}", quoted(key), in_line(value));
            format!("{{{}}}", joined(map.fields.iter().map(pair).collect()))
        }
    }
}

/// A text between double quotes, on one line, of characters that can be seen.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len().saturating_add(2));
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Beside control characters what YAML takes for the end of a line, and what may not stand in it.
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => escape(&mut quoted, letter),
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
