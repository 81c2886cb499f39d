//! The unmodified filter, linked into this process, on a host that is this process: every `proxy_*` import is defined here. The SDK
//! keeps its contexts by thread, so a thread is a worker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by a panic"
)]

#[path = "../host/mod.rs"]
mod host;

use host::worker::Vm;
use host::{Answer, Host, INTERNAL_FAILURE, OK};
use std::cell::RefCell;
use std::slice::from_raw_parts;
use std::sync::Mutex;
use weir as _;

thread_local! {
    static HOST: RefCell<Option<Host>> = const { RefCell::new(None) };
}

struct Native;

impl Vm for Native {
    fn start(host: Host) -> Native {
        static STARTING: Mutex<()> = Mutex::new(()); // the SDK sets the process's logger at the first start
        HOST.set(Some(host));
        let _starting = STARTING.lock().unwrap();
        unsafe { _initialize() };
        Native
    }

    fn call(&mut self, export: &str, arguments: &[u32]) -> u32 {
        let a = |at: usize| arguments[at];
        let size = |at: usize| arguments[at] as usize;
        unsafe {
            match export {
                "proxy_on_context_create" => proxy_on_context_create(a(0), a(1)),
                "proxy_on_vm_start" => return proxy_on_vm_start(a(0), size(1)).into(),
                "proxy_on_configure" => return proxy_on_configure(a(0), size(1)).into(),
                "proxy_on_request_headers" => return proxy_on_request_headers(a(0), size(1), a(2) != 0),
                "proxy_on_request_body" => return proxy_on_request_body(a(0), size(1), a(2) != 0),
                "proxy_on_response_headers" => return proxy_on_response_headers(a(0), size(1), a(2) != 0),
                "proxy_on_response_body" => return proxy_on_response_body(a(0), size(1), a(2) != 0),
                "proxy_on_done" => return proxy_on_done(a(0)).into(),
                "proxy_on_log" => proxy_on_log(a(0)),
                "proxy_on_delete" => proxy_on_delete(a(0)),
                "proxy_on_tick" => proxy_on_tick(a(0)),
                "proxy_on_queue_ready" => proxy_on_queue_ready(a(0), a(1)),
                "proxy_on_grpc_receive" => proxy_on_grpc_receive(a(0), a(1), size(2)),
                "proxy_on_grpc_close" => proxy_on_grpc_close(a(0), a(1), a(2)),
                "proxy_on_http_call_response" => {
                    proxy_on_http_call_response(a(0), a(1), size(2), size(3), size(4));
                }
                _ => panic!("no export {export}"),
            }
        }
        0
    }

    fn host<T>(&mut self, see: impl FnOnce(&mut Host) -> T) -> T {
        with(see)
    }
}

fn with<T>(see: impl FnOnce(&mut Host) -> T) -> T {
    HOST.with_borrow_mut(|host| see(host.as_mut().expect("the VM was started in this thread")))
}

host::scenarios::all!(Native);

unsafe extern "C" {
    fn _initialize();
    fn proxy_on_memory_allocate(size: usize) -> *mut u8;
    fn proxy_on_context_create(context: u32, root: u32);
    fn proxy_on_vm_start(context: u32, size: usize) -> bool;
    fn proxy_on_configure(context: u32, size: usize) -> bool;
    fn proxy_on_request_headers(context: u32, count: usize, end: bool) -> u32;
    fn proxy_on_request_body(context: u32, size: usize, end: bool) -> u32;
    fn proxy_on_response_headers(context: u32, count: usize, end: bool) -> u32;
    fn proxy_on_response_body(context: u32, size: usize, end: bool) -> u32;
    fn proxy_on_done(context: u32) -> bool;
    fn proxy_on_log(context: u32);
    fn proxy_on_delete(context: u32);
    fn proxy_on_tick(context: u32);
    fn proxy_on_queue_ready(context: u32, queue: u32);
    fn proxy_on_grpc_receive(context: u32, stream: u32, size: usize);
    fn proxy_on_http_call_response(context: u32, callout: u32, headers: usize, body: usize, trailers: usize);
    fn proxy_on_grpc_close(context: u32, stream: u32, status: u32);
}

/// Bytes of the filter.
fn bytes<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 { &[] } else { unsafe { from_raw_parts(data, size) } }
}

/// Hands bytes over, in memory that the filter has allocated.
fn give(result: Result<Vec<u8>, u32>, data: *mut *mut u8, size: *mut usize) -> u32 {
    match result {
        Ok(bytes) => unsafe {
            let memory = proxy_on_memory_allocate(bytes.len());
            memory.copy_from(bytes.as_ptr(), bytes.len());
            (*data, *size) = (memory, bytes.len());
            OK
        },
        Err(status) => status,
    }
}

/// Defines imports: each name with its arguments is what is behind it.
macro_rules! imports {
    ($(fn $name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $kind),*) -> u32 $body
    )*};
}

imports! {
    fn proxy_log(_level: u32, data: *const u8, size: usize) {
        let text = bytes(data, size);
        // A failed assertion comes here too, through the SDK's panic hook, and where the host is in use already.
        let noted = HOST.try_with(|host| match host.try_borrow_mut().as_deref_mut() {
            Ok(Some(host)) => host.log(text),
            _ => INTERNAL_FAILURE,
        });
        if noted != Ok(OK) || std::thread::panicking() {
            eprintln!("{}", String::from_utf8_lossy(text));
        }
        OK
    }
    fn proxy_get_current_time_nanoseconds(time: *mut u64) {
        unsafe { *time = with(|host| host.now_ns) };
        OK
    }
    fn proxy_set_tick_period_milliseconds(ms: u32) { with(|host| host.set_tick_period(ms)) }
    fn proxy_get_property(path: *const u8, length: usize, data: *mut *mut u8, size: *mut usize) {
        give(with(|host| host.get_property(bytes(path, length))), data, size)
    }
    fn proxy_set_property(path: *const u8, length: usize, data: *const u8, size: usize) {
        with(|host| host.set_property(bytes(path, length), bytes(data, size)))
    }
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) {
        give(with(|host| host.get_headers(map)), data, size)
    }
    fn proxy_get_header_map_value(map: u32, name: *const u8, length: usize, data: *mut *mut u8, size: *mut usize) {
        give(with(|host| host.get_header(map, bytes(name, length))), data, size)
    }
    fn proxy_http_call(
        cluster: *const u8, length: usize, headers: *const u8, headers_size: usize, body: *const u8, body_size: usize,
        _trailers: *const u8, _trailers_size: usize, timeout: u32, callout: *mut u32
    ) {
        let (headers, body) = (bytes(headers, headers_size), bytes(body, body_size));
        match with(|host| host.call_out(bytes(cluster, length), headers, body, timeout)) {
            Ok(number) => { unsafe { *callout = number }; OK }
            Err(status) => status,
        }
    }
    fn environ_sizes_get(count: *mut usize, size: *mut usize) {
        let lengths: Vec<usize> = with(|host| host.environment.iter().map(|text| text.len() + 1).collect());
        unsafe { (*count, *size) = (lengths.len(), lengths.iter().sum()) };
        OK
    }
    fn environ_get(pointers: *mut *mut u8, texts: *mut u8) {
        let mut at = 0;
        for (place, text) in with(|host| host.environment.clone()).iter().enumerate() {
            unsafe {
                *pointers.add(place) = texts.add(at);
                texts.add(at).copy_from(text.as_ptr(), text.len());
                *texts.add(at + text.len()) = 0;
            }
            at += text.len() + 1;
        }
        OK
    }
    fn proxy_call_foreign_function(
        name: *const u8, length: usize, argument: *const u8, argument_size: usize, data: *mut *mut u8, size: *mut usize
    ) {
        give(with(|host| host.foreign(bytes(name, length), bytes(argument, argument_size))), data, size)
    }
    fn proxy_replace_header_map_value(map: u32, name: *const u8, length: usize, data: *const u8, size: usize) {
        with(|host| host.replace_header(map, bytes(name, length), bytes(data, size)))
    }
    fn proxy_get_buffer_bytes(buffer: u32, start: usize, most: usize, data: *mut *mut u8, size: *mut usize) {
        give(with(|host| host.get_buffer(buffer, start, most)), data, size)
    }
    fn proxy_set_buffer_bytes(buffer: u32, start: usize, length: usize, data: *const u8, size: usize) {
        with(|host| host.set_buffer(buffer, start, length, bytes(data, size)))
    }
    fn proxy_get_shared_data(key: *const u8, length: usize, data: *mut *mut u8, size: *mut usize, cas: *mut u32) {
        let result = with(|host| host.get_shared_data(bytes(key, length))).map(|(value, number)| {
            unsafe { *cas = number };
            value
        });
        give(result, data, size)
    }
    fn proxy_set_shared_data(key: *const u8, length: usize, data: *const u8, size: usize, cas: u32) {
        with(|host| host.set_shared_data(bytes(key, length), bytes(data, size), cas))
    }
    fn proxy_register_shared_queue(name: *const u8, length: usize, id: *mut u32) {
        match with(|host| host.register_queue(bytes(name, length))) {
            Ok(queue) => { unsafe { *id = queue }; OK }
            Err(status) => status,
        }
    }
    fn proxy_enqueue_shared_queue(queue: u32, data: *const u8, size: usize) { with(|host| host.enqueue(queue, bytes(data, size))) }
    fn proxy_dequeue_shared_queue(queue: u32, data: *mut *mut u8, size: *mut usize) { give(with(|host| host.dequeue(queue)), data, size) }
    fn proxy_set_effective_context(context: u32) { with(|host| host.set_effective_context(context)) }
    fn proxy_continue_stream(_kind: u32) { with(Host::continue_stream) }
    fn proxy_send_local_response(
        status: u32, details: *const u8, details_size: usize, body: *const u8, body_size: usize,
        headers: *const u8, headers_size: usize, grpc_status: i32
    ) {
        let text = |data, size| String::from_utf8(bytes(data, size).to_vec()).unwrap();
        let answer = Answer {
            status,
            headers: host::pairs(bytes(headers, headers_size)),
            body: text(body, body_size),
            details: text(details, details_size),
            grpc_status,
        };
        with(|host| host.send_local_response(answer))
    }
    fn proxy_grpc_stream(
        cluster: *const u8, length: usize, _service: *const u8, _service_size: usize, _method: *const u8, _method_size: usize,
        _metadata: *const u8, _metadata_size: usize, stream: *mut u32
    ) {
        match with(|host| host.open_stream(bytes(cluster, length))) {
            Ok(id) => { unsafe { *stream = id }; OK }
            Err(status) => status,
        }
    }
    fn proxy_grpc_send(stream: u32, data: *const u8, size: usize, _end: u32) { with(|host| host.send_message(stream, bytes(data, size))) }
    fn proxy_grpc_cancel(stream: u32) { with(|host| host.cancel_stream(stream)) }
    fn proxy_define_metric(_kind: u32, name: *const u8, length: usize, id: *mut u32) {
        match with(|host| host.define_metric(bytes(name, length))) {
            Ok(metric) => { unsafe { *id = metric }; OK }
            Err(status) => status,
        }
    }
    fn proxy_increment_metric(id: u32, offset: i64) { with(|host| host.increment_metric(id, offset)) }
    fn proxy_record_metric(_id: u32, _value: u64) { OK }
}

/// The SDK links these, and nothing in the filter calls them.
macro_rules! uncalled {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> u32 {
            panic!(concat!(stringify!($name), " is called"))
        }
    )*};
}

uncalled! {
    proxy_get_log_level proxy_set_header_map_pairs proxy_add_header_map_value
    proxy_remove_header_map_value proxy_resolve_shared_queue proxy_close_stream proxy_grpc_call proxy_grpc_close
    proxy_get_status proxy_done proxy_get_metric
}
