//! A request's callbacks.

use crate::host;
use crate::worker::Worker;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::rc::Rc;

/// A request of the limiter. What is decided about it is the [`Worker`]'s.
pub(crate) struct Request {
    id: u32,
    worker: Rc<Worker>,
}

impl Request {
    pub(crate) fn new(id: u32, worker: Rc<Worker>) -> Request {
        Request { id, worker }
    }
}

impl Context for Request {}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, _end: bool) -> Action {
        self.worker.begin(self.id, &Headers)
    }

    fn on_http_response_headers(&mut self, _count: usize, _end: bool) -> Action {
        for (name, value) in self.worker.response_headers(self.id) {
            host::set_response_header(name, &value);
        }
        Action::Continue
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.worker.gone(self.id);
    }
}

/// The current request, read from the host.
struct Headers;

impl weir_core::request::Request for Headers {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        if name.starts_with(':') {
            return host::request_header(name);
        }
        // The attribute, not the header map's value: that has the first of several lines alone.
        host::property(&format!("request\0headers\0{name}"))
    }

    fn source_address(&self) -> Option<Vec<u8>> {
        host::property("source\0address")
    }

    fn route(&self) -> Option<Vec<u8>> {
        host::property("xds\0route_name")
    }
}
