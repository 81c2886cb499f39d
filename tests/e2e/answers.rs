//! What clients see, whichever protocol they speak.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::http_client::{Client, Response};
use crate::servers::redis_server::Redis;
use crate::servers::{listen, until, wait_by_the_clock};
use crate::{beside_others, servers, with_store};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A configuration with a rule by API key, `fields` of it, and no Redis.
fn rules(fields: &str) -> String {
    format!(r#"{{"rules":[{{"name":"per-key","key":["header:x-api-key"],{fields}}}]}}"#)
}

fn values<'r>(response: &'r Response, name: &str) -> Vec<&'r str> {
    response.headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str()).collect()
}

/// The families of headers, and the names that each has for limit, remaining and reset.
const FAMILIES: [(&str, [&str; 3]); 2] = [
    ("ratelimit", ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"]),
    ("x-ratelimit", ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"]),
];

/// Limit, remaining and reset of a response, as a family tells them. All are plain digits.
fn told(response: &Response, family: &str) -> [u64; 3] {
    let digits = |text: &str| {
        assert!(!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()), "{family}: {text}");
        text.parse::<u64>().unwrap()
    };
    if let Some((_, names)) = FAMILIES.iter().find(|(name, _)| *name == family) {
        return names.map(|name| {
            assert_eq!(values(response, name).len(), 1, "{name}: {response:?}");
            digits(values(response, name)[0])
        });
    }
    let list = |name: &str| -> (String, Vec<(String, i64)>) {
        let [text] = values(response, name)[..] else { panic!("{name} is there once: {response:?}") };
        let list = sfv::Parser::new(text).parse::<sfv::List>().unwrap();
        let [sfv::ListEntry::Item(item)] = &list[..] else { panic!("one item: {text}") };
        let number = |value: &sfv::BareItem| i64::from(value.as_integer().unwrap());
        let parameters = item.params.iter().map(|(name, value)| (name.as_str().to_owned(), number(value)));
        (item.bare_item.as_string().unwrap().as_str().to_owned(), parameters.collect())
    };
    let (policy, quota) = list("ratelimit-policy");
    let (name, left) = list("ratelimit");
    assert_eq!((policy.as_str(), name.as_str()), ("per-key", "per-key"));
    assert_eq!((quota[0].0.as_str(), quota[1].0.as_str(), quota[1].1), ("q", "w", 60));
    assert_eq!((left[0].0.as_str(), left[1].0.as_str()), ("r", "t"));
    [quota[0].1, left[0].1, left[1].1].map(|number| u64::try_from(number).unwrap())
}

#[test]
fn every_family_tells_the_same_on_allowed_and_denied_responses_and_no_other_is_there() {
    let _machine = beside_others();
    let all = ["ratelimit", "x-ratelimit", "structured"];
    for families in [&all[..1], &all[1..2], &all[2..], &all, &[]] {
        let list = serde_json::to_string(families).unwrap();
        let envoy = Setup::local(&rules(&format!(r#""limits":["3/min"],"response":{{"headers":{list}}}"#))).start();
        let mut client = Client::connect(envoy.port);
        for (status, remaining) in [(200, 2), (200, 1), (200, 0), (429, 0)] {
            let response = client.get("/", &[("x-api-key", b"a")]).unwrap();
            assert_eq!(response.status, status);
            for family in families {
                let [limit, left, reset] = told(&response, family);
                assert_eq!((limit, left), (3, remaining), "{family}");
                assert!((1..=60).contains(&reset), "{family}: {reset}");
            }
            let count = response.headers.iter().filter(|(name, _)| name.contains("ratelimit")).count();
            let wanted: usize = families.iter().map(|family| if *family == "structured" { 2 } else { 3 }).sum();
            assert_eq!(count, wanted, "{families:?}: {response:?}");
        }
    }
}

#[test]
fn the_wait_is_honest_and_tight_for_every_family() {
    let _machine = beside_others();
    for family in ["ratelimit", "x-ratelimit", "structured"] {
        let response = format!(r#""limits":["60/min burst 1"],"response":{{"headers":["{family}"]}}"#);
        let envoy = Setup::local(&rules(&response)).start();
        assert_eq!(envoy.statuses("a", 1), [200]);
        let denied = envoy.get("/", &[("x-api-key", "a")]);
        let since = SystemTime::now();
        assert_eq!((denied.status, values(&denied, "retry-after")), (429, vec!["1"]), "{family}");
        wait_by_the_clock(since, Duration::from_secs(1));
        assert_eq!(envoy.statuses("a", 1), [200], "{family}");
    }
}

#[test]
fn a_windows_reset_counts_down_to_its_end() {
    let _machine = beside_others();
    let redis = Redis::start();
    for (family, name) in [("ratelimit", "ratelimit-reset"), ("x-ratelimit", "x-ratelimit-reset")] {
        let rule = format!(r#""limits":["50/min fixed_window"],"response":{{"headers":["{family}"]}}"#);
        let envoy = Setup::redis(redis.port, &with_store(&rule)).start();
        let reset = || envoy.get("/", &[("x-api-key", family)]).number(name).unwrap();
        let since = redis.now_ms();
        assert_eq!(reset(), 60, "the first request opens the window");
        until(Duration::from_secs(10), || (reset() <= 57).then_some(()), || format!("{name}: {}", reset()));
        let elapsed = redis.now_ms() - since;
        assert!(elapsed >= 3000, "{name}: three seconds less after {elapsed} ms of Redis's clock");
    }
}

/// The head of a response to a request by curl with these options, and its body.
fn curl(envoy: &Envoy, options: &[&str]) -> (String, String) {
    let url = format!("http://127.0.0.1:{}/", envoy.port);
    let mut curl = Command::new("curl");
    curl.args(["-s", "-i", "--max-time", "10"]).args(options).arg(&url);
    let output = String::from_utf8(curl.output().unwrap().stdout).unwrap();
    let (head, body) = output.split_once("\r\n\r\n").unwrap_or((&output, ""));
    (head.to_lowercase(), body.to_owned())
}

#[test]
fn heads_and_http_2_are_answered_like_any_request() {
    let _machine = beside_others();
    let envoy = Setup::local(&rules(r#""limits":["1/d burst 1"]"#)).start();
    for (options, key) in
        [(&["-I"][..], "a"), (&["--http2-prior-knowledge"], "b"), (&["-I", "--http2-prior-knowledge"], "c")]
    {
        let header = format!("x-api-key: {key}");
        let options = [options, &["-H", &header]].concat();
        let (allowed, _) = curl(&envoy, &options);
        assert!(allowed.contains(" 200") && allowed.contains("ratelimit-remaining: 0"), "{allowed}");
        let (denied, body) = curl(&envoy, &options);
        assert!(denied.contains(" 429") && denied.contains("retry-after: 86400"), "{denied}");
        assert!(denied.contains("ratelimit-limit: 1") && denied.contains("content-length: 31"), "{denied}");
        assert_eq!(body.is_empty(), options.contains(&"-I"), "{body}");
    }
}

/// The whole of the answer to a request on a connection of its own, up to the head's end.
fn head(port: u16, request: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    (head, stream)
}

/// An upstream that takes upgrades and sends back four bytes, and has an answer for every other request; its port. It listens as
/// long as the test process lives.
fn upstream() -> u16 {
    listen(serve)
}

/// Answers a request; `None` at the connection's end.
fn serve(stream: &mut BufReader<TcpStream>) -> Option<()> {
    let lines = servers::head(stream)?;
    if servers::field(&lines, "upgrade").is_none() {
        return stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok();
    }
    stream
        .get_mut()
        .write_all(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
        .ok()?;
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes).ok()?;
    stream.get_mut().write_all(&bytes).ok()
}

#[test]
fn a_websocket_is_opened_or_denied() {
    let _machine = beside_others();
    let envoy = Setup::local(&rules(r#""limits":["1/d burst 1"]"#))
        .replace("stat_prefix: ingress", "stat_prefix: ingress\n          upgrade_configs: [{upgrade_type: websocket}]")
        .with_upstream(upstream())
        .start();
    let upgrade = "GET /chat HTTP/1.1\r\nhost: test\r\nconnection: upgrade\r\nupgrade: websocket\r\nx-api-key: a\r\n\r\n";
    let (opened, mut stream) = head(envoy.port, upgrade);
    assert!(opened.starts_with("HTTP/1.1 101 ") && opened.contains("ratelimit-remaining: 0"), "{opened}");
    stream.get_mut().write_all(b"ping").unwrap();
    let mut back = [0; 4];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"ping");
    let (denied, _) = head(envoy.port, upgrade);
    assert!(denied.starts_with("HTTP/1.1 429 ") && denied.contains("retry-after: 86400"), "{denied}");
}

#[test]
fn a_preflight_is_free_and_a_denied_response_has_cors_headers() {
    let _machine = beside_others();
    let exempt = r#""exempt":[{"methods":["OPTIONS"],"headers":[{"name":"access-control-request-method"}]}]"#;
    let configuration = format!(r#"{{{exempt},"rules":[{{"name":"r","key":["ip"],"limits":["1/d burst 1"]}}]}}"#);
    let policy = "\"@type\": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy, \
                  allow_origin_string_match: [{exact: \"https://app.example\"}], allow_methods: GET, \
                  expose_headers: \"retry-after, ratelimit-limit\"";
    let cors = "          - {name: envoy.filters.http.cors, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}}\n          - name: weir\n";
    let envoy = Setup::local(&configuration)
        .replace("          - name: weir\n", cors)
        .with_upstream(upstream())
        .replace(
            "domains: [\"*\"]",
            &format!("domains: [\"*\"]\n              typed_per_filter_config: {{envoy.filters.http.cors: {{{policy}}}}}"),
        )
        .start();
    let origin = ["-H", "origin: https://app.example"];
    let preflight = [&origin[..], &["-X", "OPTIONS", "-H", "access-control-request-method: GET"]].concat();
    for _ in 0..5 {
        let (head, _) = curl(&envoy, &preflight);
        assert!(head.contains(" 200") && head.contains("access-control-allow-origin: https://app.example"), "{head}");
    }
    let (allowed, _) = curl(&envoy, &origin);
    assert!(allowed.contains(" 200"), "nothing was charged before: {allowed}");
    let (denied, _) = curl(&envoy, &origin);
    assert!(denied.contains(" 429") && denied.contains("access-control-allow-origin: https://app.example"), "{denied}");
    assert!(denied.contains("access-control-expose-headers: retry-after, ratelimit-limit"), "{denied}");
    // A preflight that Envoy itself doesn't answer is free too.
    let (foreign, _) = curl(&envoy, &["-X", "OPTIONS", "-H", "access-control-request-method: GET"]);
    assert!(foreign.contains(" 200"), "{foreign}");
    assert_eq!(envoy.metric("request.exempt"), 1);
}

#[test]
fn a_rule_has_an_answer_of_its_own() {
    let _machine = beside_others();
    let configuration = r#"{"response":{"body":"problem"},"rules":[
        {"name":"a","match":{"path":{"prefix":"/a"}},"key":["const:all"],"limits":["1/d burst 1"]},
        {"name":"b","match":{"path":{"prefix":"/b"}},"key":["const:all"],"limits":["1/d burst 1"],
         "response":{"status":503,"body":"{rule} of {limit}: in {retry_after} s","content_type":"text/plain","headers":[]}}]}"#;
    let envoy = Setup::local(configuration).start();
    let second = |path: &str| {
        envoy.get(path, &[]);
        envoy.get(path, &[])
    };
    let (a, b) = (second("/a"), second("/b"));
    assert_eq!((a.status, a.header("content-type")), (429, Some("application/problem+json")));
    let problem: serde_json::Value = serde_json::from_str(&a.body).unwrap();
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&429.into(), &serde_json::json!(["a"])));
    assert_eq!((b.status, b.header("content-type")), (503, Some("text/plain")));
    assert_eq!((b.body.as_str(), b.header("ratelimit-limit")), ("b of 1: in 86400 s", None));
    assert_eq!(b.header("retry-after"), Some("86400"));
}

/// Messages of gRPC as they are.
#[derive(Clone, Default)]
struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Raw;
    type Decoder = Raw;
    fn encoder(&mut self) -> Raw {
        Raw
    }
    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;
    fn encode(&mut self, item: Vec<u8>, to: &mut tonic::codec::EncodeBuf<'_>) -> Result<(), tonic::Status> {
        bytes::BufMut::put_slice(to, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;
    fn decode(&mut self, from: &mut tonic::codec::DecodeBuf<'_>) -> Result<Option<Vec<u8>>, tonic::Status> {
        Ok(Some(bytes::Buf::copy_to_bytes(from, bytes::Buf::remaining(from)).to_vec()))
    }
}

/// The status that a call by a real gRPC client ends with.
fn call(port: u16, key: &'static str) -> tonic::Status {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel =
            tonic::transport::Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap().connect().await.unwrap();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.unwrap();
        let mut request = tonic::Request::new(b"hello".to_vec());
        request.metadata_mut().insert("x-api-key", key.parse().unwrap());
        let path = "/shop.Orders/List".parse().unwrap();
        client.unary::<Vec<u8>, Vec<u8>, Raw>(request, path, Raw).await.unwrap_err()
    })
}

#[test]
fn a_grpc_client_sees_the_status_and_the_message() {
    let _machine = beside_others();
    let answers = [
        ("", tonic::Code::ResourceExhausted, r#"{"message":"Too many requests"}"#),
        (
            r#","response":{"grpc_status":"UNAVAILABLE","body":"{rule}: 100 % used"}"#,
            tonic::Code::Unavailable,
            "per-key: 100 % used",
        ),
    ];
    for (response, code, message) in answers {
        let envoy = Setup::local(&rules(&format!(r#""limits":["1/d burst 1"]{response}"#))).start();
        // Envoy answers in the upstream's place, and not as gRPC servers do.
        let first = call(envoy.port, "a");
        assert!(first.code() != code && first.metadata().get("retry-after").is_none(), "it was let in: {first:?}");
        let denied = call(envoy.port, "a");
        assert_eq!((denied.code(), denied.message()), (code, message), "{denied:?}");
        assert_eq!(denied.metadata().get("retry-after").unwrap(), "86400");
        assert_eq!(denied.metadata().get("ratelimit-remaining").unwrap(), "0");
    }
}
