//! Real gRPC clients: those of other languages, curl, and a load generator.
//!
//! | module | subject |
//! |---|---|
//! | `go`, `python`, `javascript`, `java` (here) | `scenarios`, with that folder's program |
//! | `scenarios` | the setup of a service, the actions of a program, and their results |
//! | `holds` | the clients of docs/holds.md, in Python and Go |
//! | `packages` | the client packages in `clients`: their tests, examples and common cases |
//! | `rust` | cases with tonic that other tests do not cover |
//! | `command_line` | curl and h2load, which do not implement gRPC |
//!
//! `tests/run` installs the programs. Each takes a target, a scenario and its arguments.

mod command_line;
mod holds;
mod packages;
mod rust;
mod scenarios;

use std::process::Command;
use std::time::Duration;

use crate::support::eventually;
use crate::support::process::Process;
use crate::support::root;

/// Timeout of a program, which may send thousands of calls on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// The language of a program.
#[derive(Clone, Copy, Debug)]
enum Language {
    Go,
    Python,
    JavaScript,
    Java,
}

impl Language {
    /// Starts the program.
    fn start(self, target: &str, scenario: &[&str]) -> Process {
        let tools = root().join("target/client-tools");
        let programs = root().join("tests/clients");
        let mut command = match self {
            Self::Go => Command::new(root().join("target/go-tools/client")),
            Self::Python => {
                let mut command = Command::new(root().join(".venv/bin/python"));
                command.arg(programs.join("python/client.py"));
                command
            }
            Self::JavaScript => {
                let mut command = Command::new("node");
                command.arg(programs.join("javascript/client.mjs"));
                command
            }
            Self::Java => {
                let mut command = Command::new("java");
                let jars = tools.join("java/lib/*");
                let classes = tools.join("java/classes");
                command.args([
                    "-cp",
                    &format!("{}:{}", jars.display(), classes.display()),
                    "Client",
                ]);
                command
            }
        };
        Process::start("client", command.arg(target).args(scenario))
    }

    /// Runs the program to completion, and returns its results.
    fn run(self, target: &str, scenario: &[&str]) -> Vec<String> {
        let mut client = self.start(target, scenario);
        eventually("the client ends", LIMIT, || (!client.is_running()).then_some(()));
        results(&client.final_log())
    }
}

/// Extracts the results from a program's output.
fn results(written: &str) -> Vec<String> {
    written.lines().filter_map(|line| Some(line.strip_prefix("result ")?.to_owned())).collect()
}

/// Defines the tests of a language, one per scenario.
macro_rules! client {
    ($module:ident, $language:ident: $($scenario:ident)+) => {
        mod $module {
            $(
                #[tokio::test]
                async fn $scenario() {
                    super::scenarios::$scenario(super::Language::$language).await;
                }
            )+
        }
    };
}

client! { go, Go:
    a_call_is_admitted_until_its_limit_is_reached
    a_compressed_call_is_answered_as_any_other
    a_compressed_message_is_bounded_by_its_size_before_compression
    a_call_over_a_unix_socket_is_answered_as_any_other
    a_call_ends_at_its_deadline_and_its_connection_is_kept
    a_cancelled_call_ends_and_its_connection_is_kept
    health_is_serving
    a_watch_of_health_sees_the_drain_and_its_end
    reflection_lists_the_service
    a_message_of_maximum_size_is_answered_and_a_larger_one_is_refused
    ten_thousand_calls_on_one_connection_are_answered
    no_call_fails_while_connections_grow_old
}

client! { python, Python:
    a_call_is_admitted_until_its_limit_is_reached
    a_compressed_call_is_answered_as_any_other
    a_compressed_message_is_bounded_by_its_size_before_compression
    a_call_over_a_unix_socket_is_answered_as_any_other
    a_call_ends_at_its_deadline_and_its_connection_is_kept
    a_cancelled_call_ends_and_its_connection_is_kept
    health_is_serving
    a_watch_of_health_sees_the_drain_and_its_end
    reflection_lists_the_service
    a_message_of_maximum_size_is_answered_and_a_larger_one_is_refused
    ten_thousand_calls_on_one_connection_are_answered
    no_call_fails_while_connections_grow_old
}

client! { javascript, JavaScript:
    a_call_is_admitted_until_its_limit_is_reached
    a_compressed_call_is_answered_as_any_other
    a_call_over_a_unix_socket_is_answered_as_any_other
    a_call_ends_at_its_deadline_and_its_connection_is_kept
    a_cancelled_call_ends_and_its_connection_is_kept
    health_is_serving
    a_watch_of_health_sees_the_drain_and_its_end
    a_message_of_maximum_size_is_answered_and_a_larger_one_is_refused
    ten_thousand_calls_on_one_connection_are_answered
    no_call_fails_while_connections_grow_old
}

client! { java, Java:
    a_call_is_admitted_until_its_limit_is_reached
    a_compressed_call_is_answered_as_any_other
    a_call_over_a_unix_socket_is_answered_as_any_other
    a_call_ends_at_its_deadline_and_its_connection_is_kept
    a_cancelled_call_ends_and_its_connection_is_kept
    health_is_serving
    a_watch_of_health_sees_the_drain_and_its_end
    a_message_of_maximum_size_is_answered_and_a_larger_one_is_refused
    ten_thousand_calls_on_one_connection_are_answered
    no_call_fails_while_connections_grow_old
}
