//! The short help, `-h`: of each command, the options that most calls need. `--help` has all.

use clap::Command;

/// Options of `serve` in the short help.
pub(super) const COMMON: [&str; 15] = [
    "policy",
    "xds",
    "grpc_listen",
    "http_listen",
    "admin_listen",
    "admin_token_file",
    "grpc_tls_cert",
    "grpc_tls_key",
    "store",
    "store_timeout",
    "redis_password_file",
    "redis_ca",
    "memory_max",
    "log",
    "log_format",
];
/// Options of the other commands that are left out: credentials, and parsing of policies.
const RARE: [&str; 8] = [
    "client_cert",
    "client_key",
    "merge_domains",
    "policy_dialect",
    "policy_dot_files",
    "policy_file_prefix",
    "fixed_window_charge",
    "hash_key_file",
];
/// The command whose options are those of the program itself.
const SERVE: &str = "serve";

/// Returns the definition of the command line with short helps.
pub(super) fn with_short_help(program: Command) -> Command {
    let commands: Vec<_> =
        program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let program = keep_common(program);
    commands.into_iter().fold(program, |program, name| {
        program.mut_subcommand(&name, |command| {
            if name == SERVE { keep_common(command) } else { hide_rare(command) }
        })
    })
}

fn keep_common(command: Command) -> Command {
    command.mut_args(|argument| {
        let is_common = COMMON.contains(&argument.get_id().as_str());
        argument.hide_short_help(!is_common)
    })
}

fn hide_rare(command: Command) -> Command {
    command.mut_args(|argument| {
        let is_rare = RARE.contains(&argument.get_id().as_str());
        argument.hide_short_help(is_rare)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn short_help(name: &str) -> String {
        let mut program = with_short_help(Cli::command());
        program.build();
        let command = program.find_subcommand_mut(name).unwrap();
        command.render_help().to_string()
    }

    #[test]
    fn the_short_help_of_the_service_has_the_common_options_and_the_long_one_all() {
        let short = with_short_help(Cli::command()).render_help().to_string();
        let options =
            |text: &str| text.lines().filter(|line| line.trim().starts_with("--")).count();
        assert_eq!(options(&short), COMMON.len(), "{short}");
        assert!(short.lines().count() < 120, "{short}");
        let long = with_short_help(Cli::command()).render_long_help().to_string();
        assert!(options(&long) > 100, "{long}");
        assert_eq!(options(&short_help("serve")), COMMON.len());
        assert!(short.contains("see more with '--help'"), "{short}");
    }

    #[test]
    fn options_that_few_calls_need_are_left_out_of_all_commands() {
        let test = short_help("test");
        assert!(test.contains("--format") && !test.contains("--policy-dialect"), "{test}");
        let top = short_help("top");
        assert!(top.contains("--admin") && !top.contains("--client-cert"), "{top}");
    }

    #[test]
    fn short_helps_list_the_options_of_their_examples() {
        let program = Cli::command();
        let unlisted = program.get_subcommands().flat_map(|command| {
            let text = short_help(command.get_name());
            let (options, examples) = text.split_once("Examples:").unwrap_or((&text, ""));
            let words = examples.split([' ', '\n', '=']).filter(|word| word.starts_with("--"));
            let unlisted = words.filter(|word| *word != "--" && !options.contains(*word));
            unlisted.map(|word| format!("{} {word}", command.get_name())).collect::<Vec<_>>()
        });
        assert_eq!(unlisted.collect::<Vec<_>>(), [""; 0]);
    }

    #[test]
    fn each_option_of_the_lists_exists() {
        let program = Cli::command();
        let has = |command: &Command, id: &str| {
            command.get_arguments().any(|argument| argument.get_id() == id)
        };
        let missing: Vec<_> = COMMON.into_iter().filter(|id| !has(&program, id)).collect();
        let nowhere =
            RARE.into_iter().filter(|id| !program.get_subcommands().any(|of| has(of, id)));
        assert_eq!(missing.into_iter().chain(nowhere).collect::<Vec<_>>(), [""; 0]);
    }
}
