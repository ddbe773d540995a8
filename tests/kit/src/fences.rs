//! The fenced code blocks of a page or the README, and their treatment in tests.
//!
//! | fence | treatment |
//! |---|---|
//! | `console` | each `$ command` is run; its output must match; `…` is a wildcard |
//! | `console stays` | run in the background; first lines must match; waits for `stays=PORT` |
//! | `console soon` | has no effect; repeated until its output matches: its cause may be late |
//! | `console elsewhere` | needs something else, such as a cluster; not run; limited in number |
//! | `yaml` | policies, overlays, tests: checked |
//! | `… file=NAME` | written to a file before the next commands run |
//! | `yaml broken` | not checked: the following commands show its errors |
//! | `… of=PATH` | must be an excerpt of that file of the repository, which other tests cover |
//! | `text`, `json` | not checked |
//! | [`PROGRAMS`] | excerpts, `of=PATH`, of programs that other tests run |

use super::pages::Page;

/// Languages of programs.
pub const PROGRAMS: [&str; 5] = ["python", "go", "typescript", "java", "rust"];

/// A fenced code block.
pub struct Fence {
    /// Page and line of the fence.
    pub at: String,
    /// The language of the fence: `console`, `yaml`, …
    pub language: String,
    words: Vec<String>,
    pub text: String,
    /// Line number of the closing fence, counted from 1.
    pub end: usize,
}

impl Fence {
    /// Returns `true` if the fence has this mark.
    pub fn is(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// Returns the value of the mark `name=`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns `true` if the command keeps running.
    pub fn stays(&self) -> bool {
        self.is("stays") || self.value("stays").is_some()
    }

    /// Returns a message if the language or a mark is unknown.
    pub fn odd(&self) -> Option<String> {
        let known = match self.language.as_str() {
            "console" => ["stays", "soon", "elsewhere"].as_slice(),
            "yaml" | "text" | "json" => [].as_slice(),
            language if PROGRAMS.contains(&language) => [].as_slice(),
            _ => return Some(format!("{}: a fence of `{}`", self.at, self.language)),
        };
        let is_known = |word: &&String| {
            let name = word.split('=').next().unwrap_or_default();
            known.contains(&name)
                || (self.language != "console" && ["file", "of", "broken"].contains(&name))
        };
        let word = self.words.iter().find(|word| !is_known(word))?;
        Some(format!("{}: `{word}` at a fence of `{}`", self.at, self.language))
    }
}

/// Returns the fenced blocks of a page, in order.
pub fn of(page: &Page) -> Vec<Fence> {
    let mut fences: Vec<Fence> = Vec::new();
    let mut open = false;
    let mut indent = 0;
    for (number, line) in page.text.lines().enumerate() {
        let marks = line.trim_start().strip_prefix("```");
        match (open, marks) {
            (false, None) => {}
            (false, Some(info)) => {
                indent = line.len() - line.trim_start().len();
                let mut words = info.split_whitespace().map(str::to_owned);
                let language = words.next().unwrap_or_default();
                let at = format!("docs/{}:{}", page.name, number + 1);
                fences.push(Fence {
                    at,
                    language,
                    words: words.collect(),
                    text: String::new(),
                    end: 0,
                });
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
