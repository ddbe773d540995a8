//! Variables of Tollgate: those that a deployment of envoyproxy/ratelimit may set as well.

use clap::{Arg, ArgAction};
use tollgate_core::printable::without_password;

use crate::service_flags::{ServiceFlags, flag_of};
use crate::{Translation, Variables};

/// A variable of Tollgate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnVariable {
    /// The name, such as `TOLLGATE_STORE`.
    pub name: String,
    /// The flag that it sets; empty for a variable that keeps its name.
    pub flag: &'static str,
    /// The value; `None` if it contains a secret.
    pub value: Option<String>,
}

/// A flag that has the effect of a variable of Tollgate or OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CarriedFlag {
    pub(crate) variable: String,
    /// The name, such as `--store`.
    pub(crate) flag: String,
    value: String,
}

impl CarriedFlag {
    /// Returns the flag as a word of a command line.
    pub(crate) fn word(&self) -> String {
        format!("{}={}", self.flag, self.value)
    }
}

/// Returns the variables that Tollgate reads under the same name, without those that are overridden
/// by a flag of the translation.
pub fn carried(
    variables: &Variables,
    translation: &Translation,
    service: &ServiceFlags,
) -> Vec<OwnVariable> {
    let mut carried = Vec::new();
    for (name, value) in variables.iter().filter(|(name, _)| service.reads(name)) {
        let argument = service.by_variable(name);
        let flag = argument.and_then(flag_of);
        if flag.is_some_and(|flag| translation.flag(&flag).is_some()) {
            continue;
        }
        let is_hidden = argument.is_some_and(Arg::is_hide_env_values_set);
        let is_secret = is_hidden || without_password(value) != *value;
        carried.push(OwnVariable {
            name: name.clone(),
            flag: "",
            value: (!is_secret).then(|| value.clone()),
        });
    }
    carried
}

/// Returns the flags that have the effect of variables of Tollgate and OpenTelemetry, by variable.
/// Left out are those that the flags of the translation override, that this process has in its own
/// environment, and secrets, which errors would contain.
pub(crate) fn carried_flags(
    variables: &Variables,
    translation: &Translation,
    service: &ServiceFlags,
) -> Vec<CarriedFlag> {
    let mut flags = Vec::new();
    for OwnVariable { name, value, .. } in carried(variables, translation, service) {
        let Some(argument) = service.by_variable(&name) else { continue };
        let Some(value) = value else { continue };
        let Some(flag) = flag_of(argument) else { continue };
        let takes_one = argument.get_num_args().is_none_or(|number| number.max_values() <= 1);
        let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
        // The file of the key is read as the flag is parsed; it may be that of a container.
        let names_file = flag == "--hash-key-file";
        if takes_value && takes_one && !names_file && !is_own(&name, &value) {
            flags.push(CarriedFlag { variable: name, flag, value });
        }
    }
    flags
}

/// Returns `true` if this process has the variable in its own environment.
fn is_own(name: &str, value: &str) -> bool {
    std::env::var_os(name).is_some_and(|own| own == value)
}
