//! An HTTP/1.1 client that sends whatever bytes a test wants.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A connection that is kept alive.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    /// The value of a header, by its lower-case name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    /// A header's value as a number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.header(name)?.parse().ok()
    }
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn get(&mut self, path: impl AsRef<[u8]>, headers: &[(&str, &[u8])]) -> io::Result<Response> {
        self.send(path, headers)?;
        self.receive()
    }

    pub(crate) fn send(&mut self, path: impl AsRef<[u8]>, headers: &[(&str, &[u8])]) -> io::Result<()> {
        let mut bytes = b"GET ".to_vec();
        bytes.extend(path.as_ref());
        bytes.extend(b" HTTP/1.1\r\nhost: test\r\n");
        for (name, value) in headers {
            bytes.extend(name.as_bytes());
            bytes.extend(b": ");
            bytes.extend(*value);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"\r\n");
        self.stream.get_mut().write_all(&bytes)
    }

    pub(crate) fn receive(&mut self) -> io::Result<Response> {
        let bad = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let line = self.line()?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(|| bad(line.clone()))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad(line.clone()))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut response = Response { status, headers, body: String::new() };
        if response.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = self.line()?;
                let size = usize::from_str_radix(&size, 16).map_err(|_| bad(size))?;
                let chunk = self.exactly(size + 2)?;
                if size == 0 {
                    break;
                }
                response.body.push_str(&chunk[..size]);
            }
        } else {
            let size = response.number("content-length").unwrap_or(0);
            response.body = self.exactly(usize::try_from(size).unwrap())?;
        }
        Ok(response)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    fn exactly(&mut self, size: usize) -> io::Result<String> {
        let mut bytes = vec![0; size];
        self.stream.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// One request on a connection of its own.
pub(crate) fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> Response {
    let headers: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    Client::connect(port).get(path, &headers).unwrap()
}
