//! The source files of scripts: the places of a mutant, and the files with its change.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Mutant, tokens};

/// The source files of the store's scripts.
pub struct Sources {
    files: Vec<SourceFile>,
    /// Names and values of the constants of all files.
    constants: BTreeSet<[String; 2]>,
}

/// A source file: its name, its text, and the tokens of each line.
pub struct SourceFile {
    pub name: String,
    pub text: String,
    lines: Vec<Vec<String>>,
}

impl Sources {
    /// Reads the files of the store's scripts.
    #[must_use]
    pub fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("../../crates/store/src/redis/script/lua");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        let read = |file: &PathBuf| {
            let name = file.file_name().unwrap().to_string_lossy();
            (name.into_owned(), std::fs::read_to_string(file).unwrap())
        };
        Self::of(files.iter().map(read))
    }

    fn of(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut sources = Self { files: Vec::new(), constants: BTreeSet::new() };
        for (name, text) in files {
            sources.constants.extend(text.lines().flat_map(constants));
            let lines = text.lines().map(|line| tokens(line.trim()));
            let lines = lines.map(|line| line.into_iter().map(str::to_owned).collect()).collect();
            sources.files.push(SourceFile { name, text, lines });
        }
        sources
    }

    /// Returns the files.
    #[must_use]
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Returns the places, as `file:line`, of a line of a script.
    #[must_use]
    pub fn places(&self, folded: &str) -> String {
        let place = |(file, index): (&SourceFile, usize)| format!("{}:{}", file.name, index + 1);
        self.lines_of(folded).into_iter().map(place).collect::<Vec<_>>().join(" ")
    }

    /// Returns the files that have the line of a mutant, with the length that they had and its
    /// change.
    #[must_use]
    pub fn changed(&self, mutant: &Mutant) -> Vec<(&SourceFile, String)> {
        let mut changed: Vec<(&SourceFile, String)> = Vec::new();
        for (file, index) in self.lines_of(&mutant.line) {
            let known = changed.last().filter(|(other, _)| other.name == file.name);
            let text =
                with_line(known.map_or(&file.text, |(_, text)| text), index, &mutant.mutated);
            changed.retain(|(other, _)| other.name != file.name);
            changed.push((file, text));
        }
        changed
    }

    /// Returns the lines that become this line when constants are replaced, with their indices.
    fn lines_of(&self, folded: &str) -> Vec<(&SourceFile, usize)> {
        let folded = tokens(folded);
        let is_same = |line: &[String]| {
            line.len() == folded.len()
                && line.iter().zip(&folded).all(|(source, text)| {
                    source == text || self.constants.contains(&[source.clone(), (*text).to_owned()])
                })
        };
        let lines = self.files.iter().flat_map(|file| {
            file.lines.iter().enumerate().map(move |(index, line)| (file, index, line))
        });
        lines.filter(|(_, _, line)| is_same(line)).map(|(file, index, _)| (file, index)).collect()
    }
}

/// Returns the names and values of a line that declares constants.
fn constants(line: &str) -> Vec<[String; 2]> {
    let declaration = line.trim().strip_prefix("local ").and_then(|rest| rest.split_once(" = "));
    let Some((names, values)) = declaration else { return Vec::new() };
    let pairs = names.split(", ").zip(values.split(", "));
    let constants =
        pairs.filter(|(name, _)| name.starts_with(|one: char| one.is_ascii_uppercase()));
    constants.map(|(name, value)| [name.to_owned(), value.to_owned()]).collect()
}

/// Returns a text of the same length with another line in place of that at `index`. Spaces follow a
/// shorter one; comments after the first are cut for a longer one.
fn with_line(text: &str, index: usize, new: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let length = lines[index].len();
    lines[index] = format!("{new:<length$}");
    let mut excess = lines[index].len() - length;
    for line in lines.iter_mut().skip(1).filter(|line| line.starts_with("-- ")) {
        let cut = excess.min(line.len() - 2);
        line.truncate(line.len() - cut);
        excess -= cut;
    }
    assert_eq!(excess, 0, "comments are too short for {new}");
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::MutationKind;
    use super::*;

    fn sources(text: &str) -> Sources {
        Sources::of([("a.lua".to_owned(), text.to_owned())])
    }

    #[test]
    fn the_place_of_a_line_is_that_before_its_constants_are_replaced() {
        let files = sources("local REFUND, FORM = 4, '>I7'\nif writes < REFUND then\nf(FORM)\n");
        assert_eq!(files.places("if writes < 4 then"), "a.lua:2");
        assert_eq!(files.places("if writes < 5 then"), "");
        assert_eq!(files.places("f('>I7')"), "a.lua:3");
        let place = Sources::read().places("tag, last, used = unpack_from('>BI7I4', value)");
        assert!(place.starts_with("one_fixed_window.lua:"), "{place}");
    }

    #[test]
    fn a_change_keeps_the_length_of_its_file() {
        let files = sources("-- a: title\n-- more\n  f(1)\ng(9)\n  f(1)\n");
        let changed = |line: &str, mutated: &str| {
            let kind = MutationKind::Dropped;
            let mutant = Mutant { line: line.to_owned(), mutated: mutated.to_owned(), kind };
            files.changed(&mutant).into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(changed("f(1)", ""), ["-- a: title\n-- more\n      \ng(9)\n      \n"]);
        assert_eq!(changed("g(9)", "g(10)"), ["-- a: title\n-- mor\n  f(1)\ng(10)\n  f(1)\n"]);
        assert!(changed("h()", "").is_empty());
    }
}
