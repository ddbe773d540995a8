//! The migration page: what stays the same, what differs, what improves, and the next steps.

use std::fmt;

use super::deployment::{Deployment, DeploymentSource};
use super::export::ExportedFiles;
use super::{MigratedPolicies, rejected};
use crate::algorithm::Limit;
use crate::envoyproxy::{
    ReadBy, Translation, VariableEffect, effects, has_public_admin, is_carried, named, overridden,
    read_by,
};
use crate::policy::{Imposes, Loaded, Rule};
use crate::settings::MessageFlag;
use crate::yaml::report::Severity;

/// Width of a line, in columns.
const WIDTH: usize = 100;
/// Maximum number of lines of a topic whose length depends on the input. Further ones are counted.
const MAX_SHOWN: usize = 10;
/// Column at which texts begin.
const INDENT: usize = 13;
/// Column at which the texts of steps begin.
const STEP_INDENT: usize = 5;

/// Differences that do not depend on variables.
const ALWAYS_DIFFERENT: &[(&str, &str)] = &[
    (
        "counters",
        "start at zero when you switch, since Redis keys differ; both services can share one Redis without sharing counters",
    ),
    (
        "Redis user",
        "needs +eval +evalsha +time +get +set +del; `tollgate check-store URL` shows what is missing",
    ),
    ("errors", "INVALID_ARGUMENT or UNAVAILABLE instead of UNKNOWN"),
    (
        "health",
        "the ports open within 1 s and report NOT_SERVING until Redis has been reached once; envoyproxy/ratelimit opens no \
         port until then. Later, as in envoyproxy/ratelimit, a lost Redis has an effect only with \
         REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true. NOT_SERVING also while Redis is a read-only replica or denies commands",
    ),
    ("shutdown", "after SIGTERM, requests are served for 3s more (--drain-delay)"),
];

/// The migration page.
pub(super) struct Page<'m> {
    pub(super) deployment: &'m Deployment,
    pub(super) translation: &'m Translation,
    pub(super) policies: &'m MigratedPolicies,
    pub(super) written: Option<&'m ExportedFiles>,
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings(f)?;
        self.policies(f)?;
        writeln!(f, "\nAlways different")?;
        ALWAYS_DIFFERENT.iter().try_for_each(|(topic, text)| line(f, topic, text))?;
        self.improvements(f)?;
        self.next(f)
    }
}

impl Page<'_> {
    fn settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let effects = effects(&self.deployment.variables);
        // References without a usable placeholder have no effect.
        let unset = self
            .deployment
            .references
            .iter()
            .filter(|(name, _)| !self.deployment.variables.contains_key(name))
            .count();
        let set = self.deployment.variables.keys().filter(|name| self.is_listed(name)).count();
        let number = set.saturating_add(unset);
        writeln!(f, "Settings: {} from {}", count(number, "variable"), self.deployment.from)?;
        let is_problem = |name: &str| {
            self.translation.problems.iter().any(|problem| named(problem).any(|one| one == name))
        };
        let same = effects
            .iter()
            .filter(|(name, effect)| *effect == VariableEffect::Same && !is_problem(name));
        let same: Vec<_> = same.map(|(name, _)| *name).collect();
        if !same.is_empty() {
            line(f, "unchanged", &same.join(", "))?;
        }
        let mut shown = Vec::new();
        for (name, effect) in &effects {
            let (topic, text) = match effect {
                VariableEffect::Same => continue,
                VariableEffect::NotNeeded(why) => ("not needed", why),
                VariableEffect::Differs(text) => ("differs", text),
            };
            shown.push(format!("{name}: {text}"));
            line(f, topic, shown.last().map_or("", String::as_str))?;
        }
        // Some notes repeat a difference that was written above.
        let notes = self.translation.notes.iter().filter(|note| !shown.contains(note));
        let notes = notes.chain(&self.deployment.notes);
        notes.into_iter().try_for_each(|note| line(f, "note", note))?;
        self.other_variables(f)?;
        let mut problems = self.translation.problems.iter().chain(&self.deployment.problems);
        problems.try_for_each(|problem| line(f, "problem", problem))
    }

    /// Writes the variables that are not settings of envoyproxy/ratelimit, or whose values are
    /// unknown.
    fn other_variables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deployment = self.deployment;
        let overridden = overridden(&deployment.variables, self.translation);
        let is_overridden = |name: &str| overridden.iter().any(|(other, _)| other == name);
        let kept = deployment.variables.keys().map(String::as_str);
        let kept: Vec<_> = kept.filter(|name| is_carried(name) && !is_overridden(name)).collect();
        if !kept.is_empty() {
            line(f, "kept", &format!("{}: read under the same name", kept.join(", ")))?;
        }
        overridden
            .iter()
            .try_for_each(|(name, by)| line(f, "overridden", &format!("{name}: by {by}")))?;
        let by = |wanted| deployment.variables.keys().filter(move |name| read_by(name) == wanted);
        let theirs = by(ReadBy::OnlyTheirs)
            .map(|name| format!("{name}: read only by a library of envoyproxy/ratelimit"));
        bounded(f, "no effect", theirs)?;
        bounded(
            f,
            "not needed",
            by(ReadBy::GoRuntime).map(|name| format!("{name}: read only by the Go runtime")),
        )?;
        let unread = deployment.unread_variables.iter().chain(&deployment.unread).cloned();
        bounded(f, "not read", unread)?;
        let references = deployment.references.iter();
        bounded(
            f,
            "reference",
            references
                .map(|(name, reference)| format!("{name}: {reference}; value not in the manifest")),
        )?;
        let unknown = by(ReadBy::Neither).filter(|name| self.is_listed(name));
        bounded(f, "unknown", unknown.map(|name| format!("{name}: read by neither service")))
    }

    /// Returns `true` if the page contains a variable: an environment also has those of other
    /// programs.
    fn is_listed(&self, name: &str) -> bool {
        self.deployment.source != DeploymentSource::Environment
            || name.starts_with("TOLLGATE_")
            || read_by(name) != ReadBy::Neither
    }

    fn policies(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policies {
            MigratedPolicies::ControlPlane(address) => {
                writeln!(f, "\nPolicies: from the control plane at {address}")
            }
            MigratedPolicies::Missing(why) => {
                writeln!(f, "\nPolicies: none")?;
                line(f, "problem", why)
            }
            MigratedPolicies::Invalid(report) => {
                let errors =
                    report.iter().filter(|problem| problem.severity() == Severity::Error).count();
                let least = if report.iter().count() < report.len() { "at least " } else { "" };
                writeln!(f, "\nPolicies: invalid, {least}{}\n", count(errors, "error"))?;
                write!(f, "{report}")
            }
            MigratedPolicies::Loaded { files: sources, loaded, from, unused_plane } => {
                let limits = limits(loaded).count();
                let files = count(sources.len(), "file");
                let rules = count(loaded.policies.rules().count(), "rule");
                writeln!(
                    f,
                    "\nPolicies: {files} from {from}, {rules}, {}",
                    count(limits, "limit")
                )?;
                let rejected = rejected::in_files(sources);
                match rejected.as_slice() {
                    [] => line(f, "unchanged", "all rules and limits")?,
                    rejected => bounded(f, "differs", rejected.iter().cloned())?,
                }
                let largest = loaded.policies.most_open_limits();
                if let Some(excess) =
                    largest.and_then(|largest| MessageFlag::default().excess(largest))
                {
                    line(f, "note", &format!("request size: {excess}"))?;
                }
                if let Some(plane) = unused_plane {
                    let text = format!(
                        "read from --policy instead of the control plane at {plane}, which --output omits"
                    );
                    line(f, "note", &text)?;
                }
                for problem in loaded.warnings.iter() {
                    let position = problem.place().map(|(file, at)| match at {
                        Some((row, column)) => format!("{file}:{row}:{column}: "),
                        None => format!("{file}: "),
                    });
                    line(
                        f,
                        "warning",
                        &format!("{}{}", position.unwrap_or_default(), problem.message()),
                    )?;
                }
                Ok(())
            }
        }
    }

    /// Writes the improvements, with the first limit that would benefit as an example.
    fn improvements(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nImmediate improvements")?;
        line(
            f,
            "accuracy",
            "a request is checked and charged atomically: concurrent requests cannot exceed a limit",
        )?;
        let commands =
            "`tollgate top`, `denials` and `inspect` show who is denied, by which rule, and why";
        let token = if has_public_admin(self.translation) {
            "; they need a token: TOLLGATE_ADMIN_TOKEN_FILE"
        } else {
            ""
        };
        line(
            f,
            "visibility",
            &format!("{commands}{token}. `tollgate explain` shows which rule a descriptor matches"),
        )?;
        let MigratedPolicies::Loaded { loaded, .. } = self.policies else { return Ok(()) };
        let is_fixed = |(_, limit): &(&Rule, &Limit)| limit.counts_per_window();
        let Some((rule, window)) = limits(loaded).filter(is_fixed).find_map(|(rule, limit)| {
            Some((rule, limit.windows().first().filter(|window| window.limit() > 0)?))
        }) else {
            return Ok(());
        };
        writeln!(f, "\nImprovements that need one line in a policy")?;
        let name = format!("{} {}", rule.domain(), rule.path());
        let twice = u64::from(window.limit()).saturating_mul(2);
        let text = format!(
            "defaults: {{algorithm: sliding_window}} admits at most {window} at any time; a fixed window admits up to \
             {twice} around its end ({name})"
        );
        line(f, "even rate", &text)?;
        if limits(loaded).any(|(_, limit)| limit.charge_mode().counts_denied()) {
            let text = "defaults: {charge: admitted} does not charge denied requests; currently, denied hits are charged";
            line(f, "denials", text)?;
        }
        Ok(())
    }

    fn next(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nNext")?;
        let has_policies = matches!(
            self.policies,
            MigratedPolicies::Loaded { .. } | MigratedPolicies::ControlPlane(_)
        );
        if !self.translation.problems.is_empty()
            || !self.deployment.problems.is_empty()
            || !has_policies
        {
            return writeln!(f, "  1. fix the problems above and run this command again");
        }
        let steps = self.steps();
        for (step, number) in steps.iter().zip(1..) {
            wrapped(f, &format!("  {number}. "), STEP_INDENT, &step.text)?;
            // In one piece, so that a shell reads a copy of it as one command.
            step.commands
                .iter()
                .try_for_each(|command| writeln!(f, "{:STEP_INDENT$}{command}", ""))?;
        }
        Ok(())
    }
}

fn limits(loaded: &Loaded) -> impl Iterator<Item = (&Rule, &Limit)> {
    loaded.policies.rules().filter_map(|rule| match rule.imposes() {
        Imposes::Limit(limit) => Some((rule, limit)),
        Imposes::Nothing | Imposes::Unlimited => None,
    })
}

/// Returns `1 file` or `7 files`.
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Writes a topic with a wrapped text beside it.
fn line(f: &mut fmt::Formatter<'_>, topic: &str, text: &str) -> fmt::Result {
    wrapped(f, &format!("  {topic:<width$}", width = INDENT.saturating_sub(2)), INDENT, text)
}

/// Writes a line for each text, and the number of those beyond [`MAX_SHOWN`].
fn bounded(
    f: &mut fmt::Formatter<'_>,
    topic: &str,
    mut texts: impl Iterator<Item = String>,
) -> fmt::Result {
    texts.by_ref().take(MAX_SHOWN).try_for_each(|text| line(f, topic, &text))?;
    match texts.count() {
        0 => Ok(()),
        more => line(f, topic, &format!("… and {more} more")),
    }
}

/// Writes a wrapped text: the first line after `head`, the others indented by `indent` columns.
fn wrapped(f: &mut fmt::Formatter<'_>, head: &str, indent: usize, text: &str) -> fmt::Result {
    let mut column = indent;
    f.write_str(head)?;
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count().saturating_add(1);
        match number {
            0 => write!(f, "{word}")?,
            _ if column.saturating_add(length) > WIDTH => {
                write!(f, "\n{:indent$}{word}", "")?;
                column = indent;
            }
            _ => write!(f, " {word}")?,
        }
        column = column.saturating_add(length);
    }
    writeln!(f)
}
