//! The parts of the book in `docs` that need no other program: what is generated from the code, and
//! the marks of its blocks. Its commands and policies are in `book`.
//!
//! | file | subject |
//! |---|---|
//! | `reference` | the pages generated from the code, which must be up to date |
//! | `pictures`, `drawing` | the requests that each algorithm admits, by `tollgate replay` |
//!
//! With `TOLLGATE_DOCS=write` generated files are written instead of compared:
//!
//! ```text
//! TOLLGATE_DOCS=write cargo test --test main docs::
//! ```

mod drawing;
mod pictures;
mod reference;

use crate::support::fences::{self, Fence};
use crate::support::pages::{Page, folder, pages, readme};

/// Asserts that the file in `docs` is identical to the generated text.
#[track_caller]
fn is_written(name: &str, made: &str) {
    let place = folder().join(name);
    if std::env::var_os("TOLLGATE_DOCS").is_some_and(|what| what == "write") {
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        return std::fs::write(place, made).unwrap();
    }
    let found = std::fs::read_to_string(place).unwrap_or_default();
    let same = found.lines().zip(made.lines()).take_while(|(found, made)| found == made).count();
    let line = |text: &str| text.lines().nth(same).unwrap_or("(its end)").to_owned();
    assert!(
        found == made,
        "docs/{name}:{} is not what the code makes:\n  it is  {}\n  made   {}\n\nTo write it: {WRITE}",
        same + 1,
        line(&found),
        line(made)
    );
}

/// Command that updates the generated parts of the book.
const WRITE: &str = "TOLLGATE_DOCS=write cargo test --test main docs::";

#[test]
fn every_fence_has_a_known_mark() {
    let all: Vec<_> = pages().iter().chain([&readme()]).flat_map(fences::of).collect();
    let odd: Vec<_> = all.iter().filter_map(Fence::odd).collect();
    assert!(odd.is_empty(), "{odd:#?}");
    let elsewhere: Vec<_> =
        all.iter().filter(|fence| fence.is("elsewhere")).map(|fence| &fence.at).collect();
    assert!(elsewhere.len() <= MOST_ELSEWHERE, "not run, and they are to be few: {elsewhere:#?}");
}

/// Maximum number of blocks with commands that cannot run here.
const MOST_ELSEWHERE: usize = 10;

#[test]
fn a_fence_is_read_with_its_marks_and_an_unknown_mark_is_reported() {
    let text = "- a\n\n  ```yaml file=a.yaml\n  b:\n    c\n  ```\n\n```shell\n$ a\n```\n```console stay\n$ a\n```\n";
    let fences = fences::of(&Page { name: "a.md".to_owned(), text: text.to_owned() });
    let first = &fences[0];
    assert_eq!(
        (first.value("file"), first.text.as_str(), first.end),
        (Some("a.yaml"), "b:\n  c\n", 6)
    );
    let odd: Vec<_> = fences.iter().map(Fence::odd).collect();
    assert_eq!(odd[0], None);
    assert_eq!(odd[1].as_deref(), Some("docs/a.md:8: a fence of `shell`"));
    assert_eq!(odd[2].as_deref(), Some("docs/a.md:11: `stay` at a fence of `console`"));
}
