use super::*;
use crate::limit::MAX_COUNT;
use crate::request::Network;
use crate::rules::{ForwardedBy, HeaderMatch, HeaderTest, HostMatch, PathMatch, Source, Template};
use proptest::prelude::*;
use serde_json::{Value, json};

fn good() -> Value {
    json!({"rules": [{"name": "r", "key": ["ip"], "limits": ["10/s"]}]})
}

/// The value with the fields of a JSON object put in.
fn put(mut value: Value, fields: &str) -> Value {
    let fields: Value = serde_json::from_str(fields).unwrap();
    for (name, field) in fields.as_object().unwrap() {
        value[name] = field.clone();
    }
    value
}

fn with_rule(fields: &str) -> Value {
    json!({"rules": [put(good()["rules"][0].clone(), fields)]})
}

fn lines(configuration: &str) -> Vec<String> {
    match Config::parse(configuration.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(Fault::to_string).collect(),
    }
}

fn parsed(configuration: &Value) -> Config {
    Config::parse(configuration.to_string().as_bytes()).unwrap_or_else(|faults| panic!("{configuration}: {faults:?}"))
}

/// All others are files, `tests/fixtures/config/bad`, which the command line's tests read.
#[test]
fn what_is_no_object_of_json_is_told() {
    let fields = "store, client_ip, exempt, block, response, rules";
    let no_object = |value: &str| format!("configuration: {value}: an object is wanted, with {fields}");
    let no_json = |why: &str| format!("configuration: neither JSON nor a protobuf Struct: {why}");
    let empty =
        r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    let rules = r#""rules":[{"name":"r","key":["ip"],"limits":["10/s"]}]"#;
    let table = [
        ("", empty.to_owned()),
        (" \n", empty.to_owned()),
        ("{", no_json("EOF while parsing an object at line 1 column 1")),
        ("[]", no_object("[]")),
        ("null", no_object("null")),
        (r#""x""#, no_object(r#""x""#)),
        (&format!("{{{rules},{rules}}}"), no_json("the field \"rules\" is given twice at line 1 column 109")),
        (r#"{"rules":1e400}"#, no_json("number out of range at line 1 column 14")),
    ];
    for (text, wanted) in table {
        assert_eq!(lines(text), [wanted], "{text}");
    }
    let broken = Config::parse(b"{\n\"rules\": }").unwrap_err();
    assert_eq!((broken[0].line(), broken[0].path()), (Some(2), ""));
}

#[test]
fn a_body_has_64_kib_at_most() {
    let body = |length: usize| put(good(), &json!({"response": {"body": "x".repeat(length)}}).to_string()).to_string();
    assert_eq!(lines(&body(65_536)), Vec::<String>::new());
    assert!(lines(&body(65_537))[0].ends_with("…: 65537 bytes long; allowed: 65536"), "{:?}", lines(&body(65_537)));
}

#[test]
fn what_is_not_given_has_the_documented_default() {
    let config = parsed(&put(good(), r#"{"store":{"cluster":"redis"}}"#));
    let store = config.store.unwrap();
    assert_eq!((store.timeout_ms, store.key_prefix.as_str(), store.scope), (50, "rl", Scope::Request));
    assert_eq!(store.breaker, Breaker { failures: 5, open_ms: 1000 });
    let rule = &config.rules[0];
    let response = &rule.response;
    assert_eq!((response.status, &response.headers[..], response.jitter_ms), (429, &[HeaderFamily::RateLimit][..], 0));
    assert_eq!(response.body, Body::Text(r#"{"message":"Too many requests"}"#.to_owned()));
    assert_eq!((response.content_type.as_str(), response.grpc_status), ("application/json", GrpcStatus::ResourceExhausted));
    assert_eq!((&rule.cost, rule.on_missing, rule.on_error), (&Cost::Fixed(1), OnMissing::Skip, OnError::Local));
    assert_eq!(
        (rule.select, rule.enforce_percent, rule.cache_denials_ms, rule.lease, rule.live_every_ms),
        (Select::Always, 100, 1000, None, None)
    );
    assert_eq!(config.client_ip, ClientIp { header: None, ipv4_prefix: 32, ipv6_prefix: 64 });
    assert_eq!((rule.share, rule.mode), (1.0, Mode::Enforce));
    assert_eq!(parsed(&good()).store, None);
}

#[test]
fn every_field_is_taken_over() {
    let config = parsed(&json!({
        "store": {"transport": "upstash", "cluster": "c", "timeout": "1s", "key_prefix": "a:b", "scope": "rule",
                  "path": "/redis", "authority": "eu1.upstash.io", "auth": {"env": "TOKEN"},
                  "breaker": {"failures": 1000, "open": "1h"}},
        "client_ip": {"from": "header", "header": "X-Real-IP", "trusted_hops": 2, "ipv6_prefix": 56, "ipv4_prefix": 24},
        "exempt": [{"path": {"exact": "/healthz"}}],
        "block": [{"ip": ["203.0.113.0/24"]}, {"methods": ["TRACE"], "status": 405}],
        "response": {"status": 503, "body": "no", "headers": [], "retry_after_jitter": "2s"},
        "rules": [{
            "name": "a-b_1", "select": "route",
            "match": {
                "path": {"prefix": "/V1/"}, "methods": ["GET"], "hosts": ["API.example.com", "*.Example.net"],
                "headers": [{"name": "X-Plan", "exact": "gold", "invert": true}, {"name": "x-b"}],
                "ip": ["198.51.100.0/24"], "not": {"path": {"template": "/V1/*/ping"}},
            },
            "when": " request.size < 1000 ",
            "key": ["header:X-Key | ip", "const:a|path"], "limits": "unlimited", "algorithm": "fixed_window",
            "cost": {"from": "header:x-cost | const:2", "default": 3, "max": 9},
            "tiers": {"by": "jwt:plan", "values": {"free": ["1/s"], "internal": "unlimited"}},
            "overrides": {"acme": ["5/s token_bucket", "5/s"]}, "live_overrides": {},
            "on_missing": "deny", "on_error": "allow", "local": {"share": 0.5}, "mode": "shadow", "enforce_percent": 50,
            "cache_denials": "0s", "lease": {"every": "50ms"},
            "response": {"content_type": "text/plain", "headers": ["structured", "x-ratelimit"], "grpc_status": "UNAVAILABLE"},
        }],
    }));
    let breaker = Breaker { failures: 1000, open_ms: 3_600_000 };
    let store = Store {
        transport: Transport::Upstash,
        cluster: "c".into(),
        timeout_ms: 1000,
        key_prefix: "a:b".into(),
        scope: Scope::Rule,
        path: "/redis/".into(),
        authority: "eu1.upstash.io".into(),
        auth: Some(Auth::Env("TOKEN".into())),
        breaker,
    };
    assert_eq!(config.store, Some(store));
    let by = ForwardedBy { name: "x-real-ip".into(), trusted_hops: 2 };
    assert_eq!(config.client_ip, ClientIp { header: Some(by), ipv4_prefix: 24, ipv6_prefix: 56 });
    assert_eq!(config.exempt, [Match { path: Some(PathMatch::exact("/healthz")), ..Match::default() }]);
    let blocked = Match { ip: vec![Network::parse("203.0.113.0/24").unwrap()], ..Match::default() };
    assert_eq!(config.block, [(blocked, 403), (Match { methods: vec!["TRACE".into()], ..Match::default() }, 405)]);
    let response = Response {
        status: 503,
        body: Body::Text("no".into()),
        content_type: "text/plain".into(),
        headers: vec![HeaderFamily::Structured, HeaderFamily::XRateLimit],
        grpc_status: GrpcStatus::Unavailable,
        jitter_ms: 2000,
    };
    let window = |count| Limit::new(Algorithm::FixedWindow, count, 1000).unwrap();
    let not = Match { path: Some(PathMatch::Template(Template::parse("/V1/*/ping").unwrap())), ..Match::default() };
    let rule = RuleConfig {
        name: "a-b_1".into(),
        select: Select::Route,
        matches: Match {
            path: Some(PathMatch::prefix("/V1/")),
            methods: vec!["GET".into()],
            hosts: vec![HostMatch::Exact("api.example.com".into()), HostMatch::Below("example.net".into())],
            headers: vec![
                HeaderMatch { name: "x-plan".into(), test: HeaderTest::Exact("gold".into()), invert: true },
                HeaderMatch { name: "x-b".into(), test: HeaderTest::Present(true), invert: false },
            ],
            ip: vec![Network::parse("198.51.100.0/24").unwrap()],
            not: Some(Box::new(not)),
        },
        when: Some("request.size < 1000".into()),
        key: vec![
            KeyPart::new(vec![Source::Header("x-key".into()), Source::Ip]),
            KeyPart::new(vec![Source::Const("a".into()), Source::Path]),
        ],
        limits: Limits::Unlimited,
        algorithm: Algorithm::FixedWindow,
        cost: Cost::From {
            source: KeyPart::new(vec![Source::Header("x-cost".into()), Source::Const("2".into())]),
            default: 3,
            max: 9,
        },
        tiers: Some(Tiers {
            by: KeyPart::new(vec![Source::Jwt("plan".into())]),
            values: [("free".into(), Limits::These(vec![window(1)])), ("internal".into(), Limits::Unlimited)].into(),
        }),
        overrides: [("acme".into(), Limits::These(vec![Limit::token_bucket(5, 1000, 5).unwrap(), window(5)]))].into(),
        live_every_ms: Some(10_000),
        on_missing: OnMissing::Deny,
        on_error: OnError::Allow,
        share: 0.5,
        mode: Mode::Shadow,
        enforce_percent: 50,
        cache_denials_ms: 0,
        lease: Some(Terms { max: 100, every_ms: 50 }),
        response: Rc::new(response),
    };
    assert_eq!(config.rules, [rule]);
    assert_eq!(config.expressions, [("rules[0].when".to_owned(), "request.size < 1000".to_owned())]);
}

/// The source that a text is; of alternatives, how many.
fn source(text: &str) -> (Option<Source>, usize) {
    let rule = parsed(&with_rule(&json!({"key": [text]}).to_string())).rules.remove(0);
    let KeyPart { alternatives } = rule.key.into_iter().next().unwrap();
    let count = alternatives.len();
    (alternatives.into_iter().next(), count)
}

#[test]
fn every_source_is_read() {
    let property = |path: &str| Source::Property(path.replace('/', "\0"));
    let table = [
        ("header:X-Api-Key", Source::Header("x-api-key".into())),
        ("cookie:SID", Source::Cookie("SID".into())),
        ("query:api key", Source::Query("api key".into())),
        ("ip", Source::Ip),
        ("path", Source::Path),
        ("path:2", Source::PathSegment(2)),
        ("method", Source::Method),
        ("host", Source::Host),
        ("route", property("xds/route_name")),
        ("virtual_host", property("xds/virtual_host_name")),
        ("cluster", property("xds/cluster_name")),
        ("jwt:https://example.com/plan", Source::Jwt("https://example.com/plan".into())),
        ("metadata:envoy.filters.http.jwt_authn/payload/sub", {
            Source::Metadata(["envoy.filters.http.jwt_authn", "payload", "sub"].map(str::to_owned).to_vec())
        }),
        ("filter_state:a/b", Source::Property("filter_state\0a/b".into())),
        ("property:connection/requested_server_name", property("connection/requested_server_name")),
        ("cel: a || b ", Source::Cel("a || b".into())),
        ("const: x:y ", Source::Const(" x:y".into())),
    ];
    for (text, wanted) in table {
        assert_eq!(source(text), (Some(wanted), 1), "{text}");
    }
    for (text, count) in [
        ("ip|path | host", 3),
        ("cel:a || b | ip", 2),
        ("cel:'a|b' + \"c|d\" | ip", 2),
        (r"cel:'\'|' | ip", 2),
        ("cel:a|b", 2),
        ("const:a|ip", 2),
    ] {
        if text == "cel:a|b" {
            assert_eq!(lines(&with_rule(&json!({"key": [text]}).to_string()).to_string()).len(), 1, "`b` is no source");
        } else {
            assert_eq!(source(text).1, count, "{text}");
        }
    }
}

#[test]
fn off_without_quotes_is_off_as_yaml_reads_it() {
    assert_eq!(parsed(&with_rule(r#"{"mode":false}"#)).rules[0].mode, Mode::Off);
}

#[test]
fn limits_are_read_in_every_spelling() {
    let table = [
        (json!("100/min"), (100, 60_000, 100)),
        (json!("5/10s"), (5, 10_000, 5)),
        (json!("20/s burst 40"), (20, 1000, 40)),
        (json!("  20/sec  burst  40 token_bucket "), (20, 1000, 40)),
        (json!("1/1h30m"), (1, 5_400_000, 1)),
        (json!("1/250ms"), (1, 250, 1)),
        (json!("1/1ms"), (1, 1, 1)),
        (json!("9007199254740991/31d burst 9007199254740991"), (MAX_COUNT, 2_678_400_000, MAX_COUNT)),
        (json!("7/days"), (7, 86_400_000, 7)),
        (json!({"count": 500000.0, "window": "hour"}), (500_000, 3_600_000, 500_000)),
        (json!({"count": 5e5, "window": "1d", "burst": 1, "algorithm": "token_bucket"}), (500_000, 86_400_000, 1)),
    ];
    for (text, (count, window_ms, burst)) in table {
        let mut value = good();
        value["rules"][0]["limits"][0] = text.clone();
        assert_eq!(
            parsed(&value).rules[0].limits,
            Limits::These(vec![Limit::token_bucket(count, window_ms, burst).unwrap()]),
            "{text}"
        );
    }
}

#[test]
fn a_rule_has_up_to_eight_limits_of_any_algorithm() {
    let fields = r#"{"algorithm":"sliding_window","limits":["1/s","2/s fixed_window","3/s burst 9 token_bucket","4/s sliding_log",
        "1000/h",{"count":6,"window":"2s","algorithm":"fixed_window"},"7/3s","8/4s"]}"#;
    let window = |algorithm, count, window_ms| Limit::new(algorithm, count, window_ms).unwrap();
    let wanted = [
        window(Algorithm::SlidingWindow, 1, 1000),
        window(Algorithm::FixedWindow, 2, 1000),
        Limit::token_bucket(3, 1000, 9).unwrap(),
        window(Algorithm::SlidingLog, 4, 1000),
        window(Algorithm::SlidingWindow, 1000, 3_600_000),
        window(Algorithm::FixedWindow, 6, 2000),
        window(Algorithm::SlidingWindow, 7, 3000),
        window(Algorithm::SlidingWindow, 8, 4000),
    ];
    assert_eq!(parsed(&with_rule(fields)).rules[0].limits, Limits::These(wanted.to_vec()));
}

#[test]
fn a_leaky_bucket_says_how_many_may_wait_and_how_long() {
    let table = [
        (json!("10/s leaky_bucket"), Limit::leaky_bucket(10, 1000, 10, 10_000)),
        (json!("10/s burst 5 leaky_bucket"), Limit::leaky_bucket(10, 1000, 5, 10_000)),
        (
            json!({"count": 10, "window": "s", "algorithm": "leaky_bucket", "burst": 500, "max_delay": "1h"}),
            Limit::leaky_bucket(10, 1000, 500, 3_600_000),
        ),
    ];
    for (text, wanted) in table {
        let mut value = good();
        value["rules"][0]["limits"][0] = text.clone();
        assert_eq!(parsed(&value).rules[0].limits, Limits::These(vec![wanted.unwrap()]), "{text}");
    }
}

#[test]
fn a_thousand_rules_are_the_most() {
    let rules = |count: usize| {
        let rules: Vec<Value> =
            (0..count).map(|i| put(good()["rules"][0].clone(), &format!(r#"{{"name":"r{i}"}}"#))).collect();
        json!({"rules": rules}).to_string()
    };
    assert_eq!(lines(&rules(1000)), Vec::<String>::new());
    let lines = lines(&rules(1001));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("a list of 1 to 1000 is wanted"), "{}", lines[0]);
}

#[test]
fn long_values_are_cut_and_faults_keep_to_one_line() {
    let value = "x\n".repeat(1000);
    let line = &lines(&put(good(), &json!({"client_ip": value}).to_string()).to_string())[0];
    assert!(line.len() < 250 && !line.contains('\n') && line.contains('…'), "{line}");
}

/// The protobuf bytes that Envoy makes of a `google.protobuf.Struct`.
fn as_struct(value: &Value) -> Vec<u8> {
    use prost_types::{ListValue, Struct, Value as Message, value::Kind};
    fn message(value: &Value) -> Message {
        let kind = match value {
            Value::Null => Kind::NullValue(0),
            Value::Bool(flag) => Kind::BoolValue(*flag),
            Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
            Value::String(text) => Kind::StringValue(text.clone()),
            Value::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(message).collect() }),
            Value::Object(_) => Kind::StructValue(fields(value)),
        };
        Message { kind: Some(kind) }
    }
    fn fields(value: &Value) -> Struct {
        let fields = value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), message(value)));
        Struct { fields: fields.collect() }
    }
    prost::Message::encode_to_vec(&fields(value))
}

#[test]
fn a_struct_says_the_same_as_json() {
    let value = put(with_rule(r#"{"cost":500000,"limits":[{"count":7,"window":"s"}]}"#), r#"{"store":{"cluster":"c"}}"#);
    assert_eq!(Config::parse(&as_struct(&value)).unwrap(), parsed(&value));
    let faults = Config::parse(&as_struct(&with_rule(r#"{"limits":["0/s"],"cost":1.5}"#))).unwrap_err();
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert_eq!(
        lines,
        [
            "rules[0].limits[0]: \"0/s\": a count of 0 would deny every request; allowed: 1 to 9007199254740991",
            "rules[0].cost: 1.5: an integer from 0 to 2147483648 is wanted, or an object with from, default and max",
        ]
    );
}

#[test]
fn a_fraction_that_envoy_has_made_a_string_is_the_fraction() {
    let value = with_rule(r#"{"local":{"share":"0.25"}}"#);
    assert_eq!(Config::parse(&as_struct(&value)).unwrap().rules[0].share, 0.25);
    for share in ["0", "1.5", "NaN", "inf", "x", ""] {
        let value = with_rule(&format!(r#"{{"local":{{"share":"{share}"}}}}"#));
        assert!(Config::parse(&as_struct(&value)).is_err(), "{share}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Config::parse(&bytes);
    }

    #[test]
    fn a_good_configuration_with_bytes_changed_is_read_or_refused(
        at in any::<proptest::sample::Index>(), byte in any::<u8>(), structured in any::<bool>(),
    ) {
        let value = put(with_rule(r#"{"match":{"path":{"prefix":"/a"}}}"#), r#"{"store":{"cluster":"c"}}"#);
        let mut bytes = if structured { as_struct(&value) } else { value.to_string().into_bytes() };
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Config::parse(&bytes);
    }
}
