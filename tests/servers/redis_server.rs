//! A Redis of a test's own, without persistence; or a Valkey; or a Redis Cluster.

use super::{Process, free_port, until};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) struct Redis {
    pub(crate) port: u16,
    program: PathBuf,
    arguments: Vec<String>,
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

    /// A Valkey.
    pub(crate) fn valkey() -> Redis {
        Redis::launched(Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/valkey-server"), free_port(), &[])
    }

    fn launched(program: PathBuf, port: u16, arguments: &[&str]) -> Redis {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let process = launch(&program, port, &arguments);
        Redis { port, program, arguments, process }
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
        connect(self.port).unwrap()
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

fn connect(port: u16) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("redis://127.0.0.1:{port}/"))?.get_connection()
}

/// A Redis Cluster of three nodes, without replicas.
pub(crate) struct Cluster {
    nodes: Vec<Redis>,
    /// Where the nodes keep what they know of each other.
    files: Vec<PathBuf>,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let mut files = Vec::new();
        let nodes: Vec<(Redis, u16)> = (0..3)
            .map(|_| {
                let (port, bus) = (free_port(), free_port());
                files.push(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("node-{}-{port}.conf", std::process::id())));
                let file = files[files.len() - 1].display().to_string();
                let bus_port = bus.to_string();
                let arguments = ["--cluster-enabled", "yes", "--cluster-config-file", &file, "--cluster-port", &bus_port];
                (Redis::launched("redis-server".into(), port, &arguments), bus)
            })
            .collect();
        for (place, (node, _)) in nodes.iter().enumerate() {
            let slots = [0, 5461, 10923, 16384];
            node.run(&["CLUSTER", "ADDSLOTSRANGE", &slots[place].to_string(), &(slots[place + 1] - 1).to_string()]);
            let (first, bus) = &nodes[0];
            node.run(&["CLUSTER", "MEET", "127.0.0.1", &first.port.to_string(), &bus.to_string()]);
        }
        let nodes: Vec<Redis> = nodes.into_iter().map(|(node, _)| node).collect();
        let ready = |node: &Redis| {
            let info: String = redis::from_redis_value(node.run(&["CLUSTER", "INFO"])).unwrap();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        until(Duration::from_secs(20), || nodes.iter().all(ready).then_some(()), || "the cluster is formed".to_owned());
        Cluster { nodes, files }
    }

    /// The node that has a key.
    pub(crate) fn node_of(&self, key: &str) -> &Redis {
        let slot: u16 = redis::from_redis_value(self.nodes[0].run(&["CLUSTER", "KEYSLOT", key])).unwrap();
        &self.nodes[if slot < 5461 {
            0
        } else if slot < 10923 {
            1
        } else {
            2
        }]
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        for file in &self.files {
            let _ = std::fs::remove_file(file); // a node that never got so far has none
        }
    }
}
