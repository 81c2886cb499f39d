//! The fault table: each way in which Redis, and what is between, can fail, for each transport and each `on_error`.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::faulty::{Faulty, Mode};
use crate::servers::http_client::{Client, Response};
use crate::servers::redis_cluster::Cluster;
use crate::servers::redis_server::Redis;
use crate::servers::webdis::{self, Webdis};
use crate::servers::{free_port, until, upstash};
use crate::{alone, assert_in_time};
use std::time::{Duration, Instant};

pub(crate) const TIMEOUT: Duration = Duration::from_millis(50);
const BURST: u64 = 1000;
pub(crate) const ON_ERROR: [&str; 3] = ["local", "allow", "deny"];
pub(crate) const TRANSPORTS: [&str; 4] = ["redis", "redis-call", "webdis", "upstash"];
/// Requests for each `on_error` while something is wrong: the breaker opens on the way.
const REQUESTS: u64 = 6;

/// The errors of Redis that are no verdicts.
const ERRORS: [&str; 9] = [
    "LOADING Redis is loading the dataset in memory",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "READONLY You can't write against a read only replica.",
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MOVED 3999 127.0.0.1:6381",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "NOSCRIPT No matching script. Please use EVAL.",
];

/// What a backend must not be able to say to a client.
const THEIRS: &str = "the backend's own words";

/// A rule for each `on_error`, by the path.
fn configuration(transport: &str, cluster: &str, timeout: Duration) -> String {
    let auth = match transport {
        "webdis" => format!(r#","auth":{{"value":"{}"}}"#, webdis::USER),
        "upstash" => format!(r#","auth":{{"value":"{}"}}"#, upstash::TOKEN),
        _ => String::new(),
    };
    let rule = |on_error| {
        format!(
            r#"{{"name":"{on_error}","match":{{"path":{{"exact":"/{on_error}"}}}},"key":["header:x-api-key"],
                "limits":["{BURST}/d burst {BURST}"],"on_error":"{on_error}"}}"#
        )
    };
    let rules = ON_ERROR.map(rule).join(",");
    let timeout = timeout.as_millis();
    format!(
        r#"{{"store":{{"transport":"{transport}","cluster":"{cluster}","timeout":"{timeout}ms"{auth}}},"rules":[{rules}]}}"#
    )
}

/// A transport's sample with its server behind this port.
fn setup(transport: &str, port: u16, configuration: &str) -> Setup {
    let sample = Setup::sample(&format!("{transport}.yaml"));
    let setup = match transport {
        "webdis" => sample.with_webdis(port),
        "upstash" => sample.with_plain_upstash(port),
        _ => sample.with_redis(port),
    };
    setup.with_text(configuration)
}

/// Real Redis, what is between, and Envoy.
pub(crate) struct Chain {
    transport: &'static str,
    pub(crate) redis: Redis,
    _webdis: Option<Webdis>,
    pub(crate) backend: Faulty,
    pub(crate) envoy: Envoy,
    /// Of each request under a fault: what it was, and how long it took.
    took: Vec<(String, Duration)>,
}

impl Chain {
    pub(crate) fn start(transport: &'static str, timeout: Duration) -> Chain {
        let redis = Redis::start();
        let mut webdis = None;
        let backend = match transport {
            "webdis" => Faulty::before(webdis.insert(Webdis::start(redis.port)).port, b"POST "),
            "upstash" => Faulty::before(upstash::serve(redis.port), b"POST "),
            _ => Faulty::before(redis.port, b"\r\nEVAL"),
        };
        let configuration = configuration(transport, "weir-redis", timeout);
        let envoy = setup(transport, backend.port, &configuration).start();
        let chain = Chain { transport, redis, _webdis: webdis, backend, envoy, took: Vec::new() };
        chain.recovers("before all", Duration::from_secs(5));
        chain
    }

    fn http(&self) -> bool {
        ["webdis", "upstash"].contains(&self.transport)
    }

    /// What its server would answer where Redis answers with this error.
    fn error(&self, text: &str) -> Mode {
        match self.transport {
            "redis" => Mode::Bytes(format!("-{text}\r\n").into_bytes()),
            "redis-call" => Mode::BytesAndClose(format!("-{text}\r\n").into_bytes()),
            "webdis" => http(200, &format!(r#"{{"EVALSHA":[false,"{text}"]}}"#)),
            _ => http(400, &format!(r#"{{"error":"{text}"}}"#)),
        }
    }

    /// The faults of its backend, and what they are called.
    pub(crate) fn faults(&self) -> Vec<(String, Mode)> {
        let mut faults: Vec<(String, Mode)> = [
            ("a host that isn't there", Mode::Absent),
            ("a closed port", Mode::Closed),
            ("a black hole", Mode::Silent),
            ("an answer after the timeout", Mode::Late(TIMEOUT * 2)),
            ("an answer that breaks off", Mode::Cut(7)),
            ("no answer, and the connection is closed", Mode::Cut(0)),
            ("garbage", Mode::BytesAndClose((0..=255).cycle().take(1000).collect())),
            ("a reply that is nobody's", Mode::BytesAndClose(b"$999999999999\r\n".to_vec())),
            ("an HTTP error", http(400, "<html>")),
        ]
        .map(|(name, mode)| (name.to_owned(), mode))
        .into();
        faults.extend(ERRORS.iter().map(|text| (format!("-{text}"), self.error(text))));
        if self.http() {
            faults.extend([401, 429, 500, 503, 302].map(|status| (format!("HTTP {status}"), http(status, "slow down"))));
            faults.extend(
                [
                    "<html><body>Bad gateway</body></html>",
                    "",
                    "{}",
                    "[]",
                    "null",
                    "{",
                    r#"{"result":"1"}"#,
                    r#"{"result":null}"#,
                    r#"{"EVALSHA":[1,null,0,600]}"#,
                    r#"{"error":"ERR max daily request limit exceeded"}"#,
                ]
                .map(|body| (format!("HTTP 200 with {body}"), http(200, body))),
            );
        }
        faults
    }

    /// What happens to requests while something is wrong: each `on_error` decides, and that is counted.
    fn on_error_decides(&mut self, fault: &str) {
        let errors = |rule: &str| self.envoy.metric(&format!("rule.{rule}.errors"));
        let (before, failures) = (ON_ERROR.map(errors), self.envoy.metric("store.failures"));
        let envoy = &self.envoy;
        let answers: Vec<(Response, Duration)> = std::thread::scope(|scope| {
            let clients = ON_ERROR.map(|on_error| scope.spawn(move || requests(envoy, on_error, fault)));
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let what = format!("{}, {fault}", self.transport);
        for (at, (answer, took)) in answers.into_iter().enumerate() {
            let on_error = ON_ERROR[at / usize::try_from(REQUESTS).unwrap()];
            let wanted = match on_error {
                "local" => (200, Some(BURST), "ok"),
                "allow" => (200, None, "ok"),
                _ => (503, None, r#"{"message":"Service unavailable"}"#),
            };
            let given = (answer.status, answer.number("ratelimit-limit"), answer.body.as_str());
            assert_eq!(given, wanted, "{what}, {on_error}: {answer:?}");
            assert!(!format!("{answer:?}").contains(THEIRS), "{what}: {answer:?}");
            self.took.push((format!("{what}, {on_error}"), took));
        }
        assert_eq!(ON_ERROR.map(errors), before.map(|before| before + REQUESTS), "{what}");
        assert!(self.envoy.metric("store.failures") > failures, "{what}");
    }

    /// Redis decides again, and has charged no request twice.
    pub(crate) fn recovers(&self, fault: &str, within: Duration) {
        let what = format!("{}, {fault}", self.transport);
        let (start, mut asked) = (Instant::now(), 0);
        let decided = || {
            asked += 1;
            let answer = self.envoy.get("/deny", &[("x-api-key", fault)]);
            (answer.status == 200).then_some(answer)
        };
        let answer = until(within, decided, || format!("{what}: Redis decides again:\n{:?}", self.envoy.metrics()));
        let charged = BURST - answer.number("ratelimit-remaining").unwrap();
        assert!((1..=REQUESTS + asked).contains(&charged), "{what}: charged {charged} for {REQUESTS} and {asked}");
        if std::env::var_os("WEIR_SHOW").is_some() {
            println!("{what}: {:?}", start.elapsed());
        }
    }
}

/// An HTTP answer with the backend's own words in it.
fn http(status: u16, body: &str) -> Mode {
    let head = format!("HTTP/1.1 {status} X\r\nretry-after: 77\r\nx-backend: {THEIRS}\r\nratelimit-limit: 77\r\n");
    Mode::Bytes(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

fn requests(envoy: &Envoy, on_error: &str, fault: &str) -> Vec<(Response, Duration)> {
    let mut client = Client::connect(envoy.port);
    let answer = |_| {
        let start = Instant::now();
        let answer = client.get(format!("/{on_error}"), &[("x-api-key", fault.as_bytes())]).unwrap();
        (answer, start.elapsed())
    };
    (0..REQUESTS).map(answer).collect()
}

/// All the faults of a transport, one after the other, each with its recovery.
fn table(transport: &'static str) {
    let mut chain = Chain::start(transport, TIMEOUT);
    for (fault, mode) in chain.faults() {
        chain.backend.is(mode);
        chain.on_error_decides(&fault);
        chain.backend.is(Mode::Pass);
        chain.recovers(&fault, Duration::from_secs(1));
    }
    chain.redis.kill();
    chain.on_error_decides("Redis is killed");
    chain.redis.restart();
    chain.recovers("Redis is killed", Duration::from_secs(1));
    assert_in_time(&chain.took, TIMEOUT);
}

/// No server can be chosen: the transport's cluster has none, or there is no such cluster. It stays so until a control plane changes it.
fn nowhere(transport: &'static str, what: &str, setup: Setup) {
    let envoy = setup.start();
    let mut chain = Chain {
        transport,
        redis: Redis::start(),
        _webdis: None,
        backend: Faulty::redis(Mode::Pass),
        envoy,
        took: Vec::new(),
    };
    chain.on_error_decides(what);
    assert_in_time(&chain.took, TIMEOUT);
}

#[test]
fn clusters_without_a_server_and_unknown_ones_are_answered_in_time_by_on_error() {
    let _machine = alone();
    for transport in TRANSPORTS {
        let empty = setup(transport, free_port(), &configuration(transport, "weir-redis", TIMEOUT));
        nowhere(transport, "an empty cluster", empty.without_endpoints("weir-redis"));
        nowhere(transport, "an unknown cluster", setup(transport, free_port(), &configuration(transport, "none", TIMEOUT)));
    }
}

/// Keys that are on all nodes of a Redis Cluster.
const KEYS: u64 = 12;

/// A request for each of these keys; whether Redis has decided all.
fn sweep(envoy: &Envoy, on_error: &str, took: &mut Vec<Duration>) -> bool {
    let mut client = Client::connect(envoy.port);
    let mut failed = 0;
    for key in 0..KEYS {
        let start = Instant::now();
        let answer = client.get(format!("/{on_error}"), &[("x-api-key", format!("k{key}").as_bytes())]).unwrap();
        took.push(start.elapsed());
        let by_redis = answer.status == 200 && answer.header("ratelimit-limit").is_some();
        let by_on_error = match on_error {
            "allow" => answer.status == 200 && answer.header("ratelimit-limit").is_none(),
            _ => answer.status == 503,
        };
        assert!(by_redis || by_on_error, "{on_error}: {answer:?}");
        failed += u32::from(by_on_error);
    }
    failed == 0
}

#[test]
fn a_node_of_the_cluster_is_killed_and_when_its_replica_is_promoted_redis_decides_again_within_a_second() {
    let _machine = alone();
    let mut cluster = Cluster::start();
    let replica = cluster.add_replica();
    let configuration = configuration("redis", "weir-redis", TIMEOUT).replace(r#""timeout""#, r#""scope":"rule","timeout""#);
    let envoy = setup("redis-cluster", cluster.port(), &configuration).start();
    let decide = || ON_ERROR.iter().all(|on_error| sweep(&envoy, on_error, &mut Vec::new())).then_some(());
    until(Duration::from_secs(5), decide, || format!("all nodes decide:\n{}", envoy.log()));
    cluster.kill_first();
    let (mut took, mut rounds) = (Vec::new(), 1);
    let promoted = || {
        for on_error in ON_ERROR {
            sweep(&envoy, on_error, &mut took); // some of it fails now, whatever it says
        }
        rounds += 1;
        replica.is_master().then_some(())
    };
    until(Duration::from_secs(30), promoted, || "the replica is promoted".to_owned());
    let start = Instant::now();
    let decide = || {
        rounds += 1;
        ON_ERROR.iter().all(|on_error| sweep(&envoy, on_error, &mut took)).then_some(())
    };
    until(Duration::from_secs(20), decide, || format!("all nodes decide again:\n{}", envoy.log()));
    let back = start.elapsed();
    assert!(back <= Duration::from_secs(1), "after {back:?}");
    assert!(ON_ERROR.iter().all(|rule| envoy.metric(&format!("rule.{rule}.errors")) > 0), "{:?}", envoy.metrics());
    let answers: Vec<_> = took.into_iter().map(|took| ("a node is killed", took)).collect();
    assert_in_time(&answers, TIMEOUT);
    for key in 0..KEYS {
        let answer = envoy.get("/deny", &[("x-api-key", &format!("k{key}"))]);
        let charged = BURST - answer.number("ratelimit-remaining").unwrap();
        assert!((1..=rounds + 2).contains(&charged), "k{key}: charged {charged} in {rounds} rounds");
    }
}

/// How many clients go away while they wait for Redis.
const GONE: u64 = 10_000;

#[test]
fn ten_thousand_clients_that_go_away_while_they_wait_leave_no_trace() {
    let _machine = alone();
    for transport in TRANSPORTS {
        let mut chain = Chain::start(transport, Duration::from_secs(10));
        chain.backend.is(Mode::Silent);
        let before = chain.envoy.metric("store.requests");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..GONE / 4 {
                        let mut client = Client::connect(chain.envoy.port);
                        client.send("/allow", &[("x-api-key", b"gone")]).unwrap();
                    } // and here it goes away
                });
            }
        });
        let seen = || {
            let metrics = chain.envoy.metrics();
            let asked = metrics["store.requests"] - before + metrics["rule.allow.errors"];
            (asked >= GONE).then_some(())
        };
        until(Duration::from_secs(10), seen, || format!("{transport}: {:?}", chain.envoy.metrics()));
        chain.backend.is(Mode::Pass);
        chain.recovers("gone", Duration::from_secs(1));
        let nobody = || (chain.envoy.metric("store.pending") == 0).then_some(());
        until(Duration::from_secs(15), nobody, || format!("{transport}: {:?}", chain.envoy.metrics()));
    }
}

#[test]
fn each_fault_of_the_stream_is_answered_in_time_by_on_error_and_redis_decides_again_within_a_second() {
    let _machine = alone();
    table("redis");
}

#[test]
fn each_fault_of_a_raw_callout_is_answered_in_time_by_on_error_and_redis_decides_again_within_a_second() {
    let _machine = alone();
    table("redis-call");
}

#[test]
fn each_fault_of_webdis_is_answered_in_time_by_on_error_and_redis_decides_again_within_a_second() {
    let _machine = alone();
    table("webdis");
}

#[test]
fn each_fault_of_upstash_is_answered_in_time_by_on_error_and_redis_decides_again_within_a_second() {
    let _machine = alone();
    table("upstash");
}
