//! `deploy/release`: a release of a scratch copy of the repository.

use std::fs::{create_dir, read_to_string, write};
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::root;

/// Runs a shell command in a folder. Returns the output, and whether it succeeded.
fn shell(folder: &Path, command: &str) -> (bool, String) {
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).current_dir(folder);
    let identity =
        ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    shell.envs(identity.map(|name| (name, "release@test.example")));
    let Output { status, stdout, stderr } = shell.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.success(), text)
}

/// Runs a shell command that must succeed.
fn run(folder: &Path, command: &str) -> String {
    let (succeeded, text) = shell(folder, command);
    assert!(succeeded, "{command}: {text}");
    text
}

/// Returns a copy of the repository's files, committed.
fn scratch() -> TempDir {
    let scratch = TempDir::new().unwrap();
    let copy = format!(
        "tar -C '{}' --exclude=./target --exclude=./.venv --exclude=./.git --exclude=node_modules -c . | tar -x",
        root().display()
    );
    run(scratch.path(), &copy);
    run(scratch.path(), "git init -q . && git add -A && git commit -q -m 'All files'");
    scratch
}

#[test]
fn a_release_has_one_version_everywhere_and_its_changes_in_the_tag() {
    let scratch = scratch();
    let folder = scratch.path();
    run(folder, "deploy/release prepare 9.8.7-rc.6");
    let metadata = run(folder, "cargo metadata --offline --locked --no-deps --format-version 1");
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.iter().all(|package| package["version"] == "9.8.7-rc.6"), "{packages:?}");
    for (file, line) in [
        ("deploy/helm/tollgate/Chart.yaml", "\nversion: 9.8.7-rc.6\n"),
        ("deploy/helm/tollgate/Chart.yaml", "\nappVersion: \"9.8.7-rc.6\"\n"),
        ("clients/java/pom.xml", "\n  <version>9.8.7-rc.6</version>\n"),
        ("clients/python/pyproject.toml", "\nversion = \"9.8.7rc6\"\n"),
        ("clients/typescript/package.json", "\"version\": \"9.8.7-rc.6\""),
    ] {
        let text = read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(line), "{file} without {line}");
    }
    let changes = read_to_string(folder.join("CHANGELOG.md")).unwrap();
    let (before, released) = changes.split_once("\n## [9.8.7-rc.6] - 2").unwrap();
    assert!(before.trim_end().ends_with("## [Unreleased]"), "changes are not moved");
    let tag = run(folder, "git tag -l --format='%(contents)' v9.8.7-rc.6");
    let first = released.lines().skip(1).find(|line| !line.is_empty()).unwrap();
    assert!(tag.starts_with("Tollgate 9.8.7-rc.6\n") && tag.contains(first), "{tag}");
    assert_eq!(run(folder, "git status --porcelain"), "");
    // A second release has nothing to release.
    let (succeeded, text) = shell(folder, "deploy/release prepare 9.8.7");
    assert!(!succeeded && text.contains("nothing under [Unreleased]"), "{text}");
}

#[test]
fn a_release_is_not_begun_on_a_tree_or_with_a_version_that_is_not_fit() {
    let scratch = scratch();
    let folder = scratch.path();
    for (command, reason) in [
        ("prepare 1.2", "found version 1.2, expected"),
        ("build x", "HEAD is not tagged"),
        ("prepare", "deploy/release prepare VERSION"),
        ("prepare 1.2.3", "the tree has changes"),
    ] {
        if reason.contains("changes") {
            run(folder, "echo >> README.md");
        }
        let (succeeded, text) = shell(folder, &format!("deploy/release {command}"));
        assert!(!succeeded && text.contains(reason), "{command}: {text}");
    }
    assert_eq!(run(folder, "git tag"), "");
}

#[test]
fn a_changed_byte_of_a_release_is_found() {
    let scratch = TempDir::new().unwrap();
    let release = scratch.path().join("release");
    create_dir(&release).unwrap();
    write(release.join("tollgate.tar.gz"), "contents").unwrap();
    let key = "ssh-keygen -q -t ed25519 -N '' -f key && echo \"tollgate-release $(cat key.pub)\" > signers";
    run(scratch.path(), key);
    run(&release, "sha256sum * > ../sums && mv ../sums SHA256SUMS");
    let script = root().join("deploy/release");
    let at = |command: &str| {
        let folder = scratch.path().display();
        format!("'{}' {command} {folder}/release {folder}", script.display())
    };
    run(scratch.path(), &(at("sign") + "/key"));
    let verify = at("verify") + "/signers";
    assert!(run(scratch.path(), &verify).contains("verified 1 files"));

    write(release.join("tollgate.tar.gz"), "Contents").unwrap();
    let (succeeded, text) = shell(scratch.path(), &verify);
    assert!(!succeeded && text.contains("a file differs from SHA256SUMS"), "{text}");
    // Sums that fit the changed file are not those that were signed.
    run(&release, "sha256sum tollgate.tar.gz > SHA256SUMS");
    let (succeeded, text) = shell(scratch.path(), &verify);
    assert!(!succeeded && text.contains("is not signed by a key of"), "{text}");
}
