//! Log lines in the JSON format of logrus, for pipelines built for envoyproxy/ratelimit: they read
//! `@timestamp`, `@message` and `level` at the top level of a JSON object, next to all other
//! fields.

use std::error::Error;
use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats each event as one JSON object.
pub(super) struct Logrus;

/// The fields of one event.
#[derive(Default)]
struct EventFields(Map<String, Value>);

impl<S, N> FormatEvent<S, N> for Logrus
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = EventFields::default();
        event.record(&mut fields);
        writeln!(
            writer,
            "{}",
            fields.into_line(time, *event.metadata().level(), event.metadata().target())
        )
    }
}

impl EventFields {
    fn into_line(mut self, time: String, level: Level, target: &str) -> Value {
        let of_line = [("@timestamp", time.as_str()), ("level", name(level)), ("target", target)];
        self.0.extend(of_line.map(|(name, value)| (name.to_owned(), value.into())));
        Value::Object(self.0)
    }

    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        let name = if field.name() == "message" { "@message" } else { field.name() };
        self.0.insert(name.to_owned(), value.into());
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }
}

/// Returns the logrus name of a level.
fn name(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct LogrusFormat(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogrusFormat {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_has_the_names_of_logrus_and_every_field_in_its_type() {
        let lines = LogrusFormat::default();
        let written = Arc::clone(&lines.0);
        let logs =
            tracing_subscriber::fmt().event_format(Logrus).with_writer(move || lines.clone());
        let error = io::Error::other("gone");
        with_default(logs.finish(), || {
            tracing::warn!(times = 3, ok = true, share = 0.5, offset = -1, domain = "a\nb", %error, "store is {}", "away");
            tracing::info!("listening");
        });
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, second] = lines.as_slice() else { panic!("{text}") };
        for (name, expected) in [
            ("@message", Value::from("store is away")),
            ("level", "warning".into()),
            ("times", 3.into()),
            ("ok", true.into()),
            ("share", 0.5.into()),
            ("offset", (-1).into()),
            ("domain", "a\nb".into()),
            ("error", "gone".into()),
        ] {
            assert_eq!(first[name], expected, "{name} in {text}");
        }
        first["@timestamp"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert_eq!((&second["@message"], &second["level"]), (&"listening".into(), &"info".into()));
    }
}
