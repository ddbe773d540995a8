//! The thread that paces exchanges: it wakes the main thread at most every 50 ms, when a key wants
//! a block or a block has ended, and sleeps otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use tollgate_lease::holder::INTERVAL;

/// Time after which the pacer looks at its state without having been woken.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Runs the main thread's part of an exchange.
pub(crate) trait Wake: Send + 'static {
    /// Wakes the main thread.
    fn wake(&self);
}

#[derive(Debug, Default)]
struct PacerState {
    is_stopped: AtomicBool,
    is_wanted: AtomicBool,
    /// The instant at which the next block ends.
    next_end: ArcSwapOption<Instant>,
}

impl PacerState {
    /// Returns the time to sleep; none if the main thread is to be woken.
    fn sleep(&self, now: Instant) -> Duration {
        if self.is_wanted.swap(false, Ordering::AcqRel) {
            return Duration::ZERO;
        }
        let next = self.next_end.load();
        next.as_ref()
            .map_or(LONGEST_SLEEP, |end| end.saturating_duration_since(now).min(LONGEST_SLEEP))
    }
}

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pacer {
    state: Arc<PacerState>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
}

impl Pacer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub(crate) fn start(wake: impl Wake, clock: fn() -> Instant) -> std::io::Result<Self> {
        let state = Arc::new(PacerState::default());
        let of_thread = Arc::clone(&state);
        let handle = std::thread::Builder::new()
            .name("tollgate".to_owned())
            .spawn(move || pace(&of_thread, &wake, clock))?;
        Ok(Self { state, thread: handle.thread().clone(), handle: Some(handle) })
    }

    /// Requests an exchange. Called by workers.
    pub(crate) fn want(&self) {
        if !self.state.is_wanted.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }

    /// Sets the instant of the next exchange that is needed without a want.
    pub(crate) fn set_next_end(&self, end: Option<Instant>) {
        self.state.next_end.store(end.map(Arc::new));
        self.thread.unpark();
    }
}

fn pace(state: &PacerState, wake: &impl Wake, clock: fn() -> Instant) {
    while !state.is_stopped.load(Ordering::Acquire) {
        let sleep = state.sleep(clock());
        if !sleep.is_zero() {
            std::thread::park_timeout(sleep);
            continue;
        }
        wake.wake();
        // The next one is at least an interval away, whatever wakes this thread.
        let woken = Instant::now();
        while !state.is_stopped.load(Ordering::Acquire) {
            let left = INTERVAL.saturating_sub(woken.elapsed());
            if left.is_zero() {
                break;
            }
            std::thread::park_timeout(left);
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Release);
        self.thread.unpark();
        if let Some(handle) = self.handle.take() {
            // It ends within one wake, and Envoy may unload this code after that.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]
mod tests {
    use super::*;

    #[test]
    fn a_want_is_due_once_and_the_end_of_a_block_until_another_is_set() {
        let state = PacerState::default();
        let now = Instant::now();
        assert_eq!(state.sleep(now), LONGEST_SLEEP);
        state.is_wanted.store(true, Ordering::Release);
        assert_eq!([state.sleep(now), state.sleep(now)], [Duration::ZERO, LONGEST_SLEEP]);
        let end = now + Duration::from_millis(30);
        state.next_end.store(Some(Arc::new(end)));
        assert_eq!(state.sleep(now), Duration::from_millis(30));
        assert_eq!([state.sleep(end), state.sleep(end)], [Duration::ZERO; 2]);
    }

    #[test]
    fn the_thread_wakes_once_for_several_wants_and_ends_when_it_is_dropped() {
        struct Woken(std::sync::mpsc::Sender<()>);
        impl Wake for Woken {
            fn wake(&self) {
                let _ = self.0.send(());
            }
        }
        let (sender, woken) = std::sync::mpsc::channel();
        let pacer = Pacer::start(Woken(sender), Instant::now).unwrap_or_else(|_| unreachable!());
        let begun = Instant::now();
        pacer.want();
        assert_eq!(woken.recv(), Ok(()));
        for _ in 0..9 {
            pacer.want();
        }
        assert_eq!(woken.recv(), Ok(()));
        assert!(begun.elapsed() >= INTERVAL, "{:?}", begun.elapsed());
        drop(pacer);
        assert_eq!(woken.try_iter().count(), 0);
        assert!(woken.recv().is_err(), "the thread has ended");
    }
}
