//! The product's binary, as a service and as a command.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};

use rustix::process::Signal;
use serde_json::Value;

use super::policy::{Policies, daily};
use super::process::Process;
use super::redis::port;
use super::web::Web;
use crate::{TEST_TIMEOUT, becomes, built};

/// A running `tollgate serve`, ready for requests.
pub struct Tollgate {
    pub process: Process,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub admin: SocketAddr,
}

impl Tollgate {
    /// Serves `policy`, a file or a directory, on free ports and without a drain delay.
    pub fn serve(policy: &Path) -> Self {
        Self::serve_with(policy, &[])
    }

    /// Serves `policy` with additional flags, which override the defaults.
    pub fn serve_with(policy: &Path, flags: &[&str]) -> Self {
        Self::serve_by(&[&["--policy", policy.to_str().unwrap()], flags].concat())
    }

    /// Serves with flags alone.
    pub fn serve_by(flags: &[&str]) -> Self {
        Self::serve_as(&mut command(["serve"]), flags)
    }

    /// Serves as one of several processes on one store: every other pair of them is an earlier
    /// release, if `TOLLGATE_PREVIOUS` names its binary.
    pub fn serve_one_of(number: usize, flags: &[&str]) -> Self {
        let previous = std::env::var_os("TOLLGATE_PREVIOUS").filter(|_| number % 4 >= 2);
        match previous {
            Some(program) => Self::serve_as(&mut command_of(program, ["serve"]), flags),
            None => Self::serve_by(flags),
        }
    }

    /// Serves after a shell has set limits, such as `ulimit -n 256`.
    pub fn serve_within(limits: &str, flags: &[&str]) -> Self {
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("{limits} && exec \"$0\" \"$@\"")]);
        let serve = command(["serve"]);
        limited.arg(serve.get_program()).args(serve.get_args());
        for (name, _) in serve.get_envs().filter(|(_, value)| value.is_none()) {
            limited.env_remove(name);
        }
        Self::serve_as(&mut limited, flags)
    }

    /// Serves with a command that ends with `serve`, such as that of another build or with bounds
    /// of its own.
    pub fn serve_as(command: &mut Command, flags: &[&str]) -> Self {
        let mut process = Process::start("tollgate", command.args(quiet(flags)).args(flags));
        let address = |process: &mut Process, protocol: &str| {
            process.wait_for_line(&format!("its address for {protocol}"), |line| {
                listening(line, protocol)
            })
        };
        let grpc = address(&mut process, "grpc");
        let http = address(&mut process, "http");
        let admin = address(&mut process, "admin");
        Self { process, grpc, http, admin }
    }

    /// Terminates it with SIGTERM, waits for its end, and returns the exit status.
    pub fn terminate(&mut self) -> ExitStatus {
        self.process.signal(Signal::TERM);
        self.process.wait_for_end()
    }

    /// Waits until it is ready, which it is not before it has reached its store.
    pub async fn wait_until_ready(&self) {
        let is_ready = || async { Web::new(self.http).get("/readyz").await.status };
        becomes("the service is ready", TEST_TIMEOUT, is_ready, |status| *status == 200).await;
    }

    /// Returns the number of gRPC connections that were closed for this reason.
    pub async fn connections_cut(&self, kind: &str) -> u64 {
        let name = format!("tollgate_grpc_connections_cut_total{{kind=\"{kind}\"}}");
        Web::new(self.http).metric(&name).await
    }

    /// Waits until this number of gRPC connections was closed for a reason.
    pub async fn cuts_connections(&self, kind: &str, count: u64) {
        let cut = || self.connections_cut(kind);
        becomes("the connections are counted", TEST_TIMEOUT, cut, |cut| *cut == count).await;
    }

    /// Waits for a log message.
    pub fn wait_for_message(&mut self, message: &str) {
        let has_message = |line: &str| (fields(line)?.get("message")? == message).then_some(());
        self.process.wait_for_line(message, has_message);
    }
}

/// Returns a command line of the binary, with no settings from the tests' environment.
pub fn command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    command_of(built().join("tollgate"), arguments)
}

/// Returns such a command line for another program.
pub fn command_of<S: AsRef<OsStr>>(
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = Command::new(program);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TOLLGATE_"))
    {
        command.env_remove(name);
    }
    command.args(arguments);
    command
}

/// Serves on a Unix socket, and returns once the service is ready.
pub fn serve_at(socket: &Path) -> Process {
    let policies = Policies::of(&daily("user", 5));
    let mut service = Process::start("tollgate", &mut command_at(socket, &policies));
    service
        .wait_for_line("its address", |line| line.contains("\"protocol\":\"admin\"").then_some(()));
    service
}

pub fn command_at(socket: &Path, policies: &Policies) -> std::process::Command {
    let endpoint = format!("unix:{}", socket.display());
    let flags = ["--grpc-listen", &endpoint];
    let mut serve = command(["serve"]);
    serve.args(quiet(&flags)).args(flags).arg("--policy").arg(policies.path());
    serve
}

/// Runs the binary to completion.
pub fn output<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Output {
    command(arguments).output().unwrap()
}

/// Runs `tollgate migrate`, and returns its exit code and its two outputs.
pub fn migrate(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output([&["migrate"], arguments].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// Returns a path as an argument.
pub fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Returns a gRPC address at which another process can be started later: no other process gets it
/// meanwhile, as it may get a port that the system chose for the first one.
pub fn lasting_address() -> String {
    format!("127.0.0.1:{}", port::free())
}

/// Returns flags that restrict a service to this machine and to free ports, except those already in
/// `given`. A test that waits for the end does not wait for the drain timeout, so a service that
/// reaches it fails the test.
pub fn quiet(given: &[&str]) -> Vec<&'static str> {
    let defaults = [
        ("--grpc-listen", "127.0.0.1:0"),
        ("--http-listen", "127.0.0.1:0"),
        ("--admin-listen", "127.0.0.1:0"),
        ("--log-format", "json"),
        ("--drain-delay", "0s"),
        ("--drain-timeout", "60s"),
    ];
    defaults
        .into_iter()
        .filter(|(flag, _)| !given.contains(flag))
        .flat_map(|(flag, value)| [flag, value])
        .collect()
}

/// Returns the standard output of a command.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the standard error of a command.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn listening(line: &str, protocol: &str) -> Option<SocketAddr> {
    let fields = fields(line)?;
    let is_it = fields.get("message")? == "listening" && fields.get("protocol")? == protocol;
    is_it.then(|| fields["address"].as_str().unwrap().parse().unwrap())
}

fn fields(line: &str) -> Option<Value> {
    serde_json::from_str::<Value>(line).ok()?.get("fields").cloned()
}
