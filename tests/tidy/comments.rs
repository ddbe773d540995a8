//! Style of comments: how docs begin, the width of lines, and words to avoid.

/// Words that open a doc comment without a verb or the thing that it documents.
const OPENINGS: [&str; 14] = [
    "What", "Whether", "Who", "Whom", "Whose", "That", "Those", "These", "How", "When", "Where",
    "Which", "Says", "Tells",
];
/// Maximum columns of a line that is a comment.
const MAX_COLUMNS: usize = 100;
/// Words, and how often they may occur in 1,000 comment lines. *Where* is for places only.
const RARE: [(&[&str], usize); 4] = [
    (&["where"], 3),
    (&["said", "says", "say"], 2),
    (&["asked", "asks", "ask"], 2),
    (&["tells", "tell"], 2),
];

/// Words of an older style, which have a plain one: *fix*, *no client*, *reported*.
const BANNED: [&str; 6] = ["everybody", "mend", "mends", "nobody", "somebody", "told"];

/// Returns the comment lines of a Rust file that open badly or are too wide.
pub(super) fn faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut is_start = true;
    for (number, line) in text.lines().enumerate() {
        let comment = line.trim_start();
        let doc = comment.strip_prefix("///").or_else(|| comment.strip_prefix("//!"));
        let is_comment = comment.starts_with("//");
        let place = || format!("{path}:{}", number + 1);
        if is_comment && line.chars().count() > MAX_COLUMNS {
            faults.push(format!("{}: a comment of more than {MAX_COLUMNS} columns", place()));
        }
        let first = doc.and_then(|doc| words(doc).next()).unwrap_or_default();
        if is_start && OPENINGS.contains(&first) {
            faults.push(format!("{}: a doc comment begins with `{first}`", place()));
        }
        // A paragraph begins after code and after an empty line of docs.
        is_start = !is_comment || doc.is_some_and(|doc| doc.trim().is_empty());
    }
    faults
}

/// Returns the words that occur too often in the comments of Rust files.
pub(super) fn frequent<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let comments =
        || texts.clone().flat_map(str::lines).filter(|line| line.trim_start().starts_with("//"));
    let lines = comments().count();
    let mut frequent = Vec::new();
    for (group, most) in RARE {
        let is_of_group = |word: &&str| group.iter().any(|rare| rare.eq_ignore_ascii_case(word));
        let count = comments().flat_map(words).filter(is_of_group).count();
        if count * 1_000 > most * lines {
            frequent.push(format!(
                "{count} times {} in {lines} comment lines, at most {most} in 1,000",
                group[0]
            ));
        }
    }
    frequent
}

/// Returns the lines of a Rust file with a banned word, in a comment, a name or a text.
pub(super) fn banned(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let parts = words(line).flat_map(|word| word.split('_'));
        for word in parts.filter(|word| BANNED.contains(&word.to_ascii_lowercase().as_str())) {
            found.push(format!("{path}:{}: `{word}` has a plain word", number + 1));
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}
