//! What the script runs in.

use crate::servers::redis_server::Redis;
use crate::servers::{free_port, until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A store, and how its keys are reached.
pub(crate) trait Engine {
    fn start() -> Self;
    /// A connection to where the keys with that hash tag are.
    fn connect(&self, tag: &str) -> redis::Connection;
}

impl Engine for Redis {
    fn start() -> Redis {
        Redis::start()
    }

    fn connect(&self, _: &str) -> redis::Connection {
        Redis::connect(self)
    }
}

pub(crate) struct Valkey(Redis);

impl Engine for Valkey {
    fn start() -> Valkey {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/valkey-server");
        Valkey(Redis::launched(program, free_port(), &[]))
    }

    fn connect(&self, _: &str) -> redis::Connection {
        self.0.connect()
    }
}

impl Engine for Cluster {
    fn start() -> Cluster {
        Cluster::start()
    }

    fn connect(&self, tag: &str) -> redis::Connection {
        self.node_of(&format!("{{{tag}}}")).connect()
    }
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
