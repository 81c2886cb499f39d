//! The filter's second role: between the stream of the first and Redis, as an upstream filter of the cluster.
//!
//! A filter can keep a gRPC stream open, but no plain connection. The cluster passes a request's body on as raw TCP, and this
//! role takes gRPC's frames off it and puts one around whatever comes back: what reaches Redis is RESP alone.

use crate::host::{self, Buffer};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use weir_core::store::{Unframer, frame_header};

/// One stream.
#[derive(Debug, Default)]
pub(crate) struct Bridge {
    unframer: Unframer,
}

impl Context for Bridge {}

impl HttpContext for Bridge {
    fn on_http_request_body(&mut self, size: usize, _end: bool) -> Action {
        if size > 0 {
            let framed = host::buffer(Buffer::RequestBody, size).unwrap_or_default();
            // Bytes that can't be replaced would go to Redis with their frames on: it answers with an error and closes.
            let _ = host::set_buffer(Buffer::RequestBody, size, &self.unframer.take(&framed));
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, _end: bool) -> Action {
        if let (1.., Ok(length)) = (size, u32::try_from(size)) {
            // Replacing nothing at the front puts it before the body. Without it the gRPC client resets the stream.
            let _ = host::set_buffer(Buffer::ResponseBody, 0, &frame_header(length));
        }
        Action::Continue
    }
}
