//! The pages of the book in `docs`, and the README.

use std::path::PathBuf;

use super::root;

/// A page of the book.
pub struct Page {
    /// Path below `docs`, such as `reference/policy.md`.
    pub name: String,
    pub text: String,
}

/// Returns all pages, except the table of contents.
pub fn pages() -> Vec<Page> {
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
pub fn readme() -> Page {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    Page { name: "../README.md".to_owned(), text }
}

/// Returns the folder of the book.
pub fn folder() -> PathBuf {
    root().join("docs")
}
