//! The host's functions, and the only file that names them.
//!
//! They are declared here once more, with their status as a number. The SDK's own wrappers panic on a status that they don't
//! expect and on header values that aren't UTF-8, and a panic takes every request of the worker down. Here nothing panics:
//! what the host can't give is `None` or [`Refused`]. The SDK's `open_grpc_stream` alone is used, because it also tells the
//! SDK whose stream it is.

use proxy_wasm::hostcalls;
use std::ptr::{null, null_mut};
use std::time::Duration;
use weir_core::store::HttpCall;

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;

const REQUEST_HEADERS: u32 = 0;
const RESPONSE_HEADERS: u32 = 2;
const CALLOUT_HEADERS: u32 = 6;

/// The host didn't do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// Buffers of the host.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CalloutBody = 4,
    GrpcMessage = 5,
    PluginConfiguration = 7,
}

/// Kinds of metrics.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum MetricKind {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, value: *mut *mut u8, value_size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_header_map_pairs(map: u32, value: *mut *mut u8, value_size: *mut usize) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(buffer: u32, start: usize, size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        value: *mut *mut u8,
        value_size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_size: usize, value: *const u8, value_size: usize, cas: u32) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_enqueue_shared_queue(id: u32, value: *const u8, value_size: usize) -> u32;
    fn proxy_dequeue_shared_queue(id: u32, value: *mut *mut u8, value_size: *mut usize) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_grpc_send(token: u32, message: *const u8, message_size: usize, end_stream: u32) -> u32;
    fn proxy_grpc_cancel(token: u32) -> u32;
    fn proxy_call_foreign_function(
        name: *const u8,
        name_size: usize,
        argument: *const u8,
        argument_size: usize,
        result: *mut *mut u8,
        result_size: *mut usize,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn environ_sizes_get(count: *mut usize, size: *mut usize) -> u32;
    fn environ_get(pointers: *mut *mut u8, texts: *mut u8) -> u32;
}

fn done(status: u32) -> Result<(), Refused> {
    if status == OK { Ok(()) } else { Err(Refused) }
}

/// Calls a function that hands over bytes: it allocates them with this module's own allocator.
fn received(call: impl FnOnce(*mut *mut u8, *mut usize) -> u32) -> Option<Vec<u8>> {
    let (mut data, mut size) = (null_mut(), 0);
    if call(&raw mut data, &raw mut size) != OK {
        return None;
    }
    if data.is_null() {
        return Some(Vec::new());
    }
    // SAFETY: the host allocated `size` bytes with `proxy_on_memory_allocate`, which is a Vec's allocation of that capacity,
    // filled them, and keeps no pointer.
    Some(unsafe { Vec::from_raw_parts(data, size, size) })
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let mut time = 0;
    // SAFETY: the host writes one number.
    let status = unsafe { proxy_get_current_time_nanoseconds(&raw mut time) };
    if status == OK { time } else { 0 }
}

/// Asks for a tick every so many milliseconds; 0: for none.
pub(crate) fn set_tick_period_ms(period: u32) {
    // SAFETY: numbers only. A host without timers has no use for the status either.
    let _ = unsafe { proxy_set_tick_period_milliseconds(period) };
}

/// A property; its path's parts are joined with NUL. `Ok(None)` where there is none, an error where it can't be written as bytes.
pub(crate) fn property(path: &str) -> Result<Option<Vec<u8>>, Refused> {
    let mut status = OK;
    // SAFETY: the path lives through the call.
    let value = received(|value, size| {
        status = unsafe { proxy_get_property(path.as_ptr(), path.len(), value, size) };
        status
    });
    match (value, status) {
        (Some(value), _) => Ok(Some(value)),
        (None, NOT_FOUND) => Ok(None),
        (None, _) => Err(Refused),
    }
}

/// Calls a function that the host has beyond the standard ones; what it gives.
///
/// # Errors
/// The host doesn't have it, or it has failed.
pub(crate) fn foreign(name: &str, argument: &[u8]) -> Result<Vec<u8>, Foreign> {
    let mut status = OK;
    // SAFETY: the name and the argument live through the call.
    let value = received(|value, size| {
        let (argument, length) = (argument.as_ptr(), argument.len());
        status = unsafe { proxy_call_foreign_function(name.as_ptr(), name.len(), argument, length, value, size) };
        status
    });
    value.ok_or(if status == NOT_FOUND { Foreign::Unknown } else { Foreign::Failed })
}

/// Why a function beyond the standard ones gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Unknown,
    Failed,
}

/// A variable of the VM's environment (`vm_config.environment_variables`). The one part of WASI that is used: proxy-wasm has none
/// of its own for it.
pub(crate) fn environment(name: &str) -> Option<String> {
    let (mut count, mut size) = (0, 0);
    // SAFETY: the host writes two numbers.
    if unsafe { environ_sizes_get(&raw mut count, &raw mut size) } != OK {
        return None;
    }
    let (mut pointers, mut texts) = (vec![null_mut(); count], vec![0; size]);
    // SAFETY: there is room for as many pointers and bytes as the host has said.
    if unsafe { environ_get(pointers.as_mut_ptr(), texts.as_mut_ptr()) } != OK {
        return None;
    }
    let mut values = texts.split(|b| *b == 0).filter_map(|text| text.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
    values.next().and_then(|value| String::from_utf8(value.to_vec()).ok())
}

/// Sets the current request's filter state `wasm.NAME`.
pub(crate) fn set_filter_state(name: &str, value: &str) {
    // SAFETY: both live through the call. A log field that can't be set isn't worth a request.
    let _ = unsafe { proxy_set_property(name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
}

/// All headers of the current request, as [`weir_core::request::Headers::from_pairs`] reads them.
pub(crate) fn request_headers() -> Option<Vec<u8>> {
    // SAFETY: numbers only, but for what `received` gives.
    received(|value, size| unsafe { proxy_get_header_map_pairs(REQUEST_HEADERS, value, size) })
}

/// Sets a response header, replacing all its lines.
pub(crate) fn set_response_header(name: &str, value: &str) {
    // SAFETY: both live through the call. It can fail only where there is no response any more.
    let _ =
        unsafe { proxy_replace_header_map_value(RESPONSE_HEADERS, name.as_ptr(), name.len(), value.as_ptr(), value.len()) };
}

/// The first `size` bytes of a buffer.
pub(crate) fn buffer(buffer: Buffer, size: usize) -> Option<Vec<u8>> {
    // SAFETY: numbers only, but for what `received` gives.
    received(|value, length| unsafe { proxy_get_buffer_bytes(buffer as u32, 0, size, value, length) })
}

/// Replaces the first `size` bytes of a buffer.
pub(crate) fn set_buffer(buffer: Buffer, size: usize, bytes: &[u8]) -> Result<(), Refused> {
    // SAFETY: the bytes live through the call.
    done(unsafe { proxy_set_buffer_bytes(buffer as u32, 0, size, bytes.as_ptr(), bytes.len()) })
}

/// Shared data under a key, and the number of its last write; `Ok(None)` where the key has never been written.
pub(crate) fn shared_data(key: &str) -> Result<Option<(Vec<u8>, u32)>, Refused> {
    let mut cas = 0;
    let mut status = OK;
    // SAFETY: the key lives through the call.
    let value = received(|value, size| {
        status = unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), value, size, &raw mut cas) };
        status
    });
    match (value, status) {
        (Some(value), _) => Ok(Some((value, cas))),
        (None, NOT_FOUND) => Ok(None),
        (None, _) => Err(Refused),
    }
}

/// Writes shared data if the key's last write is still number `cas`, or there was none; whether it did.
pub(crate) fn set_shared_data(key: &str, value: &[u8], cas: u32) -> Result<bool, Refused> {
    // SAFETY: both live through the call.
    match unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) } {
        OK => Ok(true),
        CAS_MISMATCH => Ok(false),
        _ => Err(Refused),
    }
}

/// Registers a queue of that name; what is put into it wakes the root context that registered it last.
pub(crate) fn register_queue(name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the name lives through the call; the host writes one number.
    let status = unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut id) };
    (status == OK).then_some(id)
}

/// Puts a message without content into a queue.
pub(crate) fn enqueue(queue: u32) -> Result<(), Refused> {
    // SAFETY: no bytes.
    done(unsafe { proxy_enqueue_shared_queue(queue, null(), 0) })
}

/// Takes a message out of a queue.
pub(crate) fn dequeue(queue: u32) {
    // SAFETY: numbers only, but for what `received` gives.
    let _ = received(|value, size| unsafe { proxy_dequeue_shared_queue(queue, value, size) });
}

/// What follows is done for that context, until the callback returns.
pub(crate) fn set_effective_context(context: u32) -> Result<(), Refused> {
    // SAFETY: numbers only.
    done(unsafe { proxy_set_effective_context(context) })
}

/// Lets the current request go on.
pub(crate) fn continue_request() -> Result<(), Refused> {
    // SAFETY: numbers only; 0 is the request.
    done(unsafe { proxy_continue_stream(0) })
}

/// Answers the current request.
pub(crate) fn send_response(answer: &weir_core::answer::Answer) -> Result<(), Refused> {
    let headers = pairs(&answer.headers);
    let (details, body) = (answer.details.as_bytes(), answer.body.as_bytes());
    // SAFETY: all of them live through the call.
    done(unsafe {
        proxy_send_local_response(
            answer.status.into(),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            answer.grpc_status,
        )
    })
}

/// Headers as the host reads them: their number, the lengths of each name and value, then these, each with a NUL behind it.
fn pairs(headers: &[(&str, String)]) -> Vec<u8> {
    let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = length(headers.len()).to_vec();
    for (name, value) in headers {
        out.extend(length(name.len()));
        out.extend(length(value.len()));
    }
    for text in headers.iter().flat_map(|(name, value)| [*name, value.as_str()]) {
        out.extend(text.as_bytes());
        out.push(0);
    }
    out
}

/// Opens a gRPC stream to a cluster. From a callback of the root context only: the SDK brings the stream's events to the
/// context whose callback is running.
pub(crate) fn open_stream(cluster: &str) -> Option<u32> {
    hostcalls::open_grpc_stream(cluster, "weir.Redis", "Stream", Vec::new()).ok()
}

/// Sends a message on a stream.
pub(crate) fn send_message(stream: u32, message: &[u8]) -> Result<(), Refused> {
    // SAFETY: the message lives through the call.
    done(unsafe { proxy_grpc_send(stream, message.as_ptr(), message.len(), 0) })
}

/// Resets a stream; it has no more callbacks.
pub(crate) fn reset_stream(stream: u32) {
    // SAFETY: numbers only. A stream that isn't there needs no reset.
    let _ = unsafe { proxy_grpc_cancel(stream) };
}

/// Makes a callout to a cluster; its number. From a callback of the root context only, as [`open_stream`].
pub(crate) fn call_out(cluster: &str, call: &HttpCall) -> Option<u32> {
    let headers = call.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let timeout = Duration::from_millis(call.timeout_ms.into());
    hostcalls::dispatch_http_call(cluster, headers, Some(&call.body), Vec::new(), timeout).ok()
}

/// The status of the callout's answer whose callback is running.
pub(crate) fn callout_status() -> Option<u16> {
    const NAME: &str = ":status";
    // SAFETY: the name lives through the call.
    let value = received(|value, size| unsafe {
        proxy_get_header_map_value(CALLOUT_HEADERS, NAME.as_ptr(), NAME.len(), value, size)
    });
    std::str::from_utf8(&value?).ok()?.parse().ok()
}

/// Defines a metric.
pub(crate) fn define_metric(kind: MetricKind, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the name lives through the call; the host writes one number.
    let status = unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) };
    (status == OK).then_some(id)
}

/// Adds to a counter or gauge.
pub(crate) fn add_to_metric(id: u32, offset: i64) {
    // SAFETY: numbers only. A metric that can't be written isn't worth a request.
    let _ = unsafe { proxy_increment_metric(id, offset) };
}

/// Records a value of a histogram.
pub(crate) fn record_metric(id: u32, value: u64) {
    // SAFETY: numbers only, as above.
    let _ = unsafe { proxy_record_metric(id, value) };
}
