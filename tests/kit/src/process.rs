//! A child process: its standard error as lines, signals by PID, killed when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

use super::{TEST_TIMEOUT, eventually};

/// Sets the clock of a program apart from the machine's by libfaketime, in seconds. Programs in Go
/// ignore it.
pub fn set_clock(command: &mut Command, offset: i32) {
    if offset != 0 {
        // libc must come before the jemalloc that Debian's Redis is linked to: jemalloc reads the
        // time while libfaketime initializes.
        command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1 libc.so.6");
        command.env("FAKETIME", format!("{offset:+}")).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

/// A running child.
pub struct Process {
    name: &'static str,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts `command` and collects its standard error from then on.
    pub fn start(name: &'static str, command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let log = Arc::<Mutex<Vec<String>>>::default();
        let stderr = child.stderr.take().unwrap();
        let lines = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { name, child, log, reader: Some(reader) }
    }

    /// Returns the process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the lines written to standard error so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line that `read` accepts. Panics if the process ends first.
    #[track_caller]
    pub fn wait_for_line<T>(&mut self, what: &str, read: impl Fn(&str) -> Option<T>) -> T {
        eventually(&format!("{} logs {what}", self.name), TEST_TIMEOUT, || {
            let found = self.log().iter().find_map(|line| read(line));
            let ended = self.child.try_wait().unwrap();
            assert!(
                found.is_some() || ended.is_none(),
                "{} ended: {ended:?}\n{}",
                self.name,
                self.log().join("\n")
            );
            found
        })
    }

    /// Waits for the process to end, and returns its complete standard error.
    pub fn final_log(&mut self) -> String {
        self.wait_for_end();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
        self.log().join("\n")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops the process, and waits until all of its threads have stopped: the signal returns
    /// before.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        let threads = format!("/proc/{}/task", self.id());
        eventually(&format!("{} stops", self.name), TEST_TIMEOUT, || {
            let mut threads = std::fs::read_dir(&threads).unwrap();
            threads.all(|thread| has_stopped(&thread.unwrap().path())).then_some(())
        });
    }

    /// Returns `true` if the process is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the process to end.
    #[track_caller]
    pub fn wait_for_end(&mut self) -> ExitStatus {
        eventually(&format!("{} ends", self.name), TEST_TIMEOUT, || self.child.try_wait().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            // The test harness prints this with the failure.
            eprintln!("--- {} wrote:\n{}", self.name, self.log().join("\n"));
        }
    }
}

/// Returns `true` if a thread has stopped or ended, by its directory in `/proc`.
fn has_stopped(thread: &Path) -> bool {
    // `PID (NAME) STATE …`
    let Ok(stat) = std::fs::read_to_string(thread.join("stat")) else { return true };
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}
