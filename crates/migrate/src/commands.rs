//! The commands that a container runs. Tollgate's image has no shell and no other programs.

use serde_json::Value;

use crate::container::{Container, array};
use crate::deployment::Deployment;

/// Programs that Tollgate's image has as well.
const AVAILABLE: [&str; 2] = ["/bin/ratelimit", "ratelimit"];
/// The probes of a container.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// The hooks of a container.
const HOOKS: [&str; 2] = ["postStart", "preStop"];

/// Reports the commands that Tollgate's image cannot run.
pub(crate) fn read(found: &Container<'_>, deployment: &mut Deployment) {
    let container = found.container;
    for list in ["command", "args"] {
        if container.get(list).is_some_and(|words| !words.is_array() && !words.is_null()) {
            deployment.problems.push(format!("{list} of the container: expected a list"));
        }
    }
    let other = program(container, "command").filter(|name| !AVAILABLE.contains(name));
    deployment.unread.extend(other.map(|other| format!(
        "command runs {other} instead of /bin/ratelimit: this report lacks the variables that it sets, and \
         Tollgate's image has no shell; set command: [/bin/ratelimit]"
    )));
    if program(container, "args").is_some() {
        let text =
            "args: /bin/ratelimit takes no arguments; set command: [/bin/ratelimit] without args";
        deployment.unread.push(text.to_owned());
    }
    let probes = PROBES.iter().map(|name| ((*name).to_owned(), container.get(name)));
    let hooks = HOOKS.iter().map(|name| {
        (format!("lifecycle {name}"), container.pointer(&format!("/lifecycle/{name}")))
    });
    for (name, handler) in probes.chain(hooks) {
        let Some(exec) = handler.and_then(|handler| handler.get("exec")) else { continue };
        let program = program(exec, "command").unwrap_or("an empty command");
        let alternative =
            if name.starts_with("lifecycle") { "sleep or httpGet" } else { "grpc or httpGet" };
        deployment.unread.push(format!(
            "{name} runs {program}: Tollgate's image has neither this program nor a shell; use {alternative}"
        ));
    }
}

/// Returns the first word of a list; the others may contain secrets.
fn program<'m>(value: &'m Value, list: &str) -> Option<&'m str> {
    array(value, list).next()?.as_str()
}
