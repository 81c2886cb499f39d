//! What the script runs in.

use crate::servers::redis_cluster::Cluster;
use crate::servers::redis_server::Redis;

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
        Valkey(Redis::valkey())
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
