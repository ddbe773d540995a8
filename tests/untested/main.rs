//! The closing line of `cargo test`: the tests that it leaves out, and the commands that run them.

fn main() {
    // Also with `--list` and a filter, whose callers read the output of the other test binaries.
    if std::env::args().count() == 1 {
        println!(
            "\nleft out: tests with Redis, Envoy, gateways and a browser: tests/run\n          \
             clients in five languages, load, attacks, worlds by the thousand: tests/run --all\n"
        );
    }
}
