//! YAML files: a tree with positions, and reports of all problems with excerpts.
//!
//! Knows YAML 1.1 as Go's parser reads it. Its users define the vocabularies of their files. Reads
//! no files. The only crate that names the YAML parser.
//!
//! | file | contents |
//! |---|---|
//! | [`tree`] | text to a tree of nodes with positions |
//! | [`scalar`] | the meaning of an unquoted scalar |
//! | [`value`] | a node with its tree, for readers without a vocabulary |
//! | [`vocabulary`] | the words of a kind of file, defined by its reader |
//! | [`mapping`] | mappings checked against a vocabulary, with all errors |
//! | [`schema`] | a vocabulary as a JSON Schema |
//! | [`plain`] | a file without a vocabulary, as JSON |
//! | [`report`] | problems with their positions, and their text |

// Files come from outside: an overflow would be a panic by input, or lift a bound.
#![warn(clippy::arithmetic_side_effects)]

pub mod mapping;
pub mod plain;
pub mod report;
pub mod scalar;
pub mod schema;
pub mod tree;
pub mod value;
pub mod vocabulary;

/// The text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Path of the file, as shown in messages.
    pub name: String,
    /// Content of the file.
    pub text: String,
}
