//! Files that the variables name and that are missing on this machine.

use std::path::Path;

use tollgate_envoyproxy::reader::VariableReader;
use tollgate_envoyproxy::{Translation, Variables};

/// Flags whose values are paths of files that are read at the start.
const FILES: [&str; 10] = [
    "--grpc-tls-cert",
    "--grpc-tls-key",
    "--grpc-tls-client-ca",
    "--xds-cert",
    "--xds-key",
    "--xds-ca",
    "--redis-cert",
    "--redis-key",
    "--redis-ca",
    "--stats-prometheus-mapper",
];

/// Returns a note for each missing file: no problem, as a path may be that of a container.
pub(crate) fn missing(variables: &Variables, translation: &Translation) -> Vec<String> {
    let reader = VariableReader::new(variables);
    let mut notes = Vec::new();
    for flag in translation.flags.iter().filter(|flag| FILES.contains(&flag.name)) {
        let Some(path) = flag.values.first().filter(|path| !Path::new(path).exists()) else {
            continue;
        };
        let setters = reader.variables_of(flag.name);
        let setter = setters.iter().find(|name| variables.get(*name) == Some(path));
        let name = setter.cloned().unwrap_or_else(|| setters.join(", "));
        notes.push(format!(
            "{name}: {path} does not exist on this machine; the service needs it at its start"
        ));
    }
    notes
}
