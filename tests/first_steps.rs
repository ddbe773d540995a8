//! The first steps with the command line: help, completions, manual pages, a first policy.

use std::path::Path;

use tempfile::TempDir;

use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, output, stderr, stdout};

#[test]
fn the_short_help_fits_on_a_few_screens_and_the_long_one_has_all_options() {
    let short = stdout(&output(["-h"]));
    let long = stdout(&output(["--help"]));
    let options = |text: &str| text.lines().filter(|line| line.trim().starts_with("--")).count();
    assert_eq!(options(&short), 15, "{short}");
    assert!(options(&long) > 100 && long.lines().count() > 3 * short.lines().count());
    for (command, option) in [("serve", "--redis-prefix"), ("explain", "--merge-domains")] {
        assert!(!stdout(&output([command, "-h"])).contains(option));
        assert!(stdout(&output([command, "--help"])).contains(option));
    }
}

#[test]
fn completions_of_shells_know_commands_and_options_and_bash_accepts_its_own() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = output(["completions", shell]);
        assert_eq!(completions.status.code(), Some(0), "{shell}");
        let completions = stdout(&completions);
        assert!(completions.contains("replicas") && completions.contains("wait"), "{shell}");
    }
    assert_eq!(output(["completions", "cmd"]).status.code(), Some(2));
    let script = "source <(\"$0\" completions bash); COMP_WORDS=(tollgate repl); COMP_CWORD=1; \
                  _tollgate tollgate repl tollgate; echo \"${COMPREPLY[@]}\"";
    let program = crate::support::built().join("tollgate");
    let bash = std::process::Command::new("bash").arg("-c").arg(script).arg(program).output();
    assert_eq!(stdout(&bash.unwrap()), "replay replicas\n");
}

#[test]
fn each_command_has_a_manual_page() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("man1");
    let written = output([Path::new("man"), &directory]);
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    let page = std::fs::read_to_string(directory.join("tollgate-reload.1")).unwrap();
    assert!(page.contains(".TH tollgate") && page.contains("\\-\\-wait"), "{page}");
    let help = stdout(&output(["-h"]));
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let names = commands.lines().take_while(|line| !line.is_empty());
    let names =
        names.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let names: Vec<_> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() > 20, "{help}");
    for name in names.into_iter().filter(|name| *name != "help") {
        assert!(directory.join(format!("tollgate-{name}.1")).is_file(), "{name}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(output([Path::new("man"), &file]).status.code(), Some(2));
}

#[tokio::test]
async fn a_first_policy_passes_check_and_test_is_served_and_never_replaces_a_file() {
    let folder = TempDir::new().unwrap();
    let directory = folder.path().join("limits");
    let shown = directory.to_str().unwrap();
    let init = |domain: &str, limit: &str| {
        output(["init", "--domain", domain, "--key", "user", "--limit", limit, shown])
    };
    let written = init("test", "3/15m");
    assert_eq!(written.status.code(), Some(0), "{written:?}");
    assert!(stdout(&written).contains("test.test.yaml"), "{written:?}");
    assert_eq!(output(["check", shown]).status.code(), Some(0));
    let tested = output(["test", shown]);
    assert_eq!(stdout(&tested), "ok: 1 test passed\n");

    let before = std::fs::read_to_string(directory.join("test.yaml")).unwrap();
    let again = init("test", "4/day");
    assert_eq!(again.status.code(), Some(2));
    let error = stderr(&again);
    assert!(error.contains("test.yaml exists; nothing is written\nAdd the rule"), "{error}");
    assert_eq!(std::fs::read_to_string(directory.join("test.yaml")).unwrap(), before);
    assert_eq!(init("other", "5/second").status.code(), Some(0), "another file is none of these");
    std::fs::write(directory.join("half.test.yaml"), "").unwrap();
    assert_eq!(init("half", "5/second").status.code(), Some(2));
    assert!(!directory.join("half.yaml").exists());
    std::fs::remove_file(directory.join("half.test.yaml")).unwrap();

    let two =
        ["init", "--domain", "two", "--key", "user", "--key", "ip", "--limit", "5/hour", shown];
    let two = output(two);
    assert!(stdout(&two).contains("hit 127.0.0.1:8081 two user=a,ip=a\n"), "{two:?}");
    let slid = ["--key", "user", "--limit", "5/15m", "--algorithm", "sliding_window", shown];
    let slid = output([&["init", "--domain", "slid"][..], &slid].concat());
    assert_eq!(slid.status.code(), Some(0), "{slid:?}");
    assert_eq!(stdout(&output(["test", shown])), "ok: 4 tests passed\n");

    let service = Tollgate::serve(&directory);
    let client = Client::connect(service.grpc).await;
    assert_eq!(client.limit("user", "ann").await, Some(3));
    let missing = output(["init", "--domain", "third", shown]);
    assert_eq!(missing.status.code(), Some(2), "no terminal can be asked");
    assert!(!directory.join("third.yaml").exists());
}
