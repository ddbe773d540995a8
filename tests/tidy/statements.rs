//! Style of statements: one binding each.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Returns the line of each `let (a, b) = (x, y)` of a Rust file, also with `else`, or as a
/// condition. Counts only if the right side is a tuple expression: a call that returns a tuple is
/// no packing.
pub(super) fn packed_lets(path: &str, text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    collect(text.parse().unwrap_or_else(|error| panic!("{path} is not Rust: {error}")), &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(word) if word == "let" && is_packed(&tokens[at + 1..]) => {
                found.push(token.span().start().line);
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
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
