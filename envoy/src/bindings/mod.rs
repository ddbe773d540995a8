//! Envoy's interface for dynamic modules: the functions of Envoy that the module calls, and those
//! of the module that Envoy calls. `envoy/README.md` lists them.
//!
//! | file | contents |
//! |---|---|
//! | `callbacks` | Envoy's functions, and the traits of `host` over them |
//! | `hooks` | the module's functions |
//!
//! Pointers: Envoy passes its own, which are valid during the call, and those that the module
//! returned earlier, of which each is passed until, and not after, the call that destroys it. Views
//! of Envoy's memory are valid until the call ends or the request is changed; here they borrow the
//! request, and changes of it borrow it exclusively.
//!
//! No panic crosses the boundary: [`guarded`] catches it, logs it, and returns what leaves the
//! request to Envoy's rate limit filter.

mod callbacks;
mod hooks;
mod stats;

use std::ffi::c_void;
use std::ptr;

use self::callbacks::log;
use crate::guard;

const CONTINUE: u32 = 0;
const STOP_ITERATION: u32 = 1;
const SUCCESS: u32 = 0;
const LOG_WARN: u32 = 3;
const LOG_ERROR: u32 = 4;

/// A pointer to an object of Envoy.
type ToEnvoy = *mut c_void;
/// A pointer to an object of the module.
type ToModule = *const c_void;

/// A view of bytes, of Envoy or of the module.
#[repr(C)]
#[derive(Clone, Copy)]
struct Buffer {
    pointer: *const u8,
    length: usize,
}

/// A header, of Envoy or of the module.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    key: Buffer,
    value: Buffer,
}

impl Buffer {
    const EMPTY: Self = Self { pointer: ptr::null(), length: 0 };

    fn of(bytes: &[u8]) -> Self {
        Self { pointer: bytes.as_ptr(), length: bytes.len() }
    }

    /// Returns the bytes.
    ///
    /// # Safety
    ///
    /// The buffer is one of Envoy, and is valid for `'a`.
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.pointer.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: Envoy's buffers are readable for their length while they are valid.
        unsafe { std::slice::from_raw_parts(self.pointer, self.length) }
    }
}

impl Header {
    fn of(pair: &(&str, &str)) -> Self {
        Self { key: Buffer::of(pair.0.as_bytes()), value: Buffer::of(pair.1.as_bytes()) }
    }
}

/// Runs the module's part of a call.
fn guarded<T>(otherwise: T, run: impl FnOnce() -> T) -> T {
    let report = || log(LOG_ERROR, "tollgate: a panic was caught; please report it");
    guard::guarded(otherwise, report, run)
}
