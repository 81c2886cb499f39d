//! A Webdis of a test's own, before a Redis.

use super::{Process, free_port, until};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Who may use it, and the password.
pub(crate) const USER: &str = "weir:secret";

pub(crate) struct Webdis {
    pub(crate) port: u16,
    file: PathBuf,
    _process: Process,
}

impl Webdis {
    /// Only [`USER`] may use it.
    pub(crate) fn start(redis_port: u16) -> Webdis {
        let port = free_port();
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("webdis-{}-{port}.json", std::process::id()));
        let configuration = serde_json::json!({
            "redis_host": "127.0.0.1", "redis_port": redis_port, "redis_auth": null,
            "http_host": "127.0.0.1", "http_port": port, "threads": 2, "pool_size": 4, "daemonize": false, "websockets": false,
            "database": 0, "verbosity": 0, "logfile": "/dev/null",
            "acl": [{"disabled": ["*"]}, {"http_basic_auth": USER, "enabled": ["*"]}],
        });
        std::fs::write(&file, configuration.to_string()).unwrap();
        let process = Process::start(Command::new("webdis").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()));
        let listens = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        until(Duration::from_secs(10), listens, || format!("Webdis listens on {port}"));
        Webdis { port, file, _process: process }
    }
}

impl Drop for Webdis {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file); // nobody else has it
    }
}
