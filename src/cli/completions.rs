//! `tollgate completions` and `tollgate man`: files for shells and for `man`, from the definition
//! of the command line.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, CommandError};

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The image has them in /usr/share: bash-completion/completions, zsh/site-functions, fish/vendor_completions.d.

Examples:
  # Load them in this bash; in zsh: source <(tollgate completions zsh)
  source <(tollgate completions bash)
  # Install them for fish
  tollgate completions fish > ~/.config/fish/completions/tollgate.fish")]
pub struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write the manual pages to a directory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes a page for the program and one for each command, and replaces those that exist. The image has them in \
/usr/share/man/man1.

Exit codes: 0 if the pages are written, 2 if they cannot be.

Examples:
  # Write and read the page of `tollgate reload`
  tollgate man /tmp/man && man /tmp/man/tollgate-reload.1")]
pub struct ManPages {
    /// Directory for the pages, which is created if it does not exist.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Completions {
    /// Prints the completions.
    pub(super) fn run(self) -> ExitCode {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "tollgate", &mut text);
        // A reader may close the pipe early.
        let _ = io::stdout().write_all(&text);
        ExitCode::SUCCESS
    }
}

impl ManPages {
    /// Writes the pages.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Self { directory } = self;
        let written = std::fs::create_dir_all(&directory)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &directory));
        written.map_err(|error| format!("{}: {error}", directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
