//! A Redis of a test's own, without persistence.

use super::{Process, free_port, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) struct Redis {
    pub(crate) port: u16,
    program: PathBuf,
    arguments: Vec<String>,
    password: Option<String>,
    process: Process,
}

impl Redis {
    pub(crate) fn start() -> Redis {
        Redis::start_with(&[])
    }

    /// With more arguments, such as `--requirepass x`.
    pub(crate) fn start_with(arguments: &[&str]) -> Redis {
        Redis::launched("redis-server".into(), free_port(), arguments)
    }

    /// Another program that is called as Redis is.
    pub(crate) fn launched(program: PathBuf, port: u16, arguments: &[&str]) -> Redis {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let process = launch(&program, port, &arguments);
        Redis { port, program, arguments, password: None, process }
    }

    /// One that wants a password.
    pub(crate) fn guarded(password: &str, arguments: &[&str]) -> Redis {
        let mut redis = Redis::start_with(&[&["--requirepass", password], arguments].concat());
        redis.password = Some(password.to_owned());
        redis
    }

    pub(crate) fn valkey() -> Redis {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/valkey-server");
        Redis::launched(program, free_port(), &[])
    }

    /// Whether it is no replica, or no more.
    pub(crate) fn is_master(&self) -> bool {
        redis::from_redis_value::<Vec<redis::Value>>(self.run(&["ROLE"])).unwrap()[0]
            == redis::Value::BulkString(b"master".to_vec())
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, empty, on the same port.
    pub(crate) fn restart(&mut self) {
        self.process = launch(&self.program, self.port, &self.arguments);
    }

    pub(crate) fn connect(&self) -> redis::Connection {
        let password = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        redis::Client::open(format!("redis://{password}127.0.0.1:{}/", self.port)).unwrap().get_connection().unwrap()
    }

    /// What its clock says.
    pub(crate) fn now_ms(&self) -> u64 {
        let [seconds, microseconds]: [u64; 2] =
            redis::from_redis_value::<Vec<u64>>(self.run(&["TIME"])).unwrap().try_into().unwrap();
        seconds * 1000 + microseconds / 1000
    }

    /// One command.
    pub(crate) fn run(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connect()).unwrap()
    }
}

fn launch(program: &Path, port: u16, arguments: &[String]) -> Process {
    let mut process = Process::start(
        Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--dir", env!("CARGO_TARGET_TMPDIR")]) // a replica writes down what it is sent
            .args(arguments)
            .stdout(Stdio::null()),
    );
    until(
        Duration::from_secs(10),
        || {
            assert!(process.ended().is_none(), "{} has ended at once", program.display());
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        },
        || format!("{} listens on {port}", program.display()),
    );
    process
}
