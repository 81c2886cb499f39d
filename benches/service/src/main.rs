//! `service PORT REDIS_URL`: what Envoy's filter `ratelimit` asks, and no more than it takes. Each request is one script in Redis, a counter that
//! expires, for each value of a descriptor's `key`; its limit nobody reaches. A service that does more (rules, metrics) is slower.

use envoy_types::pb::envoy::service::ratelimit::v3 as rls;
use redis::aio::MultiplexedConnection;
use rls::rate_limit_response::Code;
use rls::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use std::error::Error;
use std::net::SocketAddr;
use tonic::{Request, Response, Status};

const LIMIT: u64 = 1_000_000_000;
const SCRIPT: &str = "local n = redis.call('INCR', KEYS[1]) if n == 1 then redis.call('PEXPIRE', KEYS[1], 1000) end return n";

struct Service {
    /// Its requests share one connection, in a pipeline.
    redis: MultiplexedConnection,
    script: redis::Script,
}

#[async_trait::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<rls::RateLimitRequest>,
    ) -> Result<Response<rls::RateLimitResponse>, Status> {
        let mut entries = request.into_inner().descriptors.into_iter().flat_map(|descriptor| descriptor.entries);
        let entry = entries.find(|entry| entry.key == "key");
        let entry = entry.ok_or_else(|| Status::invalid_argument("a descriptor with a key is wanted"))?;
        let counted = self.script.key(format!("service:{}", entry.value)).invoke_async(&mut self.redis.clone()).await;
        let counted: u64 = counted.map_err(|error| Status::unavailable(error.to_string()))?;
        let code = if counted > LIMIT { Code::OverLimit } else { Code::Ok };
        Ok(Response::new(rls::RateLimitResponse { overall_code: code.into(), ..rls::RateLimitResponse::default() }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(port), Some(redis)) = (arguments.next(), arguments.next()) else {
        return Err("usage: service PORT REDIS_URL".into());
    };
    let address: SocketAddr = format!("127.0.0.1:{port}").parse()?;
    let redis = redis::Client::open(redis)?.get_multiplexed_async_connection().await?;
    let service = Service { redis, script: redis::Script::new(SCRIPT) };
    tonic::transport::Server::builder().add_service(RateLimitServiceServer::new(service)).serve(address).await?;
    Ok(())
}
