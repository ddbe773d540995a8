//! The border of panics: Envoy's stack must not unwind.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `run`. If it panics, calls `report`, and returns `otherwise`.
pub(crate) fn guarded<T>(otherwise: T, report: impl FnOnce(), run: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(value) => value,
        Err(panic) => {
            // Its destructor might panic too.
            std::mem::forget(panic);
            report();
            otherwise
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "the subject of the test")]

    use super::*;

    #[test]
    fn a_panic_is_reported_and_ends_here() {
        struct PanicsWhenDropped;
        impl Drop for PanicsWhenDropped {
            fn drop(&mut self) {
                panic!("in a destructor");
            }
        }
        let mut reports = 0;
        assert_eq!(guarded(1, || reports += 1, || 2), 2);
        assert_eq!(guarded(1, || reports += 1, || panic!("a fault")), 1);
        let payload = || std::panic::panic_any(PanicsWhenDropped);
        assert_eq!(guarded(1, || reports += 1, payload), 1);
        assert_eq!(reports, 2);
    }
}
