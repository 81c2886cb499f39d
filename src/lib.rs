//! Weir, the filter: a thin shell around `weir-core` that brings the host's events in and carries its effects out.

#![deny(unsafe_code)]

mod bridge;
mod clock;
mod expressions;
mod held;
#[expect(unsafe_code, reason = "the host's functions are foreign ones")]
mod host;
mod metrics;
mod redis;
mod request;
mod root;
mod slots;
mod worker;

/// A third of what a request costs in here is allocations. TLSF's take the same few instructions whatever there is on the heap, and its code is
/// smaller than that of the standard library's allocator.
#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: rlsf::GlobalTlsf = rlsf::GlobalTlsf::new();

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(root::Root::new(id)));
}}
