//! A Redis of a test's own, without persistence.

use super::{Process, free_port, until};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) struct Redis {
    pub(crate) port: u16,
    arguments: Vec<String>,
    process: Process,
}

impl Redis {
    pub(crate) fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// With more arguments, such as `--requirepass x`.
    pub(crate) fn start_with(arguments: &[&str]) -> Redis {
        let port = free_port();
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let process = launch(port, &arguments);
        Redis { port, arguments, process }
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, empty, on the same port.
    pub(crate) fn restart(&mut self) {
        self.process = launch(self.port, &self.arguments);
    }

    pub(crate) fn connect(&self) -> redis::Connection {
        connect(self.port).unwrap()
    }

    /// One command.
    pub(crate) fn run(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connect()).unwrap()
    }
}

fn launch(port: u16, arguments: &[String]) -> Process {
    let mut process = Process::start(
        Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(arguments)
            .stdout(Stdio::null()),
    );
    until(
        Duration::from_secs(10),
        || {
            assert!(process.ended().is_none(), "redis-server has ended at once");
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        },
        || format!("redis-server listens on {port}"),
    );
    process
}

fn connect(port: u16) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis://127.0.0.1:{port}/"))?.get_connection()
}
