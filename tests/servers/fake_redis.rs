//! A server that answers every call of a script with bytes of a test's choice.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// It listens as long as the test process lives.
pub(crate) struct FakeRedis {
    pub(crate) port: u16,
    reply: Arc<Mutex<Reply>>,
}

#[derive(Clone)]
pub(crate) enum Reply {
    /// These bytes for each call.
    Bytes(Vec<u8>),
    /// These bytes for the first call, and then the connection is closed.
    BytesAndClose(Vec<u8>),
    /// Nothing: a black hole.
    Nothing,
}

impl FakeRedis {
    pub(crate) fn start(reply: Reply) -> FakeRedis {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let reply = Arc::new(Mutex::new(reply));
        let replies = Arc::clone(&reply);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let replies = Arc::clone(&replies);
                std::thread::spawn(move || serve(connection, &replies));
            }
        });
        FakeRedis { port, reply }
    }

    /// Another answer from now on.
    pub(crate) fn answer(&self, reply: Reply) {
        *self.reply.lock().unwrap() = reply;
    }
}

fn serve(mut connection: TcpStream, reply: &Mutex<Reply>) {
    const CALL: &[u8] = b"\r\nEVAL";
    let (mut bytes, mut kept) = (vec![0; 65_536], Vec::new());
    while let Ok(size @ 1..) = connection.read(&mut bytes) {
        kept.extend_from_slice(&bytes[..size]);
        let calls = kept.windows(CALL.len()).filter(|window| *window == CALL).count();
        kept.drain(..kept.len().saturating_sub(CALL.len() - 1)); // the start of a call may be at the end
        for _ in 0..calls {
            let reply = reply.lock().unwrap().clone();
            let sent = match &reply {
                Reply::Bytes(bytes) | Reply::BytesAndClose(bytes) => connection.write_all(bytes),
                Reply::Nothing => Ok(()),
            };
            if sent.is_err() || matches!(reply, Reply::BytesAndClose(_)) {
                return;
            }
        }
    }
}
