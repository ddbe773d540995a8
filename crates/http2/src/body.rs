//! The body of a call that its service reads as it arrives.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use parking_lot::Mutex;

/// Error that ends a body early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client reset the stream, or its connection ended.
    #[error("call cancelled by the client")]
    Cancelled,
}

/// The body of a request, read by its service. The client may send more as bytes are read.
#[derive(Debug)]
pub struct RequestBody(Arc<BodyState>);

/// The connection's half of a [`RequestBody`]. Dropping it ends the body as cancelled.
#[derive(Debug)]
pub(super) struct BodySender(Arc<BodyState>);

#[derive(Debug)]
struct BodyState {
    state: Mutex<State>,
    /// Waker of the connection, which returns the bytes read to the client's windows.
    connection: Waker,
}

#[derive(Debug, Default)]
struct State {
    /// Unread bytes, in one buffer: with a buffer for each frame, a frame of one byte would cost
    /// more than it is charged.
    unread: BytesMut,
    trailers: Option<HeaderMap>,
    /// Set when nothing follows `unread` and `trailers`.
    end: Option<Result<(), BodyError>>,
    /// Bytes read and not yet returned to the client's window.
    taken: usize,
    reader: Option<Waker>,
    /// Set when the reader was dropped.
    is_dropped: bool,
}

/// Creates a body and its sender. `connection` is woken when bytes are read.
pub(super) fn channel(connection: Waker) -> (BodySender, RequestBody) {
    let shared = Arc::new(BodyState { state: Mutex::default(), connection });
    (BodySender(Arc::clone(&shared)), RequestBody(shared))
}

impl BodySender {
    /// Appends bytes.
    pub(super) fn send(&self, data: &[u8]) {
        self.change(|state| state.unread.extend_from_slice(data));
    }

    /// Ends the body, with or without trailers.
    pub(super) fn finish(&self, trailers: Option<HeaderMap>) {
        self.change(|state| {
            state.trailers = trailers;
            state.end.get_or_insert(Ok(()));
        });
    }

    /// Ends the body with an error.
    pub(super) fn fail(&self, error: BodyError) {
        self.change(|state| {
            state.end.get_or_insert(Err(error));
        });
    }

    /// Takes the number of bytes read since the last call. If the reader was dropped, unread bytes
    /// count as read.
    pub(super) fn take_read(&self) -> usize {
        let mut state = self.0.state.lock();
        let unread = if state.is_dropped { std::mem::take(&mut state.unread).len() } else { 0 };
        std::mem::take(&mut state.taken).saturating_add(unread)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.state.lock();
        let changed = change(&mut state);
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(Waker::wake);
        changed
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        self.fail(BodyError::Cancelled);
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.0.state.lock().is_dropped = true;
        self.0.connection.wake_by_ref();
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.0.state.lock();
        if !state.unread.is_empty() {
            let piece = std::mem::take(&mut state.unread).freeze();
            state.taken = state.taken.saturating_add(piece.len());
            drop(state);
            self.0.connection.wake_by_ref();
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match (state.trailers.take(), state.end) {
            (Some(trailers), _) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            (None, Some(Ok(()))) => Poll::Ready(None),
            (None, Some(Err(error))) => Poll::Ready(Some(Err(error))),
            (None, None) => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.state.lock();
        state.unread.is_empty() && state.trailers.is_none() && state.end == Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(body: &mut RequestBody) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn data(polled: Poll<Option<Result<Frame<Bytes>, BodyError>>>) -> Bytes {
        let Poll::Ready(Some(Ok(frame))) = polled else { panic!("no frame: {polled:?}") };
        frame.into_data().unwrap()
    }

    #[test]
    fn a_body_is_read_as_it_comes_and_the_connection_learns_how_much() {
        let (sender, mut body) = channel(Waker::noop().clone());
        assert!(poll(&mut body).is_pending());
        sender.send(b"abc");
        assert_eq!(
            (data(poll(&mut body)), sender.take_read(), sender.take_read()),
            ("abc".into(), 3, 0)
        );
        sender.finish(None);
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }

    #[test]
    fn the_end_of_the_sender_cancels_a_body_that_has_not_ended() {
        let (sender, mut body) = channel(Waker::noop().clone());
        drop(sender);
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(BodyError::Cancelled)))));
        let (sender, mut body) = channel(Waker::noop().clone());
        sender.finish(None);
        drop(sender);
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }

    #[test]
    fn bytes_without_a_reader_count_as_read() {
        let (sender, body) = channel(Waker::noop().clone());
        sender.send(b"abc");
        drop(body);
        assert_eq!(sender.take_read(), 3);
        sender.send(b"d");
        assert_eq!(sender.take_read(), 1);
    }

    #[test]
    fn small_pieces_that_wait_are_read_as_one() {
        let (sender, mut body) = channel(Waker::noop().clone());
        b"abc".iter().for_each(|byte| sender.send(&[*byte]));
        assert_eq!(data(poll(&mut body)), "abc");
    }
    #[test]
    fn a_body_is_at_its_end_when_nothing_but_the_end_is_left() {
        let ends = |finish: fn(&BodySender), is_read: bool| {
            let (sender, mut body) = channel(Waker::noop().clone());
            sender.send(b"abc");
            finish(&sender);
            if is_read {
                assert_eq!(data(poll(&mut body)), "abc");
            }
            body.is_end_stream()
        };
        assert!(ends(|sender| sender.finish(None), true));
        assert!(!ends(|sender| sender.finish(None), false), "bytes are left");
        assert!(!ends(|sender| sender.finish(Some(HeaderMap::new())), true), "trailers are left");
        assert!(!ends(|sender| sender.fail(BodyError::Cancelled), true), "an error is left");
        assert!(!ends(|_| (), true), "more may come");
    }
}
