//! The release weir.wasm in an interpreter, on the same host and through the same scenarios as the native build.

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

mod artifact;
mod budget;

use host::worker::Vm;
use host::{Answer, Host, OK};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use wasmi::{CallHook, Caller, Config, Engine, Extern, Instance, Linker, Memory, Module, Store, Val};

/// weir.wasm, read once.
fn artifact() -> &'static (Engine, Module, usize) {
    static ARTIFACT: OnceLock<(Engine, Module, usize)> = OnceLock::new();
    ARTIFACT.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/wasm32-unknown-unknown/release/weir.wasm");
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; `make wasm` builds it", path.display()));
        let engine = Engine::new(Config::default().consume_fuel(true));
        let module = Module::new(&engine, &bytes).unwrap();
        (engine, module, bytes.len())
    })
}

struct Wasm {
    store: Store<Host>,
    instance: Instance,
    /// How often it has called the host.
    host_calls: Arc<AtomicU64>,
}

impl Vm for Wasm {
    fn start(host: Host) -> Wasm {
        let (engine, module, _) = artifact();
        let mut store = Store::new(engine, host);
        store.set_fuel(u64::MAX).unwrap();
        let host_calls = Arc::new(AtomicU64::new(0));
        let calls = Arc::clone(&host_calls);
        store.call_hook(move |_, hook| {
            calls.fetch_add(u64::from(matches!(hook, CallHook::CallingHost)), Ordering::Relaxed);
            Ok(())
        });
        let instance = linker(engine, module).instantiate_and_start(&mut store, module).unwrap();
        let mut vm = Wasm { store, instance, host_calls };
        vm.call("_initialize", &[]);
        vm
    }

    fn call(&mut self, export: &str, arguments: &[u32]) -> u32 {
        let function = self.instance.get_func(&self.store, export).unwrap_or_else(|| panic!("no export {export}"));
        let arguments: Vec<Val> = arguments.iter().map(|argument| Val::I32(argument.cast_signed())).collect();
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];
        function.call(&mut self.store, &arguments, &mut results).unwrap_or_else(|trap| {
            panic!("{export} has trapped: {trap}; the log says: {:?}", self.store.data().logs);
        });
        results.first().and_then(Val::i32).unwrap_or(0).cast_unsigned()
    }

    fn host<T>(&mut self, see: impl FnOnce(&mut Host) -> T) -> T {
        see(self.store.data_mut())
    }
}

host::scenarios::all!(Wasm);

type Vmm<'a> = Caller<'a, Host>;

fn memory(vm: &Vmm<'_>) -> Memory {
    vm.get_export("memory").and_then(Extern::into_memory).unwrap()
}

/// Bytes of the VM.
fn bytes(vm: &Vmm<'_>, at: u32, size: u32) -> Vec<u8> {
    let mut bytes = vec![0; size as usize];
    memory(vm).read(vm, at as usize, &mut bytes).unwrap();
    bytes
}

fn put(vm: &mut Vmm<'_>, at: u32, bytes: &[u8]) {
    memory(vm).write(vm, at as usize, bytes).unwrap();
}

/// Hands bytes over, in memory that the VM has allocated.
fn give(vm: &mut Vmm<'_>, result: Result<Vec<u8>, u32>, data: u32, size: u32) -> u32 {
    let bytes = match result {
        Ok(bytes) => bytes,
        Err(status) => return status,
    };
    let allocate = vm.get_export("malloc").and_then(Extern::into_func).unwrap();
    let length = u32::try_from(bytes.len()).unwrap();
    let at = allocate.typed::<u32, u32>(&*vm).unwrap().call(&mut *vm, length).unwrap();
    put(vm, at, &bytes);
    put(vm, data, &at.to_le_bytes());
    put(vm, size, &length.to_le_bytes());
    OK
}

fn give_number(vm: &mut Vmm<'_>, result: Result<u32, u32>, at: u32) -> u32 {
    match result {
        Ok(number) => {
            put(vm, at, &number.to_le_bytes());
            OK
        }
        Err(status) => status,
    }
}

/// The imports that have something behind them; whatever else the SDK links traps when it is called.
fn linker(engine: &Engine, module: &Module) -> Linker<Host> {
    let mut linker = Linker::new(engine);
    macro_rules! import {
        ($name:literal, $function:expr) => {
            linker.func_wrap("env", $name, $function).unwrap();
        };
    }
    import!("proxy_log", |mut vm: Vmm<'_>, _level: u32, at: u32, size: u32| {
        let text = bytes(&vm, at, size);
        vm.data_mut().log(&text)
    });
    import!("proxy_get_current_time_nanoseconds", |mut vm: Vmm<'_>, at: u32| {
        let now = vm.data().now_ns.to_le_bytes();
        put(&mut vm, at, &now);
        OK
    });
    import!("proxy_set_tick_period_milliseconds", |mut vm: Vmm<'_>, ms: u32| vm.data_mut().set_tick_period(ms));
    import!("proxy_get_property", |mut vm: Vmm<'_>, path: u32, length: u32, data: u32, size: u32| {
        let path = bytes(&vm, path, length);
        let result = vm.data_mut().get_property(&path);
        give(&mut vm, result, data, size)
    });
    import!("proxy_set_property", |mut vm: Vmm<'_>, path: u32, length: u32, data: u32, size: u32| {
        let (path, value) = (bytes(&vm, path, length), bytes(&vm, data, size));
        vm.data_mut().set_property(&path, &value)
    });
    import!("proxy_get_header_map_pairs", |mut vm: Vmm<'_>, map: u32, data: u32, size: u32| {
        let result = vm.data_mut().get_headers(map);
        give(&mut vm, result, data, size)
    });
    import!("proxy_get_header_map_value", |mut vm: Vmm<'_>, map: u32, name: u32, length: u32, data: u32, size: u32| {
        let name = bytes(&vm, name, length);
        let result = vm.data_mut().get_header(map, &name);
        give(&mut vm, result, data, size)
    });
    #[rustfmt::skip]
    import!("proxy_http_call", |
        mut vm: Vmm<'_>, cluster: u32, length: u32, headers: u32, headers_size: u32, body: u32, body_size: u32, _trailers: u32,
        _trailers_size: u32, timeout: u32, callout: u32
    | {
        let cluster = bytes(&vm, cluster, length);
        let (headers, body) = (bytes(&vm, headers, headers_size), bytes(&vm, body, body_size));
        let result = vm.data_mut().call_out(&cluster, &headers, &body, timeout);
        give_number(&mut vm, result, callout)
    });
    let wasi = "wasi_snapshot_preview1";
    let sizes = |mut vm: Vmm<'_>, count: u32, size: u32| {
        let lengths: Vec<usize> = vm.data().environment.iter().map(|text| text.len() + 1).collect();
        let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
        put(&mut vm, count, &number(lengths.len()));
        put(&mut vm, size, &number(lengths.iter().sum()));
        OK
    };
    linker.func_wrap(wasi, "environ_sizes_get", sizes).unwrap();
    let texts = |mut vm: Vmm<'_>, pointers: u32, texts: u32| {
        let mut at = texts;
        for (place, text) in (0..).zip(vm.data().environment.clone()) {
            put(&mut vm, pointers + 4 * place, &at.to_le_bytes());
            let text = [text.as_bytes(), b"\0"].concat();
            put(&mut vm, at, &text);
            at += u32::try_from(text.len()).unwrap();
        }
        OK
    };
    linker.func_wrap(wasi, "environ_get", texts).unwrap();
    import!("proxy_call_foreign_function", |mut vm: Vmm<'_>,
                                            name: u32,
                                            length: u32,
                                            argument: u32,
                                            argument_size: u32,
                                            data: u32,
                                            size: u32| {
        let (name, argument) = (bytes(&vm, name, length), bytes(&vm, argument, argument_size));
        let result = vm.data_mut().foreign(&name, &argument);
        give(&mut vm, result, data, size)
    });
    import!("proxy_replace_header_map_value", |mut vm: Vmm<'_>, map: u32, name: u32, length: u32, data: u32, size: u32| {
        let (name, value) = (bytes(&vm, name, length), bytes(&vm, data, size));
        vm.data_mut().replace_header(map, &name, &value)
    });
    import!("proxy_get_buffer_bytes", |mut vm: Vmm<'_>, buffer: u32, start: u32, most: u32, data: u32, size: u32| {
        let result = vm.data_mut().get_buffer(buffer, start as usize, most as usize);
        give(&mut vm, result, data, size)
    });
    import!("proxy_set_buffer_bytes", |mut vm: Vmm<'_>, buffer: u32, start: u32, length: u32, data: u32, size: u32| {
        let value = bytes(&vm, data, size);
        vm.data_mut().set_buffer(buffer, start as usize, length as usize, &value)
    });
    import!("proxy_get_shared_data", |mut vm: Vmm<'_>, key: u32, length: u32, data: u32, size: u32, cas: u32| {
        let key = bytes(&vm, key, length);
        let result = vm.data_mut().get_shared_data(&key).map(|(value, number)| {
            put(&mut vm, cas, &number.to_le_bytes());
            value
        });
        give(&mut vm, result, data, size)
    });
    import!("proxy_set_shared_data", |mut vm: Vmm<'_>, key: u32, length: u32, data: u32, size: u32, cas: u32| {
        let (key, value) = (bytes(&vm, key, length), bytes(&vm, data, size));
        vm.data_mut().set_shared_data(&key, &value, cas)
    });
    import!("proxy_register_shared_queue", |mut vm: Vmm<'_>, name: u32, length: u32, id: u32| {
        let name = bytes(&vm, name, length);
        let result = vm.data_mut().register_queue(&name);
        give_number(&mut vm, result, id)
    });
    import!("proxy_enqueue_shared_queue", |mut vm: Vmm<'_>, queue: u32, data: u32, size: u32| {
        let value = bytes(&vm, data, size);
        vm.data_mut().enqueue(queue, &value)
    });
    import!("proxy_dequeue_shared_queue", |mut vm: Vmm<'_>, queue: u32, data: u32, size: u32| {
        let result = vm.data_mut().dequeue(queue);
        give(&mut vm, result, data, size)
    });
    import!("proxy_set_effective_context", |mut vm: Vmm<'_>, context: u32| vm.data_mut().set_effective_context(context));
    import!("proxy_continue_stream", |mut vm: Vmm<'_>, _kind: u32| vm.data_mut().continue_stream());
    #[rustfmt::skip]
    import!("proxy_send_local_response", |
        mut vm: Vmm<'_>, status: u32, details: u32, details_size: u32, body: u32, body_size: u32, headers: u32, headers_size: u32,
        grpc_status: i32
    | {
        let text = |at, size| String::from_utf8(bytes(&vm, at, size)).unwrap();
        let headers = host::pairs(&bytes(&vm, headers, headers_size));
        let answer = Answer { status, headers, body: text(body, body_size), details: text(details, details_size), grpc_status };
        vm.data_mut().send_local_response(answer)
    });
    #[rustfmt::skip]
    import!("proxy_grpc_stream", |
        mut vm: Vmm<'_>, cluster: u32, length: u32, _service: u32, _service_size: u32, _method: u32, _method_size: u32,
        _metadata: u32, _metadata_size: u32, stream: u32
    | {
        let cluster = bytes(&vm, cluster, length);
        let result = vm.data_mut().open_stream(&cluster);
        give_number(&mut vm, result, stream)
    });
    import!("proxy_grpc_send", |mut vm: Vmm<'_>, stream: u32, data: u32, size: u32, _end: u32| {
        let message = bytes(&vm, data, size);
        vm.data_mut().send_message(stream, &message)
    });
    import!("proxy_grpc_cancel", |mut vm: Vmm<'_>, stream: u32| vm.data_mut().cancel_stream(stream));
    import!("proxy_define_metric", |mut vm: Vmm<'_>, _kind: u32, name: u32, length: u32, id: u32| {
        let name = bytes(&vm, name, length);
        let result = vm.data_mut().define_metric(&name);
        give_number(&mut vm, result, id)
    });
    import!("proxy_increment_metric", |mut vm: Vmm<'_>, id: u32, offset: i64| vm.data_mut().increment_metric(id, offset));
    import!("proxy_record_metric", |_: Vmm<'_>, _id: u32, _value: u64| OK);
    for import in module.imports() {
        if let Some(kind) = import.ty().func() {
            let name = import.name().to_owned();
            let uncalled = move |_: Vmm<'_>, _: &[Val], _: &mut [Val]| Err(wasmi::Error::new(format!("{name} is called")));
            // It fails for those that are defined already.
            let _ = linker.func_new("env", import.name(), kind.clone(), uncalled);
        }
    }
    linker
}
