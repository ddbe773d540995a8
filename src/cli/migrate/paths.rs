//! Files that the variables name and that are missing on this machine.

use std::path::Path;

use crate::envoyproxy::{Flag, Translation, Variables, variables_of};

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
pub(super) fn missing(variables: &Variables, translation: &Translation) -> Vec<String> {
    let flags = translation.flags.iter().filter(|flag| FILES.contains(&flag.name));
    let paths = flags.filter_map(|flag| Some((flag, flag.values.first()?)));
    let missing = paths.filter(|(_, path)| !Path::new(path).exists());
    let note = |(flag, path): (&Flag, &String)| {
        let all = variables_of(variables, flag.name);
        let name = all.split(", ").find(|name| variables.get(*name) == Some(path)).unwrap_or(&all);
        format!("{name}: {path} does not exist on this machine; the service needs it at its start")
    };
    missing.map(note).collect()
}
