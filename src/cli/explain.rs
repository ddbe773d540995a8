//! `tollgate explain`: shows which rule a descriptor matches, and why.

mod request;

use std::path::PathBuf;
use std::process::ExitCode;

use self::request::RequestArgs;
use super::api::ServerArgs;
use super::output::print;
use super::{CommandError, load, try_block_on};
use crate::admin::api::queries::Explanation;
use crate::policy::explain;
use crate::settings::ReadingFlags;
use crate::telemetry::journal::key::read_text;

/// Show which rule a descriptor matches, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Asks a running service for the policies in force, or reads policy files with --policy. Prints each matching step with the \
rules that were tried, and the limit of the matching rule.

Exit codes: 0 if a rule matches, 1 if none matches, 2 if the policies or the descriptor are invalid, or the service does \
not respond.

Examples:
  # Explain the rule in force for user 42 on the free plan
  tollgate explain tiers plan=free,user=42
  # Explain the rule that policy files would impose
  tollgate explain --policy config/policies/ tiers plan=free,user=42
  # Explain what limits an HTTP request, by the mapping `shop` in `requests`
  tollgate explain --policy config/policies/ shop --request 'GET /orders' -H 'Host: shop.example' --client 203.0.113.7")]
pub struct Explain {
    #[command(flatten)]
    server: ServerArgs,
    /// Policy file or directory to read, without a service. May be repeated.
    #[arg(long = "policy", value_name = "PATH")]
    policies: Vec<PathBuf>,
    /// Domain of the descriptor
    domain: String,
    /// Descriptor: key=value,key=value. A value may contain `=`
    #[arg(
        value_name = "KEY=VALUE,...",
        required_unless_present = "request",
        conflicts_with = "request"
    )]
    descriptor: Option<String>,
    #[command(flatten)]
    http: RequestArgs,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

/// An explanation as text.
struct ExplainedRules {
    text: String,
    /// `true` if a rule matches.
    is_matched: bool,
}

impl Explain {
    /// Prints the explanation.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let ExplainedRules { text, is_matched } = match &self.http.request {
            Some(request) => self.of_request(request)?,
            None if self.policies.is_empty() => self.in_force()?,
            None => self.of_files()?,
        };
        print(text);
        Ok(if is_matched { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Returns the explanation by the policies in force.
    fn in_force(&self) -> Result<ExplainedRules, CommandError> {
        let query = [("domain", self.domain.as_str()), ("descriptor", self.descriptor_text())];
        let Explanation { version, rule, text } = try_block_on(self.server.get("explain", &query))
            .map_err(|error| format!("{error}; to read policy files instead: --policy PATH"))?;
        let source = format!("policies in force at {}, version {version}\n", self.server.url());
        Ok(ExplainedRules { text: source + &text, is_matched: rule.is_some() })
    }

    /// Returns the explanation by policy files.
    fn of_files(&self) -> Result<ExplainedRules, CommandError> {
        let policies = load(&self.reading, &self.policies)?.1.policies;
        let text = self.descriptor_text();
        let owned = read_text(text).map_err(|error| format!("descriptor `{text}`: {error}"))?;
        let (text, rule) = explain::explain(&policies, &self.domain, &owned.entries());
        Ok(ExplainedRules { text, is_matched: rule.is_some() })
    }

    /// Returns the descriptor, which clap requires without `--request`.
    fn descriptor_text(&self) -> &str {
        self.descriptor.as_deref().unwrap_or_default()
    }
}
