//! Output: a block of lines or one line of JSON per case.

use std::time::Duration;

use serde_json::{Value, json};

use super::case::{Case, Figure, Server};
use super::counters;
use super::measure::{Measured, Turn};

/// A figure and its target.
struct Line {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// Minimum or maximum value, if there is a target.
    target: Option<f64>,
    is_better_above: bool,
    /// The components of the value.
    of: String,
}

impl Line {
    /// Returns `true` if the value meets its target; `None` without a target.
    fn is_ok(&self) -> Option<bool> {
        let target = self.target?;
        Some(if self.is_better_above { self.value >= target } else { self.value <= target })
    }

    fn print(&self) {
        let Self { name, value, unit, of, .. } = self;
        let target = self.target.map_or(String::new(), |target| {
            let relation = if self.is_better_above { ">=" } else { "<=" };
            format!("{relation} {target}{unit}")
        });
        let verdict = self.is_ok().map_or("", |is_ok| if is_ok { "ok" } else { "SHORT" });
        let value = format!("{value:.*}{unit}", digits(*value));
        println!(
            "{}",
            format!("  {name:<16} {value:>9}  {target:<10} {verdict:<6} {of}").trim_end()
        );
    }
}

/// Returns the number of decimals that a measured value justifies.
fn digits(value: f64) -> usize {
    match value {
        0.0 => 0,
        ..0.1 => 4,
        ..100.0 => 2,
        _ => 0,
    }
}

/// Prints a case.
pub(crate) fn case(case: &Case, measured: &Measured, as_json: bool) {
    if as_json {
        return println!("{}", json_of(case, measured));
    }
    let flight = case.in_flight;
    let keys = case.keys;
    println!("{}: {} / {}", case.name, server(case.subject), server(case.baseline));
    println!(
        "  {} in flight on {}, {}, {keys} key{}",
        flight.calls(),
        plural(flight.connections, "connection"),
        plural(case.descriptors().len(), "descriptor"),
        if keys == 1 { "" } else { "s" },
    );
    for (figure, value) in &measured.figures {
        line(case, measured, *figure, *value).print();
    }
    if case.target(Figure::SystemCalls).is_some() && !has(measured, Figure::SystemCalls) {
        println!(
            "  system calls     not measured: perf is missing, or may not count them (it wants root)"
        );
    }
    if measured.failed > 0 {
        println!("  !!! {} calls failed: these figures are of something else", measured.failed);
    }
    println!();
}

/// Prints the memory cost of a counter.
pub(crate) fn counters(bytes: f64, as_json: bool) {
    if as_json {
        return println!(
            "{}",
            json!({ "case": "counters", "bytes": bytes, "target": counters::TARGET })
        );
    }
    println!("counters: {} in memory, keys of 32 bytes", counters::COUNT);
    let target = Some(counters::TARGET);
    Line {
        name: "bytes each",
        value: bytes,
        unit: "",
        target,
        is_better_above: false,
        of: String::new(),
    }
    .print();
    println!();
}

fn line(case: &Case, measured: &Measured, figure: Figure, value: f64) -> Line {
    let subject = &measured.subject;
    let baseline = &measured.baseline;
    let us = |turn: &Turn| turn.median.as_secs_f64() * 1e6;
    let ms = |turn: &Turn| turn.p99.as_secs_f64() * 1e3;
    let (unit, of) = match figure {
        Figure::Throughput => {
            let latency = format!("p50 {:.0} us, p99 {:.1} ms", us(subject), ms(subject));
            (
                "",
                format!(
                    "{:.0} of {:.0} a second; {latency}",
                    subject.per_second, baseline.per_second
                ),
            )
        }
        Figure::Cpu => ("", format!("{:.1} of {:.1} us", subject.cpu, baseline.cpu)),
        Figure::Median => {
            let script = measured.script.unwrap_or_default().as_secs_f64() * 1e6;
            (
                "",
                format!(
                    "{:.0} us of {:.0} and {script:.0} of the bare script",
                    us(subject),
                    us(baseline)
                ),
            )
        }
        Figure::P99AtHalf => {
            let at_half = measured.at_half.unwrap_or_default();
            let [own, other] = at_half.map(|turn| {
                let ms = |time: Duration| time.as_secs_f64() * 1e3;
                format!("{:.2}, {:.1}, {:.1} ms", ms(turn.median), ms(turn.p99), ms(turn.p999))
            });
            let rate = subject.per_second / 2.0;
            (" ms", format!("at {rate:.0} a second; p50, p99, p99.9: {own} of {other}"))
        }
        Figure::RedisCpu if case.baseline == Server::Peer => {
            (" us", format!("a decision; {:.1} us", baseline.redis_cpu))
        }
        Figure::RedisCpu => (" us", "a decision".to_owned()),
        Figure::RedisCommands | Figure::SystemCalls | Figure::Waits => ("", "a request".to_owned()),
        Figure::Memory => (" MB", "more".to_owned()),
        Figure::Series => ("", "of metrics".to_owned()),
    };
    Line {
        name: name(figure),
        value,
        unit,
        target: case.target(figure),
        is_better_above: figure.is_better_above(),
        of,
    }
}

fn name(figure: Figure) -> &'static str {
    match figure {
        Figure::Throughput => "throughput",
        Figure::Cpu => "CPU",
        Figure::Median => "p50",
        Figure::P99AtHalf => "p99 at half",
        Figure::RedisCpu => "CPU of Redis",
        Figure::RedisCommands => "commands",
        Figure::SystemCalls => "system calls",
        Figure::Waits => "waits",
        Figure::Memory => "memory",
        Figure::Series => "series",
    }
}

fn server(server: Server) -> String {
    match server {
        Server::Tollgate(place, policy) => {
            format!("tollgate ({place:?}, {policy:?})").to_lowercase()
        }
        Server::Blind(..) => "the same without a journal".to_owned(),
        Server::Ceiling => "the ceiling".to_owned(),
        Server::Bare => "a bare tonic".to_owned(),
        Server::Peer => "envoyproxy/ratelimit".to_owned(),
    }
}

fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn has(measured: &Measured, figure: Figure) -> bool {
    measured.figures.iter().any(|(of, _)| *of == figure)
}

fn json_of(case: &Case, measured: &Measured) -> Value {
    let turn = |turn: &Turn| {
        let median = turn.median.as_secs_f64() * 1e6;
        let p99 = turn.p99.as_secs_f64() * 1e6;
        let p999 = turn.p999.as_secs_f64() * 1e6;
        json!({ "per_second": turn.per_second, "cpu_us": turn.cpu, "p50_us": median, "p99_us": p99, "p999_us": p999 })
    };
    let figures = measured.figures.iter().map(|(figure, value)| {
        let line = line(case, measured, *figure, *value);
        (line.name.to_owned(), json!({ "value": value, "target": line.target, "ok": line.is_ok() }))
    });
    json!({
        "case": case.name,
        "figures": Value::Object(figures.collect()),
        "subject": turn(&measured.subject),
        "baseline": turn(&measured.baseline),
        "at_half": measured.at_half.map(|turns| turns.map(|one| turn(&one))),
        "failed": measured.failed,
    })
}
