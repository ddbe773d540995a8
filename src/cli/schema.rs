//! `tollgate schema`: prints the JSON Schema of policy files.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::scenario;

/// Print the JSON Schema of policy files, for editors
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Editors with the YAML language server use the schema if a policy file contains this comment:
  # yaml-language-server: $schema=tollgate.schema.json

Examples:
  # Write the schema to a file
  tollgate schema > tollgate.schema.json")]
pub struct Schema {}

impl Schema {
    /// Prints the schema.
    pub fn run(self) -> ExitCode {
        // A reader may close the pipe early.
        let _ = writeln!(io::stdout(), "{:#}", scenario::json_schema());
        ExitCode::SUCCESS
    }
}
