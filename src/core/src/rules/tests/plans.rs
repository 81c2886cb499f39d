//! Which rules apply, with which limits and at what cost.

use super::*;
use crate::request::Headers;
use std::cell::Cell;

fn compiled(rules: &str) -> Rules {
    let text = format!(r#"{{"store":{{"cluster":"c"}},"rules":{rules}}}"#);
    Rules::new(&Config::parse(text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:?}")))
}

/// A rule for each of these conditions.
fn with_conditions(conditions: &[String]) -> Rules {
    let rule = |(i, matches): (usize, &String)| {
        format!(r#"{{"name":"r{i}","key":["const:all"],"limits":["1/s"],"match":{matches}}}"#)
    };
    compiled(&format!("[{}]", conditions.iter().enumerate().map(rule).collect::<Vec<_>>().join(",")))
}

fn for_path(host: &str, path: &str) -> Sample {
    request(&[(":method", "GET"), (":authority", host), (":path", path)])
}

#[test]
fn conditions_hold_or_do_not() {
    let r = request(&[
        (":method", "GET"),
        (":path", "/users/7/orders?x"),
        (":authority", "a.b.Example.net:8443"),
        ("x-plan", " gold "),
        ("x-many", "a"),
        ("x-many", "b"),
        ("x-empty", ""),
    ]);
    let table = [
        (r#"{"hosts":["*.example.net"]}"#, true),
        (r#"{"hosts":["*.b.example.net"]}"#, true),
        (r#"{"hosts":["*.a.b.example.net"]}"#, false),
        (r#"{"hosts":["*.xample.net"]}"#, false),
        (r#"{"hosts":["other.example","A.B.EXAMPLE.NET"]}"#, true),
        (r#"{"path":{"template":"/users/*/orders"}}"#, true),
        (r#"{"path":{"template":"/users/*"}}"#, false),
        (r#"{"path":{"template":"/users/**"}}"#, true),
        (r#"{"path":{"template":"/users/7/orders/**"}}"#, true),
        (r#"{"path":{"template":"/users/*/orders/*"}}"#, false),
        (r#"{"path":{"template":"/**"}}"#, true),
        (r#"{"path":{"regex":"/users/[0-9]+/.*"}}"#, true),
        (r#"{"path":{"regex":"/users"}}"#, false),
        (r#"{"headers":[{"name":"X-Plan","exact":"gold"}]}"#, true),
        (r#"{"headers":[{"name":"x-plan","exact":"Gold"}]}"#, false),
        (r#"{"headers":[{"name":"x-plan","prefix":"go"},{"name":"x-plan","suffix":"ld"}]}"#, true),
        (r#"{"headers":[{"name":"x-plan","prefix":"go"},{"name":"x-plan","suffix":"go"}]}"#, false),
        (r#"{"headers":[{"name":"x-plan","regex":"g.*"}]}"#, true),
        (r#"{"headers":[{"name":"x-plan","regex":"g"}]}"#, false),
        (r#"{"headers":[{"name":"x-many","exact":"a,b"}]}"#, true),
        (r#"{"headers":[{"name":"x-empty"}]}"#, true),
        (r#"{"headers":[{"name":"x-none"}]}"#, false),
        (r#"{"headers":[{"name":"x-none","present":false}]}"#, true),
        (r#"{"headers":[{"name":"x-none","present":true,"invert":true}]}"#, true),
        (r#"{"headers":[{"name":"x-none","exact":"a"}]}"#, false),
        (r#"{"headers":[{"name":"x-none","exact":"a","invert":true}]}"#, true),
        (r#"{"headers":[{"name":"x-plan","exact":"gold","invert":true}]}"#, false),
        (r#"{"ip":["203.0.113.0/24"]}"#, true),
        (r#"{"ip":["198.51.100.0/24","203.0.113.7"]}"#, true),
        (r#"{"ip":["203.0.113.8"]}"#, false),
        (r#"{"ip":["::/0"]}"#, false),
        (r#"{"not":{"path":{"prefix":"/users"}}}"#, false),
        (r#"{"not":{"path":{"prefix":"/users"},"methods":["POST"]}}"#, true),
        (r#"{"path":{"prefix":"/users"},"not":{"path":{"exact":"/users/7"}}}"#, true),
    ];
    for (conditions, wanted) in table {
        let rules = with_conditions(&[conditions.to_owned()]);
        assert_eq!(!plan(&rules, &r).checks.is_empty(), wanted, "{conditions}");
    }
    let somewhere = with_conditions(&[r#"{"ip":["0.0.0.0/0","::/0"]}"#.to_owned()]);
    assert!(plan(&somewhere, &Sample::default()).checks.is_empty(), "nobody is in no network");
}

#[test]
fn the_most_specific_limits_hold() {
    let rules = compiled(
        r#"[{"name":"r","key":["header:k"],"limits":["1/s"],"live_overrides":{},
            "tiers":{"by":"header:plan","values":{"gold":["3/s"],"free":"unlimited"}},
            "overrides":{"a":["4/s"],"free":"unlimited"}}]"#,
    );
    let route = Route::parse(&serde_json::json!({"limits": {"r": ["2/s"]}}), Level::Route, &rules).unwrap();
    let mut live = LiveOverrides::default();
    live.replace(&rules, RuleId(0), &[("b".to_owned(), "5/s".to_owned()), ("c".to_owned(), "unlimited".to_owned())]);
    let of = |subject: &str, plan: &str, route: Option<&Route>| {
        let r = request(&[("k", subject), ("plan", plan)]);
        match rules.explain(&r, Surroundings { route, live: &live, roll: 0 }).findings.remove(0).1 {
            Finding::Applies(check) => (check.limits.limits[0].count(), check.origin),
            Finding::Unlimited(_, origin) => (0, origin),
            finding => panic!("{finding:?}"),
        }
    };
    assert_eq!(of("x", "", None), (1, Origin::Rule));
    assert_eq!(of("x", "silver", None), (1, Origin::Rule), "a tier that isn't listed");
    assert_eq!(of("x", "", Some(&route)), (2, Origin::Route));
    assert_eq!(of("x", "gold", Some(&route)), (3, Origin::Tier));
    assert_eq!(of("x", "free", None), (0, Origin::Tier));
    assert_eq!(of("a", "gold", Some(&route)), (4, Origin::Override));
    assert_eq!(of("free", "gold", None), (0, Origin::Override));
    assert_eq!(of("b", "gold", Some(&route)), (5, Origin::LiveOverride));
    assert_eq!(of("c", "gold", Some(&route)), (0, Origin::LiveOverride));
}

#[test]
fn a_cost_is_what_the_request_says_within_its_bounds() {
    let rules = compiled(
        r#"[{"name":"r","key":["ip"],"limits":["100/s"],"cost":{"from":"header:cost | query:cost","default":7,"max":50}}]"#,
    );
    let cost = |headers: &[(&str, &str)]| plan(&rules, &request(headers)).checks[0].cost;
    let table = [
        (vec![("cost", "3")], 3),
        (vec![("cost", "0")], 0),
        (vec![("cost", "50")], 50),
        (vec![("cost", "51")], 50),
        (vec![("cost", "99999999999999999999999999")], 50),
        (vec![("cost", "-1")], 7),
        (vec![("cost", "1.5")], 7),
        (vec![("cost", "1e3")], 7),
        (vec![("cost", "")], 7),
        (vec![], 7),
        (vec![(":path", "/?cost=4")], 4),
        (vec![(":path", "/?cost=4"), ("cost", "many")], 7),
    ];
    for (headers, wanted) in table {
        assert_eq!(cost(&headers), wanted, "{headers:?}");
    }
    let dear = Route::parse(&serde_json::json!({"cost": 9}), Level::Route, &rules).unwrap();
    let around = Surroundings { route: Some(&dear), live: &LiveOverrides::default(), roll: 0 };
    let Plan::Checks(checks) = rules.plan(&request(&[("cost", "3")]), around) else { panic!("it is checked") };
    assert_eq!(checks.checks[0].cost, 9, "a route's goes first");
}

#[test]
fn metadata_of_any_kind_is_text() {
    let rules = rules(r#""key":["metadata:a.b/c/d"]"#);
    let path = |keys: &str| keys.split('/').map(str::to_owned).collect::<Vec<_>>();
    for value in ["x", "", "exactly8", "ninebytes", "\0\0\0\0\0\0\0\0", "a, b"] {
        let r = request::<&str>(&[]).with("metadata/filter_metadata/a.b/c/d", value).with(
            "metadata",
            metadata_message(&[(path("a.b/c/d"), value.to_owned()), (path("a.b/c/e"), "other".to_owned())]),
        );
        let subject = plan(&rules, &r).checks.first().map(|check| check.subject.as_str().to_owned());
        let wanted = match value {
            "" => None,
            "a, b" => Some("a%2C%20b".to_owned()),
            value => Some(value.replace('\0', "%00")),
        };
        assert_eq!(subject, wanted, "{value:?}");
    }
    assert!(plan(&rules, &request::<&str>(&[])).checks.is_empty());
}

/// A request that counts how often it is asked for one of its headers, and for all.
struct Counting {
    sample: Sample,
    one: Cell<u32>,
    all: Cell<u32>,
}

impl Request for Counting {
    fn headers(&self) -> Headers {
        self.all.set(self.all.get() + 1);
        self.sample.headers()
    }
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.one.set(self.one.get() + 1);
        self.sample.header(name)
    }
    fn property(&self, path: &str) -> Result<Option<Vec<u8>>, crate::request::Unreadable> {
        self.sample.property(path)
    }
    fn evaluate(&self, expression: &str) -> Option<Vec<u8>> {
        self.sample.evaluate(expression)
    }
}

#[test]
fn of_a_thousand_rules_those_for_the_host_and_path_are_looked_at() {
    let conditions: Vec<String> = (0..500)
        .flat_map(|i| {
            [
                format!(r#"{{"hosts":["api{i}.example.com"],"path":{{"prefix":"/v{i}/orders"}}}}"#),
                format!(r#"{{"path":{{"template":"/t{i}/*"}}}}"#),
            ]
        })
        .collect();
    let rules = with_conditions(&conditions);
    let candidates = |host: &'static str, path: &'static str| rules.index.candidates(|| host.as_bytes(), || path.as_bytes());
    assert_eq!(candidates("api7.example.com", "/v7/orders/1"), [14]);
    assert_eq!(candidates("api7.example.com", "/v8/orders"), Vec::<usize>::new());
    assert_eq!(candidates("api7.example.com", "/t9/x"), [19]);
    assert_eq!(candidates("elsewhere", "/"), Vec::<usize>::new());
    assert_eq!(asked(&rules, for_path("api7.example.com", "/v7/orders/1")), (2, 0), "host and path");
}

/// How often one header was asked for, and all of them.
fn asked(rules: &Rules, sample: Sample) -> (u32, u32) {
    let request = Counting { sample, one: Cell::new(0), all: Cell::new(0) };
    let around = Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 };
    assert!(matches!(rules.plan(&request, around), Plan::Checks(checks) if !checks.checks.is_empty()));
    (request.one.get(), request.all.get())
}

#[test]
fn a_header_is_asked_for_once_and_more_than_three_all_at_once() {
    let keys = |keys: &[&str]| {
        let key = serde_json::to_string(keys).unwrap();
        let twice = ["a", "b"].map(|name| format!(r#"{{"name":"{name}","key":{key},"limits":["1/s"]}}"#));
        compiled(&format!("[{}]", twice.join(",")))
    };
    let sample = || request(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"), ("cookie", "e=5")]);
    assert_eq!(asked(&keys(&["ip"]), sample()), (0, 0));
    assert_eq!(asked(&keys(&["header:a"]), sample()), (1, 0));
    assert_eq!(asked(&keys(&["header:x | header:a", "header:b"]), sample()), (3, 0), "what isn't there is known too");
    assert_eq!(asked(&keys(&["header:a", "header:b", "header:c", "header:d"]), sample()), (3, 1));
    assert_eq!(asked(&keys(&["cookie:e", "header:a", "header:b"]), sample()), (0, 1), "cookies have lines of their own");
}

fn condition() -> impl Strategy<Value = String> {
    let host = prop_oneof![Just("a.example"), Just("*.example"), Just("*.a.example"), Just("b.a.example"), Just("example")];
    let segment = prop_oneof![Just("a"), Just("b"), Just("*")];
    let path = proptest::collection::vec(segment, 0..4).prop_map(|segments| format!("/{}", segments.join("/")));
    let path = (path, 0..4_u8).prop_map(|(path, kind)| match kind {
        0 => format!(r#"{{"exact":"{}"}}"#, path.replace('*', "c")),
        1 => format!(r#"{{"prefix":"{}"}}"#, path.replace('*', "c")),
        2 => format!(r#"{{"template":"{path}"}}"#),
        _ => format!(r#"{{"template":"{}/**"}}"#, path.trim_end_matches('/')),
    });
    (proptest::collection::vec(host, 0..3), proptest::option::of(path)).prop_map(|(hosts, path)| {
        let hosts = (!hosts.is_empty()).then(|| format!(r#""hosts":["{}"]"#, hosts.join(r#"",""#)));
        let path = path.map(|path| format!(r#""path":{path}"#));
        format!("{{{}}}", hosts.into_iter().chain(path).collect::<Vec<_>>().join(","))
    })
}

/// A source, and the kind of place that it reads.
fn sources() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop_oneof![
        Just(("header:x-a", "header")),
        Just(("query:a", "query")),
        Just(("cookie:a", "cookie")),
        Just(("property:a/b", "property")),
        Just(("cel:a", "cel")),
    ]
}

/// A request that has these bytes in the source, as far as they can be there; and what arrives.
fn carrying(kind: &str, bytes: &[u8]) -> (Sample, Vec<u8>) {
    let hex: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
    let r = match kind {
        "header" => request(&[("x-a", bytes)]),
        "query" => request(&[(":path", format!("/?a={hex}"))]),
        // Cookies are separated by semicolons.
        "cookie" => request(&[("cookie", [b"a=", bytes].concat())]),
        "property" => request::<&str>(&[]).with("a/b", bytes),
        _ => {
            let mut r = request::<&str>(&[]);
            r.expressions.insert("a".to_owned(), bytes.to_vec());
            r
        }
    };
    let arrives = match kind {
        "cookie" => {
            crate::request::cookie(std::iter::once([b"a=", bytes].concat().as_slice()), "a").unwrap_or_default().to_vec()
        }
        _ => bytes.to_vec(),
    };
    (r, crate::request::trimmed(&arrives).unwrap_or_default().to_vec())
}

proptest! {
    #[test]
    fn the_index_leaves_no_rule_out(
        conditions in proptest::collection::vec(condition(), 1..12),
        host in prop_oneof![Just("a.example"), Just("b.a.example"), Just("example"), Just("A.EXAMPLE:80"), Just("c.b.a.example")],
        path in proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("c"), Just(""), Just("..")], 0..5),
    ) {
        let rules = with_conditions(&conditions);
        let r = for_path(host, &format!("/{}", path.join("/")));
        let around = Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 };
        let all = rules.explain(&r, around).findings;
        let wanted: Vec<RuleId> = all.iter().filter(|(_, f)| matches!(f, Finding::Applies(_))).map(|(id, _)| *id).collect();
        let found: Vec<RuleId> = plan(&rules, &r).checks.iter().map(|check| check.rule).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn subjects_are_the_same_only_where_all_bytes_are(
        (key, kind) in sources(),
        one in proptest::collection::vec(any::<u8>(), 0..200),
        other in proptest::collection::vec(any::<u8>(), 0..200),
        flip in any::<proptest::sample::Index>(),
    ) {
        let key = format!(r#"["{key}"]"#);
        let mut near = one.clone();
        if !near.is_empty() {
            let at = flip.index(near.len());
            near[at] ^= 1;
        }
        let (r, arrives) = carrying(kind, &one);
        let mine = subject(&key, &r);
        prop_assert!(mine.bytes().all(|b| b.is_ascii_graphic() && !b"{}".contains(&b)) && mine.len() <= 128, "{}", mine);
        for bytes in [&other, &near] {
            let (r, others) = carrying(kind, bytes);
            prop_assert_eq!(subject(&key, &r) == mine, others == arrives, "{:?} {:?}", arrives, others);
        }
    }

    #[test]
    fn two_spellings_of_a_path_or_host_are_one_subject(
        path in proptest::collection::vec(prop_oneof![Just("a"), Just("B"), Just("~c"), Just("%2F")], 0..4),
        host in "[a-zA-Z]{1,8}(\\.[a-z]{1,5}){0,2}",
        port in 1..65_535_u16,
    ) {
        let plain = format!("/{}", path.join("/"));
        let odd = format!("//./{}?q#f", path.join("/x/..//").replace("~c", "%7e%63").replace("%2F", "%2f"));
        let key = r#"["path","host"]"#;
        let one = subject(key, &for_path(&host, &plain));
        let other = subject(key, &for_path(&format!("{}:{port}", host.to_ascii_uppercase()), &odd));
        prop_assert_eq!(one, other, "{} {}", plain, odd);
    }
}
