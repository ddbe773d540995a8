//! The book in `docs`: it builds, every link has a target, and its content is accurate.
//!
//! | file | subject |
//! |---|---|
//! | `book` | mdBook, installed by `tests/run`, builds it without a warning |
//! | `fences` | the fenced code blocks of a page, and their treatment |
//! | `policies` | every YAML block: checked, or an excerpt of a file that is tested |
//! | `sessions`, `terminal` | every command prints the output of its page, in its own network |
//! | `reference` | the pages generated from the code, which must be up to date |
//! | `pictures`, `drawing` | the requests that each algorithm admits, by `tollgate replay` |
//!
//! With `TOLLGATE_DOCS=write` generated files are written instead of compared:
//!
//! ```text
//! TOLLGATE_DOCS=write cargo test --test main docs::
//! ```

mod book;
mod drawing;
mod fences;
mod pictures;
mod policies;
mod reference;
mod sessions;
mod terminal;

use std::path::{Path, PathBuf};

/// A page of the book.
struct Page {
    /// Path below `docs`, such as `reference/policy.md`.
    name: String,
    text: String,
}

/// Returns all pages, except the table of contents.
fn pages() -> Vec<Page> {
    let mut folders = vec![folder()];
    let mut pages = Vec::new();
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "md")
                && !entry.ends_with("SUMMARY.md")
            {
                let name = entry.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
                pages.push(Page { name, text: std::fs::read_to_string(entry).unwrap() });
            }
        }
    }
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    pages
}

/// Returns the README, whose blocks are tested as those of the book are.
fn readme() -> Page {
    let text = std::fs::read_to_string(project().join("README.md")).unwrap();
    Page { name: "../README.md".to_owned(), text }
}

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

fn folder() -> PathBuf {
    project().join("docs")
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
