//! A proxy-wasm host made of plain state, for the filter's two builds: linked into the test, and weir.wasm in an interpreter.
//!
//! It does what Envoy does where that matters: effects of a callback happen when it has returned, an answer runs the response
//! callbacks at once and the request is over in the VM then, names and values are bytes, a request's headers can't be read while
//! its response is under way, and a request that is over in the VM may be there in the host for a while.

pub(crate) mod scenarios;
pub(crate) mod worker;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Statuses of host calls.
pub(crate) const OK: u32 = 0;
pub(crate) const NOT_FOUND: u32 = 1;
pub(crate) const BAD_ARGUMENT: u32 = 2;
pub(crate) const EMPTY: u32 = 7;
pub(crate) const CAS_MISMATCH: u32 = 8;
pub(crate) const INTERNAL_FAILURE: u32 = 10;

/// A number that nothing else in this process has: of a context, or of a stream.
pub(crate) fn fresh_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What the workers of one process share.
#[derive(Default)]
pub(crate) struct Process {
    data: HashMap<Vec<u8>, (Vec<u8>, u32)>,
    writes: u32,
    queues: HashMap<Vec<u8>, u32>,
    messages: HashMap<u32, VecDeque<Vec<u8>>>,
    metrics: HashMap<String, (u32, i64)>,
}

impl Process {
    /// The size of all shared data.
    pub(crate) fn bytes(&self) -> usize {
        self.data.iter().map(|(key, (value, _))| key.len() + value.len()).sum()
    }

    /// Keys of shared data that begin so.
    pub(crate) fn keys(&self, prefix: &str) -> usize {
        self.data.keys().filter(|key| key.starts_with(prefix.as_bytes())).count()
    }
}

/// A request in the host.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) headers: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) address: Option<String>,
    pub(crate) properties: HashMap<Vec<u8>, Result<Vec<u8>, u32>>,
    pub(crate) body: Vec<u8>,
    pub(crate) response_headers: Vec<(String, String)>,
    pub(crate) filter_state: HashMap<String, String>,
    /// Its response is under way.
    pub(crate) responding: bool,
    /// The VM has been told that it is over.
    pub(crate) over: bool,
    /// How often it was let go on, and how it was answered.
    pub(crate) continued: u32,
    pub(crate) answers: Vec<Answer>,
}

/// A local reply.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u32,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) details: String,
    pub(crate) grpc_status: i32,
}

/// A callout that is under way.
#[derive(Debug)]
pub(crate) struct Callout {
    pub(crate) number: u32,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout_ms: u32,
}

/// What happens once a callback has returned.
pub(crate) enum Effect {
    Continue(u32),
    Answer(u32, Answer),
    Close(u32),
}

/// One worker's host.
pub(crate) struct Host {
    pub(crate) process: Arc<Mutex<Process>>,
    pub(crate) root: u32,
    pub(crate) root_id: &'static str,
    pub(crate) configuration: Vec<u8>,
    pub(crate) now_ns: u64,
    pub(crate) tick_ms: u32,
    /// A callback of the stream or of a callout is under way.
    pub(crate) delivering: bool,
    /// Until the next tick; a clock that is set doesn't change it.
    pub(crate) tick_in_ns: u64,
    pub(crate) effective: u32,
    pub(crate) requests: HashMap<u32, Request>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) queues: Vec<u32>,
    pub(crate) message: Vec<u8>,
    pub(crate) stream: Option<u32>,
    pub(crate) streams: u32,
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) callouts: Vec<Callout>,
    /// The answer of the callout that has ended: its status and body.
    pub(crate) called_out: Option<(u16, Vec<u8>)>,
    pub(crate) environment: Vec<String>,
    pub(crate) logs: Vec<String>,
    pub(crate) expressions: HashMap<Vec<u8>, String>,
    pub(crate) faults: Faults,
}

/// What goes wrong, so many times.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) open_stream: u32,
    pub(crate) callouts: u32,
    /// The stream ends when it is written.
    pub(crate) send: u32,
    /// Another worker writes the same shared data first.
    pub(crate) ahead: u32,
    pub(crate) shared_data: u32,
    pub(crate) queues: u32,
    pub(crate) metrics: u32,
    pub(crate) headers: u32,
    pub(crate) foreign: u32,
}

fn due(fault: &mut u32) -> bool {
    let due = *fault > 0;
    *fault = fault.saturating_sub(1);
    due
}

impl Host {
    pub(crate) fn new(process: &Arc<Mutex<Process>>, root_id: &'static str, configuration: impl AsRef<[u8]>) -> Host {
        let root = fresh_id();
        Host {
            process: Arc::clone(process),
            root,
            root_id,
            configuration: configuration.as_ref().to_vec(),
            now_ns: 1_700_000_000_000_000_000,
            tick_ms: 0,
            delivering: false,
            tick_in_ns: 0,
            effective: root,
            requests: HashMap::new(),
            effects: Vec::new(),
            queues: Vec::new(),
            message: Vec::new(),
            stream: None,
            streams: 0,
            sent: Vec::new(),
            callouts: Vec::new(),
            called_out: None,
            environment: Vec::new(),
            logs: Vec::new(),
            expressions: HashMap::new(),
            faults: Faults::default(),
        }
    }

    pub(crate) fn metric(&self, name: &str) -> i64 {
        self.process.lock().unwrap().metrics.get(name).unwrap_or_else(|| panic!("no metric {name}")).1
    }

    /// The request that calls are made for now.
    fn request(&mut self) -> Option<&mut Request> {
        self.requests.get_mut(&self.effective)
    }

    // What the VM calls, one function for each import that it has a use for; bytes in, bytes or a status out.

    pub(crate) fn set_tick_period(&mut self, ms: u32) -> u32 {
        self.tick_ms = ms;
        self.tick_in_ns = u64::from(ms) * 1_000_000;
        OK
    }

    pub(crate) fn get_property(&mut self, path: &[u8]) -> Result<Vec<u8>, u32> {
        if path == b"plugin_root_id" {
            return Ok(self.root_id.as_bytes().to_vec());
        }
        let request = self.request().ok_or(NOT_FOUND)?;
        let text = |value: &Option<String>| value.clone().map(String::into_bytes).ok_or(NOT_FOUND);
        match path {
            b"source\0address" => text(&request.address),
            path => match path.strip_prefix(b"request\0headers\0") {
                Some(name) => joined(request, name).ok_or(NOT_FOUND),
                None => request.properties.get(path).cloned().unwrap_or(Err(NOT_FOUND)),
            },
        }
    }

    pub(crate) fn set_property(&mut self, path: &[u8], value: &[u8]) -> u32 {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (path, value) = (text(path), text(value));
        self.request().map_or(NOT_FOUND, |request| {
            request.filter_state.insert(path, value);
            OK
        })
    }

    pub(crate) fn get_headers(&mut self, map: u32) -> Result<Vec<u8>, u32> {
        if due(&mut self.faults.headers) {
            return Err(BAD_ARGUMENT);
        }
        let request = self.request().filter(|request| map == 0 && !request.responding).ok_or(BAD_ARGUMENT)?;
        let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
        let mut out = number(request.headers.len()).to_vec();
        request.headers.iter().for_each(|(name, value)| out.extend([number(name.len()), number(value.len())].concat()));
        for text in request.headers.iter().flat_map(|(name, value)| [name, value]) {
            out.extend(text);
            out.push(0);
        }
        Ok(out)
    }

    /// The functions that Envoy has for CEL. It knows expressions of two kinds: a header's value, and `true`.
    pub(crate) fn foreign(&mut self, name: &[u8], argument: &[u8]) -> Result<Vec<u8>, u32> {
        if due(&mut self.faults.foreign) {
            return Err(NOT_FOUND);
        }
        match name {
            b"expr_create" => {
                let text = String::from_utf8(argument.to_vec()).unwrap();
                if text != "true" && header_of(&text).is_none() {
                    return Err(BAD_ARGUMENT);
                }
                let token = fresh_id();
                self.expressions.insert(token.to_le_bytes().to_vec(), text);
                Ok(token.to_le_bytes().to_vec())
            }
            b"expr_evaluate" => {
                let text = self.expressions.get(argument).ok_or(NOT_FOUND)?.clone();
                let Some(name) = header_of(&text) else { return Ok(vec![1]) };
                let request = self.request().ok_or(INTERNAL_FAILURE)?;
                let found = request.headers.iter().find(|(given, _)| given == name.as_bytes());
                found.map(|(_, value)| value.clone()).ok_or(INTERNAL_FAILURE)
            }
            b"expr_delete" => self.expressions.remove(argument).map(|_| Vec::new()).ok_or(NOT_FOUND),
            _ => Err(NOT_FOUND),
        }
    }

    pub(crate) fn replace_header(&mut self, map: u32, name: &[u8], value: &[u8]) -> u32 {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (name, value) = (text(name), text(value));
        match self.request().filter(|request| map == 2 && request.responding) {
            Some(request) => {
                request.response_headers.retain(|(given, _)| *given != name);
                request.response_headers.push((name, value));
                OK
            }
            None => BAD_ARGUMENT,
        }
    }

    pub(crate) fn get_buffer(&mut self, buffer: u32, start: usize, size: usize) -> Result<Vec<u8>, u32> {
        let bytes = match buffer {
            4 => &self.called_out.as_ref().ok_or(NOT_FOUND)?.1,
            5 => &self.message,
            7 => &self.configuration,
            0 | 1 => &self.request().ok_or(NOT_FOUND)?.body,
            _ => return Err(NOT_FOUND),
        };
        let end = start.saturating_add(size).min(bytes.len());
        bytes.get(start..end).map(<[u8]>::to_vec).ok_or(BAD_ARGUMENT)
    }

    pub(crate) fn set_buffer(&mut self, buffer: u32, start: usize, size: usize, bytes: &[u8]) -> u32 {
        match self.request().filter(|_| buffer < 2) {
            Some(request) => {
                let end = start.saturating_add(size).min(request.body.len());
                request.body.splice(start..end, bytes.iter().copied());
                OK
            }
            None => BAD_ARGUMENT,
        }
    }

    pub(crate) fn get_shared_data(&mut self, key: &[u8]) -> Result<(Vec<u8>, u32), u32> {
        if due(&mut self.faults.shared_data) {
            return Err(INTERNAL_FAILURE);
        }
        self.process.lock().unwrap().data.get(key).cloned().ok_or(NOT_FOUND)
    }

    pub(crate) fn set_shared_data(&mut self, key: &[u8], value: &[u8], cas: u32) -> u32 {
        let mut process = self.process.lock().unwrap();
        if due(&mut self.faults.ahead) {
            process.writes += 1;
            let number = process.writes;
            if let Some(entry) = process.data.get_mut(key) {
                entry.1 = number;
            }
        }
        // A key that isn't there is written whatever the number says.
        if process.data.get(key).is_some_and(|(_, current)| cas != 0 && cas != *current) {
            return CAS_MISMATCH;
        }
        process.writes += 1;
        let number = process.writes;
        process.data.insert(key.to_vec(), (value.to_vec(), number));
        OK
    }

    pub(crate) fn register_queue(&mut self, name: &[u8]) -> Result<u32, u32> {
        if due(&mut self.faults.queues) {
            return Err(INTERNAL_FAILURE);
        }
        let mut process = self.process.lock().unwrap();
        let next = u32::try_from(process.queues.len()).unwrap() + 1;
        assert!(process.queues.insert(name.to_vec(), next).is_none(), "each worker has a queue of its own");
        self.queues.push(next);
        Ok(next)
    }

    pub(crate) fn enqueue(&mut self, queue: u32, value: &[u8]) -> u32 {
        self.process.lock().unwrap().messages.entry(queue).or_default().push_back(value.to_vec());
        OK
    }

    pub(crate) fn dequeue(&mut self, queue: u32) -> Result<Vec<u8>, u32> {
        self.process.lock().unwrap().messages.get_mut(&queue).and_then(VecDeque::pop_front).ok_or(EMPTY)
    }

    pub(crate) fn set_effective_context(&mut self, context: u32) -> u32 {
        if context != self.root && !self.requests.contains_key(&context) {
            return BAD_ARGUMENT;
        }
        self.effective = context;
        OK
    }

    pub(crate) fn continue_stream(&mut self) -> u32 {
        if self.request().is_none() {
            return BAD_ARGUMENT;
        }
        self.effects.push(Effect::Continue(self.effective));
        OK
    }

    pub(crate) fn send_local_response(&mut self, answer: Answer) -> u32 {
        if self.request().is_none() {
            return BAD_ARGUMENT;
        }
        self.effects.push(Effect::Answer(self.effective, answer));
        OK
    }

    pub(crate) fn open_stream(&mut self, cluster: &[u8]) -> Result<u32, u32> {
        if due(&mut self.faults.open_stream) || cluster != b"weir-redis" {
            return Err(INTERNAL_FAILURE);
        }
        assert!(self.stream.is_none(), "one stream a worker");
        self.streams += 1;
        let stream = fresh_id();
        self.stream = Some(stream);
        Ok(stream)
    }

    pub(crate) fn send_message(&mut self, stream: u32, message: &[u8]) -> u32 {
        assert!(!self.delivering, "a stream that has ended would call back in the middle of this callback");
        if self.stream != Some(stream) {
            return NOT_FOUND;
        }
        if due(&mut self.faults.send) {
            self.stream = None;
            self.effects.push(Effect::Close(stream));
            return OK;
        }
        self.sent.push(message.to_vec());
        OK
    }

    pub(crate) fn cancel_stream(&mut self, stream: u32) -> u32 {
        if self.stream != Some(stream) {
            return NOT_FOUND;
        }
        self.stream = None;
        OK
    }

    pub(crate) fn call_out(&mut self, cluster: &[u8], headers: &[u8], body: &[u8], timeout_ms: u32) -> Result<u32, u32> {
        assert_eq!(self.effective, self.root, "a callout of a request would end with it");
        assert!(!self.delivering, "it would be given the connection of the callout that has just ended");
        if cluster != b"weir-redis" {
            return Err(BAD_ARGUMENT);
        }
        if due(&mut self.faults.callouts) {
            return Err(INTERNAL_FAILURE);
        }
        let number = fresh_id();
        self.callouts.push(Callout { number, headers: pairs(headers), body: body.to_vec(), timeout_ms });
        Ok(number)
    }

    /// A header of the callout's answer.
    pub(crate) fn get_header(&mut self, map: u32, name: &[u8]) -> Result<Vec<u8>, u32> {
        match &self.called_out {
            Some((status, _)) if map == 6 && name == b":status" => Ok(status.to_string().into_bytes()),
            _ => Err(NOT_FOUND),
        }
    }

    pub(crate) fn define_metric(&mut self, name: &[u8]) -> Result<u32, u32> {
        if due(&mut self.faults.metrics) {
            return Err(INTERNAL_FAILURE);
        }
        let name = String::from_utf8(name.to_vec()).unwrap();
        let mut process = self.process.lock().unwrap();
        let next = u32::try_from(process.metrics.len()).unwrap();
        Ok(process.metrics.entry(name).or_insert((next, 0)).0)
    }

    pub(crate) fn increment_metric(&mut self, id: u32, offset: i64) -> u32 {
        let mut process = self.process.lock().unwrap();
        process.metrics.values_mut().find(|(given, _)| *given == id).map_or(NOT_FOUND, |(_, value)| {
            *value += offset;
            assert!(*value >= 0, "a gauge below nothing is an enormous one");
            OK
        })
    }

    pub(crate) fn log(&mut self, text: &[u8]) -> u32 {
        self.logs.push(String::from_utf8(text.to_vec()).unwrap());
        OK
    }
}

/// The header that a CEL expression is of.
fn header_of(expression: &str) -> Option<&str> {
    expression.strip_prefix("request.headers['")?.strip_suffix("']")
}

/// Headers as the VM writes them for the host: their number, the lengths, and the texts with a NUL behind each.
pub(crate) fn pairs(bytes: &[u8]) -> Vec<(String, String)> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    if bytes.is_empty() {
        return Vec::new();
    }
    let count = number(0);
    let mut at = 4 + 8 * count;
    let mut text = |size: usize| {
        let text = String::from_utf8(bytes[at..at + size].to_vec()).unwrap();
        assert!(!text.contains(['\r', '\n', '\0']), "the host writes it as it is: {text:?}");
        assert_eq!(bytes[at + size], 0);
        at += size + 1;
        text
    };
    (0..count).map(|i| (text(number(4 + 8 * i)), text(number(8 + 8 * i)))).collect()
}

/// The lines of a request's header, as the host joins them.
fn joined(request: &Request, name: &[u8]) -> Option<Vec<u8>> {
    let lines: Vec<&[u8]> =
        request.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_slice()).collect();
    (!lines.is_empty()).then(|| lines.join(&b","[..]))
}
