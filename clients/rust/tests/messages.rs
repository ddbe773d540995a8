//! The generated messages in `src/generated` are those of `proto` in the repository.
//!
//! They are checked in, since the programs that use the package need no compiler of protobuf then.
//! `TOLLGATE_MESSAGES=write cargo test -p tollgate-client --test messages` writes them.

use std::path::Path;

#[test]
fn the_generated_messages_are_those_of_the_protocol() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = [
        "envoy/service/ratelimit/v3/rls.proto",
        "tollgate/v1/hold.proto",
        "tollgate/v1/lease.proto",
    ];
    let mut compiled = protox::compile(files, [package.join("../../proto")]).unwrap();
    for file in &mut compiled.file {
        // Comments would be examples of Rust.
        file.source_code_info = None;
    }
    let folder = tempfile::TempDir::new().unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .build_server(false)
        .emit_rerun_if_changed(false)
        .out_dir(folder.path())
        .include_file("mod.rs")
        .compile_fds(compiled)
        .unwrap();
    for made in std::fs::read_dir(folder.path()).unwrap() {
        let made = made.unwrap();
        let text = std::fs::read_to_string(made.path()).unwrap();
        let checked_in = package.join("src/generated").join(made.file_name());
        if std::env::var_os("TOLLGATE_MESSAGES").is_some_and(|word| word == "write") {
            std::fs::write(checked_in, text).unwrap();
            continue;
        }
        let found = std::fs::read_to_string(&checked_in).unwrap_or_default();
        assert!(found == text, "{}: TOLLGATE_MESSAGES=write writes it", checked_in.display());
    }
}
