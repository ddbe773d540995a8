//! `tollgate schema`: prints the JSON Schema of policy files.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::policy;

/// Print the JSON Schema of policy files, for editors
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate schema > tollgate.schema.json\n\nand in a policy file, for editors with the \
                        YAML language server:\n  # yaml-language-server: $schema=tollgate.schema.json"
)]
pub struct Schema {}

impl Schema {
    /// Prints the schema.
    pub fn run(self) -> ExitCode {
        // A reader may close the pipe early.
        let _ = writeln!(io::stdout(), "{:#}", policy::json_schema());
        ExitCode::SUCCESS
    }
}
