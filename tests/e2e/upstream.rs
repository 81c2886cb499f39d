//! What clients get through to: requests with bodies, and responses with headers of the upstream's own.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::redis_server::Redis;
use crate::servers::{field, head, listen};
use crate::{beside_others, with_store};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server that answers every request with the size of its body. It listens as long as the test process lives.
struct Upstream {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Upstream {
    fn start() -> Upstream {
        let requests = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&requests);
        let port = listen(move |connection| answer(connection, &seen));
        Upstream { port, requests }
    }

    /// The sample with Redis, and this in the upstream's place.
    fn behind(&self, redis: &Redis, rule: &str) -> Envoy {
        Setup::redis(redis.port, &with_store(rule)).with_upstream(self.port).start()
    }
}

/// Takes a request and answers it; `None` at the connection's end.
fn answer(connection: &mut BufReader<TcpStream>, seen: &AtomicUsize) -> Option<()> {
    let lines = head(connection)?;
    let size = field(&lines, "content-length").map_or(Some(0), |value| value.parse().ok())?;
    seen.fetch_add(1, Ordering::Relaxed);
    let taken = std::io::copy(&mut connection.take(size), &mut std::io::sink()).ok()?.to_string();
    let own = "RateLimit-Limit: 1000\r\nratelimit-remaining: 999\r\nX-RateLimit-Limit: 1000\r\nx-ratelimit-limit: 2000\r\nRateLimit: own\r\n";
    let head = format!("HTTP/1.1 200 OK\r\n{own}retry-after: 77\r\n");
    write!(connection.get_mut(), "{head}content-length: {}\r\n\r\n{taken}", taken.len()).ok()
}

#[test]
fn a_body_waits_with_its_request_and_goes_on_with_it_or_not_at_all() {
    const SIZE: usize = 3 << 20;
    let _machine = beside_others();
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let envoy = upstream.behind(&redis, r#""limits":["1/d burst 2"]"#);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("body-{}", std::process::id()));
    std::fs::write(&file, vec![b'x'; SIZE]).unwrap();
    let url = format!("http://127.0.0.1:{}/", envoy.port);
    let mut posts = (0..3).map(|_| {
        let body = format!("@{}", file.display());
        let mut curl = Command::new("curl");
        curl.args(["-s", "-w", " %{http_code}", "-H", "x-api-key: a", "--data-binary", &body, &url]);
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    });
    let whole = format!("{SIZE} 200");
    // The first comes before the stream to Redis is up.
    assert_eq!((posts.next(), posts.next()), (Some(whole.clone()), Some(whole)));
    assert_eq!(posts.next().as_deref(), Some(r#"{"message":"Too many requests"} 429"#));
    assert_eq!(upstream.requests.load(Ordering::Relaxed), 2);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn limit_headers_of_the_upstreams_are_replaced_and_its_others_stay() {
    let _machine = beside_others();
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let of_upstream = [
        ("ratelimit-limit", "1000"),
        ("ratelimit-remaining", "999"),
        ("x-ratelimit-limit", "1000,2000"),
        ("ratelimit", "own"),
    ];
    let families: [(&str, &[(&str, &str)]); 4] = [
        ("ratelimit", &[("ratelimit-limit", "5"), ("ratelimit-remaining", "4")]),
        ("x-ratelimit", &[("x-ratelimit-limit", "5"), ("x-ratelimit-remaining", "4")]),
        ("structured", &[("ratelimit", "\"per-key\";r=4;t=17280")]),
        ("", &[]),
    ];
    for (family, ours) in families {
        let list = if family.is_empty() { String::new() } else { format!("\"{family}\"") };
        let rule = format!(r#""limits":["5/d"],"response":{{"headers":[{list}]}}"#);
        redis.run(&["FLUSHALL"]);
        let envoy = upstream.behind(&redis, &rule);
        let response = envoy.get("/", &[("x-api-key", "a")]);
        let value = |name: &str| -> String {
            let lines = response.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
            lines.collect::<Vec<_>>().join(",")
        };
        for (name, own) in of_upstream {
            let wanted = ours.iter().find(|(given, _)| *given == name).map_or(own, |(_, value)| value);
            assert_eq!(value(name), wanted, "{family}: {name}: {response:?}");
        }
        assert_eq!(value("retry-after"), "77");
        // A request that no rule applies to is none of Weir's business.
        assert_eq!(envoy.get("/", &[]).number("ratelimit-limit"), Some(1000));
    }
}
