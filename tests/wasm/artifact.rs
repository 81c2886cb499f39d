//! What the artifact is, beside what it does.

use crate::artifact;

/// Functions of proxy-wasm ABI 0.2.1, which every such host has.
const IMPORTS: [&str; 35] = [
    "proxy_add_header_map_value",
    "proxy_call_foreign_function",
    "proxy_close_stream",
    "proxy_continue_stream",
    "proxy_define_metric",
    "proxy_dequeue_shared_queue",
    "proxy_done",
    "proxy_enqueue_shared_queue",
    "proxy_get_buffer_bytes",
    "proxy_get_current_time_nanoseconds",
    "proxy_get_header_map_pairs",
    "proxy_get_header_map_value",
    "proxy_get_property",
    "proxy_get_shared_data",
    "proxy_get_status",
    "proxy_grpc_call",
    "proxy_grpc_cancel",
    "proxy_grpc_close",
    "proxy_grpc_send",
    "proxy_grpc_stream",
    "proxy_http_call",
    "proxy_increment_metric",
    "proxy_log",
    "proxy_record_metric",
    "proxy_register_shared_queue",
    "proxy_remove_header_map_value",
    "proxy_replace_header_map_value",
    "proxy_resolve_shared_queue",
    "proxy_send_local_response",
    "proxy_set_buffer_bytes",
    "proxy_set_effective_context",
    "proxy_set_header_map_pairs",
    "proxy_set_property",
    "proxy_set_shared_data",
    "proxy_set_tick_period_milliseconds",
];

/// The functions of WASI that every such host has too, for the VM's environment.
const ENVIRONMENT: [&str; 2] = ["environ_get", "environ_sizes_get"];

#[test]
fn it_asks_of_the_host_only_what_every_proxy_wasm_host_has() {
    let (_, module, _) = artifact();
    let unknown: Vec<String> = module
        .imports()
        .filter(|import| match import.module() {
            "env" => !IMPORTS.contains(&import.name()),
            "wasi_snapshot_preview1" => !ENVIRONMENT.contains(&import.name()),
            _ => true,
        })
        .map(|import| format!("{}.{}", import.module(), import.name()))
        .collect();
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
fn it_keeps_to_its_size() {
    let (_, _, size) = artifact();
    assert!(*size <= 700 * 1024, "{size} bytes");
}

#[test]
fn it_speaks_the_abi_that_hosts_know() {
    let (_, module, _) = artifact();
    let exports: Vec<&str> = module.exports().map(|export| export.name()).collect();
    for name in ["proxy_abi_version_0_2_1", "_initialize", "malloc", "memory", "proxy_on_configure"] {
        assert!(exports.contains(&name), "{name} of {exports:?}");
    }
}
