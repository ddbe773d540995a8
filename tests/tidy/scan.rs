//! The paths that a source file uses: in `use`, code, macros and attributes, but not in comments,
//! strings and tests.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The result of scanning a file.
#[derive(Default)]
pub(super) struct Scan {
    /// Every path, absolute: `crate::policy::source`, `tokio::net`. Includes paths of the file's
    /// own module.
    pub(super) mentions: Vec<Mention>,
    /// Modules in other files that are declared for tests only.
    pub(super) test_modules: Vec<String>,
    /// Path of the current module from the root package.
    module: Vec<String>,
    /// Path of the crate, as the root package exports it; empty for the root package itself.
    root: Vec<String>,
    /// Names that `use` and `mod` introduce: a path that begins with one of them does not refer to
    /// a crate of that name.
    names: Vec<String>,
}

/// A path, and the line in which it begins.
#[derive(Clone)]
pub(super) struct Mention {
    pub(super) line: usize,
    pub(super) path: Vec<String>,
}

/// Scans the text of the module at `place`: `policy/source`, `policy/source/files`. The root
/// package exports the crate of the module as `crate_module`.
pub(super) fn scan(text: &str, place: &str, crate_module: &str) -> Scan {
    let module = place
        .split('/')
        .filter(|name| !["lib", "main"].contains(name))
        .map(str::to_owned)
        .collect();
    let root = (!crate_module.is_empty()).then(|| crate_module.to_owned()).into_iter().collect();
    let mut scan = Scan { module, root, ..Scan::default() };
    scan.read(text.parse().unwrap_or_else(|error| panic!("{place} is not Rust: {error}")));
    let names = std::mem::take(&mut scan.names);
    scan.mentions.retain(|mention| !names.contains(&mention.path[0]));
    scan
}

impl Scan {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at = match token {
                _ if is_for_tests(&tokens[at..]) => self.skip(&tokens, at + 2),
                TokenTree::Ident(word) if word == "mod" => self.module(&tokens, at + 1),
                TokenTree::Ident(word) if word == "use" => self.tree(&tokens, at + 1, &[]),
                TokenTree::Ident(_) => self.path(&tokens, at),
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    at + 1
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => at + 1,
            };
        }
    }

    /// Skips an item, up to its `;` or its block.
    fn skip(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let is_end = |token: &TokenTree| is_sign(Some(token), ';') || block(Some(token)).is_some();
        let end = at + tokens[at..].iter().position(is_end).unwrap_or(tokens.len() - at);
        let is_mod = |at: &usize| word(tokens.get(*at)).is_some_and(|word| word == "mod");
        let name = (at..end).find(is_mod).and_then(|at| word(tokens.get(at + 1)));
        self.test_modules.extend(name);
        end + 1
    }

    /// Reads `mod name;` or `mod name { .. }`.
    fn module(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let name = word(tokens.get(at)).unwrap_or_default();
        self.names.push(name.clone());
        let Some(block) = block(tokens.get(at + 1)) else { return at + 1 };
        self.module.push(name);
        self.read(block);
        self.module.pop();
        at + 2
    }

    /// Reads a `use` tree below `stem`: `a::b`, `a::{b, c as d}`, `a::*`.
    fn tree(&mut self, tokens: &[TokenTree], mut at: usize, stem: &[String]) -> usize {
        let line = line(tokens, at);
        let mut path = stem.to_vec();
        loop {
            if let Some(branches) = block(tokens.get(at)) {
                let branches: Vec<TokenTree> = branches.into_iter().collect();
                branches
                    .split(|token| is_sign(Some(token), ','))
                    .filter(|branch| !branch.is_empty())
                    .for_each(|branch| {
                        self.tree(branch, 0, &path);
                    });
                return at + 1;
            }
            path.extend(word(tokens.get(at)));
            at += 1;
            if !is_colons(tokens, at) {
                break;
            }
            at += 2;
        }
        path.truncate(path.len() - usize::from(path.len() > 1 && path.ends_with(&["self".into()])));
        let alias =
            word(tokens.get(at)).filter(|word| word == "as").and_then(|_| word(tokens.get(at + 1)));
        let name = alias.or_else(|| path.last().filter(|_| path.len() > 1).cloned());
        self.names.extend(name);
        self.mention(line, path);
        at
    }

    /// Reads a path in code. `async` counts as one, and so does `env = ".."`, with which flags name
    /// their environment variables.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        let line = line(tokens, at);
        let mut path: Vec<String> = word(tokens.get(at)).into_iter().collect();
        at += 1;
        let is_text = matches!(tokens.get(at + 1), Some(TokenTree::Literal(_)));
        if path == ["env"] && is_sign(tokens.get(at), '=') && is_text {
            path.insert(0, "std".into());
        }
        while let Some(next) = word(tokens.get(at + 2)).filter(|_| is_colons(tokens, at)) {
            path.push(next);
            at += 3;
        }
        if path.len() > 1 || path == ["async"] {
            self.mention(line, path);
        }
        at
    }

    /// Records a path, relative to the root package if it is in this workspace.
    fn mention(&mut self, line: usize, path: Vec<String>) {
        let ups = path.iter().take_while(|name| *name == "super").count();
        let is_here = ups > 0 || path.first().is_some_and(|name| name == "self");
        let path = match path.first().map(String::as_str) {
            Some("crate") => [&["crate".into()], &self.root[..], &path[1..]].concat(),
            Some("tollgate" | "tollgate_core" | "tollgate_files") => {
                [&["crate".into()], &path[1..]].concat()
            }
            Some(name) if let Some(module) = name.strip_prefix("tollgate_") => {
                [&["crate".into(), module.to_owned()], &path[1..]].concat()
            }
            Some(_) if is_here => {
                let above = self.module.len().saturating_sub(ups);
                [&["crate".into()], &self.module[..above], &path[ups.max(1)..]].concat()
            }
            Some("core" | "alloc") => [&["std".into()], &path[1..]].concat(),
            _ => path,
        };
        self.mentions.extend((!path.is_empty()).then_some(Mention { line, path }));
    }
}

/// Returns `true` for `#[cfg(test)]`, also if combined with fuzzing.
fn is_for_tests(tokens: &[TokenTree]) -> bool {
    let Some(TokenTree::Group(attribute)) = tokens.get(1).filter(|_| is_sign(tokens.first(), '#'))
    else {
        return false;
    };
    ["cfg(test)", "cfg(any(test,fuzzing))"]
        .contains(&attribute.stream().to_string().replace(' ', "").as_str())
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_sign(tokens.get(at), ':') && is_sign(tokens.get(at + 1), ':')
}

fn is_sign(token: Option<&TokenTree>, sign: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// Returns an identifier, or the `*` of `use`.
fn word(token: Option<&TokenTree>) -> Option<String> {
    match token? {
        TokenTree::Ident(word) => Some(word.to_string()),
        TokenTree::Punct(sign) if sign.as_char() == '*' => Some("*".into()),
        TokenTree::Punct(_) | TokenTree::Literal(_) | TokenTree::Group(_) => None,
    }
}

fn block(token: Option<&TokenTree>) -> Option<TokenStream> {
    match token? {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) | TokenTree::Ident(_) => {
            None
        }
    }
}

fn line(tokens: &[TokenTree], at: usize) -> usize {
    tokens.get(at).map_or(0, |token| token.span().start().line)
}
