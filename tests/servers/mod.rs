//! Servers that a test starts: each on a free port of the loopback interface, ended by its process id when the test is over.

pub(crate) mod envoy_server;
pub(crate) mod faulty;
pub(crate) mod http_client;
pub(crate) mod redis_cluster;
pub(crate) mod redis_server;
pub(crate) mod upstash;
pub(crate) mod webdis;

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Below the ports that outgoing connections take for themselves: one of these could be taken before its server listens.
const PORTS: std::ops::Range<u32> = 10_001..32_000;

/// A port that nobody listens on, and that isn't given out again. It is found by asking for a connection: a listener, closed at once,
/// would live on for a moment in a child that another thread starts just then.
pub(crate) fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    // Test processes at the same time begin at different places.
    let start = std::process::id().wrapping_mul(131);
    let span = PORTS.end - PORTS.start;
    let free = (0..span).find_map(|_| {
        let place = start.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % span;
        let port = u16::try_from(PORTS.start + place).unwrap();
        let asked = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), Duration::from_secs(1));
        asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused).then_some(port)
    });
    free.expect("a port is free")
}

/// Listens on a free port, the one that it gives, and lets `serve` answer on each connection for as long as it gives something. It
/// listens as long as the test process lives.
pub(crate) fn listen(serve: impl Fn(&mut BufReader<TcpStream>) -> Option<()> + Clone + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let serve = serve.clone();
            std::thread::spawn(move || {
                let mut connection = BufReader::new(connection);
                while serve(&mut connection).is_some() {}
            });
        }
    });
    port
}

/// The lines of the head of an HTTP message; `None` at the connection's end.
pub(crate) fn head(connection: &mut impl BufRead) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        connection.read_line(&mut line).ok().filter(|read| *read > 0)?;
        match line.trim_end() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

/// The value of a header in these lines, by its lower-case name.
pub(crate) fn field<'l>(lines: &'l [String], name: &str) -> Option<&'l str> {
    let mut fields = lines.iter().filter_map(|line| line.split_once(": "));
    fields.find(|(given, _)| given.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Polls until `happened` gives something; panics with what `otherwise` says where it takes longer than `limit`.
pub(crate) fn until<T>(limit: Duration, mut happened: impl FnMut() -> Option<T>, otherwise: impl FnOnce() -> String) -> T {
    let start = Instant::now();
    loop {
        if let Some(result) = happened() {
            return result;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {}", otherwise());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the machine's clock, by which Redis and Envoy decide, is so far from a moment on: what a test measures otherwise
/// goes on where that clock is put right.
pub(crate) fn wait_by_the_clock(since: SystemTime, wait: Duration) {
    let passed = || since.elapsed().is_ok_and(|elapsed| elapsed >= wait).then_some(());
    until(wait + Duration::from_secs(5), passed, || format!("{wait:?} of the machine's clock"));
}

/// A child process that ends with its owner.
pub(crate) struct Process(Child);

impl Process {
    /// Starts it; panics with a hint where it isn't installed.
    pub(crate) fn start(command: &mut Command) -> Process {
        let program = command.get_program().to_string_lossy().into_owned();
        Process(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}; `make setup` installs what tests need")))
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended, and how.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().unwrap()
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill(); // it fails where it has ended already
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
