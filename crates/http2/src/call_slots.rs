//! Futures of a connection's calls, polled within the connection's task.
//!
//! A task per call would cost an allocation and a turn of the scheduler, and a write of its own for
//! the answer. Here, later calls reuse a slot, its memory and its waker: a warm connection
//! allocates nothing.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// The futures of a connection.
#[derive(Debug)]
pub(super) struct CallSlots<F> {
    slots: Vec<TaskSlot<F>>,
    free: Vec<usize>,
    ready: Arc<Ready>,
    /// The other half of the queue of [`Ready`], so that neither half is reallocated.
    taken: Vec<usize>,
}

#[derive(Debug)]
struct TaskSlot<F> {
    future: Pin<Box<Option<F>>>,
    /// Stream of the call; 0 if the slot is free.
    stream: u32,
    waker: Waker,
    wake: Arc<SlotWaker>,
}

/// CallSlots that were woken, and the task that polls them.
#[derive(Debug, Default)]
struct Ready {
    queue: Mutex<Vec<usize>>,
    task: AtomicWaker,
}

#[derive(Debug)]
struct SlotWaker {
    slot: usize,
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.ready.queue.lock().push(self.slot);
            self.ready.task.wake();
        }
    }
}

impl<F> Default for CallSlots<F> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ready: Arc::default(), taken: Vec::new() }
    }
}

impl<F: Future> CallSlots<F> {
    /// Allocates a slot for the call of a stream.
    pub(super) fn take(&mut self, stream: u32) -> usize {
        if let Some(slot) = self.free.pop() {
            if let Some(free) = self.slots.get_mut(slot) {
                free.stream = stream;
            }
            return slot;
        }
        let slot = self.slots.len();
        let wake = Arc::new(SlotWaker {
            slot,
            is_queued: AtomicBool::new(false),
            ready: Arc::clone(&self.ready),
        });
        self.slots.push(TaskSlot {
            future: Box::pin(None),
            stream,
            waker: Arc::clone(&wake).into(),
            wake,
        });
        slot
    }

    /// Stores a future in a slot, and polls it.
    pub(super) fn begin(&mut self, slot: usize, future: F) -> Poll<F::Output> {
        match self.slots.get_mut(slot) {
            Some(found) => {
                found.future.set(Some(future));
                self.poll(slot)
            }
            None => Poll::Pending,
        }
    }

    /// Polls the future of a slot. A completed future is dropped, and its slot kept.
    pub(super) fn poll(&mut self, slot: usize) -> Poll<F::Output> {
        let Some(slot) = self.slots.get_mut(slot) else { return Poll::Pending };
        let Some(future) = slot.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = future.poll(&mut Context::from_waker(&slot.waker));
        if polled.is_ready() {
            slot.future.set(None);
        }
        polled
    }

    /// Frees a slot, and drops its future.
    pub(super) fn free(&mut self, slot: usize) {
        if let Some(found) = self.slots.get_mut(slot) {
            found.future.set(None);
            found.stream = 0;
            self.free.push(slot);
        }
    }

    /// Wakes a slot, to be polled later.
    pub(super) fn wake(&self, slot: usize) {
        if let Some(slot) = self.slots.get(slot) {
            slot.wake.wake_by_ref();
        }
    }

    /// Returns the waker of a slot.
    pub(super) fn waker(&self, slot: usize) -> Waker {
        self.slots.get(slot).map_or_else(|| Waker::noop().clone(), |slot| slot.waker.clone())
    }

    /// Registers the polling task, and takes the slots woken since the last call.
    pub(super) fn take_ready(&mut self, task: &Waker) -> Vec<usize> {
        self.ready.task.register(task);
        let mut taken = std::mem::take(&mut self.taken);
        std::mem::swap(&mut taken, &mut *self.ready.queue.lock());
        for slot in &taken {
            if let Some(slot) = self.slots.get(*slot) {
                // A swap, so that the poll that follows sees what the waker wrote before.
                slot.wake.is_queued.swap(false, Ordering::AcqRel);
            }
        }
        taken
    }

    /// Returns the list of [`Self::take_ready`] for reuse.
    pub(super) fn give_back(&mut self, mut taken: Vec<usize>) {
        taken.clear();
        self.taken = taken;
    }

    /// Returns the stream of a slot; `None` if the slot is free.
    pub(super) fn stream(&self, slot: usize) -> Option<u32> {
        self.slots.get(slot).map(|slot| slot.stream).filter(|stream| *stream != 0)
    }

    /// Releases memory if no slot is in use. Wakers of old slots keep a queue that nothing reads.
    pub(super) fn shrink(&mut self) {
        if self.free.len() == self.slots.len() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_woken_slot_is_found_once_and_wakes_its_task_once() {
        let count = Arc::<Count>::default();
        let mut slots = CallSlots::default();
        let task = Waker::from(Arc::clone(&count));
        let (sender, receiver) = oneshot::channel();
        let slot = slots.take(7);
        assert!(slots.begin(slot, receiver).is_pending());
        assert!(slots.take_ready(&task).is_empty());
        slots.waker(slot).wake_by_ref();
        sender.send(5).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        let ready = slots.take_ready(&task);
        assert_eq!((ready.as_slice(), slots.stream(slot)), (&[slot][..], Some(7)));
        assert_eq!(slots.poll(slot), Poll::Ready(Ok(5)));
        slots.give_back(ready);
        assert!(slots.take_ready(&task).is_empty());
    }

    #[test]
    fn wakes_after_the_first_ones_allocate_nothing() {
        let mut slots = CallSlots::<std::future::Pending<()>>::default();
        let wakers = [1, 3, 5].map(|stream| {
            let slot = slots.take(stream);
            slots.waker(slot)
        });
        let mut turn = || {
            wakers.iter().for_each(Waker::wake_by_ref);
            let ready = slots.take_ready(Waker::noop());
            assert_eq!(ready.len(), 3);
            slots.give_back(ready);
        };
        // Each half of the queue has its buffer.
        (0..2).for_each(|_| turn());
        assert_eq!(allocation_counter::measure(|| (0..10).for_each(|_| turn())).count_total, 0);
    }

    #[test]
    fn memory_is_released_once_no_slot_is_in_use() {
        let mut slots = CallSlots::<std::future::Pending<()>>::default();
        let [one, other] = [1, 3].map(|stream| slots.take(stream));
        slots.free(one);
        slots.shrink();
        assert_eq!((slots.slots.len(), slots.stream(other)), (2, Some(3)));
        let waker = slots.waker(other);
        slots.free(other);
        slots.shrink();
        assert_eq!((slots.slots.len(), slots.free.len()), (0, 0));
        waker.wake();
        assert!(slots.take_ready(Waker::noop()).is_empty());
    }

    #[test]
    fn a_slot_is_used_again() {
        let mut slots = CallSlots::default();
        let first = slots.take(1);
        assert_eq!(slots.begin(first, std::future::ready(1)), Poll::Ready(1));
        slots.free(first);
        assert_eq!((slots.stream(first), slots.take(3)), (None, first));
        assert_ne!(slots.take(5), first);
    }

    #[test]
    fn a_future_is_dropped_with_the_use_of_its_slot() {
        let mut slots = CallSlots::default();
        let (mut sender, receiver) = oneshot::channel::<()>();
        let slot = slots.take(1);
        assert!(slots.begin(slot, receiver).is_pending());
        slots.free(slot);
        assert!(sender.poll_closed(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
