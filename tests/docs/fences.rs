//! The blocks of a page between fences, and what is to be done with each.
//!
//! | fence | what becomes of it |
//! |---|---|
//! | `console` | each `$ command` is run, what it prints has to be what follows; `…` stands for anything, as a line for any lines |
//! | `console stays` | the same for one that does not end: its first lines have to be these; `stays=PORT`: until that answers |
//! | `console elsewhere` | needs what is not here, such as a cluster; not run, and few |
//! | `yaml` | policies, overlays, tests: checked |
//! | `… file=NAME` | written before what follows is run |
//! | `yaml broken` | not checked: the commands after it show what is wrong with it |
//! | `… of=PATH` | these lines stand in that file of the repository, which other tests are of |
//! | `text`, `json` | shown |

use super::Page;

/// A block between fences.
pub(super) struct Fence {
    /// The page and the line of the fence.
    pub(super) at: String,
    /// What stands beside the fence: `console`, `yaml`, …
    pub(super) language: String,
    words: Vec<String>,
    pub(super) text: String,
    /// The line after it.
    pub(super) end: usize,
}

impl Fence {
    /// Whether it is marked by this word.
    pub(super) fn is(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// What it says after `name=`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Whether its command does not end.
    pub(super) fn stays(&self) -> bool {
        self.is("stays") || self.value("stays").is_some()
    }

    /// The lines of a mark that means nothing.
    fn odd(&self) -> Option<String> {
        let known = match self.language.as_str() {
            "console" => ["stays", "elsewhere"].as_slice(),
            "yaml" | "text" | "json" => [].as_slice(),
            _ => return Some(format!("{}: a fence of `{}`", self.at, self.language)),
        };
        let is_known = |word: &&String| {
            let name = word.split('=').next().unwrap_or_default();
            known.contains(&name) || (self.language != "console" && ["file", "of", "broken"].contains(&name))
        };
        let word = self.words.iter().find(|word| !is_known(word))?;
        Some(format!("{}: `{word}` beside a fence of `{}`", self.at, self.language))
    }
}

/// The blocks of a page, in order.
pub(super) fn of(page: &Page) -> Vec<Fence> {
    let mut fences: Vec<Fence> = Vec::new();
    let (mut open, mut indent) = (false, 0);
    for (number, line) in page.text.lines().enumerate() {
        let marks = line.trim_start().strip_prefix("```");
        match (open, marks) {
            (false, None) => {}
            (false, Some(info)) => {
                indent = line.len() - line.trim_start().len();
                let mut words = info.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                let at = format!("docs/{}:{}", page.name, number + 1);
                fences.push(Fence { at, language, words: words.collect(), text: String::new(), end: 0 });
                open = true;
            }
            (true, Some("")) => {
                fences.last_mut().unwrap().end = number + 1;
                open = false;
            }
            (true, _) => {
                let text = &mut fences.last_mut().unwrap().text;
                text.push_str(line.get(indent..).unwrap_or_default());
                text.push('\n');
            }
        }
    }
    assert!(!open, "docs/{}: a fence is not closed", page.name);
    fences
}

#[test]
fn every_fence_says_what_is_to_be_done_with_it() {
    let all: Vec<_> = super::pages().iter().flat_map(of).collect();
    let odd: Vec<_> = all.iter().filter_map(Fence::odd).collect();
    assert!(odd.is_empty(), "{odd:#?}");
    let elsewhere: Vec<_> = all.iter().filter(|fence| fence.is("elsewhere")).map(|fence| &fence.at).collect();
    assert!(elsewhere.len() <= MOST_ELSEWHERE, "not run, and they are to be few: {elsewhere:#?}");
}

/// Blocks that may need what is not here.
const MOST_ELSEWHERE: usize = 8;

#[test]
fn a_fence_is_read_with_its_marks_and_one_that_means_nothing_is_told() {
    let text = "- a\n\n  ```yaml file=a.yaml\n  b:\n    c\n  ```\n\n```shell\n$ a\n```\n```console stay\n$ a\n```\n";
    let fences = of(&Page { name: "a.md".to_owned(), text: text.to_owned() });
    let first = &fences[0];
    assert_eq!((first.value("file"), first.text.as_str(), first.end), (Some("a.yaml"), "b:\n  c\n", 6));
    let odd: Vec<_> = fences.iter().map(Fence::odd).collect();
    assert_eq!(odd[0], None);
    assert_eq!(odd[1].as_deref(), Some("docs/a.md:8: a fence of `shell`"));
    assert_eq!(odd[2].as_deref(), Some("docs/a.md:11: `stay` beside a fence of `console`"));
}
