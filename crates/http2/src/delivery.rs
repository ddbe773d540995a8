//! The delivery of an answer that a service sends piece by piece: the bytes that can leave at once,
//! and acknowledgements that the client has read what was sent.
//!
//! An acknowledgement is that of a PING which follows the bytes: a peer handles frames in the order
//! in which they arrive.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

/// Marks the payload of a PING as one of a delivery; the rest of the first half is its stream.
const MARK: u32 = 1 << 31;

/// The delivery of a call's answer; in the extensions of requests whose body the service reads.
#[derive(Clone, Debug, Default)]
pub struct Delivery(Arc<Mutex<DeliveryState>>);

#[derive(Debug, Default)]
struct DeliveryState {
    /// Bytes that can be sent at once.
    room: usize,
    /// Number of the latest acknowledgement that the service wants, and of the latest PING sent.
    wanted: u32,
    pinged: u32,
    acknowledged: u32,
    /// Acknowledgements that the service has not taken, and when they arrived.
    arrived: Vec<(u32, Instant)>,
    is_shutting_down: bool,
    waiting: Option<Waker>,
}

impl Delivery {
    /// Creates the delivery of an answer. The connection does so for each call.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes that can leave at once: that fit the windows of the client, while the
    /// socket accepts bytes. Current while the body of the answer is polled.
    pub fn room(&self) -> usize {
        self.0.lock().room
    }

    /// Sends a PING after the bytes of the answer so far. Returns its number.
    pub fn request_acknowledgement(&self) -> u32 {
        let mut state = self.0.lock();
        state.wanted = state.wanted.saturating_add(1);
        state.wanted
    }

    /// Returns the number of the latest PING that the client has acknowledged; 0 for none.
    pub fn acknowledged(&self) -> u32 {
        self.0.lock().acknowledged
    }

    /// Takes the numbers of the PINGs that the client has acknowledged since the last call, and the
    /// instants at which that arrived. At most one for each PING.
    pub fn take_acknowledgements(&self) -> Vec<(u32, Instant)> {
        std::mem::take(&mut self.0.lock().arrived)
    }

    /// Returns `true` once the connection is shutting down: the answer should end.
    pub fn is_shutting_down(&self) -> bool {
        self.0.lock().is_shutting_down
    }

    /// Waits until more is acknowledged than `seen`, or the connection shuts down.
    pub async fn changed(&self, seen: u32) {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.acknowledged > seen || state.is_shutting_down {
                return Poll::Ready(());
            }
            state.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Sets the bytes that can leave at once.
    pub fn set_room(&self, room: usize) {
        self.0.lock().room = room;
    }

    /// Returns the payload of the PING that is due on a stream, if one is.
    pub fn take_ping(&self, stream: u32) -> Option<[u8; 8]> {
        let mut state = self.0.lock();
        if state.wanted == state.pinged {
            return None;
        }
        state.pinged = state.wanted;
        let [a, b, c, d] = (stream | MARK).to_be_bytes();
        let [e, f, g, h] = state.pinged.to_be_bytes();
        Some([a, b, c, d, e, f, g, h])
    }

    /// Records that the client has acknowledged a PING. Returns `false` if none with this number is
    /// outstanding.
    pub fn acknowledge(&self, number: u32, now: Instant) -> bool {
        let mut is_outstanding = false;
        self.change(|state| {
            is_outstanding = number > state.acknowledged && number <= state.pinged;
            if is_outstanding {
                state.acknowledged = number;
                state.arrived.push((number, now));
            }
        });
        is_outstanding
    }

    pub(super) fn shut_down(&self) {
        self.change(|state| state.is_shutting_down = true);
    }

    fn change(&self, change: impl FnOnce(&mut DeliveryState)) {
        let mut state = self.0.lock();
        change(&mut state);
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Returns the stream and the number of an acknowledged PING, if it is one of a delivery.
pub(super) fn acknowledged(payload: &[u8]) -> Option<(u32, u32)> {
    let (stream, number) = payload.split_first_chunk::<4>()?;
    let stream = u32::from_be_bytes(*stream);
    let number = u32::from_be_bytes(*number.first_chunk::<4>()?);
    (stream & MARK != 0).then_some((stream ^ MARK, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ping_is_sent_once_and_its_acknowledgement_has_its_number() {
        let delivery = Delivery::new();
        assert_eq!(delivery.take_ping(7), None);
        assert_eq!(
            (delivery.request_acknowledgement(), delivery.request_acknowledgement()),
            (1, 2)
        );
        let payload = delivery.take_ping(7).unwrap();
        assert_eq!((delivery.take_ping(7), acknowledged(&payload)), (None, Some((7, 2))));
        let now = Instant::now();
        assert!(delivery.acknowledge(2, now));
        assert!(!delivery.acknowledge(2, now), "once");
        assert_eq!(delivery.acknowledged(), 2);
        assert_eq!(delivery.take_acknowledgements(), [(2, now)]);
        assert_eq!(delivery.take_acknowledgements(), []);
    }

    #[test]
    fn acknowledgements_of_pings_that_were_not_sent_are_ignored() {
        let delivery = Delivery::new();
        delivery.request_acknowledgement();
        assert!(!delivery.acknowledge(1, Instant::now()));
        assert_eq!(delivery.acknowledged(), 0);
        assert_eq!((acknowledged(b"tollgate"), acknowledged(b"goaway\0\0")), (None, None));
    }
    #[test]
    fn who_waits_is_woken_by_an_acknowledgement_and_by_the_shutdown() {
        use std::pin::pin;
        use std::sync::atomic::{AtomicU32, Ordering};
        use std::task::{Context, Wake};

        #[derive(Default)]
        struct WakeCount(AtomicU32);

        impl Wake for WakeCount {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        let delivery = Delivery::new();
        let count = Arc::<WakeCount>::default();
        let waker = Waker::from(Arc::clone(&count));
        let cx = &mut Context::from_waker(&waker);
        assert_eq!(delivery.request_acknowledgement(), 1);
        assert!(delivery.take_ping(7).is_some());
        let mut changed = pin!(delivery.changed(0));
        assert!(changed.as_mut().poll(cx).is_pending());
        assert!(delivery.acknowledge(1, Instant::now()));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(changed.poll(cx).is_ready());
        let mut changed = pin!(delivery.changed(1));
        assert!(changed.as_mut().poll(cx).is_pending());
        delivery.shut_down();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(changed.poll(cx).is_ready());
    }
}
