//! Requests at given times, decided in memory without a running service: tests of policies, and
//! access logs.
//!
//! Knows the formats of test files and of access log maps, each with a vocabulary of its own. Reads
//! no files.
//!
//! | file | contents |
//! |---|---|
//! | [`test_file`] | tests of policies: values, their parser, and the execution of one test |
//! | [`access_log`] | maps of access logs: values, their parser, and the request of one line |
//! | [`dry_run`] | decisions of policies in memory, at given times |

pub mod access_log;
pub mod dry_run;
pub mod test_file;

use serde_json::Value;

use crate::policy;

/// Returns the JSON Schema (draft 2020-12) of policy files. Those of overlays, test files and
/// access log maps are `#/$defs/overlay`, `#/$defs/tests` and `#/$defs/access_log`.
pub fn json_schema() -> Value {
    let mut schema = policy::json_schema();
    if let Some(Value::Object(definitions)) = schema.get_mut("$defs") {
        definitions.extend(test_file::definitions());
        definitions.extend(access_log::definitions());
    }
    schema
}
