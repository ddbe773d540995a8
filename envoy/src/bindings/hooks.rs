//! The module's functions.

use std::ffi::c_char;
use std::ptr;
use std::time::Instant;

use tollgate_lease::holder::clock;

use super::callbacks::{EnvoyMain, EnvoyRequest, Scheduler, log};
use super::{
    Buffer, CONTINUE, Header, LOG_ERROR, STOP_ITERATION, SUCCESS, ToEnvoy, ToModule, guarded, stats,
};
use crate::config::RateLimits;
use crate::exchange::CallResult;
use crate::filter::{Filter, Verdict, show};
use crate::headers::LimitHeaders;
use crate::holder::Registry;
use crate::host::Stat;

/// Version of the interface, that of Envoy 1.40. Envoy warns if its own version is another one, and
/// refuses to load the module if one of its functions is missing.
const ABI_VERSION: &[u8] = b"v0.2.0\0";
/// The blocks of all configurations.
static REGISTRY: Registry = Registry::new();

/// A configuration, as Envoy has a pointer to it.
struct Loaded {
    filter: Filter,
    /// IDs of Envoy's statistics, in the order of [`Stat::ALL`].
    stats: [usize; Stat::ALL.len()],
}

/// The filter of one request, as Envoy has a pointer to it.
struct Stream {
    loaded: &'static Loaded,
    limits: Option<LimitHeaders>,
}

/// Returns the pointer by which Envoy keeps an object of the module, until it [`destroy`]s it.
fn to_pointer<T>(object: T) -> ToModule {
    Box::into_raw(Box::new(object)).cast_const().cast()
}

/// Destroys an object.
///
/// # Safety
///
/// [`to_pointer`] made the pointer from a `T`, and no other reference to the object exists.
unsafe fn destroy<T>(object: ToModule) {
    // SAFETY: as the caller says.
    drop(unsafe { Box::from_raw(object.cast_mut().cast::<T>()) });
}

/// Returns the configuration of a pointer.
///
/// # Safety
///
/// The pointer is one that `config_new` returned, and that was not destroyed.
unsafe fn loaded<'a>(config: ToModule) -> &'a Loaded {
    // SAFETY: `config_new` made it from a box.
    unsafe { &*config.cast::<Loaded>() }
}

/// Returns the filter of a request.
///
/// # Safety
///
/// The pointer is one that `filter_new` returned, and that was not destroyed; no other reference to
/// it exists, since Envoy calls the filter of a request from one thread.
unsafe fn stream<'a>(filter: ToModule) -> &'a mut Stream {
    // SAFETY: `filter_new` made it from a box.
    unsafe { &mut *filter.cast_mut().cast::<Stream>() }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    ABI_VERSION.as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    config: ToEnvoy,
    _name: Buffer,
    text: Buffer,
) -> ToModule {
    guarded(ptr::null(), || {
        // SAFETY: the text is valid during the call.
        let text = unsafe { text.bytes() };
        // SAFETY: this is the main thread, and the configuration exists.
        let scheduler = unsafe { Scheduler::of(config) };
        match Filter::start(text, &REGISTRY, scheduler, clock::now) {
            Ok(filter) => {
                // SAFETY: the configuration is being created.
                let loaded = Loaded { filter, stats: unsafe { stats::define(config) } };
                to_pointer(loaded)
            }
            Err(error) => {
                log(LOG_ERROR, &format!("tollgate: {error}"));
                ptr::null()
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: ToModule) {
    guarded((), || {
        // SAFETY: `config_new` made it from a box, and no request has a reference to it any more.
        unsafe { destroy::<Loaded>(config) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
    _name: Buffer,
    text: Buffer,
) -> ToModule {
    guarded(ptr::null(), || {
        // SAFETY: the text is valid during the call.
        match RateLimits::read(unsafe { text.bytes() }) {
            Ok(limits) => to_pointer(limits),
            Err(error) => {
                log(LOG_ERROR, &format!("tollgate: route: {error}"));
                ptr::null()
            }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(config: ToModule) {
    guarded((), || {
        // SAFETY: `per_route_config_new` made it from a box.
        unsafe { destroy::<RateLimits>(config) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(
    config: ToModule,
    _filter: ToEnvoy,
) -> ToModule {
    guarded(ptr::null(), || {
        // SAFETY: Envoy keeps a configuration until all of its filters are destroyed.
        let stream = Stream { loaded: unsafe { loaded(config) }, limits: None };
        to_pointer(stream)
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(filter: ToModule) {
    guarded((), || {
        // SAFETY: `filter_new` made it from a box.
        unsafe { destroy::<Stream>(filter) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    envoy: ToEnvoy,
    filter: ToModule,
    _end_of_stream: bool,
) -> u32 {
    guarded(CONTINUE, || {
        // SAFETY: the filter exists.
        let stream = unsafe { stream(filter) };
        // SAFETY: Envoy's filter exists during the call, on this thread.
        let mut request = unsafe { EnvoyRequest::of(envoy, &stream.loaded.stats) };
        let of_route = request.route_config().cast::<RateLimits>();
        // SAFETY: it is null, or `per_route_config_new` made it from a box; Envoy keeps the
        // configuration of a route during the call.
        let of_route = unsafe { of_route.as_ref() };
        let begun = Instant::now();
        let verdict = stream.loaded.filter.decide(&mut request, of_route);
        request.record_time(begun.elapsed());
        match verdict {
            Verdict::Continue(limits) => {
                stream.limits = limits;
                CONTINUE
            }
            Verdict::Answered => STOP_ITERATION,
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    envoy: ToEnvoy,
    filter: ToModule,
    _end_of_stream: bool,
) -> u32 {
    guarded(CONTINUE, || {
        // SAFETY: the filter exists.
        let stream = unsafe { stream(filter) };
        if let Some(limits) = stream.limits.take() {
            // SAFETY: Envoy's filter exists during the call, on this thread.
            show(&limits, &mut unsafe { EnvoyRequest::of(envoy, &[]) });
        }
        CONTINUE
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    envoy: ToEnvoy,
    config: ToModule,
    _event: u64,
) {
    guarded((), || {
        // SAFETY: the configuration exists.
        let loaded = unsafe { loaded(config) };
        // SAFETY: Envoy's configuration exists during the call, on the main thread.
        let mut main = unsafe { EnvoyMain::of(envoy, &loaded.stats) };
        loaded.filter.driver().on_wake(&mut main);
    });
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_http_callout_done(
    envoy: ToEnvoy,
    config: ToModule,
    id: u64,
    result: u32,
    headers: *mut Header,
    header_count: usize,
    chunks: *mut Buffer,
    chunk_count: usize,
) {
    guarded((), || {
        // SAFETY: the configuration exists.
        let loaded = unsafe { loaded(config) };
        // SAFETY: the headers, the chunks and what they point to are valid during the call.
        let (headers, chunks) = unsafe { (list(headers, header_count), list(chunks, chunk_count)) };
        let header = |name: &[u8]| {
            // SAFETY: as above.
            let found = headers.iter().find(|header| unsafe { header.key.bytes() } == name);
            // SAFETY: as above.
            found.map(|header| unsafe { header.value.bytes() }.to_vec())
        };
        let result = if result == SUCCESS {
            // SAFETY: as above.
            let body = chunks.iter().flat_map(|chunk| unsafe { chunk.bytes() });
            CallResult::Response {
                status: header(b":status").unwrap_or_default(),
                grpc_status: header(b"grpc-status"),
                body: body.copied().collect(),
            }
        } else {
            CallResult::Reset
        };
        // SAFETY: Envoy's configuration exists during the call, on the main thread.
        let mut main = unsafe { EnvoyMain::of(envoy, &loaded.stats) };
        loaded.filter.driver().on_response(id, result, &mut main);
    });
}

/// Returns a list of Envoy.
///
/// # Safety
///
/// The pointer is null, or valid for `'a` with so many items.
unsafe fn list<'a, T>(items: *mut T, count: usize) -> &'a [T] {
    if items.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(items.cast_const(), count) }
}

/// Defines functions that Envoy requires, and that have nothing to do.
macro_rules! unused_hooks {
    ($($name:ident($($type:ty),*) $(-> $value:expr)?;)*) => {$(
        unused_hooks!(@one $name, ($($type),*), $($value)?);
    )*};
    (@one $name:ident, ($($type:ty),*), $value:expr) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $type),*) -> u32 { $value }
    };
    (@one $name:ident, ($($type:ty),*),) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $type),*) {}
    };
}

unused_hooks! {
    envoy_dynamic_module_on_http_filter_request_body(ToEnvoy, ToModule, bool) -> CONTINUE;
    envoy_dynamic_module_on_http_filter_request_trailers(ToEnvoy, ToModule) -> CONTINUE;
    envoy_dynamic_module_on_http_filter_response_body(ToEnvoy, ToModule, bool) -> CONTINUE;
    envoy_dynamic_module_on_http_filter_response_trailers(ToEnvoy, ToModule) -> CONTINUE;
    envoy_dynamic_module_on_http_filter_stream_complete(ToEnvoy, ToModule);
    envoy_dynamic_module_on_http_filter_http_callout_done(
        ToEnvoy, ToModule, u64, u32, *mut Header, usize, *mut Buffer, usize
    );
    envoy_dynamic_module_on_http_filter_http_stream_headers(
        ToEnvoy, ToModule, u64, *mut Header, usize, bool
    );
    envoy_dynamic_module_on_http_filter_http_stream_data(
        ToEnvoy, ToModule, u64, *const Buffer, usize, bool
    );
    envoy_dynamic_module_on_http_filter_http_stream_trailers(
        ToEnvoy, ToModule, u64, *mut Header, usize
    );
    envoy_dynamic_module_on_http_filter_http_stream_complete(ToEnvoy, ToModule, u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(ToEnvoy, ToModule, u64, u32);
    envoy_dynamic_module_on_http_filter_scheduled(ToEnvoy, ToModule, u64);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
        ToEnvoy, ToModule
    );
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
        ToEnvoy, ToModule
    );
}
