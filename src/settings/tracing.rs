//! Export of spans, and the sampling of calls. The variables are those of OpenTelemetry.

use super::{Problems, SettingProblem};
use crate::grpc::client::Header;
use crate::otlp::{Collector, OtlpProtocol};
use crate::telemetry::spans::Sampler;

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
        hide_env_values = true
    )]
    otlp_header: Vec<String>,
    /// Protocol for sending spans: grpc, usually on port 4317, or http/protobuf, on 4318.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_PROTOCOL",
        value_name = "PROTOCOL",
        default_value = "grpc"
    )]
    otlp_protocol: String,
    /// Sampler that selects the calls to record. parentbased_always_off: calls that the caller
    /// sampled according to `traceparent`; parentbased_traceidratio: also a share of the calls
    /// outside of any trace; parentbased_always_on: also all of those; always_on, always_off and
    /// traceidratio: regardless of the caller.
    #[arg(
        long,
        env = "OTEL_TRACES_SAMPLER",
        value_name = "SAMPLER",
        default_value = "parentbased_always_off"
    )]
    trace_sampler: String,
    /// Share of calls to sample, from 0 to 1.
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "SHARE", default_value = "1")]
    trace_sampler_arg: String,
    /// Service name in spans.
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME", default_value = "tollgate")]
    service_name: String,
    /// Further resource attribute of spans. May be repeated; separated by commas in the
    /// environment.
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", value_name = "KEY=VALUE", value_delimiter = ',')]
    resource_attribute: Vec<String>,
    /// Disable spans, regardless of all other settings.
    #[arg(long, env = "OTEL_SDK_DISABLED", num_args = 0..=1, default_value = "false", default_missing_value = "true")]
    no_spans: String,
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
        if endpoint.is_empty() || self.no_spans.eq_ignore_ascii_case("true") {
            return None;
        }
        let protocol = problems
            .read("--otlp-protocol", &self.otlp_protocol, protocol)
            .unwrap_or(OtlpProtocol::Grpc);
        let endpoint =
            if endpoint.contains("://") { endpoint } else { format!("http://{endpoint}") };
        let is_whole = endpoint.parse::<http::Uri>().is_ok_and(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.authority().is_some_and(|at| !at.as_str().contains('@'))
        });
        if !is_whole {
            let what = "expected a URL such as http://collector:4317, or one with https".to_owned();
            problems.0.push(SettingProblem { flag: "--otlp-endpoint", what });
        }
        let is_base = protocol == OtlpProtocol::Http && self.otlp_traces_endpoint.is_none();
        let endpoint = if is_base {
            format!("{}/v1/traces", endpoint.trim_end_matches('/'))
        } else {
            endpoint
        };
        let sampler = self.sampler(problems);
        let headers = self.headers(problems);
        let resource = self.resource(problems);
        let collector = Collector { endpoint, protocol, headers, resource };
        Some(TracingSettings { collector, sampler })
    }

    fn sampler(&self, problems: &mut Problems) -> Sampler {
        let share =
            self.trace_sampler_arg.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
        let word = self.trace_sampler.trim();
        let (by_parent, word) =
            word.strip_prefix("parentbased_").map_or((false, word), |word| (true, word));
        let share = match (word, share) {
            ("always_off", _) => 0.0,
            ("always_on", _) => 1.0,
            ("traceidratio", Some(share)) => share,
            ("traceidratio", None) => {
                let what =
                    format!("expected a share from 0 to 1, found `{}`", self.trace_sampler_arg);
                problems.0.push(SettingProblem { flag: "--trace-sampler-arg", what });
                0.0
            }
            (_, _) => {
                let known =
                    "always_on, always_off or traceidratio, each also with parentbased_ before it";
                let what = format!("expected {known}, found `{}`", self.trace_sampler);
                problems.0.push(SettingProblem { flag: "--trace-sampler", what });
                0.0
            }
        };
        Sampler { by_parent, share }
    }

    fn headers(&self, problems: &mut Problems) -> Vec<Header> {
        let mut headers = Vec::new();
        for text in self.otlp_header.iter().filter(|text| !text.trim().is_empty()) {
            match Header::parse(text) {
                Ok(header) => headers.push(header),
                Err(error) => {
                    let what = error.to_string();
                    problems.0.push(SettingProblem { flag: "--otlp-header", what });
                }
            }
        }
        headers
    }

    fn resource(&self, problems: &mut Problems) -> Vec<(String, String)> {
        let mut attributes = Vec::new();
        for text in self.resource_attribute.iter().filter(|text| !text.trim().is_empty()) {
            match text.split_once('=').filter(|(key, _)| !key.trim().is_empty()) {
                Some((key, value)) => {
                    attributes.push((key.trim().to_owned(), value.trim().to_owned()))
                }
                None => {
                    let what = format!("expected key=value, found `{text}`");
                    problems.0.push(SettingProblem { flag: "--resource-attribute", what });
                }
            }
        }
        // The name has a flag, whose default does not override a name among the attributes.
        let is_named = attributes.iter().any(|(key, _)| key == "service.name");
        if !is_named || self.service_name != "tollgate" {
            attributes.retain(|(key, _)| key != "service.name");
            attributes.insert(0, ("service.name".to_owned(), self.service_name.clone()));
        }
        attributes
    }
}

fn protocol(text: &str) -> Result<Option<OtlpProtocol>, String> {
    match text.trim() {
        "grpc" => Ok(Some(OtlpProtocol::Grpc)),
        "http/protobuf" => Ok(Some(OtlpProtocol::Http)),
        other => {
            Err(format!("expected grpc or http/protobuf, found `{other}`; --no-spans sends none"))
        }
    }
}
