//! `tollgate init`: writes a first policy and its test, from flags or from three questions.

mod limit;

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use self::limit::{FirstAlgorithm, FirstLimit};
use super::output::print;
use super::{CommandError, try_block_on};
use crate::policy::{self, CompileOptions, Source};
use crate::scenario::dry_run::DryRun;
use crate::scenario::test_file::{self, PendingTest};

/// Maximum length of an answer in bytes.
const MAX_ANSWER: u64 = 1_024;
/// Words that YAML does not read as text.
const RESERVED: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Write a first policy and its test
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Writes DOMAIN.yaml with one rule, and DOMAIN.test.yaml with its test. Asks for values that are not given, if the standard \
input is a terminal. Files that exist are not changed.

Exit codes: 0 if the files are written, 2 if they are not.

Examples:
  # Answer three questions
  tollgate init
  # Limit each address to 100 requests per minute
  tollgate init --domain gateway --key remote_address --limit 100/minute
  # Limit each account to 5 attempts in 15 minutes, in a directory
  tollgate init --domain login --key account --limit 5/15m config/limits
  # Limit each pair of user and address, in the order in which callers send them
  tollgate init --domain login --key user --key remote_address --limit 5/hour")]
pub struct Init {
    /// Directory for the files, which is created if it does not exist.
    #[arg(value_name = "DIRECTORY", default_value = "policies")]
    directory: PathBuf,
    /// Domain of the policy: the one that callers send.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<Name>,
    /// Key of the descriptor: each of its values has a counter. With several, each combination of
    /// values has one.
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<Name>,
    /// Requests and unit: 100/minute, or 5/15m. Units: second, minute, hour, day, week, month,
    /// year.
    #[arg(long, value_name = "AMOUNT/UNIT")]
    limit: Option<FirstLimit>,
    /// Algorithm of the limit
    #[arg(long, value_enum, value_name = "ALGORITHM", default_value_t)]
    algorithm: FirstAlgorithm,
}

/// A domain or a key that needs no quotes in YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name(String);

/// Reason why a value cannot be used.
#[derive(Debug, thiserror::Error)]
enum InvalidAnswer {
    #[error(
        "expected 1 to 100 letters, digits, `_`, `-` or `.`, beginning with a letter, found `{0}`"
    )]
    Name(String),
    #[error("`{0}` is no text in YAML; choose another name")]
    Reserved(String),
    #[error(
        "expected an amount and a unit, such as 100/minute or 5/15m, found `{0}` (units: second, \
         minute, hour, day, week, month, year, or a number with s, m, h or d)"
    )]
    Limit(String),
}

/// The policy and its test.
struct FirstFiles {
    policy: Source,
    test: Source,
}

impl Init {
    /// Writes the files and prints the next commands.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let Self { directory, domain, mut keys, limit, algorithm } = self;
        let domain = given_or_asked(domain, "--domain", "Domain that callers send", "gateway")?;
        if keys.is_empty() {
            let question = "Key with a counter per value";
            keys.push(given_or_asked(None, "--key", question, "remote_address")?);
        }
        let limit = given_or_asked(limit, "--limit", "Limit of each value", "100/minute")?;
        let files = FirstFiles::of(&directory, &domain.0, &keys, &limit, algorithm);
        files.verify(&domain.0)?;
        files.write(&directory)?;
        let shown = directory.display();
        print(format_args!(
            "wrote {}\nwrote {}\n\nNext:\n  tollgate test {shown}\n  tollgate serve --policy {shown}\n  \
             tollgate hit 127.0.0.1:8081 {} {}\n",
            files.policy.name,
            files.test.name,
            domain.0,
            entries(&keys, "a")
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns a value that was given, or the answer to a question on the terminal.
fn given_or_asked<T>(
    given: Option<T>,
    flag: &str,
    question: &str,
    proposal: &str,
) -> Result<T, CommandError>
where
    T: FromStr<Err = InvalidAnswer>,
{
    match given {
        Some(given) => Ok(given),
        None if io::stdin().is_terminal() => {
            ask(question, proposal, &mut io::stdin().lock(), &mut io::stderr())
        }
        None => Err(format!("{flag} is missing, and the standard input is no terminal").into()),
    }
}

/// Asks until the answer is valid; an empty one is the proposal.
///
/// # Errors
/// The input has ended, or cannot be read.
fn ask<T>(
    question: &str,
    proposal: &str,
    input: &mut impl BufRead,
    output: &mut impl io::Write,
) -> Result<T, CommandError>
where
    T: FromStr<Err = InvalidAnswer>,
{
    loop {
        write!(output, "{question} [{proposal}]: ")?;
        output.flush()?;
        let mut answer = String::new();
        if input.by_ref().take(MAX_ANSWER).read_line(&mut answer)? == 0 {
            return Err("the input has ended; nothing is written".into());
        }
        let answer = answer.trim();
        match (if answer.is_empty() { proposal } else { answer }).parse() {
            Ok(value) => return Ok(value),
            Err(error) => writeln!(output, "{error}")?,
        }
    }
}

impl FromStr for Name {
    type Err = InvalidAnswer;

    fn from_str(text: &str) -> Result<Self, InvalidAnswer> {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let begins = text.starts_with(|first: char| first.is_ascii_alphabetic());
        if !begins || text.len() > 100 || !text.chars().all(is_letter) {
            return Err(InvalidAnswer::Name(text.to_owned()));
        }
        if RESERVED.contains(&text.to_ascii_lowercase().as_str()) {
            return Err(InvalidAnswer::Reserved(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Returns a descriptor in which each key has the same value.
fn entries(keys: &[Name], value: &str) -> String {
    let entries: Vec<_> = keys.iter().map(|key| format!("{}={value}", key.0)).collect();
    entries.join(",")
}

impl FirstFiles {
    fn of(
        directory: &Path,
        domain: &str,
        keys: &[Name],
        limit: &FirstLimit,
        algorithm: FirstAlgorithm,
    ) -> Self {
        let FirstLimit { amount, unit, length } = limit;
        let recovery = algorithm.recovery(*length);
        let word = algorithm.word();
        let name = |end: &str| directory.join(format!("{domain}{end}")).display().to_string();
        let names: Vec<_> = keys.iter().map(|key| key.0.as_str()).collect();
        let mut policy = format!(
            "# {amount} requests per {unit} for each value of `{}`. `tollgate schema` describes all keys,\n\
             # `tollgate init --help` the algorithms.\n\
             domain: {domain}\n",
            names.join("` and `")
        );
        let mut indent = String::new();
        for name in &names {
            let _ = write!(policy, "{indent}descriptors:\n{indent}  - key: {name}\n");
            indent.push_str("    ");
        }
        let _ = write!(
            policy,
            "{indent}rate_limit:\n{indent}  algorithm: {word}\n{indent}  unit: {unit}\n{indent}  \
             requests_per_unit: {amount}\n"
        );
        let one = entries(keys, "a");
        let other = entries(keys, "b");
        let test = format!(
            "# Run by: tollgate test {}\n\
             policies: [{domain}.yaml]\n\
             tests:\n  - test: each {} has {amount} requests per {unit}\n    steps:\n      \
             - {{ hit: \"{one}\", hits: {amount}, expect: ok, remaining: 0 }}\n      \
             - {{ hit: \"{one}\", expect: over_limit }}\n      \
             - {{ hit: \"{other}\", expect: ok }}\n      \
             - {{ hit: \"{one}\", after: {recovery}, expect: ok }}\n",
            directory.display(),
            names.join(" and ")
        );
        Self {
            policy: Source { name: name(".yaml"), text: policy },
            test: Source { name: name(".test.yaml"), text: test },
        }
    }

    /// Compiles the policy and runs the test, before anything is written.
    fn verify(&self, domain: &str) -> Result<(), CommandError> {
        let loaded = policy::load(std::slice::from_ref(&self.policy), &CompileOptions::default())?;
        let dry_run = DryRun::new(loaded.policies);
        let paths = [PathBuf::from(&self.policy.name)];
        for case in &test_file::read(&self.test)?.cases {
            let dry_run = dry_run.without_counters();
            let pending = PendingTest { case, domain, policies: &paths, dry_run };
            let outcome = try_block_on(async { Ok(pending.outcome().await) })?;
            if let Some(failure) = outcome.failure {
                let test_file::Mismatch { expected, found, .. } = failure;
                return Err(format!("the test fails: expected {expected}, found {found}").into());
            }
        }
        Ok(())
    }

    /// Writes both files, or none if one of them exists.
    fn write(&self, directory: &Path) -> Result<(), CommandError> {
        for Source { name, .. } in [&self.policy, &self.test] {
            if Path::new(name).symlink_metadata().is_ok() {
                return Err(format!(
                    "{name} exists; nothing is written\nAdd the rule to this file, or choose another --domain or DIRECTORY."
                )
                .into());
            }
        }
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        for Source { name, text } in [&self.policy, &self.test] {
            let file = OpenOptions::new().write(true).create_new(true).open(name);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(|error| format!("{name}: {error}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::limit::UNITS;
    use super::*;

    #[test]
    fn an_answer_is_asked_for_until_it_is_valid_and_an_empty_one_is_the_proposal() {
        let mut output = Vec::new();
        let mut input = "100\n0/minute\n5/15m\n".as_bytes();
        let limit: FirstLimit = ask("Limit", "100/minute", &mut input, &mut output).unwrap();
        assert_eq!((limit.amount, limit.unit.as_str()), (5, "15m"));
        let output = String::from_utf8(output).unwrap();
        assert_eq!(output.matches("Limit [100/minute]: ").count(), 3, "{output}");
        assert!(output.contains("such as 100/minute or 5/15m, found `0/minute`"), "{output}");
        let proposed: Name = ask("", "gateway", &mut "\n".as_bytes(), &mut Vec::new()).unwrap();
        assert_eq!(proposed.0, "gateway");
        let ended = ask::<Name>("", "gateway", &mut "".as_bytes(), &mut Vec::new());
        assert_eq!(ended.unwrap_err().to_string(), "the input has ended; nothing is written");
    }

    #[test]
    fn all_units_make_a_policy_that_passes_its_test() {
        let units = UNITS.iter().map(|(unit, _)| *unit);
        let algorithms = FirstAlgorithm::value_variants();
        let mut amounts = vec![(u32::MAX, FirstAlgorithm::default())];
        for algorithm in algorithms {
            amounts.extend([1, 100].map(|amount| (amount, *algorithm)));
        }
        for unit in units.chain(["90s", "15m", "36h", "7d", "Minutes"]) {
            let amounts = amounts.iter().copied();
            for (amount, algorithm) in amounts {
                let limit: FirstLimit = format!("{amount}/{unit}").parse().unwrap();
                for keys in [&["k"][..], &["user", "ip"], &["a", "a", "b", "c"]] {
                    let keys: Vec<_> = keys.iter().map(|key| key.parse().unwrap()).collect();
                    let files = FirstFiles::of(Path::new("x"), "d", &keys, &limit, algorithm);
                    files.verify("d").unwrap_or_else(|error| panic!("{amount}/{unit}: {error}"));
                }
            }
        }
    }

    #[test]
    fn names_that_yaml_reads_otherwise_are_refused() {
        for wrong in ["", "1a", "a b", "a=b", "true", "No", "a#b", "ä"] {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
        for wrong in [
            "100",
            "a/minute",
            "-1/minute",
            "5/m",
            "5/+1m",
            "5/01m",
            "5/1mm",
            "5/fortnight",
            "0/day",
        ] {
            assert!(wrong.parse::<FirstLimit>().is_err(), "{wrong}");
        }
    }
}
