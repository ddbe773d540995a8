//! Style of statements: one binding each, and `if` for conditions.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Statements of a file, by the line in which each begins.
#[derive(Default)]
pub(super) struct Statements {
    /// Each `let (a, b) = (x, y)`, also with `else`, or as a condition. Counts only if the right
    /// side is a tuple expression: a call that returns a tuple is no packing.
    pub(super) packed: Vec<usize>,
    /// Each `match` with an arm for the literal `true` or `false`.
    pub(super) bool_matches: Vec<usize>,
}

/// Returns the statements of a Rust file that pack bindings or match on a bool.
pub(super) fn statements(path: &str, text: &str) -> Statements {
    let mut found = Statements::default();
    found.read(text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}")));
    found
}

impl Statements {
    fn read(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            let line = token.span().start().line;
            match token {
                TokenTree::Ident(word) if word == "let" && is_packed(&tokens[at + 1..]) => {
                    self.packed.push(line)
                }
                TokenTree::Ident(word) if word == "match" && has_bool_arm(&tokens[at + 1..]) => {
                    self.bool_matches.push(line);
                }
                TokenTree::Group(group) => self.read(group.stream()),
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

/// Returns `true` if the tokens after a `let` are a tuple pattern, `=`, a tuple expression, and the
/// end of the statement or of the condition.
fn is_packed(tokens: &[TokenTree]) -> bool {
    if !tokens.first().is_some_and(is_tuple) {
        return false;
    }
    // A type may precede the `=`. Without an initial value, this stops at the `;`.
    let is_equals = |token: &TokenTree| is_sign(token, '=') || is_sign(token, ';');
    let Some(equals) = tokens.iter().position(is_equals) else { return false };
    let is_end = |token: &TokenTree| match token {
        TokenTree::Punct(sign) => [';', '&'].contains(&sign.as_char()),
        TokenTree::Ident(word) => word == "else",
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Literal(_) => false,
    };
    tokens.get(equals + 1).is_some_and(is_tuple) && tokens.get(equals + 2).is_some_and(is_end)
}

/// Returns `true` if the first block after a `match` has an arm for `true` or `false`.
fn has_bool_arm(tokens: &[TokenTree]) -> bool {
    let block = |token: &TokenTree| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {
            None
        }
    };
    let Some(arms) = tokens.iter().find_map(block) else { return false };
    let arms: Vec<TokenTree> = arms.into_iter().collect();
    (0..arms.len()).any(|at| {
        let is_start = at == 0 || is_sign(&arms[at - 1], ',') || block(&arms[at - 1]).is_some();
        let is_bool =
            matches!(&arms[at], TokenTree::Ident(word) if word == "true" || word == "false");
        let is_pattern = match arms.get(at + 1) {
            Some(TokenTree::Ident(word)) => word == "if",
            Some(token) => {
                is_sign(token, '=') && arms.get(at + 2).is_some_and(|token| is_sign(token, '>'))
            }
            None => false,
        };
        is_start && is_bool && is_pattern
    })
}

/// Returns `true` for parentheses with a comma between two parts.
fn is_tuple(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    group.delimiter() == Delimiter::Parenthesis
        && tokens
            .iter()
            .position(|token| is_sign(token, ','))
            .is_some_and(|comma| comma + 1 < tokens.len())
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}
