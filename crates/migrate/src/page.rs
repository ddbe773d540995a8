//! The migration page: what stays the same, what differs, what improves, and the next steps.

use std::fmt;
use std::path::PathBuf;

use tollgate_core::algorithm::Limit;
use tollgate_core::printable::counted;
use tollgate_envoyproxy::{Translation, has_public_admin};
use tollgate_policy::{Loaded, ProblemReport, Rule, Source};
use tollgate_yaml::report::Severity;

use crate::deployment::{Deployment, DeploymentSource};
use crate::effects::{ReadBy, VariableEffect, effects, overridden, read_by};
use crate::export::ExportedFiles;
use crate::policies::MigratedPolicies;
use crate::{MigrationTarget, rejected};

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
pub(crate) struct Page<'m> {
    pub(crate) target: &'m MigrationTarget,
    pub(crate) deployment: &'m Deployment,
    pub(crate) translation: &'m Translation,
    pub(crate) policies: &'m MigratedPolicies,
    /// Policies given on the command line, instead of the path in the variables.
    pub(crate) given: &'m [PathBuf],
    pub(crate) written: Option<&'m ExportedFiles>,
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
        let Deployment { from, variables, references, notes, problems, .. } = self.deployment;
        let unset = references.iter().filter(|(name, _)| !variables.contains_key(name)).count();
        let set = variables.keys().filter(|name| self.is_listed(name)).count();
        writeln!(f, "Settings: {} from {from}", counted(set + unset, "variable"))?;
        let same: Vec<_> = effects
            .iter()
            .filter(|(_, effect)| *effect == VariableEffect::Same)
            .map(|(name, _)| *name)
            .filter(|name| !self.translation.has_problem_of(name))
            .collect();
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
        let translated = self.translation.notes.iter().filter(|note| !shown.contains(note));
        translated.chain(notes).try_for_each(|note| line(f, "note", note))?;
        self.other_variables(f)?;
        for problem in &self.translation.problems {
            line(f, "problem", &problem.to_string())?;
        }
        problems.iter().try_for_each(|problem| line(f, "problem", problem))
    }

    /// Writes the variables that are not settings of envoyproxy/ratelimit, or whose values are
    /// unknown.
    fn other_variables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Deployment { variables, references, unread_variables, unread, .. } = self.deployment;
        let flags = &self.target.flags;
        let overridden = overridden(variables, self.translation, flags);
        let kept: Vec<_> = variables
            .keys()
            .filter(|name| flags.reads(name))
            .filter(|name| overridden.iter().all(|(other, _)| other != *name))
            .map(String::as_str)
            .collect();
        if !kept.is_empty() {
            line(f, "kept", &format!("{}: read under the same name", kept.join(", ")))?;
        }
        for (name, by) in &overridden {
            line(f, "overridden", &format!("{name}: by {by}"))?;
        }
        let theirs = self.variables_read_by(ReadBy::OnlyTheirs);
        let theirs =
            theirs.map(|name| format!("{name}: read only by a library of envoyproxy/ratelimit"));
        bounded(f, "no effect", theirs)?;
        let of_go = self.variables_read_by(ReadBy::GoRuntime);
        bounded(f, "not needed", of_go.map(|name| format!("{name}: read only by the Go runtime")))?;
        bounded(f, "not read", unread_variables.iter().chain(unread).cloned())?;
        let references = references
            .iter()
            .map(|(name, reference)| format!("{name}: {reference}; value not in the manifest"));
        bounded(f, "reference", references)?;
        let unknown = self.variables_read_by(ReadBy::Neither).filter(|name| self.is_listed(name));
        bounded(f, "unknown", unknown.map(|name| format!("{name}: read by neither service")))
    }

    fn variables_read_by(&self, reader: ReadBy) -> impl Iterator<Item = &String> {
        let names = self.deployment.variables.keys();
        names.filter(move |name| read_by(name, &self.target.flags) == reader)
    }

    /// Returns `true` if the page contains a variable: an environment also has those of other
    /// programs.
    fn is_listed(&self, name: &str) -> bool {
        self.deployment.source != DeploymentSource::Environment
            || name.starts_with("TOLLGATE_")
            || read_by(name, &self.target.flags) != ReadBy::Neither
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
            MigratedPolicies::Invalid(report) => invalid_policies(f, report),
            MigratedPolicies::Loaded { files, loaded, from, unused_plane } => {
                self.loaded_policies(f, files, loaded, from)?;
                if let Some(plane) = unused_plane {
                    let text = format!(
                        "read from --policy instead of the control plane at {plane}, which --output omits"
                    );
                    line(f, "note", &text)?;
                }
                let mut warnings = loaded.warnings.iter();
                warnings.try_for_each(|problem| line(f, "warning", &problem.headline()))
            }
        }
    }

    fn loaded_policies(
        &self,
        f: &mut fmt::Formatter<'_>,
        sources: &[Source],
        loaded: &Loaded,
        from: &str,
    ) -> fmt::Result {
        let files = counted(sources.len(), "file");
        let rules = counted(loaded.policies.rules().count(), "rule");
        let limits = counted(limits(loaded).count(), "limit");
        writeln!(f, "\nPolicies: {files} from {from}, {rules}, {limits}")?;
        let rejected = rejected::in_files(sources);
        if rejected.is_empty() {
            line(f, "unchanged", "all rules and limits")?;
        } else {
            bounded(f, "differs", rejected.into_iter())?;
        }
        let largest = loaded.policies.most_open_limits();
        match largest.and_then(self.target.request_excess) {
            Some(excess) => line(f, "note", &format!("request size: {excess}")),
            None => Ok(()),
        }
    }

    /// Writes the improvements, with the first limit that would benefit as an example.
    fn improvements(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nImmediate improvements")?;
        let accuracy = "a request is checked and charged atomically: concurrent requests cannot exceed a limit";
        line(f, "accuracy", accuracy)?;
        let commands =
            "`tollgate top`, `denials` and `inspect` show who is denied, by which rule, and why";
        let token = "; they need a token: TOLLGATE_ADMIN_TOKEN_FILE";
        let token = if has_public_admin(self.translation) { token } else { "" };
        let explain = "`tollgate explain` shows which rule a descriptor matches";
        line(f, "visibility", &format!("{commands}{token}. {explain}"))?;
        let MigratedPolicies::Loaded { loaded, .. } = self.policies else { return Ok(()) };
        let mut fixed = limits(loaded).filter(|(_, limit)| limit.counts_per_window());
        let Some((rule, window)) = fixed.find_map(|(rule, limit)| {
            Some((rule, limit.windows().first().filter(|window| window.limit() > 0)?))
        }) else {
            return Ok(());
        };
        writeln!(f, "\nImprovements that need one line in a policy")?;
        let name = format!("{} {}", rule.domain(), rule.path());
        let twice = u64::from(window.limit()) * 2;
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
        if !self.translation.problems.is_empty()
            || !self.deployment.problems.is_empty()
            || !self.policies.are_usable()
        {
            return writeln!(f, "  1. fix the problems above and run this command again");
        }
        let steps = self.steps();
        for (step, number) in steps.iter().zip(1..) {
            wrapped(f, &format!("  {number}. "), STEP_INDENT, &step.text)?;
            // In one piece, so that a shell reads a copy of it as one command.
            let mut commands = step.commands.iter();
            commands.try_for_each(|command| writeln!(f, "{:STEP_INDENT$}{command}", ""))?;
        }
        Ok(())
    }
}

/// Writes the errors of policies.
fn invalid_policies(f: &mut fmt::Formatter<'_>, report: &ProblemReport) -> fmt::Result {
    let errors = report.iter().filter(|problem| problem.severity() == Severity::Error).count();
    let least = if report.iter().count() < report.len() { "at least " } else { "" };
    writeln!(f, "\nPolicies: invalid, {least}{}\n", counted(errors, "error"))?;
    write!(f, "{report}")
}

fn limits(loaded: &Loaded) -> impl Iterator<Item = (&Rule, &Limit)> {
    loaded.policies.rules().filter_map(|rule| Some((rule, rule.limit()?)))
}

/// Writes a topic with a wrapped text beside it.
fn line(f: &mut fmt::Formatter<'_>, topic: &str, text: &str) -> fmt::Result {
    wrapped(f, &format!("  {topic:<width$}", width = INDENT - 2), INDENT, text)
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
        let length = word.chars().count() + 1;
        match number {
            0 => write!(f, "{word}")?,
            _ if column + length > WIDTH => {
                write!(f, "\n{:indent$}{word}", "")?;
                column = indent;
            }
            _ => write!(f, " {word}")?,
        }
        column += length;
    }
    writeln!(f)
}
