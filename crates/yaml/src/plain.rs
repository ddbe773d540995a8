//! YAML that is no policy, such as a manifest of Kubernetes, as JSON in which every scalar is text.

use serde_json::{Map, Value};

use super::Source;
use super::report::{Findings, ProblemReport};
use super::scalar::is_null;
use super::tree::{NodeContent, NodeId, Tree};

/// Reads all documents of a file. Unquoted scalars stay as they are written; nothing is null.
///
/// # Errors
/// Syntax errors, with their places.
pub fn documents(source: &Source) -> Result<Vec<Value>, ProblemReport> {
    let mut findings = Findings::default();
    let tree = Tree::parse(0, &source.text, &mut findings);
    if findings.errors() > 0 {
        return Err(findings.report(std::slice::from_ref(source)));
    }
    Ok(tree.roots().iter().map(|root| value(&tree, *root)).collect())
}

/// The tree bounds its depth, and how far aliases expand.
fn value(tree: &Tree, id: NodeId) -> Value {
    match tree.node(id).map(|node| &node.content) {
        None => Value::Null,
        Some(NodeContent::Scalar { text, plain: true }) if is_null(text) => Value::Null,
        Some(NodeContent::Scalar { text, .. }) => Value::from(text.as_str()),
        Some(NodeContent::List(items)) => items.iter().map(|item| value(tree, *item)).collect(),
        Some(NodeContent::Map(pairs)) => {
            Value::Object(pairs.iter().map(|pair| entry(tree, *pair)).collect::<Map<_, _>>())
        }
    }
}

fn entry(tree: &Tree, (key, of_key): (NodeId, NodeId)) -> (String, Value) {
    let key = value(tree, key);
    let text = key.as_str().map(str::to_owned);
    (text.unwrap_or_else(|| key.to_string()), value(tree, of_key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Vec<Value>, ProblemReport> {
        documents(&Source { name: "a.yaml".to_owned(), text: text.to_owned() })
    }

    #[test]
    fn every_document_is_read_and_scalars_stay_as_they_are_written() {
        let text = "a: &port 08081\nb: [yes, 1.50, ~, '', *port]\n---\n|\n  two\n  lines\n";
        let first = json!({ "a": "08081", "b": ["yes", "1.50", null, "", "08081"] });
        assert_eq!(read(text).unwrap(), [first, json!("two\nlines\n")]);
    }

    #[test]
    fn a_syntax_error_has_its_place() {
        assert!(
            read("a: [1\n").unwrap_err().to_string().contains("a.yaml"),
            "{}",
            read("a: [1\n").unwrap_err()
        );
    }
}
