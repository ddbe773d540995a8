//! `docs`: the book builds, every link of it leads somewhere, and what it says is so.
//!
//! | file | subject |
//! |---|---|
//! | `book` | mdBook builds it without a warning; `tests/run` installs that |
//! | `fences` | the blocks of a page, and what is to be done with each |
//! | `policies` | every YAML of it: policies are checked, the rest stands in a file that another test is of |
//! | `sessions`, `terminal` | every command of it, in a network of the page's own; what is shown is what it prints |
//! | `reference` | the pages that are made from the code, and are as the code is |
//! | `pictures`, `drawing` | what each algorithm admits over time, as `tollgate replay` decides |
//!
//! With `TOLLGATE_DOCS=write` what is made is written in the place of being compared:
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
    /// From `docs`, such as `reference/policy.md`.
    name: String,
    text: String,
}

/// All pages, the table of contents not among them.
fn pages() -> Vec<Page> {
    let (mut folders, mut pages) = (vec![folder()], Vec::new());
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "md") && !entry.ends_with("SUMMARY.md") {
                let name = entry.strip_prefix(folder()).unwrap().to_str().unwrap().to_owned();
                pages.push(Page { name, text: std::fs::read_to_string(entry).unwrap() });
            }
        }
    }
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    pages
}

/// What is made has to be what stands in `docs`.
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

/// What brings the made parts of the book up to date.
const WRITE: &str = "TOLLGATE_DOCS=write cargo test --test main docs::";

fn folder() -> PathBuf {
    project().join("docs")
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
