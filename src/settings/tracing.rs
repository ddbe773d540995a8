//! Export of spans, and the sampling of calls. The variables are those of OpenTelemetry.

use std::convert::Infallible;

use clap::ArgAction;

use super::{FlagError, FlagValue, Problems, deferred};
use crate::grpc::client::Header;
use crate::otlp::{Collector, OtlpProtocol};
use crate::telemetry::spans::Sampler;

/// The attribute of the resource that has a flag of its own, and the default of that flag.
const SERVICE_NAME: &str = "service.name";
const DEFAULT_SERVICE_NAME: &str = "tollgate";

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Tracing")]
pub(super) struct Flags {
    /// Send spans of calls to the OTLP collector at this URL; empty: spans are not recorded. For
    /// HTTP, `/v1/traces` is appended.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL", default_value = "")]
    otlp_endpoint: String,
    /// Collector URL for traces only, which takes precedence; for HTTP, nothing is appended.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", value_name = "URL", hide = true)]
    otlp_traces_endpoint: Option<String>,
    /// Header to send to the collector. May be repeated; separated by commas in the environment.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_HEADERS",
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        hide_env_values = true,
        value_parser = deferred(header)
    )]
    otlp_header: Vec<FlagValue<Option<Header>>>,
    /// Protocol for sending spans: grpc, usually on port 4317, or http/protobuf, on 4318.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_PROTOCOL",
        value_name = "PROTOCOL",
        default_value = "grpc",
        value_parser = deferred(protocol)
    )]
    otlp_protocol: FlagValue<Option<OtlpProtocol>>,
    /// Sampler that selects the calls to record. parentbased_always_off: calls that the caller
    /// sampled according to `traceparent`; parentbased_traceidratio: also a share of the calls
    /// outside of any trace; parentbased_always_on: also all of those; always_on, always_off and
    /// traceidratio: regardless of the caller.
    #[arg(
        long,
        env = "OTEL_TRACES_SAMPLER",
        value_name = "SAMPLER",
        default_value = "parentbased_always_off",
        value_parser = deferred(sampler)
    )]
    trace_sampler: FlagValue<SamplerFlag>,
    /// Share of calls to sample, from 0 to 1.
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "SHARE", default_value = "1", value_parser = deferred(sampled_share))]
    trace_sampler_arg: FlagValue<f64>,
    /// Service name in spans.
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME", default_value = DEFAULT_SERVICE_NAME)]
    service_name: String,
    /// Further resource attribute of spans. May be repeated; separated by commas in the
    /// environment.
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = deferred(attribute))]
    resource_attribute: Vec<FlagValue<Option<(String, String)>>>,
    /// Disable spans, regardless of all other settings.
    #[arg(long, env = "OTEL_SDK_DISABLED", num_args = 0..=1, default_value = "false", default_missing_value = "true", action = ArgAction::Set, value_parser = is_true)]
    no_spans: bool,
}

/// The collector of spans, and the sampling of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct TracingSettings {
    /// Collector that receives the spans.
    pub collector: Collector,
    /// Sampler that selects the calls to record.
    pub sampler: Sampler,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> Option<TracingSettings> {
        let endpoint =
            self.otlp_traces_endpoint.as_ref().unwrap_or(&self.otlp_endpoint).trim().to_owned();
        if endpoint.is_empty() || self.no_spans {
            return None;
        }
        let protocol = problems.take(self.otlp_protocol).unwrap_or(OtlpProtocol::Grpc);
        let endpoint =
            if endpoint.contains("://") { endpoint } else { format!("http://{endpoint}") };
        // Checked here, since either of two flags has it.
        let is_whole = endpoint.parse::<http::Uri>().is_ok_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.authority().is_some_and(|at| !at.as_str().contains('@'))
        });
        if !is_whole {
            let what = "expected a URL such as http://collector:4317, or one with https";
            problems.add("--otlp-endpoint", what);
        }
        let is_base = protocol == OtlpProtocol::Http && self.otlp_traces_endpoint.is_none();
        let endpoint = if is_base {
            format!("{}/v1/traces", endpoint.trim_end_matches('/'))
        } else {
            endpoint
        };
        let SamplerFlag { by_parent, calls } = problems.take(self.trace_sampler);
        let share = match calls {
            SampledCalls::None => 0.0,
            SampledCalls::All => 1.0,
            SampledCalls::Share => problems.take(self.trace_sampler_arg),
        };
        let sampler = Sampler { by_parent, share };
        let headers = problems.take_all(self.otlp_header);
        let resource = resource(self.service_name, problems.take_all(self.resource_attribute));
        let collector = Collector { endpoint, protocol, headers, resource };
        Some(TracingSettings { collector, sampler })
    }
}

/// Returns the attributes of the resource, with the name of the service.
fn resource(service_name: String, mut attributes: Vec<(String, String)>) -> Vec<(String, String)> {
    // The name has a flag, whose default does not override a name among the attributes.
    let is_named = attributes.iter().any(|(key, _)| key == SERVICE_NAME);
    if !is_named || service_name != DEFAULT_SERVICE_NAME {
        attributes.retain(|(key, _)| key != SERVICE_NAME);
        attributes.insert(0, (SERVICE_NAME.to_owned(), service_name));
    }
    attributes
}

/// The calls that are sampled.
#[derive(Clone, Copy, Debug, Default)]
struct SamplerFlag {
    /// Set if a caller's decision applies to its calls.
    by_parent: bool,
    calls: SampledCalls,
}

#[derive(Clone, Copy, Debug, Default)]
enum SampledCalls {
    #[default]
    None,
    All,
    /// The share that `--trace-sampler-arg` is.
    Share,
}

fn sampler(text: &str) -> Result<SamplerFlag, FlagError> {
    const ALLOWED: &str =
        "always_on, always_off or traceidratio, each also with parentbased_ before it";
    let word = text.trim();
    let of_parent = word.strip_prefix("parentbased_");
    let calls = match of_parent.unwrap_or(word) {
        "always_off" => SampledCalls::None,
        "always_on" => SampledCalls::All,
        "traceidratio" => SampledCalls::Share,
        _ => return Err(FlagError::unexpected(ALLOWED, text)),
    };
    Ok(SamplerFlag { by_parent: of_parent.is_some(), calls })
}

fn sampled_share(text: &str) -> Result<f64, FlagError> {
    let share = text.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| FlagError::unexpected("a share from 0 to 1", text))
}

fn header(text: &str) -> Result<Option<Header>, FlagError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    Header::parse(text).map(Some).map_err(FlagError::refused)
}

fn attribute(text: &str) -> Result<Option<(String, String)>, FlagError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    match text.split_once('=').filter(|(key, _)| !key.trim().is_empty()) {
        Some((key, value)) => Ok(Some((key.trim().to_owned(), value.trim().to_owned()))),
        None => Err(FlagError::unexpected("key=value", text)),
    }
}

fn is_true(text: &str) -> Result<bool, Infallible> {
    Ok(text.eq_ignore_ascii_case("true"))
}

fn protocol(text: &str) -> Result<Option<OtlpProtocol>, FlagError> {
    match text.trim() {
        "grpc" => Ok(Some(OtlpProtocol::Grpc)),
        "http/protobuf" => Ok(Some(OtlpProtocol::Http)),
        other => Err(FlagError::refused(format_args!(
            "expected grpc or http/protobuf, found `{other}`; --no-spans sends none"
        ))),
    }
}
