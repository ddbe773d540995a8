//! `reference/settings.md` and `reference/commands.md`, generated from the `clap` definition of the
//! command line.

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use tollgate::cli::Cli;

use super::super::is_written;
use super::{cell, code, head, table};

#[test]
fn the_settings_are_those_of_the_command_line() {
    let cli = built();
    let serve = cli.find_subcommand("serve").unwrap();
    let text = "The settings of `tollgate serve`. Each is a flag and an environment variable; the flag takes precedence. All \
                invalid settings are reported at startup, at once.\n\nDurations are written `10s`, `15ms`, `24h`; sizes `256MiB`. \
                For a flag without a value, set the variable to `true` or `false`. The consequences of some settings: \
                [guarantees](../promise.md), [faults](../faults.md).";
    let mut page = head("Settings", text);
    for heading in headings(serve) {
        let of_heading = serve
            .get_arguments()
            .filter(|argument| argument.get_help_heading() == heading.as_deref());
        let rows: Vec<_> =
            of_heading.filter(|argument| is_for_people(argument)).map(setting).collect();
        if !rows.is_empty() {
            let heading = heading.as_deref().unwrap_or("Others");
            page +=
                &format!("## {heading}\n\n{}\n", table(["setting", "default", "meaning"], rows));
        }
    }
    is_written("reference/settings.md", &(page.trim_end().to_owned() + "\n"));
}

#[test]
fn the_commands_are_those_of_the_command_line() {
    let cli = built();
    let text = "The help of each subcommand, as `tollgate COMMAND --help` prints it. Without a subcommand, `tollgate` runs `tollgate \
                serve`, whose flags are the [settings](settings.md).";
    let mut page = head("Commands", text);
    for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
        page += &format!("## tollgate {}\n\n", command.get_name());
        let about = command
            .get_long_about()
            .or(command.get_about())
            .map(ToString::to_string)
            .unwrap_or_default();
        page += &format!("{}\n\n", paragraphs(&about));
        if command.get_name() == "serve" {
            page += "Its flags: [settings](settings.md).\n\n";
        } else {
            page += &format!("```text\n{}\n```\n\n", usage(command));
            let rows: Vec<_> = command
                .get_arguments()
                .filter(|argument| is_for_people(argument))
                .map(argument)
                .collect();
            if !rows.is_empty() {
                page += &format!("{}\n", table(["argument", "default", "meaning"], rows));
            }
        }
        if let Some(more) = command.get_after_help() {
            page += &format!("```text\n{}\n```\n\n", more.to_string().trim());
        }
    }
    is_written("reference/commands.md", &(page.trim_end().to_owned() + "\n"));
}

fn built() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

/// Returns the headings of a command's help, in the order of their first flags.
fn headings(command: &Command) -> Vec<Option<String>> {
    let mut headings = Vec::new();
    for heading in
        command.get_arguments().map(|argument| argument.get_help_heading().map(str::to_owned))
    {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings
}

/// Returns `false` for help flags, and for hidden arguments without an environment variable.
fn is_for_people(argument: &Arg) -> bool {
    let is_help = matches!(
        argument.get_action(),
        ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort
    );
    !is_help && (!argument.is_hide_set() || argument.get_env().is_some())
}

fn setting(argument: &Arg) -> [String; 3] {
    let flag = if argument.is_hide_set() { String::new() } else { code(&shown(argument)) };
    let variable =
        argument.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let names = [flag, code(&variable)].into_iter().filter(|name| !name.is_empty());
    [names.collect::<Vec<_>>().join("<br>"), code(&default(argument)), meaning(argument)]
}

fn argument(argument: &Arg) -> [String; 3] {
    [code(&shown(argument)), code(&default(argument)), meaning(argument)]
}

/// Returns `--flag VALUE`, or `VALUE` for a positional argument.
fn shown(argument: &Arg) -> String {
    let takes = argument.get_num_args().is_some_and(|number| number.takes_values());
    let values = argument.get_value_names().unwrap_or_default().join(" ");
    let value = if takes { values.as_str() } else { "" };
    match argument.get_long() {
        Some(long) => format!("--{long} {value}").trim_end().to_owned(),
        None => value.to_owned(),
    }
}

fn default(argument: &Arg) -> String {
    let takes = argument.get_num_args().is_some_and(|number| number.takes_values());
    let values =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    if takes { values.collect::<Vec<_>>().join(" ") } else { String::new() }
}

fn meaning(argument: &Arg) -> String {
    let help = argument
        .get_long_help()
        .or(argument.get_help())
        .map(ToString::to_string)
        .unwrap_or_default();
    let values: Vec<_> = argument
        .get_possible_values()
        .iter()
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let takes = argument.get_num_args().is_some_and(|number| number.takes_values());
    match values.as_slice() {
        values if takes && !values.is_empty() => {
            format!("{}. One of {}.", cell(&help).trim_end_matches('.'), values.join(", "))
        }
        _ => cell(&help),
    }
}

fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

/// Converts help text with line breaks to paragraphs.
fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(cell).collect::<Vec<_>>().join("\n\n")
}
