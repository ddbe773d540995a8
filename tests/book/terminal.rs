//! A shell that runs the commands of a page in sequence.
//!
//! Has its own network namespace, so that ports are those of the page and nothing leaves the
//! machine, and its own PID namespace, so that its background processes end with it. `tests/run`
//! installs the required tools (`unshare`, `ip`).

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::support::{TEST_TIMEOUT, eventually};

/// Separator between the outputs of commands.
const MARK: &str = "--- the next command ---";

/// Timeout for a command: some send a hundred requests, one after the other.
const COMMAND_TIMEOUT: Duration = TEST_TIMEOUT.saturating_mul(6);

/// A running shell.
pub(super) struct Terminal {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    folder: PathBuf,
    /// Number of background commands.
    stayed: usize,
}

impl Terminal {
    /// Starts a shell in `folder`, with `programs` first on its path.
    pub(super) fn open(folder: &Path, programs: &Path) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--fork", "--kill-child"]);
        if !rustix::process::geteuid().is_root() {
            command.arg("--map-root-user");
        }
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        command.args(["bash", "--noprofile", "--norc"]).current_dir(folder).env_clear();
        command.env("PATH", path).env("HOME", folder).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        // That of the pages is for a store on a machine that is not as busy.
        command.env("TOLLGATE_STORE_TIMEOUT", "15s");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("unshare cannot be started: {error}"));
        let input = child.stdin.take().unwrap();
        let output = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(output)
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        let mut terminal = Self { child, input, lines, folder: folder.to_owned(), stayed: 0 };
        // Two Envoys with the same base ID would share memory.
        let (status, output) = terminal.run("ip link set lo up && mount -t tmpfs none /dev/shm");
        assert_eq!((status, output.as_str()), (0, ""), "no network of its own");
        terminal
    }

    /// Runs a command to completion. Returns its exit code, and its output on both streams.
    pub(super) fn run(&mut self, command: &str) -> (i32, String) {
        writeln!(self.input, "{{\n{command}\n}} </dev/null 2>&1; printf '\\n%s %s\\n' '{MARK}' $?")
            .unwrap();
        let mut output = String::new();
        loop {
            let line = self.lines.recv_timeout(COMMAND_TIMEOUT);
            let line = line.unwrap_or_else(|error| {
                panic!("`{command}` does not end ({error}), and output:\n{output}")
            });
            if let Some(status) = line.strip_prefix(MARK) {
                // The newline before the mark is not part of the output.
                output.pop();
                return (status.trim().parse().unwrap(), output);
            }
            output.push_str(&line);
            output.push('\n');
        }
    }

    /// Starts a background command, and waits until `is_right` accepts its output and, if a port is
    /// given, until that accepts connections.
    pub(super) fn begin(
        &mut self,
        command: &str,
        port: Option<&str>,
        is_right: impl Fn(&str) -> bool,
    ) {
        self.stayed += 1;
        let name = format!(".stays-{}", self.stayed);
        let (_, output) = self.run(&format!("{{\n{command}\n}} >{name} 2>&1 &"));
        assert_eq!(output, "");
        let mut last = String::new();
        eventually(&format!("`{command}` prints what is shown"), TEST_TIMEOUT, || {
            let output = std::fs::read_to_string(self.folder.join(&name)).unwrap_or_default();
            if output != last {
                eprintln!("`{command}` prints:\n{output}");
                last.clone_from(&output);
            }
            is_right(&output).then_some(())
        });
        if let Some(port) = port {
            let wait = format!(
                "for i in {{1..2000}}; do (: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && break; sleep 0.01; done"
            );
            assert_eq!(
                self.run(&wait),
                (0, String::new()),
                "`{command}` does not answer on {port}"
            );
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
