//! The body of a general call: its messages, which the service reads one by one.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame};
use parking_lot::Mutex;

use super::account::CallAccount;
use super::message::{message_length, whole_message};
use super::refusal::Refusal;

/// Work of reading a message besides its bytes: the shortest takes as long as some of a usual call.
const MESSAGE_WORK: usize = 256;
/// Work after which a reader waits for the other calls of its connection: twice the largest read.
const TURN_WORK: usize = 16 << 10;

/// Error that ends a body early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client reset the stream, or its connection ended.
    #[error("call cancelled by the client")]
    Cancelled,
    /// The body ends within a message.
    #[error("the request ends within a message")]
    Truncated,
    /// This side refused a message.
    #[error("message refused")]
    Refused(Refusal),
}

/// The body of a request, read by its service. A frame is a message with its prefix, or of a body
/// without messages all bytes that have arrived. The connection counts its bytes as held until the
/// next one is asked for.
#[derive(Debug)]
pub struct RequestBody(Arc<BodyState>);

/// The connection's half of a [`RequestBody`]. Dropping it ends the body as cancelled.
#[derive(Debug)]
pub struct BodySender(Arc<BodyState>);

#[derive(Debug)]
struct BodyState {
    state: Mutex<State>,
    /// Maximum size of a message; `None` for a body without messages.
    max_message: Option<usize>,
    account: CallAccount,
    /// Waker of the connection, which returns the bytes read to the client's windows.
    connection: Waker,
}

#[derive(Debug, Default)]
struct State {
    /// Unread bytes, in one buffer: with a buffer for each frame, a frame of one byte would cost
    /// more than it is charged.
    unread: BytesMut,
    /// Bytes at the front of `unread` that are whole messages.
    whole: usize,
    trailers: Option<HeaderMap>,
    /// Set when nothing follows the whole messages and `trailers`.
    end: Option<Result<(), BodyError>>,
    /// Bytes of the message that the reader works on.
    in_hand: usize,
    /// Bytes read and not yet released by the connection.
    taken: usize,
    /// Work in the reader's turn.
    turn: usize,
    reader: Option<Waker>,
    /// Set when the reader was dropped.
    is_dropped: bool,
}

/// Progress of a body with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageProgress {
    /// No message is incomplete.
    Whole,
    /// An incomplete message has begun.
    Begun,
    /// More of an incomplete message, or of a body without messages.
    Continued,
}

/// Progress of the reader since the connection last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyRead {
    /// Bytes that the reader has done with.
    pub(super) bytes: usize,
    /// `true` if no whole message waits for the reader.
    pub(super) is_drained: bool,
}

impl BodySender {
    /// Appends bytes.
    ///
    /// # Errors
    /// A message is larger than is allowed.
    pub fn send(&self, data: &[u8]) -> Result<MessageProgress, Refusal> {
        let max_message = self.0.max_message;
        self.change(|state| {
            let was_whole = state.whole == state.unread.len();
            let whole = state.whole;
            state.unread.extend_from_slice(data);
            let Some(max) = max_message else {
                state.whole = state.unread.len();
                return Ok(MessageProgress::Continued);
            };
            while let Some(length) =
                whole_message(state.unread.get(state.whole..).unwrap_or_default(), max)?
            {
                state.whole = state.whole.saturating_add(length);
            }
            Ok(if state.whole == state.unread.len() {
                MessageProgress::Whole
            } else if was_whole || state.whole > whole {
                MessageProgress::Begun
            } else {
                MessageProgress::Continued
            })
        })
    }

    /// Ends the body, with or without trailers.
    pub fn finish(&self, trailers: Option<HeaderMap>) {
        self.change(|state| {
            let is_truncated = state.whole < state.unread.len();
            state.trailers = trailers.filter(|_| !is_truncated);
            state.end.get_or_insert(if is_truncated { Err(BodyError::Truncated) } else { Ok(()) });
        });
    }

    /// Ends the body with an error.
    pub(super) fn fail(&self, error: BodyError) {
        self.change(|state| {
            state.end.get_or_insert(Err(error));
        });
    }

    /// Takes what was read since the last call. If the reader was dropped, unread bytes count as
    /// read.
    pub(super) fn take_read(&self) -> BodyRead {
        let mut state = self.0.state.lock();
        if state.is_dropped {
            state.whole = 0;
            let unread = std::mem::take(&mut state.unread).len();
            let in_hand = std::mem::take(&mut state.in_hand);
            state.taken = state.taken.saturating_add(unread).saturating_add(in_hand);
        }
        BodyRead { bytes: std::mem::take(&mut state.taken), is_drained: state.whole == 0 }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.0.state.lock();
        let changed = change(&mut state);
        let has_news = state.whole > 0 || state.end.is_some();
        let reader = if has_news { state.reader.take() } else { None };
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

impl RequestBody {
    /// Creates a body and its sender. `connection` is woken when bytes are read; `account` is that
    /// of the connection's calls; `max_message` is the maximum size of a message in bytes, `None`
    /// for a body without messages. The connection does so for each general call.
    pub fn channel(
        connection: Waker,
        account: CallAccount,
        max_message: Option<usize>,
    ) -> (BodySender, Self) {
        let state = Mutex::default();
        let shared = Arc::new(BodyState { state, max_message, account, connection });
        (BodySender(Arc::clone(&shared)), Self(shared))
    }

    /// Returns `true` if a part of a message, or a message that is not read, has arrived.
    pub fn is_arriving(&self) -> bool {
        !self.0.state.lock().unread.is_empty()
    }

    /// Takes the next message, or all bytes of a body without messages.
    fn take_message(&self, state: &mut State) -> Bytes {
        let length = match self.0.max_message {
            Some(_) => message_length(&state.unread).unwrap_or(state.whole).min(state.whole),
            None => state.whole,
        };
        let message = state.unread.split_to(length).freeze();
        state.whole = state.whole.saturating_sub(length);
        state.in_hand = length;
        let work = length.saturating_add(MESSAGE_WORK);
        state.turn = state.turn.saturating_add(work);
        self.0.account.add_work(work);
        message
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
        let done = std::mem::take(&mut state.in_hand);
        if done > 0 {
            state.taken = state.taken.saturating_add(done);
            self.0.connection.wake_by_ref();
        }
        if state.whole > 0 {
            if state.turn >= TURN_WORK {
                state.turn = 0;
                // As a connection that yields: after the sockets are polled.
                let _ = pin!(tokio::task::yield_now()).poll(cx);
                return Poll::Pending;
            }
            let message = self.take_message(&mut state);
            return Poll::Ready(Some(Ok(Frame::data(message))));
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
        state.whole == 0 && state.trailers.is_none() && state.end == Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::super::message::PREFIX;
    use super::*;

    type Polled = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    const PREFIXES: &[u8] = b"\0\0\0\0\x03abc\0\0\0\0\0";

    fn body_of(max_message: Option<usize>) -> (BodySender, RequestBody) {
        let account = CallAccount::new(Arc::new(Budget::new(1 << 20)));
        RequestBody::channel(Waker::noop().clone(), account, max_message)
    }

    fn poll(body: &mut RequestBody) -> Polled {
        Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
    }

    fn data(polled: Polled) -> Bytes {
        let Poll::Ready(Some(Ok(frame))) = polled else { panic!("no frame: {polled:?}") };
        frame.into_data().unwrap()
    }

    fn read(sender: &BodySender) -> (usize, bool) {
        let BodyRead { bytes, is_drained } = sender.take_read();
        (bytes, is_drained)
    }

    #[test]
    fn bytes_are_read_as_they_come_and_count_as_held_until_more_is_asked_for() {
        let (sender, mut body) = body_of(None);
        assert!(poll(&mut body).is_pending());
        assert_eq!(sender.send(b"abc"), Ok(MessageProgress::Continued));
        assert_eq!(read(&sender), (0, false));
        assert_eq!((data(poll(&mut body)), read(&sender)), ("abc".into(), (0, true)));
        sender.finish(None);
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
        assert_eq!((read(&sender), read(&sender)), ((3, true), (0, true)));
    }

    #[test]
    fn messages_are_read_one_by_one_once_they_are_whole() {
        let (sender, mut body) = body_of(Some(3));
        let progress: Vec<_> = PREFIXES.iter().map(|byte| sender.send(&[*byte]).unwrap()).collect();
        use MessageProgress::{Begun, Continued, Whole};
        let continued = |bytes: usize| [&[Begun][..], &vec![Continued; bytes], &[Whole]].concat();
        assert_eq!(progress, [continued(6), continued(3)].concat());
        assert_eq!(
            (data(poll(&mut body)), read(&sender)),
            (PREFIXES[..8].to_vec().into(), (0, false))
        );
        assert_eq!(
            (data(poll(&mut body)), read(&sender)),
            (PREFIXES[8..].to_vec().into(), (8, true))
        );
        assert_eq!(sender.send(&PREFIXES[..12]), Ok(Begun), "the next message has begun");
        assert!(body.is_arriving());
        assert_eq!(data(poll(&mut body)), PREFIXES[..8]);
        assert!(poll(&mut body).is_pending() && body.is_arriving());
        sender.finish(Some(HeaderMap::new()));
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(BodyError::Truncated)))));
    }

    #[test]
    fn a_message_beyond_the_bound_is_refused_by_its_prefix() {
        let (sender, _body) = body_of(Some(3));
        assert_eq!(sender.send(b"\0\0\0\0\x04"), Err(Refusal::MessageTooLarge { max: 3 }));
        let (sender, _body) = body_of(Some(3));
        let sent = sender.send(&[PREFIXES, b"\0\xff\xff\xff\xff"].concat());
        assert_eq!(sent, Err(Refusal::MessageTooLarge { max: 3 }), "behind others");
    }

    #[test]
    fn a_reader_of_many_messages_waits_for_its_next_turn() {
        let (sender, mut body) = body_of(Some(3));
        sender.send(&[0; 1_000 * PREFIX]).unwrap();
        let mut turn = || (0..1_000).take_while(|_| poll(&mut body).is_ready()).count();
        let messages = TURN_WORK.div_ceil(MESSAGE_WORK + PREFIX);
        assert_eq!((turn(), turn()), (messages, messages));
        assert_eq!(sender.0.account.take_work(), 2 * messages * (MESSAGE_WORK + PREFIX));
    }

    #[test]
    fn the_end_of_the_sender_cancels_a_body_that_has_not_ended() {
        let (sender, mut body) = body_of(None);
        drop(sender);
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(BodyError::Cancelled)))));
        let (sender, mut body) = body_of(None);
        sender.finish(None);
        drop(sender);
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }

    #[test]
    fn bytes_without_a_reader_count_as_read() {
        let (sender, mut body) = body_of(None);
        sender.send(b"abc").unwrap();
        assert_eq!(data(poll(&mut body)), "abc");
        sender.send(b"de").unwrap();
        drop(body);
        assert_eq!(read(&sender), (5, true));
        sender.send(b"f").unwrap();
        assert_eq!(read(&sender), (1, true));
    }

    #[test]
    fn small_pieces_that_wait_are_read_as_one() {
        let (sender, mut body) = body_of(None);
        b"abc".iter().for_each(|byte| assert!(sender.send(&[*byte]).is_ok()));
        assert_eq!(data(poll(&mut body)), "abc");
    }

    #[test]
    fn a_body_is_at_its_end_when_nothing_but_the_end_is_left() {
        let ends = |finish: fn(&BodySender), is_read: bool| {
            let (sender, mut body) = body_of(None);
            sender.send(b"abc").unwrap();
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
