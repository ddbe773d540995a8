//! Compiles `proto/` with protox, so that no protoc has to be installed.
//!
//! Each file is compiled to two forms. Reflection and JSON use the protocol as it is, with text in
//! descriptor entries; the generated decoder reads those entries as bytes. Envoy forwards header
//! bytes that are not UTF-8, a strict decoder fails on them, and a client that sends some would
//! bypass its limit.

use std::error::Error;
use std::path::Path;

use prost_types::FileDescriptorSet;
use prost_types::field_descriptor_proto::Type;

/// Services of this process, listed by reflection.
const SERVED: [&str; 5] = [
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy/service/auth/v3/external_auth.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "tollgate/v1/hold.proto",
    "tollgate/v1/lease.proto",
];
/// Services of a control plane, called by this process.
const CONTROL_PLANE: [&str; 2] =
    ["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];
/// The service of a collector of spans.
const COLLECTOR: &str = "opentelemetry/proto/collector/trace/v1/trace_service.proto";
/// Message whose text fields are read as bytes.
const ENTRY: &str = ".envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let served = protox::compile(SERVED, ["proto"])?;
    let out = std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?;
    std::fs::write(Path::new(&out).join("protocol.bin"), prost::Message::encode_to_vec(&served))?;
    let mut files =
        protox::compile(SERVED.into_iter().chain([COLLECTOR]).chain(CONTROL_PLANE), ["proto"])?;
    read_entries_as_bytes(&mut files)?;
    tonic_prost_build::configure().bytes(ENTRY).emit_rerun_if_changed(false).compile_fds(files)?;
    Ok(())
}

fn read_entries_as_bytes(files: &mut FileDescriptorSet) -> Result<(), Box<dyn Error>> {
    let common =
        files.file.iter_mut().find(|file| file.package() == "envoy.extensions.common.ratelimit.v3");
    let descriptor = common
        .and_then(|file| file.message_type.iter_mut().find(|m| m.name() == "RateLimitDescriptor"));
    let entry =
        descriptor.and_then(|message| message.nested_type.iter_mut().find(|m| m.name() == "Entry"));
    for field in &mut entry.ok_or("RateLimitDescriptor.Entry is not in the protos")?.field {
        field.set_type(Type::Bytes);
    }
    Ok(())
}
