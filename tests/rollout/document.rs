//! `docs/rollout.md`: what it shows is what the commands print.

use super::project;
use crate::support::tollgate::command;

/// The commands of the document, each with what it says that they print.
fn shown(text: &str) -> Vec<(Vec<&str>, &str)> {
    let blocks = text.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let parts = blocks.map(|block| block.strip_prefix("$ tollgate ").unwrap().split_once('\n').unwrap());
    parts.map(|(words, printed)| (words.split(' ').collect(), printed)).collect()
}

#[test]
fn the_commands_of_the_document_print_what_it_shows() {
    let text = std::fs::read_to_string(project().join("docs/rollout.md")).unwrap();
    let commands = shown(&text);
    assert!(commands.len() >= 4);
    for (words, printed) in commands {
        let ended = command(&words).current_dir(project()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&ended.stdout), printed, "{words:?}: {ended:?}");
    }
}
