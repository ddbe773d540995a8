//! A program that prints a user and a password.

use std::path::PathBuf;

use super::{Loaded, REAUTHENTICATIONS, add_password, clients, guarded, password, remove_password};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::tollgate::output;

const COMMAND_FAILURES: &str = "tollgate_store_credentials_failures_total";

/// A program that runs the script in a file of its own, and counts its runs.
struct Program {
    files: Policies,
    path: PathBuf,
}

impl Program {
    fn new() -> Self {
        let files = Policies::none();
        let path = files.path().join("get-token");
        files.write("runs", "");
        let script = "cd \"$(dirname \"$0\")\" && echo >> runs && . ./now";
        files.write("get-token", script);
        Self { files, path }
    }

    fn printing(number: usize, expires_in: u32) -> Self {
        let program = Self::new();
        program.print(number, expires_in);
        program
    }

    /// Returns the flag, whose arguments no output may show.
    fn command(&self) -> String {
        format!("sh {} 'secret argument'", self.path.display())
    }

    /// Prints a password that is valid for this number of seconds.
    fn print(&self, number: usize, expires_in: u32) {
        let password = password(number);
        self.does(&format!(
            "echo '{{\"username\": \"app\", \"password\": \"{password}\", \"expires_in\": {expires_in}}}'"
        ));
    }

    fn does(&self, script: &str) {
        self.files.write("next", script);
        // A run sees the old script or the new one.
        std::fs::rename(self.files.file("next"), self.files.file("now")).unwrap();
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.files.file("runs")).unwrap().lines().count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_token_that_expires_and_changes_fails_no_decision() {
    let redis = Redis::start_as(guarded()).await;
    let program = Program::printing(0, 2);
    let command = program.command();
    let flags = ["--redis-credentials-command", command.as_str()];
    let loaded = Loaded::start(&format!("redis://{}", redis.address), &flags).await;
    let first = clients(&redis).await;
    let begun_runs = program.runs();
    let begun = loaded.load.now();
    for number in 1..=3 {
        let before = loaded.metric(REAUTHENTICATIONS).await;
        add_password(&redis, number).await;
        program.print(number, 2);
        loaded.each_counted(REAUTHENTICATIONS, before).await;
        remove_password(&redis, number - 1).await;
    }
    let runs = program.runs() - begun_runs;
    let elapsed = loaded.load.now() - begun;
    assert!(runs <= usize::try_from(elapsed.as_secs()).unwrap() + 1, "{runs} in {elapsed:?}");
    assert!(clients(&redis).await.is_subset(&first), "the connections are those of the start");
    assert_eq!(loaded.metric(COMMAND_FAILURES).await, 0);
    loaded.end("a token of a command, rotated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_run_is_for_all_connections() {
    let redis = Redis::start_as(guarded()).await;
    let program = Program::printing(0, 900);
    let command = program.command();
    let flags = ["--workers", "4", "--redis-credentials-command", command.as_str()];
    let loaded = Loaded::start(&format!("redis://{}", redis.address), &flags).await;
    assert!(clients(&redis).await.len() > 4);
    redis.command(&["CLIENT", "KILL", "USER", "app"]).await;
    loaded.load.until_calm(0).await;
    drop(loaded.load.finish());
    assert_eq!(program.runs(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_program_that_fails_is_logged_and_its_last_result_remains_in_use() {
    let redis = Redis::start_as(guarded()).await;
    let program = Program::printing(0, 2);
    let command = program.command();
    let flags = ["--redis-credentials-command", command.as_str()];
    let loaded = Loaded::start(&format!("redis://{}", redis.address), &flags).await;
    program.does("echo secret-of-the-program");
    loaded.wait_for_log("found something else at line 1, column 1 of its output");
    program.does("echo secret-of-the-program >&2; exit 3");
    loaded.wait_for_log("exit status: 3");
    program.does("cat /dev/zero");
    loaded.wait_for_log("printed more than 65536 bytes");
    let failures = loaded.metric(COMMAND_FAILURES).await;
    assert!(failures >= 3, "{failures}");
    program.does("sleep 98765");
    loaded.wait_for_log("did not end within 10s and was killed");
    program.print(0, 2);
    loaded.wait_for_log("the credentials command works again");
    // The connections are those of before, although the token had expired meanwhile.
    let service = loaded.end("a command that fails");
    let warnings = service.process.log();
    let warnings = warnings.iter().filter(|line| line.contains("no new credentials for Redis"));
    assert_eq!(warnings.count(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_token_makes_the_program_run_again() {
    let redis = Redis::start_as(guarded()).await;
    let program = Program::printing(1, 900);
    let command = program.command();
    let policies = Policies::of(&crate::support::policy::yearly("user", 1_000));
    let flags = ["--redis-credentials-command", command.as_str()];
    let mut service = super::super::start(&policies, &format!("redis://{}", redis.address), &flags);
    service.process.wait_for_line("the refusal", |line| {
        line.contains("correct the output of --redis-credentials-command").then_some(())
    });
    program.print(0, 900);
    let (_service, client) = super::super::connected(service).await;
    assert!(client.hit("user", "ann").await);
}

#[tokio::test]
async fn check_store_uses_it_and_names_what_is_wrong() {
    let redis = Redis::start_as(guarded()).await;
    let program = Program::printing(0, 900);
    let check = |login: &str, arguments: &[&str]| {
        let url = format!("redis://{login}{}", redis.address);
        let checked = output([&["check-store", url.as_str()], arguments].concat());
        let text = [checked.stdout, checked.stderr].map(|text| String::from_utf8(text).unwrap());
        (checked.status.code(), text.concat())
    };
    let command = program.command();
    let with_command = ["--redis-credentials-command", command.as_str()];
    let (code, text) = check("", &with_command);
    assert_eq!(code, Some(0), "{text}");
    for (login, arguments, expected) in [
        ("app:secret-0@", &with_command[..], "expected a URL of the servers without a user"),
        ("", &["--redis-credentials-command", "secret 'a"], "found a quote or backslash"),
        ("", &[&with_command[..], &["--redis-user", "app"]].concat(), "cannot be used with"),
    ] {
        let (code, text) = check(login, arguments);
        assert!(code != Some(0) && text.contains(expected), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    program.does("exit 3");
    let (code, text) = check("", &with_command);
    assert!(code == Some(2) && text.contains("exit status: 3"), "{text}");
}
