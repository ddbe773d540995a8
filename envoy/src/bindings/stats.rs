//! Envoy's statistics of a configuration, by their IDs in the order of [`Stat::ALL`]. None has
//! labels.

use std::ptr;

use super::{Buffer, ToEnvoy};
use crate::host::Stat;

type Define = unsafe extern "C" fn(ToEnvoy, Buffer, *mut Buffer, usize, *mut usize) -> u32;
type Update = unsafe extern "C" fn(ToEnvoy, usize, *mut Buffer, usize, u64) -> u32;

unsafe extern "C" {
    fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: ToEnvoy,
        name: Buffer,
        label_names: *mut Buffer,
        label_count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        config: ToEnvoy,
        name: Buffer,
        label_names: *mut Buffer,
        label_count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_define_histogram(
        config: ToEnvoy,
        name: Buffer,
        label_names: *mut Buffer,
        label_count: usize,
        id: *mut usize,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_increment_counter(
        config: ToEnvoy,
        id: usize,
        labels: *mut Buffer,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_config_set_gauge(
        config: ToEnvoy,
        id: usize,
        labels: *mut Buffer,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_increment_counter(
        filter: ToEnvoy,
        id: usize,
        labels: *mut Buffer,
        label_count: usize,
        value: u64,
    ) -> u32;
    fn envoy_dynamic_module_callback_http_filter_record_histogram_value(
        filter: ToEnvoy,
        id: usize,
        labels: *mut Buffer,
        label_count: usize,
        value: u64,
    ) -> u32;
}

/// Defines the statistics of a configuration, and returns their IDs.
///
/// # Safety
///
/// The configuration is being created.
pub(super) unsafe fn define(config: ToEnvoy) -> [usize; Stat::ALL.len()] {
    Stat::ALL.map(|(stat, name)| {
        let define: Define = match stat {
            Stat::Blocks => envoy_dynamic_module_callback_http_filter_config_define_gauge,
            Stat::DecisionTime => envoy_dynamic_module_callback_http_filter_config_define_histogram,
            Stat::Decided
            | Stat::OverLimit
            | Stat::PassedOn
            | Stat::Exchanges
            | Stat::ExchangeErrors
            | Stat::UnknownHits => envoy_dynamic_module_callback_http_filter_config_define_counter,
        };
        let mut id = usize::MAX;
        // SAFETY: Envoy copies the name and writes the ID. This is the start of the configuration,
        // during which statistics can be defined.
        unsafe { define(config, Buffer::of(name.as_bytes()), ptr::null_mut(), 0, &raw mut id) };
        id
    })
}

/// Adds one to a counter, for a request.
///
/// # Safety
///
/// Envoy's filter exists, and `ids` are empty or those of its configuration.
pub(super) unsafe fn count(filter: ToEnvoy, ids: &[usize], stat: Stat) {
    let update = envoy_dynamic_module_callback_http_filter_increment_counter;
    // SAFETY: by the caller.
    unsafe { call(update, filter, ids, stat, 1) };
}

/// Records a value in a histogram, for a request.
///
/// # Safety
///
/// As for [`count`].
pub(super) unsafe fn record(filter: ToEnvoy, ids: &[usize], stat: Stat, value: u64) {
    let update = envoy_dynamic_module_callback_http_filter_record_histogram_value;
    // SAFETY: by the caller.
    unsafe { call(update, filter, ids, stat, value) };
}

/// Adds to a counter.
///
/// # Safety
///
/// The configuration exists, and `ids` are its own. This is the main thread.
pub(super) unsafe fn add(config: ToEnvoy, ids: &[usize], stat: Stat, value: u64) {
    let update = envoy_dynamic_module_callback_http_filter_config_increment_counter;
    // SAFETY: by the caller.
    unsafe { call(update, config, ids, stat, value) };
}

/// Sets a gauge.
///
/// # Safety
///
/// As for [`add`].
pub(super) unsafe fn set(config: ToEnvoy, ids: &[usize], stat: Stat, value: u64) {
    let update = envoy_dynamic_module_callback_http_filter_config_set_gauge;
    // SAFETY: by the caller.
    unsafe { call(update, config, ids, stat, value) };
}

/// Calls a function of Envoy with the ID of a statistic.
///
/// # Safety
///
/// As for the function.
unsafe fn call(update: Update, object: ToEnvoy, ids: &[usize], stat: Stat, value: u64) {
    let Some(id) = ids.get(stat as usize) else { return };
    // SAFETY: by the caller. A statistic without labels has none in a call.
    unsafe { update(object, *id, ptr::null_mut(), 0, value) };
}
