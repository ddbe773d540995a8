//! The book in `docs`: mdBook builds it without a warning, every page is in it, every link has a
//! target, and what it shows is true.
//!
//! | file | subject |
//! |---|---|
//! | `policies` | every YAML block: checked, or an excerpt of a file that is tested |
//! | `sessions`, `terminal` | every command prints the output of its page, in its own network |

mod policies;
mod sessions;
mod terminal;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::support::pages::{folder, pages, readme};
use crate::support::root;

#[test]
fn the_book_builds_without_warnings_or_broken_links() {
    let built = TempDir::new().unwrap();
    let mdbook = root().join(".venv/bin/mdbook");
    assert!(
        mdbook.exists(),
        "this test needs mdBook: run `tests/run` once, which installs it in .venv"
    );
    let ended = Command::new(mdbook)
        .arg("build")
        .arg(folder())
        .arg("--dest-dir")
        .arg(built.path())
        .output()
        .unwrap();
    let log = String::from_utf8_lossy(&ended.stderr).into_owned()
        + &String::from_utf8_lossy(&ended.stdout);
    let wrong: Vec<_> =
        log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    assert!(ended.status.success() && wrong.is_empty(), "{log}");

    let read = |name: &str| std::fs::read_to_string(built.path().join(name)).unwrap();
    let places: BTreeMap<String, BTreeSet<String>> = pages()
        .iter()
        .map(|page| html(&page.name))
        .map(|name| (name.clone(), attributes(&read(&name), "id").collect()))
        .collect();
    let mut lost = Vec::new();
    for page in places.keys() {
        let text = read(page);
        let text = text.split_once("<main>").unwrap().1.split_once("</main>").unwrap().0;
        for link in attributes(text, "href").chain(attributes(text, "src")) {
            if !leads_somewhere(&link, page, built.path(), &places) {
                lost.push(format!("{page}: {link}"));
            }
        }
    }
    assert!(lost.is_empty(), "these lead nowhere: {lost:#?}");
}

#[test]
fn every_page_is_in_the_table_of_contents_once() {
    let contents = std::fs::read_to_string(folder().join("SUMMARY.md")).unwrap();
    let listed: Vec<&str> =
        contents.lines().filter_map(|line| line.rsplit_once("](")?.1.strip_suffix(')')).collect();
    for page in pages() {
        let times = listed.iter().filter(|name| **name == page.name).count();
        assert!(times == 1, "{} is {times} times in docs/SUMMARY.md", page.name);
    }
}

/// Every link of the README to a file has a target; it links to the book's source files.
#[test]
fn every_file_link_of_the_readme_resolves() {
    let page = readme();
    let links: Vec<_> = page
        .text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(link, _)| link)
        .collect();
    assert!(links.len() > 10, "{links:?}");
    let is_lost = |link: &&&str| {
        let file = link.split('#').next().unwrap_or_default();
        !link.starts_with("https://") && !root().join(file).exists()
    };
    let lost: Vec<_> = links.iter().filter(is_lost).collect();
    assert!(lost.is_empty(), "these lead nowhere: {lost:?}");
}

/// Returns the HTML file that mdBook generates from a page.
fn html(page: &str) -> String {
    let page = page.strip_suffix(".md").unwrap();
    if page == "README" { "index.html".to_owned() } else { format!("{page}.html") }
}

/// Returns the values of an attribute, in all elements.
fn attributes(text: &str, name: &str) -> impl Iterator<Item = String> {
    let begin = format!(" {name}=\"");
    let values: Vec<_> = text
        .split(&begin)
        .skip(1)
        .filter_map(|rest| rest.split_once('"'))
        .map(|(value, _)| value.to_owned())
        .collect();
    values.into_iter()
}

fn leads_somewhere(
    link: &str,
    page: &str,
    built: &Path,
    places: &BTreeMap<String, BTreeSet<String>>,
) -> bool {
    if link.starts_with("https://") {
        return true;
    }
    let (file, place) =
        link.split_once('#').map_or((link, None), |(file, place)| (file, Some(place)));
    let target = match file {
        "" => page.to_owned(),
        file => {
            let mut parts: Vec<&str> = page.split('/').collect();
            parts.pop();
            for part in file.split('/') {
                // Links must not leave the book.
                if part != ".." {
                    parts.push(part);
                } else if parts.pop().is_none() {
                    return false;
                }
            }
            parts.join("/")
        }
    };
    match place {
        Some(place) => places.get(&target).is_some_and(|ids| ids.contains(place)),
        None => built.join(target).is_file(),
    }
}

#[test]
fn a_link_out_of_the_book_or_to_a_missing_heading_is_broken() {
    let built = TempDir::new().unwrap();
    std::fs::write(built.path().join("a.html"), "").unwrap();
    let places = BTreeMap::from([("a.html".to_owned(), BTreeSet::from(["here".to_owned()]))]);
    let leads = |link: &str, page: &str| leads_somewhere(link, page, built.path(), &places);
    assert!(
        leads("a.html", "b.html")
            && leads("#here", "a.html")
            && leads("../a.html#here", "reference/b.html")
    );
    assert!(leads("https://example.com", "a.html"));
    for lost in ["#there", "b.html", "../a.html", "../README.md", "http://example.com"] {
        assert!(!leads(lost, "a.html"), "{lost}");
    }
}
