//! Latency of a bare script call: the exact command that the service sends, repeated on a blocking
//! socket.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::load::Histogram;
use tollgate_testkit::redis::Redis;

/// Timeout for the service to send a command.
const TEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the median latency of a script call. The closure makes the service call the script.
pub(crate) fn of_script(redis: &Redis, send: impl FnOnce(), time: Duration) -> Option<Duration> {
    let script = seen(redis, send)?;
    let mut connection = redis::Client::open(redis.url()).ok()?.get_connection().ok()?;
    let mut command = redis::Cmd::new();
    command.arg(script);
    let mut latency = Histogram::default();
    let begun = Instant::now();
    while begun.elapsed() < time {
        let sent = Instant::now();
        command.exec(&mut connection).ok()?;
        latency.add(sent.elapsed());
    }
    Some(latency.quantile(0.5))
}

/// Runs the closure, and returns the last `EVALSHA` that Redis receives meanwhile.
fn seen(redis: &Redis, send: impl FnOnce()) -> Option<Vec<Vec<u8>>> {
    let mut monitor = TcpStream::connect(redis.address).ok()?;
    monitor.set_read_timeout(Some(TEST_TIMEOUT)).ok()?;
    monitor.write_all(b"MONITOR\r\n").ok()?;
    let mut lines = BufReader::new(monitor.try_clone().ok()?).lines();
    lines.next()?.ok()?;
    send();
    // Marks the end of the closure's commands.
    TcpStream::connect(redis.address).ok()?.write_all(b"ECHO end\r\n").ok()?;
    let lines = lines.map_while(Result::ok).take_while(|line| !line.contains(r#""ECHO" "end""#));
    let scripts = lines
        .map(|line| words(&line))
        .filter(|words| words.first().is_some_and(|word| word == b"EVALSHA"));
    scripts.last()
}

/// Splits a line of `MONITOR` into its quoted arguments; non-text bytes are escaped as `\x00`.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.bytes().skip_while(|byte| *byte != b'"');
    while rest.next().is_some() {
        let mut word = Vec::new();
        loop {
            match rest.next() {
                None | Some(b'"') => break,
                Some(b'\\') => word.extend(escaped(&mut rest)),
                Some(byte) => word.push(byte),
            }
        }
        words.push(word);
        rest.next(); // space between two arguments
    }
    words
}

fn escaped(rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    Some(match rest.next()? {
        b'x' => {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        }
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        other => other,
    })
}
