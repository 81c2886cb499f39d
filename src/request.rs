//! A request's callbacks.

use crate::expressions::Expressions;
use crate::host;
use crate::worker::Worker;
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::rc::Rc;
use weir_core::request::{Headers, Unreadable};

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
        self.worker.begin(self.id)
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

/// The current request, read from the host. In a callback of its own.
pub(crate) struct Current<'w> {
    pub(crate) expressions: &'w Expressions,
}

impl weir_core::request::Request for Current<'_> {
    fn headers(&self) -> Headers {
        Headers::from_pairs(host::request_headers().unwrap_or_default())
    }

    fn header(&self, name: &str) -> Option<Vec<u8>> {
        // The host's getter of headers gives the first line alone, and this attribute all of them.
        host::property(&["request\0headers\0", name].concat()).unwrap_or_default()
    }

    fn property(&self, path: &str) -> Result<Option<Vec<u8>>, Unreadable> {
        host::property(path).map_err(|host::Refused| Unreadable)
    }

    fn evaluate(&self, expression: &str) -> Option<Vec<u8>> {
        self.expressions.evaluate(expression)
    }
}
