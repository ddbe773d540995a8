//! The product's binary: as a service, and as a command.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use rustix::process::Signal;
use serde_json::Value;

use super::process::Process;

/// A running `tollgate serve`, ready for requests.
pub(crate) struct Tollgate {
    pub(crate) process: Process,
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Tollgate {
    /// Serves `policy`, a file or a directory, on free ports and without a drain delay.
    pub(crate) fn serve(policy: &Path) -> Self {
        Self::serve_with(policy, &[])
    }

    /// The same with more flags; a flag given here wins.
    pub(crate) fn serve_with(policy: &Path, flags: &[&str]) -> Self {
        Self::serve_by(&[&["--policy", policy.to_str().unwrap()], flags].concat())
    }

    /// Serves by flags alone.
    pub(crate) fn serve_by(flags: &[&str]) -> Self {
        let mut process = Process::start("tollgate", command(["serve"]).args(quiet(flags)).args(flags));
        let address = |process: &mut Process, protocol: &str| {
            process.wait_for_line(&format!("where it listens for {protocol}"), |line| listening(line, protocol))
        };
        let (grpc, http) = (address(&mut process, "grpc"), address(&mut process, "http"));
        let admin = address(&mut process, "admin");
        Self { process, grpc, http, admin }
    }

    /// Asks it to end, waits until it has, and says how.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait_for_end()
    }

    /// Waits for a log message.
    pub(crate) fn wait_for_message(&mut self, message: &str) {
        let says = |line: &str| (fields(line)?.get("message")? == message).then_some(());
        self.process.wait_for_line(message, says);
    }
}

/// A command line of the binary, with no setting taken from the environment of the tests.
pub(crate) fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOLLGATE_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// Runs the binary to its end.
pub(crate) fn output<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    command(arguments).output().unwrap()
}

/// Flags that keep a service to this machine and to free ports, but for those that `given` has already.
pub(crate) fn quiet(given: &[&str]) -> Vec<&'static str> {
    let defaults = [
        ("--grpc-listen", "127.0.0.1:0"),
        ("--http-listen", "127.0.0.1:0"),
        ("--admin-listen", "127.0.0.1:0"),
        ("--log-format", "json"),
        ("--drain-delay", "0s"),
        ("--drain-timeout", "10s"),
    ];
    defaults.into_iter().filter(|(flag, _)| !given.contains(flag)).flat_map(|(flag, value)| [flag, value]).collect()
}

fn listening(line: &str, protocol: &str) -> Option<SocketAddr> {
    let fields = fields(line)?;
    let is_it = fields.get("message")? == "listening" && fields.get("protocol")? == protocol;
    is_it.then(|| fields["address"].as_str().unwrap().parse().unwrap())
}

fn fields(line: &str) -> Option<Value> {
    serde_json::from_str::<Value>(line).ok()?.get("fields").cloned()
}
