mod plans;

use super::*;
use crate::config::Config;
use crate::limit::Limit;
use crate::request::Sample;
use proptest::prelude::*;

fn request<V: AsRef<[u8]>>(headers: &[(&str, V)]) -> Sample {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_ref().to_vec()));
    Sample::new(headers).with("source/address", "203.0.113.7:5000").with("xds/route_name", "search")
}

fn plan(rules: &Rules, request: &Sample) -> Checks {
    match rules.plan(request, Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 }) {
        Plan::Checks(checks) => checks,
        plan => panic!("{plan:?}"),
    }
}

fn rules(fields: &str) -> Rules {
    let text = format!(r#"{{"rules":[{{"name":"r","limits":["10/s"],{fields}}}]}}"#);
    Rules::new(&Config::parse(text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:?}")))
}

/// The subject of a request under a key; `-` where the rule doesn't apply.
fn subject(key: &str, request: &Sample) -> String {
    let plan = plan(&rules(&format!(r#""key":{key}"#)), request);
    plan.checks.first().map_or("-".to_owned(), |check| check.subject.as_str().to_owned())
}

#[test]
fn a_subject_is_the_values_of_the_key() {
    let r = request(&[
        (":method", "POST"),
        (":path", "/v1/%7Ejoe/../search?q=1"),
        (":authority", "API.example.com:8443"),
        ("x-api-key", " \tacme "),
        ("x-none", " "),
        ("authorization", "Bearer secret"),
    ]);
    let table = [
        (r#"["header:X-Api-Key"]"#, "acme"),
        (r#"["ip"]"#, "203.0.113.7"),
        (r#"["method","host","path","route","const:all"]"#, "POST,api.example.com,/v1/search,search,all"),
        (r#"["header:x-api-key | ip","route"]"#, "acme,search"),
        (r#"["header:x-none | ip"]"#, "2~203.0.113.7"),
        (r#"["header:x-none"]"#, "-"),
        (r#"["header:authorization"]"#, "#bffde20413347b7a00e1363de3f97ca6"),
    ];
    for (key, wanted) in table {
        assert_eq!(subject(key, &r), wanted, "{key}");
    }
}

#[test]
fn any_bytes_are_printable_ascii_in_a_subject() {
    let r = request(&[("k", b"a\r\nb\0{c}:\xff %,~#".as_slice())]);
    assert_eq!(subject(r#"["header:k"]"#, &r), "a%0D%0Ab%00%7Bc%7D:%FF%20%25%2C%7E%23");
}

#[test]
fn a_long_subject_is_hashed_and_its_key_has_at_most_256_bytes() {
    let long = |byte: u8| request(&[("k", vec![byte; 8192])]);
    let (a, b) = (subject(r#"["header:k"]"#, &long(b'a')), subject(r#"["header:k"]"#, &long(b'b')));
    assert!(a.starts_with("##") && a.len() == 34, "{a}");
    assert_ne!(a, b);
    assert_eq!(subject(r#"["header:k"]"#, &request(&[("k", [b'a'; 128])])), "a".repeat(128));
    let rules = rules(r#""key":["header:k"]"#);
    let check = plan(&rules, &request(&[("k", [b'a'; 128])])).checks.remove(0);
    let limit = Limit::token_bucket(1, crate::limit::MAX_WINDOW_MS, 1).unwrap();
    let mut key = Vec::new();
    redis_key(&mut key, &"p".repeat(32), &"r".repeat(64), &check.subject, &limit);
    assert!(key.len() <= MAX_KEY_BYTES, "{}", key.len());
}

#[test]
fn a_redis_key_names_rule_subject_algorithm_and_window_in_one_slot() {
    let rules = rules(r#""key":["header:k","method"]"#);
    let check = plan(&rules, &request(&[("k", "a:b}{c"), (":method", "GET")])).checks.remove(0);
    let mut key = Vec::new();
    let limit = Limit::token_bucket(100, 60_000, 100).unwrap();
    redis_key(&mut key, "rl", "r", &check.subject, &limit);
    assert_eq!(String::from_utf8(key).unwrap(), "rl:{r:a:b%7D%7Bc,GET}:tb:60000");
}

#[test]
fn values_of_different_alternatives_do_not_share_a_subject() {
    let key = r#"["header:a | header:b"]"#;
    let first = subject(key, &request(&[("a", "x")]));
    assert_ne!(first, subject(key, &request(&[("b", "x")])));
    assert_ne!(subject(key, &request(&[("a", "2~x")])), subject(key, &request(&[("b", "x")])));
}

#[test]
fn matchers_take_the_normalised_request() {
    let table = [
        (r#"{"path":{"prefix":"/foo"}}"#, "/foo", true),
        (r#"{"path":{"prefix":"/foo"}}"#, "/foo/", true),
        (r#"{"path":{"prefix":"/foo"}}"#, "/foo/v1?x=/bar", true),
        (r#"{"path":{"prefix":"/foo"}}"#, "/foobar", false),
        (r#"{"path":{"prefix":"/foo"}}"#, "/Foo", false),
        (r#"{"path":{"prefix":"/foo"}}"#, "/bar/../foo/x", true),
        (r#"{"path":{"prefix":"/foo"}}"#, "//%66oo", true),
        (r#"{"path":{"prefix":"/foo"}}"#, "/foo%2Fx", false),
        (r#"{"path":{"prefix":"/foo/"}}"#, "/foo", false),
        (r#"{"path":{"prefix":"/"}}"#, "/anything", true),
        (r#"{"path":{"exact":"/foo"}}"#, "/foo?x", true),
        (r#"{"path":{"exact":"/foo"}}"#, "/foo#x", true),
        (r#"{"path":{"exact":"/foo"}}"#, "/foo/", false),
        (r#"{"methods":["GET","HEAD"]}"#, "/", true),
        (r#"{"methods":["POST"]}"#, "/", false),
        (r#"{"hosts":["api.example.com"]}"#, "/", true),
        (r#"{"hosts":["example.com"]}"#, "/", false),
        (r#"{"hosts":["api.example.com"],"methods":["GET"],"path":{"exact":"/"}}"#, "/", true),
        (r#"{"hosts":["api.example.com"],"methods":["GET"],"path":{"exact":"/x"}}"#, "/", false),
        ("{}", "/", true),
    ];
    for (conditions, path, wanted) in table {
        let rules = rules(&format!(r#""key":["ip"],"match":{conditions}"#));
        let r = request(&[(":method", "GET"), (":path", path), (":authority", "api.Example.com:80")]);
        assert_eq!(!plan(&rules, &r).checks.is_empty(), wanted, "{conditions} {path}");
    }
}

#[test]
fn a_request_without_the_key_is_skipped_or_denied() {
    let nobody = Sample::default();
    let skip = plan(&rules(r#""key":["header:k"]"#), &nobody);
    assert_eq!((skip.checks.len(), skip.missing.len(), skip.denied), (0, 1, None));
    let deny = plan(&rules(r#""key":["header:k"],"on_missing":"deny""#), &nobody);
    assert_eq!((deny.checks.len(), deny.missing.len(), deny.denied), (0, 1, Some(RuleId(0))));
    for key in [r#"["ip"]"#, r#"["path"]"#, r#"["method"]"#, r#"["host"]"#, r#"["route"]"#] {
        assert_eq!(subject(key, &nobody), "-", "{key}");
    }
}

#[test]
fn a_rule_that_is_off_is_not_there() {
    assert_eq!(plan(&rules(r#""key":["ip"],"mode":"off""#), &request::<&str>(&[])), Checks::default());
}

#[test]
fn one_envoys_share_is_rounded_down_to_at_least_one() {
    let shares = |limit: &str, share: &str| {
        let text = format!(r#"{{"rules":[{{"name":"r","key":["ip"],"limits":["{limit}"],"local":{{"share":{share}}}}}]}}"#);
        let rules = Rules::new(&Config::parse(text.as_bytes()).unwrap());
        let limit = plan(&rules, &request::<&str>(&[])).checks[0].limits.local[0];
        (limit.count(), limit.burst(), limit.window_ms())
    };
    assert_eq!(shares("100/min burst 15", "0.1"), (10, 1, 60_000));
    assert_eq!(shares("5/s", "0.01"), (1, 1, 1000));
    assert_eq!(shares("9007199254740991/s", "1"), (9_007_199_254_740_991, 9_007_199_254_740_991, 1000));
}

/// Values of a key's two parts, each by its first or second alternative.
fn key_values() -> impl Strategy<Value = [(bool, Vec<u8>); 2]> {
    let byte = prop_oneof![Just(b':'), Just(b','), Just(b'%'), Just(b'~'), Just(b'2'), Just(b'#'), any::<u8>()];
    let value = proptest::collection::vec(byte, 1..5);
    [(any::<bool>(), value.clone()), (any::<bool>(), value)].prop_map(|parts| parts)
}

proptest! {
    #[test]
    fn two_requests_share_a_subject_only_if_their_values_are_the_same(one in key_values(), other in key_values()) {
        let key = r#"["header:a | header:b", "header:c | header:d"]"#;
        let subject_of = |values: &[(bool, Vec<u8>); 2]| {
            let names = [if values[0].0 { "a" } else { "b" }, if values[1].0 { "c" } else { "d" }];
            subject(key, &request(&[(names[0], &values[0].1), (names[1], &values[1].1)]))
        };
        let trimmed = |values: &[(bool, Vec<u8>); 2]| {
            values.clone().map(|(first, value)| (first, crate::request::trimmed(&value).map(<[u8]>::to_vec)))
        };
        let (one, other, same) = (subject_of(&one), subject_of(&other), trimmed(&one) == trimmed(&other));
        prop_assert!(one == "-" || other == "-" || (one == other) == same, "{} {}", one, other);
        prop_assert!(one.bytes().all(|b| b.is_ascii_graphic() && !b"{}".contains(&b)), "{}", one);
    }
}
