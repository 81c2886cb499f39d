//! The root context: the plugin's configuration, and the events of a worker that are nobody's request.

use crate::bridge::Bridge;
use crate::expressions::Expressions;
use crate::host::{self, Buffer};
use crate::request::Request;
use crate::worker::Worker;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;
use std::rc::Rc;
use weir_core::config::Config;

/// The root id under which the filter is the bridge to Redis.
const BRIDGE: &[u8] = b"weir.bridge";

pub(crate) struct Root {
    id: u32,
    role: Role,
}

enum Role {
    /// Not configured, or not well: requests pass, if the host lets any come here.
    Idle,
    Bridge,
    Limiter(Rc<Worker>),
}

impl Root {
    pub(crate) fn new(id: u32) -> Root {
        Root { id, role: Role::Idle }
    }

    fn with_worker(&self, event: impl FnOnce(&Worker)) {
        if let Role::Limiter(worker) = &self.role {
            event(worker);
        }
    }
}

impl Context for Root {
    fn on_grpc_stream_message(&mut self, stream: u32, size: usize) {
        self.with_worker(|worker| worker.received(stream, size));
    }

    fn on_grpc_stream_close(&mut self, stream: u32, _status: u32) {
        self.with_worker(|worker| worker.closed(stream));
    }

    fn on_http_call_response(&mut self, callout: u32, headers: usize, size: usize, _trailers: usize) {
        self.with_worker(|worker| worker.called_out(callout, headers, size));
    }

    fn on_done(&mut self) -> bool {
        self.with_worker(Worker::retired);
        true
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        if host::property("plugin_root_id").ok().flatten().as_deref() == Some(BRIDGE) {
            self.role = Role::Bridge;
            return true;
        }
        let bytes = host::buffer(Buffer::PluginConfiguration, size).unwrap_or_default();
        let config = Config::parse(&bytes).and_then(|config| config.with_environment(host::environment));
        match config.and_then(|config| Ok((Expressions::compile(&config)?, config))) {
            Ok((expressions, config)) => {
                self.role = Role::Limiter(Rc::new(Worker::new(self.id, config, expressions)));
                true
            }
            Err(faults) => {
                for fault in faults {
                    log::error!("weir: configuration: {fault}");
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        self.with_worker(Worker::ticked);
    }

    fn on_queue_ready(&mut self, queue: u32) {
        self.with_worker(|worker| worker.woken(queue));
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        Some(match &self.role {
            Role::Idle => Box::new(Idle),
            Role::Bridge => Box::new(Bridge::default()),
            Role::Limiter(worker) => Box::new(Request::new(id, Rc::clone(worker))),
        })
    }
}

/// A request that is let pass as it is.
struct Idle;

impl Context for Idle {}
impl HttpContext for Idle {}
