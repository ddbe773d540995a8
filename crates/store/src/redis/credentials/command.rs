//! The program that prints a user and password: its command line, its bounds, its output.
//!
//! Nothing that it prints is part of an error, since any of it may be secret.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::login::Login;

/// Maximum time for which the program may run.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of its output. Tokens of cloud providers have some kilobytes.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024;
/// Longest time for which credentials are assumed to be valid.
const LONGEST_LIFE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CredentialsCommand {
    program: String,
    arguments: Vec<String>,
}

impl std::fmt::Debug for CredentialsCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Arguments may contain secrets.
        f.debug_tuple("CredentialsCommand").field(&self.program).finish()
    }
}

/// The reason why a command line is refused. It does not show the line, which may contain secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsCommandError {
    /// There is no program.
    #[error("expected a program and its arguments, found nothing")]
    Empty,
    /// A quote has no end.
    #[error("expected words as in a shell, found a quote or backslash without its end")]
    Unquoted,
}

/// The reason why a run of the program gave no credentials.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error("cannot start it: {0}")]
    Start(io::Error),
    #[error("cannot read its output: {0}")]
    Read(io::Error),
    #[error("it did not end within {TIMEOUT:?} and was killed")]
    Late,
    #[error("it printed more than {MAX_OUTPUT_BYTES} bytes and was killed")]
    TooLong,
    #[error("{0}; its standard error is not logged, as it may contain secrets: run it to see why")]
    Failed(ExitStatus),
    #[error(
        "expected {{\"username\": …, \"password\": …}} with \"expires_in\": SECONDS or \
         \"expiration\": \"2030-01-31T12:00:00Z\", found something else at line {line}, column \
         {column} of its output, which is not logged"
    )]
    Output { line: usize, column: usize },
    #[error("the credentials that it printed have expired")]
    Expired,
}

/// Credentials that the program has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrintedLogin {
    pub(super) login: Login,
    /// Time from the start of the program to the end of the validity, if there is one.
    pub(super) life: Option<Duration>,
}

/// The output of the program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramOutput {
    username: Option<String>,
    password: String,
    expires_in: Option<u64>,
    #[serde(default, deserialize_with = "read_time")]
    expiration: Option<jiff::Timestamp>,
}

fn read_time<'d, D: Deserializer<'d>>(value: D) -> Result<Option<jiff::Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(value)?;
    // The reason would contain the text.
    text.map(|text| text.parse()).transpose().map_err(|_| D::Error::custom("no time"))
}

/// Kills all processes of a group when dropped.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // It may have ended meanwhile.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

impl CredentialsCommand {
    /// Parses a command line: words, quoted as in a shell. No shell runs it.
    ///
    /// # Errors
    /// There is no word, or a quote has no end.
    pub fn parse(line: &str) -> Result<Self, CredentialsCommandError> {
        let words = shlex::split(line).ok_or(CredentialsCommandError::Unquoted)?;
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty());
        let program = program.ok_or(CredentialsCommandError::Empty)?;
        Ok(Self { program, arguments: words.collect() })
    }

    /// Returns the program without its arguments, which may contain secrets.
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Runs the program to its end.
    ///
    /// # Errors
    /// It cannot be started, fails, exceeds a bound, or prints no valid credentials.
    pub(super) async fn run(&self) -> Result<PrintedLogin, RunError> {
        let begun = SystemTime::now();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        // A group of its own, so that what it has started is killed with it.
        command.stderr(Stdio::null()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(RunError::Start)?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let mut group = ProcessGroup(leader);
        let mut output = Vec::new();
        let ended = async {
            if let Some(stdout) = child.stdout.take() {
                let mut stdout = stdout.take(MAX_OUTPUT_BYTES.saturating_add(1));
                stdout.read_to_end(&mut output).await.map_err(RunError::Read)?;
            }
            if u64::try_from(output.len()).unwrap_or(u64::MAX) > MAX_OUTPUT_BYTES {
                return Err(RunError::TooLong);
            }
            child.wait().await.map_err(RunError::Read)
        };
        let status = timeout(TIMEOUT, ended).await.map_err(|_| RunError::Late)??;
        // Its ID may now be that of another process.
        group.0 = None;
        if !status.success() {
            return Err(RunError::Failed(status));
        }
        read(&output, begun)
    }
}

/// Reads the output of a program that was started at `begun`.
fn read(output: &[u8], begun: SystemTime) -> Result<PrintedLogin, RunError> {
    let read: ProgramOutput = serde_json::from_slice(output)
        .map_err(|error| RunError::Output { line: error.line(), column: error.column() })?;
    let until =
        read.expiration.map(|at| SystemTime::from(at).duration_since(begun).unwrap_or_default());
    let life = read.expires_in.map(Duration::from_secs).into_iter().chain(until).min();
    let life = life.map(|life| life.min(LONGEST_LIFE));
    if life == Some(Duration::ZERO) {
        return Err(RunError::Expired);
    }
    let user = read.username.filter(|user| !user.is_empty());
    Ok(PrintedLogin { login: Login { user, password: Some(read.password) }, life })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> CredentialsCommand {
        CredentialsCommand {
            program: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
        }
    }

    fn life_of(output: &str) -> Result<Option<Duration>, String> {
        let begun = SystemTime::from("2030-01-31T12:00:00Z".parse::<jiff::Timestamp>().unwrap());
        read(output.as_bytes(), begun)
            .map(|printed| printed.life)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn words_are_those_of_a_shell_and_nothing_is_expanded() {
        let command = CredentialsCommand::parse(" get-token 'a b' \"$HOME\" c\\ d ").unwrap();
        assert_eq!(command.program(), "get-token");
        assert_eq!(command.arguments, ["a b", "$HOME", "c d"]);
        assert_eq!(CredentialsCommand::parse("  "), Err(CredentialsCommandError::Empty));
        assert_eq!(CredentialsCommand::parse("''"), Err(CredentialsCommandError::Empty));
        assert_eq!(CredentialsCommand::parse("a 'b"), Err(CredentialsCommandError::Unquoted));
    }

    #[test]
    fn the_end_of_the_validity_is_the_earlier_of_both() {
        let minutes = |minutes: u64| Ok(Some(Duration::from_secs(minutes * 60)));
        assert_eq!(life_of(r#"{"password": "x"}"#), Ok(None));
        assert_eq!(life_of(r#"{"password": "x", "expires_in": 900}"#), minutes(15));
        let both = r#"{"username": "u", "password": "x", "expires_in": 900,
            "expiration": "2030-01-31T14:10:00+02:00"}"#;
        assert_eq!(life_of(both), minutes(10));
        let ever = format!(r#"{{"password": "x", "expires_in": {}}}"#, u64::MAX);
        assert_eq!(life_of(&ever), Ok(Some(LONGEST_LIFE)));
        for expired in [
            r#"{"password": "x", "expires_in": 0}"#,
            r#"{"password": "x", "expiration": "2030-01-31T11:59:59Z"}"#,
        ] {
            assert!(life_of(expired).unwrap_err().contains("have expired"), "{expired}");
        }
    }

    #[test]
    fn other_output_is_refused_with_its_place_and_without_its_text() {
        for (output, place) in [
            ("", "line 1, column 0"),
            ("SECRET", "line 1, column 1"),
            (r#"{"username": "SECRET"}"#, "line 1, column 22"),
            (r#"{"password": "SECRET", "expires_at": 5}"#, "line 1, column 35"),
            (r#"{"password": "SECRET", "expires_in": "SECRET"}"#, "line 1, column 45"),
            (r#"{"password": "SECRET", "expiration": "SECRET"}"#, "line 1, column 46"),
            ("{\"password\": \"SECRET\"}\nSECRET", "line 2, column 1"),
        ] {
            let error = life_of(output).unwrap_err();
            assert!(error.contains(place) && !error.contains("SECRET"), "{output}: {error}");
        }
    }

    #[tokio::test]
    async fn a_run_ends_with_what_was_printed_or_with_the_reason() {
        let printed = shell(r#"echo '{"username": "u", "password": "p"}'"#).run().await.unwrap();
        assert_eq!(printed.login.user.as_deref(), Some("u"));
        let reason = async |script| shell(script).run().await.unwrap_err().to_string();
        assert!(reason("echo SECRET >&2; exit 3").await.starts_with("exit status: 3; "));
        assert!(reason("exec cat /dev/zero").await.contains("more than 65536 bytes"));
        let missing = CredentialsCommand::parse("/nothing/here").unwrap().run().await;
        assert!(missing.unwrap_err().to_string().contains("No such file"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_does_not_end_is_killed_with_all_that_it_has_started() {
        let file = std::env::temp_dir().join(format!("tollgate-run-{}", std::process::id()));
        let script = format!("sleep 98765 & echo $! > {}; wait", file.display());
        // The timeout passes while nothing happens, and not before the script has written.
        tokio::time::resume();
        let run = tokio::spawn(async move { shell(&script).run().await });
        let read = || std::fs::read_to_string(&file).ok()?.trim().parse::<i32>().ok();
        let started = loop {
            match read() {
                Some(id) => break Pid::from_raw(id).unwrap(),
                None => tokio::task::yield_now().await,
            }
        };
        tokio::time::pause();
        let run = run.await.unwrap();
        assert!(matches!(run, Err(RunError::Late)), "{run:?}");
        // A process without a parent may be there as a zombie.
        let stat = format!("/proc/{}/stat", started.as_raw_pid());
        let is_running = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        while is_running() {
            std::thread::yield_now();
        }
        std::fs::remove_file(&file).unwrap();
    }
}
