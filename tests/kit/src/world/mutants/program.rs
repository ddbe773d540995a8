//! Tests with real servers as a net for mutants: their program, copied with another text in place
//! of the scripts' source files. A mutant needs no build.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::Mutant;
use super::sources::Sources;

/// The program of the integration tests, and the service that they start, copied.
pub struct TestProgram {
    tests: PathBuf,
    copies: Vec<ProgramCopy>,
}

/// A copy of a program: where it is, and where it has the text of each source file.
struct ProgramCopy {
    path: PathBuf,
    offsets: HashMap<String, Vec<u64>>,
}

impl TestProgram {
    /// Builds the integration tests, and copies them.
    #[must_use]
    pub fn build(sources: &Sources) -> Self {
        let arguments = [
            "test",
            "--release",
            "--locked",
            "--test",
            "parts",
            "--no-run",
            "--message-format",
            "json",
        ];
        let built = Command::new("cargo")
            .args(arguments)
            .current_dir(crate::root())
            .stderr(Stdio::inherit())
            .output();
        let built = built.unwrap();
        assert!(built.status.success(), "the integration tests do not build");
        let messages = String::from_utf8(built.stdout).unwrap();
        let program = |name: &str| {
            let found = messages.lines().filter_map(|line| executable(line, name)).next_back();
            found.unwrap_or_else(|| panic!("cargo built no program {name}"))
        };
        // The tests look for the service in the folder above their own.
        let folder = crate::built().join("mutants");
        let tests = folder.join("deps/parts");
        std::fs::create_dir_all(folder.join("deps")).unwrap();
        let copies = [("parts", tests.clone()), ("tollgate", folder.join("tollgate"))];
        let copies = copies.map(|(name, path)| ProgramCopy::of(&program(name), path, sources));
        Self { tests, copies: copies.into() }
    }

    /// Runs the tests whose names contain one of `filters`, with a mutant if there is one, until
    /// one fails. Returns its name, `crashed`, or `too long` after the limit; `None` if all pass.
    /// `cases`: the number of random cases, if it is not the tests' own.
    #[must_use]
    pub fn run(
        &self,
        mutant: Option<&Mutant>,
        sources: &Sources,
        filters: &[&str],
        cases: Option<u32>,
        limit: Duration,
    ) -> Option<String> {
        let changed = mutant.map(|mutant| sources.changed(mutant)).unwrap_or_default();
        for (file, text) in &changed {
            assert_eq!(text.len(), file.text.len());
            self.copies.iter().for_each(|copy| copy.write(&file.name, text));
        }
        let failed = self.first_failure(filters, cases, limit);
        for (file, _) in &changed {
            self.copies.iter().for_each(|copy| copy.write(&file.name, &file.text));
        }
        failed
    }

    /// Runs tests until one fails, in a group of their own that ends with them.
    fn first_failure(
        &self,
        filters: &[&str],
        cases: Option<u32>,
        limit: Duration,
    ) -> Option<String> {
        let begun = Instant::now();
        let temporary = tempfile::tempdir().unwrap();
        let cases = cases.map(|cases| ("TOLLGATE_RANDOM_CASES", cases.to_string()));
        let mut child = Command::new(&self.tests)
            .envs(cases)
            .args(filters)
            .current_dir(crate::root())
            .env("TMPDIR", temporary.path())
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let (sender, lines) = mpsc::channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let sent = output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
            drop(sent);
        });
        let mut failed = None;
        while failed.is_none() {
            match lines.recv_timeout(limit.saturating_sub(begun.elapsed())) {
                Ok(line) => failed = failed_test(&line),
                Err(mpsc::RecvTimeoutError::Timeout) => failed = Some("too long".to_owned()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
        drop(lines);
        if failed.is_some() {
            // The servers of a test that runs are in the group, too.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        }
        let status = child.wait().unwrap();
        reader.join().unwrap();
        failed.or_else(|| (!status.success()).then(|| "crashed".to_owned()))
    }
}

impl ProgramCopy {
    fn of(program: &Path, path: PathBuf, sources: &Sources) -> Self {
        // A copy that an earlier run has left may be changed.
        drop(std::fs::remove_file(&path));
        std::fs::copy(program, &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let mut offsets = HashMap::new();
        for file in sources.files() {
            let found: Vec<u64> = offsets_of(&bytes, file.text.as_bytes());
            assert!(!found.is_empty(), "{} has no text of {}", path.display(), file.name);
            offsets.insert(file.name.clone(), found);
        }
        Self { path, offsets }
    }

    fn write(&self, name: &str, text: &str) {
        let file = std::fs::File::options().write(true).open(&self.path).unwrap();
        for offset in &self.offsets[name] {
            file.write_all_at(text.as_bytes(), *offset).unwrap();
        }
    }
}

/// Returns the program with this name in a message of cargo.
fn executable(message: &str, name: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let path = message.get("executable")?.as_str()?;
    (message["target"]["name"] == name).then(|| path.into())
}

/// Returns the name of a test that failed, by a line of the output of tests.
fn failed_test(line: &str) -> Option<String> {
    Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.to_owned())
}

/// Returns the offsets of a text in a program.
fn offsets_of(bytes: &[u8], text: &[u8]) -> Vec<u64> {
    let found = bytes.windows(text.len()).enumerate().filter(|(_, window)| *window == text);
    found.map(|(offset, _)| u64::try_from(offset).unwrap()).collect()
}
