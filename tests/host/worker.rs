//! A worker: the VM, its host, and the events that come to it.

use super::{Answer, Effect, Host, Process, Request, fresh_id};
use std::sync::{Arc, Mutex};

/// A VM with the filter in it. Its imports call the [`Host`] that it holds.
pub(crate) trait Vm: Sized {
    fn start(host: Host) -> Self;
    /// Calls an export; what it returns, or 0.
    fn call(&mut self, export: &str, arguments: &[u32]) -> u32;
    fn host<T>(&mut self, see: impl FnOnce(&mut Host) -> T) -> T;
}

const PAUSE: u32 = 1;
const UNAVAILABLE: u32 = 14;
const SERIALIZATION_FAILURE: u32 = 9;

/// What has become of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    Waiting,
    Continued,
    Answered(Answer),
}

pub(crate) struct Worker<V> {
    pub(crate) vm: V,
    root: u32,
    /// The most answers and continuations that one callback has brought about.
    pub(crate) most_at_once: usize,
}

impl<V: Vm> Worker<V> {
    /// One that has taken its configuration.
    pub(crate) fn start(configuration: &str) -> Worker<V> {
        Worker::start_in(&Arc::default(), configuration)
    }

    pub(crate) fn start_in(process: &Arc<Mutex<Process>>, configuration: &str) -> Worker<V> {
        let (worker, configured) = Worker::configure(Host::new(process, "weir", configuration));
        assert!(configured);
        worker
    }

    /// One that has been told its configuration, and whether it has taken it.
    pub(crate) fn configure(host: Host) -> (Worker<V>, bool) {
        let size = u32::try_from(host.configuration.len()).unwrap();
        let root = host.root;
        let mut worker = Worker { vm: V::start(host), root, most_at_once: 0 };
        worker.enter("proxy_on_context_create", root, &[0]);
        assert_eq!(worker.enter("proxy_on_vm_start", root, &[0]), 1);
        let configured = worker.enter("proxy_on_configure", root, &[size]) == 1;
        (worker, configured)
    }

    /// A new configuration comes: a root context of its own in the same VM, and then the old one ends with its stream.
    pub(crate) fn reconfigure(&mut self, configuration: &str) {
        let old = std::mem::replace(&mut self.root, fresh_id());
        self.vm.host(|host| host.configuration = configuration.into());
        let (root, size) = (self.root, u32::try_from(configuration.len()).unwrap());
        self.enter("proxy_on_context_create", root, &[0]);
        assert_eq!(self.enter("proxy_on_configure", root, &[size]), 1);
        self.enter("proxy_on_done", old, &[]);
        self.enter("proxy_on_delete", old, &[]);
        self.vm.host(|host| {
            host.root = root;
            host.stream = None;
            host.queues.remove(0);
        });
    }

    /// Runs a callback of a context and, once it has returned, what it has brought about.
    pub(crate) fn enter(&mut self, export: &str, context: u32, arguments: &[u32]) -> u32 {
        self.vm.host(|host| {
            host.effective = context;
            host.delivering = export.starts_with("proxy_on_grpc") || export == "proxy_on_http_call_response";
        });
        let result = self.vm.call(export, &[&[context], arguments].concat());
        let effects = self.vm.host(|host| {
            host.effective = host.root;
            host.delivering = false;
            std::mem::take(&mut host.effects)
        });
        self.most_at_once = self.most_at_once.max(effects.len());
        for effect in effects {
            match effect {
                Effect::Continue(id) => self.vm.host(|host| {
                    if let Some(request) = host.requests.get_mut(&id) {
                        request.continued += 1;
                    }
                }),
                Effect::Answer(id, answer) => {
                    let there = self.vm.host(|host| {
                        let request = host.requests.get_mut(&id)?;
                        request.response_headers = answer.headers.clone();
                        request.responding = true;
                        request.answers.push(answer);
                        Some(())
                    });
                    if there.is_some() {
                        self.enter("proxy_on_response_headers", id, &[0, 1]);
                        self.over_in_vm(id);
                    }
                }
                Effect::Close(stream) => {
                    self.enter("proxy_on_grpc_close", self.root, &[stream, UNAVAILABLE]);
                }
            }
        }
        result
    }

    /// A request with these headers comes.
    pub(crate) fn request(&mut self, headers: &[(&str, &[u8])]) -> u32 {
        self.request_from("192.0.2.1:4711", headers)
    }

    pub(crate) fn request_from(&mut self, address: &str, headers: &[(&str, &[u8])]) -> u32 {
        self.request_with(address, headers, &[])
    }

    /// A request with attributes, whose paths are joined with `/`; `None` for one that can't be written as bytes.
    pub(crate) fn request_with(&mut self, address: &str, headers: &[(&str, &[u8])], given: &[(&str, Option<&[u8]>)]) -> u32 {
        let properties = given.iter().map(|(path, value)| {
            (path.replace('/', "\0").into_bytes(), value.map(<[u8]>::to_vec).ok_or(SERIALIZATION_FAILURE))
        });
        let properties = properties.collect();
        let id = fresh_id();
        let mut given: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (name, value) in [(":method", &b"GET"[..]), (":path", b"/"), (":authority", b"example.com")] {
            if !headers.iter().any(|(own, _)| *own == name) {
                given.push((name.into(), value.into()));
            }
        }
        given.extend(headers.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())));
        let request = Request { headers: given, properties, address: Some(address.to_owned()), ..Request::default() };
        self.vm.host(|host| host.requests.insert(id, request));
        self.enter("proxy_on_context_create", id, &[self.root]);
        let action = self.enter("proxy_on_request_headers", id, &[4, 1]);
        self.vm.host(|host| {
            let request = host.requests.get_mut(&id).unwrap();
            if action != PAUSE {
                request.continued += 1;
            }
        });
        id
    }

    /// A request of a client with this API key.
    pub(crate) fn request_of(&mut self, key: &str) -> u32 {
        self.request(&[("x-api-key", key.as_bytes())])
    }

    /// What has become of it; it has never become two things.
    pub(crate) fn outcome(&mut self, id: u32) -> Outcome {
        self.vm.host(|host| {
            let request = &host.requests[&id];
            match (request.continued, request.answers.as_slice()) {
                (0, []) => Outcome::Waiting,
                (1, []) => Outcome::Continued,
                (0, [answer]) => Outcome::Answered(answer.clone()),
                (continued, answers) => panic!("{id}: continued {continued} times, answers: {answers:?}"),
            }
        })
    }

    /// The status that the client sees; 0 while it waits.
    pub(crate) fn status(&mut self, id: u32) -> u32 {
        match self.outcome(id) {
            Outcome::Waiting => 0,
            Outcome::Continued => 200,
            Outcome::Answered(answer) => answer.status,
        }
    }

    /// The upstream answers a request that was let go on, and the client gets these headers.
    pub(crate) fn response(&mut self, id: u32, headers: &[(&str, &str)]) -> Vec<(String, String)> {
        self.vm.host(|host| {
            let request = host.requests.get_mut(&id).unwrap();
            request.responding = true;
            request.response_headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        });
        self.enter("proxy_on_response_headers", id, &[1, 1]);
        self.vm.host(|host| host.requests[&id].response_headers.clone())
    }

    /// A request is over, by its answer or because its client went away: in the VM, and in the host it is there for a moment.
    pub(crate) fn over_in_vm(&mut self, id: u32) {
        if self.vm.host(|host| std::mem::replace(&mut host.requests.get_mut(&id).unwrap().over, true)) {
            return;
        }
        self.enter("proxy_on_log", id, &[]);
        self.enter("proxy_on_done", id, &[]);
        self.enter("proxy_on_delete", id, &[]);
    }

    /// A request is over and gone from the host too.
    pub(crate) fn gone(&mut self, id: u32) {
        self.over_in_vm(id);
        self.vm.host(|host| host.requests.remove(&id));
    }

    /// The event loop turns until nothing is left to do at this moment.
    pub(crate) fn turn(&mut self) {
        loop {
            let queues = self.vm.host(|host| host.queues.clone());
            let ready = queues.into_iter().find(|queue| {
                self.vm.host(|host| host.process.lock().unwrap().messages.get(queue).is_some_and(|queue| !queue.is_empty()))
            });
            let Some(queue) = ready else { return };
            self.enter("proxy_on_queue_ready", self.root, &[queue]);
        }
    }

    /// Time passes, with the ticks that the VM has asked for.
    pub(crate) fn pass_ms(&mut self, ms: u64) {
        let mut left_ns = ms * 1_000_000;
        self.turn();
        loop {
            let ticks = self.vm.host(|host| {
                let ticks = host.tick_ms > 0 && host.tick_in_ns <= left_ns;
                let passed_ns = if ticks { host.tick_in_ns } else { left_ns };
                host.now_ns += passed_ns;
                left_ns -= passed_ns;
                host.tick_in_ns =
                    if ticks { u64::from(host.tick_ms) * 1_000_000 } else { host.tick_in_ns.saturating_sub(passed_ns) };
                ticks
            });
            if !ticks {
                return;
            }
            self.enter("proxy_on_tick", self.root, &[]);
            self.turn();
        }
    }

    /// Bytes come on the stream.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        let stream = self.vm.host(|host| {
            host.message = bytes.to_vec();
            host.stream.expect("a stream is open")
        });
        self.enter("proxy_on_grpc_receive", self.root, &[stream, u32::try_from(bytes.len()).unwrap()]);
    }

    /// The oldest callout ends with this status and body, or without.
    pub(crate) fn call_back(&mut self, answer: Option<(u16, &[u8])>) {
        let (number, size) = self.vm.host(|host| {
            host.called_out = answer.map(|(status, body)| (status, body.to_vec()));
            (host.callouts.remove(0).number, answer.map_or(0, |(_, body)| body.len()))
        });
        let headers = u32::from(answer.is_some());
        let size = u32::try_from(size).unwrap();
        self.enter("proxy_on_http_call_response", self.root, &[number, headers, size, 0]);
    }

    /// The stream ends.
    pub(crate) fn close(&mut self) {
        let stream = self.vm.host(|host| host.stream.take().expect("a stream is open"));
        self.enter("proxy_on_grpc_close", self.root, &[stream, UNAVAILABLE]);
    }

    /// The commands that were sent since the last time, by their first word and the key.
    pub(crate) fn sent(&mut self) -> Vec<String> {
        self.turn();
        let sent = self.vm.host(|host| std::mem::take(&mut host.sent));
        sent.iter().flat_map(|message| commands(message)).map(|words| format!("{} {}", words[0], words[3])).collect()
    }
}

/// The words of each of the RESP commands that a message consists of.
pub(crate) fn commands(message: &[u8]) -> Vec<Vec<String>> {
    fn line(rest: &mut &[u8], kind: u8) -> usize {
        assert_eq!(rest[0], kind);
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap();
        let number = std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap();
        *rest = &rest[end + 2..];
        number
    }
    let mut rest = message;
    let mut commands = Vec::new();
    while !rest.is_empty() {
        let count = line(&mut rest, b'*');
        let mut word = || {
            let size = line(&mut rest, b'$');
            let (word, behind) = rest.split_at(size);
            assert_eq!(&behind[..2], b"\r\n");
            rest = &behind[2..];
            String::from_utf8_lossy(word).into_owned()
        };
        commands.push((0..count).map(|_| word()).collect());
    }
    commands
}
