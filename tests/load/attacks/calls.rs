//! Calls that hold memory, take long, or whose answers are not read.

use std::iter::repeat_n;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use prost::Message as _;
use tokio::io::AsyncWriteExt as _;

use crate::support::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, PATH, SETTINGS, WINDOW_UPDATE, fields, frame, framed,
    headers, move_frames,
};
use crate::support::rls::{descriptor, gzip, request};

use super::client::{connect, flood, hold, hold_unread, run_clients};
use super::harness::Target;

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// Number of calls of a connection: as many as [`streams`] has.
const CALLS: u32 = 1_000;
/// Size of the largest message that is accepted, in bytes.
const MESSAGE: usize = 1 << 20;
/// Payload of a frame in bytes.
const FRAME: usize = 16_384;

fn streams() -> impl Iterator<Item = u32> + Clone {
    (0..CALLS).map(|number| 1 + 2 * number)
}

/// Returns complete calls with this message, on the streams of a connection.
fn calls(path: &str, message: &[u8]) -> Vec<u8> {
    let headers = headers(path);
    let message = framed(message);
    let call = |stream| {
        [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &message)]
            .concat()
    };
    streams().flat_map(call).collect()
}

/// Splits a body into frames.
fn body(stream: u32, bytes: &[u8], last: u8) -> Vec<u8> {
    let chunks = bytes.chunks(FRAME);
    let count = chunks.len();
    let frames = chunks.enumerate().map(|(number, chunk)| {
        let flags = if number + 1 == count { last } else { 0 };
        frame(DATA, flags, stream, chunk)
    });
    frames.flatten().collect()
}

fn one_hit() -> Vec<u8> {
    request(vec![descriptor(&[("user", "bob")])]).encode_to_vec()
}

/// Returns a reflection request whose answer takes tens of kilobytes.
fn large_reflection() -> Vec<u8> {
    const SYMBOL: &[u8] = b"envoy.service.ratelimit.v3.RateLimitService";
    [&[0x22, u8::try_from(SYMBOL.len()).unwrap()], SYMBOL].concat()
}

/// Returns SETTINGS with the initial window of streams.
fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

fn held(target: Target, clients: usize, bytes: Vec<u8>) -> BoxFuture<'static, ()> {
    async move {
        run_clients(clients, || async { hold(connect(target.grpc).await?, &bytes).await }).await
    }
    .boxed()
}

fn held_unread(target: Target, clients: usize, bytes: Vec<u8>) -> BoxFuture<'static, ()> {
    async move {
        run_clients(clients, || async { hold_unread(connect(target.grpc).await?, &bytes).await })
            .await
    }
    .boxed()
}

fn flooded(
    target: Target,
    clients: usize,
    call: impl Fn(u32) -> Vec<u8> + Clone + Send + Sync + 'static,
) -> BoxFuture<'static, ()> {
    let attack = move || {
        let call = call.clone();
        let mut stream = 1;
        let next = move || {
            let frames = call(stream);
            stream += 2;
            frames
        };
        // A window so large that it never blocks answers.
        let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
        async move { flood(connect(target.grpc).await?, &window, next).await }
    };
    async move { run_clients(clients, attack).await }.boxed()
}

/// Holds 200 connections of calls whose messages arrive byte by byte.
pub(super) fn begun(target: Target) -> BoxFuture<'static, ()> {
    let headers = headers(PATH);
    // The beginning of a message of 1 KB.
    let begin = |stream| {
        [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, 0, stream, &[0, 0, 0, 4, 0])]
            .concat()
    };
    let opening: Vec<u8> = streams().flat_map(begin).collect();
    let attack = move || {
        let opening = opening.clone();
        async move {
            let mut stream = connect(target.grpc).await?;
            stream.write_all(&opening).await?;
            for number in streams().cycle() {
                stream.write_all(&frame(DATA, 0, number, &[0])).await?;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        }
    };
    async move { run_clients(200, attack).await }.boxed()
}

/// Sends messages of 1 MiB without their last byte.
pub(super) fn unfinished(target: Target) -> BoxFuture<'static, ()> {
    let length = u32::try_from(MESSAGE).unwrap().to_be_bytes();
    let message = [&[0][..], &length, &vec![0; MESSAGE - 1]].concat();
    let call = [frame(HEADERS, END_HEADERS, 1, &headers(PATH)), body(1, &message, 0)].concat();
    flooded(target, 16, move |stream| {
        let mut call = call.clone();
        move_frames(&mut call, |_| stream);
        call
    })
}

pub(super) fn without_windows(target: Target) -> BoxFuture<'static, ()> {
    held(target, 200, [initial_window(0), calls(PATH, &one_hit())].concat())
}

/// Requests answers that repeat 15 KB of the request, with `--dynamic-metadata`.
pub(super) fn large_without_windows(target: Target) -> BoxFuture<'static, ()> {
    let message = request(vec![descriptor(&[("other", &"v".repeat(15_000))])]).encode_to_vec();
    held(target, 50, [initial_window(0), calls(PATH, &message)].concat())
}

pub(super) fn reflection_without_windows(target: Target) -> BoxFuture<'static, ()> {
    held(target, 20, [initial_window(0), calls(REFLECTION, &large_reflection())].concat())
}

pub(super) fn unread_reflection(target: Target) -> BoxFuture<'static, ()> {
    let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    let calls = calls(REFLECTION, &large_reflection());
    held_unread(target, 50, [initial_window(0x7fff_ffff), window, calls].concat())
}

pub(super) fn watches(target: Target) -> BoxFuture<'static, ()> {
    held(target, 50, calls(WATCH, &[]))
}

/// Sends health checks whose bodies never end.
pub(super) fn large_health_checks(target: Target) -> BoxFuture<'static, ()> {
    let headers = headers(WATCH);
    let begun = |stream| {
        [frame(HEADERS, END_HEADERS, stream, &headers), body(stream, &[0, 0, 0, 0x0f, 0xff], 0)]
            .concat()
    };
    let more = |stream| body(stream, &[0; 4_000], 0);
    held(target, 40, streams().flat_map(|stream| [begun(stream), more(stream)].concat()).collect())
}

/// Sends messages of 1 MiB that consist of empty descriptors.
pub(super) fn empty_descriptors(target: Target) -> BoxFuture<'static, ()> {
    let message: Vec<u8> = repeat_n([0x12, 0], MESSAGE / 2 - 16).flatten().collect();
    whole(target, message)
}

/// Sends values of 60 KB in which a pattern seems to begin at every byte.
pub(super) fn patterns(target: Target) -> BoxFuture<'static, ()> {
    let value = "wor".repeat(20_000);
    whole(target, request(vec![descriptor(&[("path", &value)])]).encode_to_vec())
}

fn whole(target: Target, message: Vec<u8>) -> BoxFuture<'static, ()> {
    let message = framed(&message);
    let headers = headers(PATH);
    flooded(target, 8, move |stream| {
        [frame(HEADERS, END_HEADERS, stream, &headers), body(stream, &message, END_STREAM)].concat()
    })
}

/// Sends messages of 100 bytes that inflate to 64 KiB, as much as is accepted at any ratio.
pub(super) fn gzip_bombs(target: Target) -> BoxFuture<'static, ()> {
    let message = request(vec![descriptor(&[("path", &"v".repeat(65_000))])]).encode_to_vec();
    let mut message = framed(&gzip(&message));
    message[0] = 1;
    let headers = [headers(PATH), fields(&[("grpc-encoding", b"gzip")])].concat();
    flooded(target, 50, move |stream| {
        [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &message)]
            .concat()
    })
}

/// Sends new values, each of which takes a new counter.
pub(super) fn new_counters(target: Target) -> BoxFuture<'static, ()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let headers = headers(PATH);
    flooded(target, 8, move |stream| {
        let values: Vec<String> = (0..50).map(|_| NEXT.fetch_add(1, Relaxed).to_string()).collect();
        let descriptors = values.iter().map(|value| descriptor(&[("user", value)])).collect();
        let message = framed(&request(descriptors).encode_to_vec());
        [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &message)]
            .concat()
    })
}
