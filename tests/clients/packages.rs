//! The client packages in `clients`: their unit tests, their examples, and the cases of
//! `clients/conformance`, which run against the binary through a proxy.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use prost::Message as _;
use prost_types::FileDescriptorSet;
use serde_json::json;
use tempfile::TempDir;
use tollgate::grpc::proto::PROTOCOL;

use super::results;
use crate::support::policy::{Policies, daily};
use crate::support::process::Process;
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, eventually};

/// Defines the tests of a package: its cases, by the names of `clients/conformance/languages.py`,
/// its unit tests and its example.
macro_rules! package {
    ($module:ident: $($language:ident)+) => {
        mod $module {
            $(
                #[test]
                fn $language() {
                    super::passes_the_cases(stringify!($language));
                }
            )+

            #[test]
            fn unit_tests() {
                super::succeeds(&mut super::unit_tests(stringify!($module)));
            }

            #[test]
            fn the_example_of_the_book() {
                super::runs_the_example(super::example(stringify!($module)));
            }
        }
    };
}

package! { python: python asyncio }
package! { go: go }
package! { typescript: typescript fastify }
package! { java: java }
package! { rust: rust }

/// Returns the command that runs the unit tests of a package.
fn unit_tests(package: &str) -> Command {
    let folder = root().join("clients").join(package);
    match package {
        "python" => {
            let mut python = python();
            python.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(folder.join("tests"));
            // Plugins of other packages in the environment.
            python.env("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1").current_dir(folder);
            python
        }
        "go" => {
            let mut go = Command::new(root().join("target/go-tools/tollgate.test"));
            go.current_dir(folder);
            go
        }
        "typescript" => {
            let mut node = Command::new("node");
            node.args(["--test", "dist/test/"]).current_dir(tools().join("typescript"));
            node
        }
        "java" => {
            let mut maven = Command::new("mvn");
            maven.args(["-o", "-q", "-B", "-f"]).arg(folder.join("pom.xml"));
            maven.arg(format!("-Dbuild.dir={}", tools().join("java-package").display()));
            // The phase `test` would build again, in the folder that other tests use.
            maven.arg("surefire:test");
            maven
        }
        "rust" => {
            // `tests/run` has built them.
            let mut cargo = Command::new("cargo");
            cargo.args(["test", "--locked", "-p", "tollgate-client"]).current_dir(root());
            cargo
        }
        _ => panic!("no package {package}"),
    }
}

/// Returns the command that runs the example of a package, without its target.
fn example(package: &str) -> Command {
    match package {
        "python" => {
            let mut python = python();
            python.arg(root().join("clients/python/examples/shop.py"));
            python.env("PYTHONPATH", root().join("clients/python/src"));
            python
        }
        "go" => Command::new(root().join("target/go-tools/shop")),
        "typescript" => {
            let mut node = Command::new("node");
            node.arg(tools().join("typescript/dist/examples/shop.js"));
            node
        }
        "java" => {
            let package = tools().join("java-package");
            let path = |part: &str| package.join(part).display().to_string();
            let mut java = Command::new("java");
            java.args(["-cp", &[path("classes"), path("test-classes"), path("lib/*")].join(":")]);
            java.arg("tollgate.client.examples.Shop");
            java
        }
        "rust" => Command::new(root().join("target/debug/examples/client_shop")),
        _ => panic!("no package {package}"),
    }
}

/// Asserts that a client passes all cases of `clients/conformance`.
fn passes_the_cases(language: &str) {
    let mut run = python();
    run.arg(root().join("clients/conformance/run")).arg(language);
    run.env("CONFORMANCE_TOLLGATE", env!("CARGO_BIN_EXE_tollgate"));
    succeeds(&mut run);
}

/// Asserts that an example makes the requests of `docs/services.md`, two of which are admitted, and
/// commits 300 of 600 reserved hits.
fn runs_the_example(mut example: Command) {
    let service = Tollgate::serve(&root().join("clients/shop.yaml"));
    let target = service.grpc.to_string();
    let mut example = Process::start("example", example.arg(target));
    let found = results(&example.final_log());
    assert_eq!(found, ["allowed", "allowed", "denied", "700 remaining"]);
}

/// Asserts that a command succeeds, and shows its output otherwise.
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Returns the folder in which `tests/tools` builds packages.
fn tools() -> PathBuf {
    root().join("target/client-tools")
}

fn python() -> Command {
    let mut python = Command::new(root().join(".venv/bin/python"));
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

#[test]
fn the_table_of_the_clients_has_all_cases_and_languages() {
    let mut table = python();
    table.arg(root().join("clients/conformance/run")).arg("--table");
    let table = String::from_utf8(table.output().unwrap().stdout).unwrap();
    let readme = std::fs::read_to_string(root().join("clients/README.md")).unwrap();
    assert!(table.lines().count() > 40, "{table}");
    assert!(readme.contains(&table), "clients/README.md needs this table:\n\n{table}");
}

#[test]
fn eight_processes_with_leases_in_go_two_of_them_killed_admit_at_most_the_limit() {
    eight_processes_with_leases_two_of_them_killed("target/go-tools/conformance");
}

#[test]
fn eight_processes_with_leases_in_rust_two_of_them_killed_admit_at_most_the_limit() {
    eight_processes_with_leases_two_of_them_killed("target/debug/examples/client_conformance");
}

/// Asserts that eight processes of a client's program admit at most the limit.
fn eight_processes_with_leases_two_of_them_killed(program: &str) {
    const LIMIT: u64 = 4000;
    let service = Tollgate::serve(Policies::of(&leased(LIMIT)).path());
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("admitted");
    let admitted = || std::fs::metadata(&log).map_or(0, |log| log.len());
    let mut processes: Vec<Child> = (0..8).map(|_| many(program, &service, &log)).collect();
    eventually("hits are admitted", TEST_TIMEOUT, || (admitted() > LIMIT / 4).then_some(()));
    for process in &mut processes[..2] {
        process.kill().unwrap();
    }
    for process in &mut processes {
        // The end of its input ends it.
        drop(process.stdin.take());
        process.wait().unwrap();
    }
    let admitted = admitted();
    assert!((LIMIT / 2..=LIMIT).contains(&admitted), "{admitted} of {LIMIT}");
}

fn leased(limit: u64) -> String {
    let lease = "lease: { size: 2%, ttl: 500ms, holders: [process, client] }";
    daily("user", u32::try_from(limit).unwrap())
        .replace("unit: day", &format!("unit: day, charge: admitted, {lease}"))
}

/// Starts the program of a package with more requests than a limit admits, which appends a byte to
/// a file for each that is admitted.
fn many(program: &str, service: &Tollgate, log: &Path) -> Child {
    let mut program = Command::new(root().join(program));
    let mut process = program.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let target = service.grpc.to_string();
    let calls = [
        json!({ "op": "open", "target": target, "leases": true, "failure_mode": "closed", "timeout_ms": 10_000 }),
        json!({ "op": "many", "descriptors": [[["user", "ann"]]], "count": 1500, "concurrency": 4, "log": log }),
        json!({ "op": "close" }),
    ];
    let input = process.stdin.as_mut().unwrap();
    calls.iter().for_each(|call| writeln!(input, "{call}").unwrap());
    process
}

/// The Python package has the compiled messages, and the Go package compares its own with them.
#[test]
fn the_messages_of_the_python_package_are_those_of_the_service() {
    let path = root().join("clients/python/src/tollgate/protocol.binpb");
    let packed = FileDescriptorSet::decode(&*std::fs::read(path).unwrap()).unwrap();
    let served = FileDescriptorSet::decode(PROTOCOL).unwrap();
    let own = packed.file.iter().filter(|file| !file.name().starts_with("google/"));
    let mut compared = Vec::new();
    for file in own {
        let mut expected =
            served.file.iter().find(|served| served.name() == file.name()).unwrap().clone();
        expected.source_code_info = None;
        assert_eq!(*file, expected, "run clients/python/generate");
        compared.push(file.name());
    }
    assert!(compared.contains(&"tollgate/v1/hold.proto"), "{compared:?}");
}
