//! A Redis Cluster of a test's own.

use super::redis_server::Redis;
use super::{free_port, until};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A Redis Cluster of three nodes, without replicas but those that are added.
pub(crate) struct Cluster {
    nodes: Vec<Redis>,
    /// The first node's port for the others.
    bus: u16,
    /// Where the nodes keep what they know of each other.
    files: Vec<PathBuf>,
}

impl Cluster {
    pub(crate) fn start() -> Cluster {
        let mut files = Vec::new();
        let nodes: Vec<(Redis, u16)> = (0..3).map(|_| node(&mut files)).collect();
        let bus = nodes[0].1;
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
        Cluster { nodes, bus, files }
    }

    /// A replica of the first node.
    pub(crate) fn add_replica(&mut self) -> Redis {
        let (replica, _) = node(&mut self.files);
        let first = &self.nodes[0];
        let id: String = redis::from_redis_value(first.run(&["CLUSTER", "MYID"])).unwrap();
        replica.run(&["CLUSTER", "MEET", "127.0.0.1", &first.port.to_string(), &self.bus.to_string()]);
        let mut connection = replica.connect();
        let follows = || redis::cmd("CLUSTER").arg("REPLICATE").arg(&id).query::<()>(&mut connection).ok();
        until(Duration::from_secs(20), follows, || "the replica knows the node".to_owned());
        let linked = || {
            let info: String = redis::from_redis_value(replica.run(&["INFO", "replication"])).unwrap();
            info.contains("master_link_status:up").then_some(())
        };
        until(Duration::from_secs(20), linked, || "the replica follows".to_owned());
        let known = || {
            let nodes: String = redis::from_redis_value(self.nodes[1].run(&["CLUSTER", "NODES"])).unwrap();
            nodes.contains("slave").then_some(())
        };
        until(Duration::from_secs(20), known, || "the others know of it".to_owned());
        replica
    }

    /// A node that tells of the others, and isn't the first.
    pub(crate) fn port(&self) -> u16 {
        self.nodes[1].port
    }

    /// How many keys each node has.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| redis::from_redis_value(node.run(&["DBSIZE"])).unwrap()).collect()
    }

    pub(crate) fn kill_first(&mut self) {
        self.nodes[0].kill();
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

/// A node, and its port for the others.
fn node(files: &mut Vec<PathBuf>) -> (Redis, u16) {
    let (port, bus) = (free_port(), free_port());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("node-{}-{port}.conf", std::process::id()));
    let (file, bus_port) = (path.display().to_string(), bus.to_string());
    files.push(path);
    let arguments = [
        "--cluster-enabled",
        "yes",
        "--cluster-config-file",
        &file,
        "--cluster-port",
        &bus_port,
        "--cluster-node-timeout",
        "2000",
    ];
    (Redis::launched("redis-server".into(), port, &arguments), bus)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.nodes.clear();
        for file in &self.files {
            let _ = std::fs::remove_file(file); // a node that never got so far has none
        }
    }
}
