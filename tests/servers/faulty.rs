//! A server that is as ill as a test wants it: before a real one, or with answers of the test's own.

use super::{free_port, until};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// What it does from now on, on the connections that there are too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// What the server behind it does.
    Pass,
    /// Its port is closed, and every connection.
    Closed,
    /// Its host isn't there: nobody answers who wants to connect. Every connection is closed.
    Absent,
    /// It accepts, and nothing comes back until another mode goes on with it: a black hole.
    Silent,
    /// What the server behind it does, so much later.
    Late(Duration),
    /// The server's answer breaks off after so many bytes, and so does the connection.
    Cut(usize),
    /// These bytes for each call.
    Bytes(Vec<u8>),
    /// These bytes for the first call, and then the connection is closed.
    BytesAndClose(Vec<u8>),
}

/// It listens as long as the test process lives, on the same port, unless its mode is another.
pub(crate) struct Faulty {
    pub(crate) port: u16,
    inner: Arc<Inner>,
    listening: Option<Listening>,
}

struct Inner {
    /// Where the real one is; 0 where there is none.
    target: u16,
    /// What each call has once.
    call: &'static [u8],
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    mode: Mode,
    connections: Vec<Weak<TcpStream>>,
}

enum Listening {
    Accepting(TcpListener, JoinHandle<()>),
    /// Its queue is full, so that the kernel answers nobody.
    Full {
        _listener: Socket,
        _queued: Vec<Socket>,
    },
}

impl Faulty {
    /// A Redis without one behind it.
    pub(crate) fn redis(mode: Mode) -> Faulty {
        Faulty::start(0, b"\r\nEVAL", mode)
    }

    /// Before a server on this port, each call of which has these bytes once.
    pub(crate) fn before(target: u16, call: &'static [u8]) -> Faulty {
        Faulty::start(target, call, Mode::Pass)
    }

    fn start(target: u16, call: &'static [u8], mode: Mode) -> Faulty {
        let state = Mutex::new(State { mode, connections: Vec::new() });
        let inner = Arc::new(Inner { target, call, state, changed: Condvar::new() });
        let port = free_port();
        let listening = Some(Listening::accepting(port, &inner));
        Faulty { port, inner, listening }
    }

    pub(crate) fn is(&mut self, mode: Mode) {
        let absent = matches!(mode, Mode::Closed | Mode::Absent);
        if absent && let Some(Listening::Accepting(listener, thread)) = self.listening.take() {
            socket2::SockRef::from(&listener).shutdown(Shutdown::Both).unwrap(); // it wakes who accepts
            thread.join().unwrap();
        }
        if mode == Mode::Absent {
            self.listening = Some(Listening::full(self.port));
        }
        let mut state = self.inner.state.lock().unwrap();
        if absent {
            for connection in state.connections.drain(..).filter_map(|connection| connection.upgrade()) {
                let _ = connection.shutdown(Shutdown::Both); // the other side may have been first
            }
        }
        state.mode = mode;
        drop(state);
        self.inner.changed.notify_all();
        if !absent && !matches!(self.listening, Some(Listening::Accepting(..))) {
            self.listening = None;
            self.listening = Some(Listening::accepting(self.port, &self.inner));
        }
    }
}

impl Listening {
    fn accepting(port: u16, inner: &Arc<Inner>) -> Listening {
        // The listener before it may live on for a moment, in a child that another thread starts just now.
        let bind = || TcpListener::bind(("127.0.0.1", port)).ok();
        let listener = until(Duration::from_secs(5), bind, || format!("port {port} is taken"));
        let (accepting, inner) = (listener.try_clone().unwrap(), Arc::clone(inner));
        let thread = std::thread::spawn(move || {
            while let Ok((connection, _)) = accepting.accept() {
                connection.set_nodelay(true).unwrap();
                let (inner, connection) = (Arc::clone(&inner), Arc::new(connection));
                inner.state.lock().unwrap().connections.push(Arc::downgrade(&connection));
                std::thread::spawn(move || inner.serve(&connection));
            }
        });
        Listening::Accepting(listener, thread)
    }

    fn full(port: u16) -> Listening {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port).into();
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = socket();
        listener.set_reuse_address(true).unwrap();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let queued = (0..4).map(|_| {
            let queued = socket();
            queued.set_nonblocking(true).unwrap();
            let _ = queued.connect(&address); // it is under way, and the later ones stay so
            queued
        });
        Listening::Full { _queued: queued.collect(), _listener: listener }
    }
}

impl Inner {
    /// The mode, once it isn't that of silence.
    fn mode(&self) -> Mode {
        let state = self.state.lock().unwrap();
        self.changed.wait_while(state, |state| state.mode == Mode::Silent).unwrap().mode.clone()
    }

    fn serve(self: Arc<Inner>, connection: &Arc<TcpStream>) {
        let mut client: &TcpStream = connection;
        let (mut bytes, mut kept) = (vec![0; 16_384], Vec::new());
        let mut behind: Option<TcpStream> = None;
        while let Ok(size @ 1..) = client.read(&mut bytes) {
            kept.extend_from_slice(&bytes[..size]);
            let calls = kept.windows(self.call.len()).filter(|window| *window == self.call).count();
            kept.drain(..kept.len().saturating_sub(self.call.len() - 1)); // the start of a call may be at the end
            let sent = match self.mode() {
                Mode::Pass | Mode::Late(_) | Mode::Cut(_) => {
                    if behind.is_none() {
                        let Ok(server) = TcpStream::connect(("127.0.0.1", self.target)) else { break };
                        let (inner, there, back) = (Arc::clone(&self), server.try_clone().unwrap(), Arc::clone(connection));
                        std::thread::spawn(move || inner.bring_back(there, &back));
                        behind = Some(server);
                    }
                    behind.as_mut().unwrap().write_all(&bytes[..size])
                }
                Mode::Bytes(reply) => client.write_all(&reply.repeat(calls)),
                Mode::BytesAndClose(reply) if calls > 0 => {
                    let _ = client.write_all(&reply); // it ends in any case
                    break;
                }
                Mode::BytesAndClose(_) => Ok(()),
                Mode::Closed | Mode::Absent | Mode::Silent => break,
            };
            if sent.is_err() {
                break;
            }
        }
        self.mode(); // where it is silent, it doesn't even end
        match behind {
            // A client that has said all waits for the answer, and it is the server that ends the connection.
            Some(server) => drop(server.shutdown(Shutdown::Write)),
            None => drop(client.shutdown(Shutdown::Both)),
        }
    }

    fn bring_back(&self, mut server: TcpStream, mut connection: &TcpStream) {
        let mut bytes = vec![0; 16_384];
        while let Ok(size @ 1..) = server.read(&mut bytes) {
            let mut sent = &bytes[..size];
            match self.mode() {
                Mode::Late(by) => std::thread::sleep(by),
                Mode::Cut(at) => sent = &sent[..at.min(size)],
                Mode::Pass | Mode::Silent => {}
                Mode::Closed | Mode::Absent | Mode::Bytes(_) | Mode::BytesAndClose(_) => break,
            }
            if connection.write_all(sent).is_err() || sent.len() < size {
                break;
            }
        }
        let _ = (connection.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both)); // either may have been first
    }
}
