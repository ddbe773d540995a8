//! Envoy's functions, and the traits of `host` over them.

use std::time::Duration;

use super::{Buffer, Header, LOG_WARN, SUCCESS, ToEnvoy, ToModule, stats};
use crate::host::{MainThread, MetadataSource, Request, Response, Stat};
use crate::pacer::Wake;

/// Filter state of requests that were decided here. No header and no metadata is part of it.
const DECIDED: &str = "tollgate.decided";

const REQUEST_HEADER: u32 = 0;
const RESPONSE_HEADER: u32 = 2;
const SOURCE_ADDRESS: u32 = 24;

unsafe extern "C" {
    fn envoy_dynamic_module_callback_log(level: u32, message: Buffer);
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_new(config: ToEnvoy) -> ToEnvoy;
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit(
        scheduler: ToEnvoy,
        event: u64,
    );
    fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete(scheduler: ToEnvoy);
    fn envoy_dynamic_module_callback_http_filter_config_http_callout(
        config: ToEnvoy,
        id: *mut u64,
        cluster: Buffer,
        headers: *mut Header,
        header_count: usize,
        body: Buffer,
        timeout_ms: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_get_header(
        filter: ToEnvoy,
        headers: u32,
        key: Buffer,
        value: *mut Buffer,
        index: usize,
        count: *mut usize,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_set_header(
        filter: ToEnvoy,
        headers: u32,
        key: Buffer,
        value: Buffer,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_metadata_string(
        filter: ToEnvoy,
        source: u32,
        namespace: Buffer,
        key: Buffer,
        value: *mut Buffer,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_get_cluster_name(
        filter: ToEnvoy,
        value: *mut Buffer,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        filter: ToEnvoy,
        attribute: u32,
        value: *mut Buffer,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_set_filter_state_bytes(
        filter: ToEnvoy,
        key: Buffer,
        value: Buffer,
    ) -> bool;
    fn envoy_dynamic_module_callback_http_send_response(
        filter: ToEnvoy,
        status: u32,
        headers: *mut Header,
        header_count: usize,
        body: Buffer,
        details: Buffer,
    );
    fn envoy_dynamic_module_callback_get_most_specific_route_config(filter: ToEnvoy) -> ToModule;
}

/// A request in Envoy, for the time of a call.
pub(super) struct EnvoyRequest<'a> {
    filter: ToEnvoy,
    stats: &'a [usize],
}

/// Envoy's main thread, for the time of a call.
pub(super) struct EnvoyMain<'a> {
    config: ToEnvoy,
    stats: &'a [usize],
}

/// Envoy's scheduler of events of a configuration.
pub(super) struct Scheduler(ToEnvoy);

// SAFETY: Envoy's scheduler may be used by any thread.
unsafe impl Send for Scheduler {}

impl Scheduler {
    /// Creates the scheduler of a configuration.
    ///
    /// # Safety
    ///
    /// The configuration exists, and this is Envoy's main thread.
    pub(super) unsafe fn of(config: ToEnvoy) -> Self {
        // SAFETY: as the caller says.
        Self(unsafe { envoy_dynamic_module_callback_http_filter_config_scheduler_new(config) })
    }
}

impl Wake for Scheduler {
    fn wake(&self) {
        // SAFETY: the scheduler exists until it is dropped.
        unsafe { envoy_dynamic_module_callback_http_filter_config_scheduler_commit(self.0, 0) }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: it was created by `scheduler_new`, and is deleted once.
        unsafe { envoy_dynamic_module_callback_http_filter_config_scheduler_delete(self.0) }
    }
}

/// Writes a text to Envoy's log.
pub(super) fn log(level: u32, text: &str) {
    // SAFETY: Envoy copies the text, at any time and on any thread.
    unsafe { envoy_dynamic_module_callback_log(level, Buffer::of(text.as_bytes())) }
}

impl<'a> EnvoyRequest<'a> {
    /// Creates the view of a request, with the IDs of Envoy's statistics.
    ///
    /// # Safety
    ///
    /// The filter exists for the time of the view, and this is its thread.
    pub(super) unsafe fn of(filter: ToEnvoy, stats: &'a [usize]) -> Self {
        Self { filter, stats }
    }

    /// Returns what the module returned for the configuration of the request's route, or null.
    pub(super) fn route_config(&self) -> ToModule {
        // SAFETY: the filter exists.
        unsafe { envoy_dynamic_module_callback_get_most_specific_route_config(self.filter) }
    }

    /// Returns the value that a function of Envoy writes.
    fn value(&self, read: impl FnOnce(*mut Buffer) -> bool) -> Option<&[u8]> {
        let mut value = Buffer::EMPTY;
        // SAFETY: the value is valid until the call ends or the request is changed, for which this
        // would have to be borrowed exclusively.
        read(&raw mut value).then(|| unsafe { value.bytes() })
    }
}

impl EnvoyRequest<'_> {
    /// Records the time that the module took for the request.
    pub(super) fn record_time(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: Envoy's filter exists, and the statistics are those of its configuration.
        unsafe { stats::record(self.filter, self.stats, Stat::DecisionTime, time) };
    }
}

impl Request for EnvoyRequest<'_> {
    fn header(&self, name: &str, index: usize) -> (Option<&[u8]>, usize) {
        let key = Buffer::of(name.as_bytes());
        let mut count = 0;
        let value = self.value(|value| {
            // SAFETY: Envoy reads the key and writes the value and the count during the call.
            unsafe {
                envoy_dynamic_module_callback_http_get_header(
                    self.filter,
                    REQUEST_HEADER,
                    key,
                    value,
                    index,
                    &raw mut count,
                )
            }
        });
        (value, count)
    }

    fn remote_address(&self) -> Option<&[u8]> {
        self.value(|value| {
            // SAFETY: Envoy writes the value during the call.
            unsafe {
                envoy_dynamic_module_callback_http_filter_get_attribute_string(
                    self.filter,
                    SOURCE_ADDRESS,
                    value,
                )
            }
        })
    }

    fn cluster(&self) -> Option<&[u8]> {
        self.value(|value| {
            // SAFETY: Envoy writes the value during the call.
            unsafe { envoy_dynamic_module_callback_http_get_cluster_name(self.filter, value) }
        })
    }

    fn metadata(&self, source: MetadataSource, namespace: &str, key: &str) -> Option<&[u8]> {
        let source = match source {
            MetadataSource::Dynamic => 0,
            MetadataSource::Route => 1,
        };
        let namespace = Buffer::of(namespace.as_bytes());
        let key = Buffer::of(key.as_bytes());
        self.value(|value| {
            // SAFETY: Envoy reads the names and writes the value during the call.
            unsafe {
                envoy_dynamic_module_callback_http_get_metadata_string(
                    self.filter,
                    source,
                    namespace,
                    key,
                    value,
                )
            }
        })
    }

    fn mark_decided(&mut self) -> bool {
        let key = Buffer::of(DECIDED.as_bytes());
        let value = Buffer::of(b"true");
        // SAFETY: Envoy copies both during the call.
        unsafe {
            envoy_dynamic_module_callback_http_set_filter_state_bytes(self.filter, key, value)
        }
    }

    fn respond(&mut self, status: u32, headers: &[(&str, &str)], details: &str) {
        let mut headers: Vec<_> = headers.iter().map(Header::of).collect();
        // SAFETY: Envoy copies all during the call.
        unsafe {
            envoy_dynamic_module_callback_http_send_response(
                self.filter,
                status,
                headers.as_mut_ptr(),
                headers.len(),
                Buffer::EMPTY,
                Buffer::of(details.as_bytes()),
            );
        }
    }

    fn count(&mut self, stat: Stat) {
        // SAFETY: Envoy's filter exists, and the statistics are those of its configuration.
        unsafe { stats::count(self.filter, self.stats, stat) };
    }
}

impl Response for EnvoyRequest<'_> {
    fn set_header(&mut self, name: &str, value: &str) {
        let name = Buffer::of(name.as_bytes());
        let value = Buffer::of(value.as_bytes());
        // SAFETY: Envoy copies both during the call.
        unsafe {
            envoy_dynamic_module_callback_http_set_header(
                self.filter,
                RESPONSE_HEADER,
                name,
                value,
            );
        }
    }
}

impl<'a> EnvoyMain<'a> {
    /// Creates the view of a configuration, with the IDs of Envoy's statistics.
    ///
    /// # Safety
    ///
    /// The configuration exists for the time of the view, and this is Envoy's main thread.
    pub(super) unsafe fn of(config: ToEnvoy, stats: &'a [usize]) -> Self {
        Self { config, stats }
    }
}

impl MainThread for EnvoyMain<'_> {
    fn call(
        &mut self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout_ms: u64,
    ) -> Result<u64, &'static str> {
        let mut headers: Vec<_> = headers.iter().map(Header::of).collect();
        let mut id = 0;
        // SAFETY: Envoy copies all during the call, and writes the ID. This is the main thread.
        let result = unsafe {
            envoy_dynamic_module_callback_http_filter_config_http_callout(
                self.config,
                &raw mut id,
                Buffer::of(cluster.as_bytes()),
                headers.as_mut_ptr(),
                headers.len(),
                Buffer::of(body),
                timeout_ms,
            )
        };
        match result {
            SUCCESS => Ok(id),
            2 => Err("the cluster does not exist"),
            _ => Err("the cluster has no endpoint that can be called"),
        }
    }

    fn add(&mut self, stat: Stat, value: u64) {
        // SAFETY: the configuration exists, and the statistics are its own.
        unsafe { stats::add(self.config, self.stats, stat, value) };
    }

    fn set(&mut self, stat: Stat, value: u64) {
        // SAFETY: the configuration exists, and the statistics are its own.
        unsafe { stats::set(self.config, self.stats, stat, value) };
    }

    fn warn(&mut self, text: &str) {
        log(LOG_WARN, text);
    }
}
