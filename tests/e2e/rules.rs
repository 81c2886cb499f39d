//! Rules, routes and clients as Envoy shows them to the filter.

use crate::beside_others;
use crate::servers::envoy_server::Setup;
use crate::servers::redis_server::Redis;
use crate::servers::until;
use std::time::{Duration, Instant};

const RULES: &str = r#"{"rules":[
    {"name":"a","key":["header:x-api-key"],"limits":["1/d burst 3"]},
    {"name":"b","select":"route","key":["header:x-api-key"],"limits":["1/d burst 2"]}]}"#;

#[test]
fn metadata_of_routes_and_virtual_hosts_settles_their_rules() {
    let _machine = beside_others();
    let answer = "direct_response: {status: 200, body: {inline_string: ok}}";
    let settings = [
        ("/off", "{disabled: true}"),
        ("/named", "{rules: [b]}"),
        ("/dear", "{cost: 2}"),
        ("/strict", "{limits: {a: [1/d]}}"),
        ("/faulty", "{cost: many}"),
        ("/null", "{cost: null}"),
    ];
    let route = |(path, weir): &(&str, &str)| {
        let named = path.replace('/', "r-");
        format!(
            "              - {{name: {named}, match: {{prefix: {path}}}, metadata: {{filter_metadata: {{weir: {weir}}}}}, {answer}}}\n"
        )
    };
    let routes: String = settings.iter().map(route).collect();
    let of_host = format!(
        "            - name: strict\n              domains: [strict]\n              routes: [{{match: {{prefix: /}}, {answer}}}]\n\
         \x20             metadata: {{filter_metadata: {{weir: {{limits: {{a: [1/d burst 2]}}}}}}}}\n"
    );
    let envoy = Setup::local(RULES)
        .replace("              routes:\n", &format!("              routes:\n{routes}"))
        .replace("            virtual_hosts:\n", &format!("            virtual_hosts:\n{of_host}"))
        .start();
    let statuses = |path: &str, key: &str, count: usize| -> Vec<u16> {
        (0..count).map(|_| envoy.get(path, &[("x-api-key", key)]).status).collect()
    };
    assert_eq!(statuses("/off", "k", 5), [200; 5]);
    assert_eq!(statuses("/named", "k", 3), [200, 200, 429]);
    assert_eq!(statuses("/dear", "d", 2), [200, 429]);
    assert_eq!(statuses("/strict", "k", 2), [200, 429]);
    assert_eq!(statuses("/", "k", 4), [200, 200, 200, 429], "the others have a bucket of their own");
    for (path, key) in [("/faulty", "f"), ("/null", "n")] {
        assert_eq!(statuses(path, key, 4), [200, 200, 200, 429], "as without it");
    }
    assert_eq!(envoy.metric("config.route_errors"), 8);
    let told = envoy.log().matches("metadata of a route is ignored: cost: ").count();
    assert_eq!(told, 2, "{}", envoy.log());
    let of_host: Vec<u16> = (0..3)
        .map(|_| {
            let url = format!("http://127.0.0.1:{}/", envoy.port);
            let output = std::process::Command::new("curl")
                .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "host: strict", "-H", "x-api-key: h", &url])
                .output();
            String::from_utf8(output.unwrap().stdout).unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(of_host, [200, 200, 429]);
}

#[test]
fn live_overrides_hold_soon_in_both_directions() {
    let _machine = beside_others();
    let redis = Redis::start();
    let rules = r#"{"store":{"cluster":"weir-redis"},"rules":[{"name":"r","key":["header:x-api-key"],"limits":["10/s"],
        "live_overrides":{"every":"1s"}}]}"#;
    let envoy = Setup::redis(redis.port, rules).start();
    let limit = || envoy.get("/", &[("x-api-key", "acme")]).number("ratelimit-limit").unwrap();
    assert_eq!(limit(), 10);
    for (command, wanted) in [
        (&["HSET", "rl:overrides:r", "acme", "500/s, 10000/h"][..], 500),
        (&["HSET", "rl:overrides:r", "acme", "2/min"], 2),
        (&["HDEL", "rl:overrides:r", "acme"], 10),
    ] {
        redis.run(command);
        let since = Instant::now();
        until(Duration::from_secs(5), || (limit() == wanted).then_some(()), || format!("{command:?}: {}", limit()));
        assert!(since.elapsed() < Duration::from_millis(2500), "{command:?}: {:?}", since.elapsed());
    }
    redis.run(&["HSET", "rl:overrides:r", "acme", "many"]);
    let counted = || (envoy.metric("config.override_errors") == 1).then_some(());
    until(Duration::from_secs(5), counted, || "a bad one is counted".to_owned());
    assert_eq!(limit(), 10);
    assert!(envoy.log().contains("rule r: the live override of acme is ignored: COUNT/WINDOW"), "{}", envoy.log());
}

#[test]
fn expressions_and_attributes_are_envoys() {
    let _machine = beside_others();
    let rules = r#"{"rules":[{"name":"r","when":"request.path.startsWith('/api') && !('x-free' in request.headers)",
        "key":["cel:request.headers['x-api-key'] + '-' + request.method","property:request/protocol","virtual_host"],
        "limits":["1/d"]}]}"#;
    let envoy = Setup::local(rules).start();
    let get = |path: &str, headers: &[(&str, &str)]| envoy.get(path, headers).status;
    assert_eq!([get("/api", &[("x-api-key", "k")]), get("/api/b", &[("x-api-key", "k")])], [200, 429]);
    assert_eq!(get("/other", &[("x-api-key", "k")]), 200);
    assert_eq!(get("/api", &[("x-api-key", "k"), ("x-free", "1")]), 200);
    assert_eq!(get("/api", &[]), 200, "an expression without a value is a missing key");
    assert_eq!(envoy.metric("rule.r.missing_key"), 1);
    let (status, log) = Setup::local(&rules.replace("startsWith('/api')", "startsWith(")).refused();
    assert!(!status.success());
    let line = "weir: configuration: rules[0].when: \"request.path.startsWith( && ";
    assert!(log.contains(line) && log.contains("Envoy's CEL evaluator can't compile it"), "{log}");
}

#[test]
fn the_client_is_whom_envoy_trusts_or_the_header_names() {
    let _machine = beside_others();
    let last = |setup: Setup, forwarded: &str| -> String {
        let envoy = setup.start();
        envoy.get("/", &[("x-forwarded-for", forwarded)]);
        subject(&envoy.accesses(1)[0]).unwrap()
    };
    let rule = r#""rules":[{"name":"r","key":["ip"],"limits":["9/d"]}]}"#;
    let forwarded = "203.0.113.128, 203.0.113.10";
    let by_envoy = |hops: u32| {
        let manager = format!("stat_prefix: ingress\n          xff_num_trusted_hops: {hops}");
        Setup::local(&format!("{{{rule}")).replace("stat_prefix: ingress", &manager)
    };
    assert_eq!(last(by_envoy(0), forwarded), "127.0.0.1");
    assert_eq!(last(by_envoy(1), forwarded), "203.0.113.10");
    assert_eq!(last(by_envoy(2), forwarded), "203.0.113.128");
    assert_eq!(last(by_envoy(3), forwarded), "127.0.0.1", "there are only two entries");
    // The filter sees the header as it stands then: Envoy has appended its peer, and for a loopback peer its own address.
    let appended = last(Setup::local(&format!(r#"{{"client_ip":{{"from":"header"}},{rule}"#)), forwarded);
    assert!(!forwarded.contains(&appended), "{appended}");
    for (hops, wanted) in [(2, "203.0.113.10"), (3, "203.0.113.128"), (4, "127.0.0.1")] {
        let configuration = format!(r#"{{"client_ip":{{"from":"header","trusted_hops":{hops}}},{rule}"#);
        assert_eq!(last(Setup::local(&configuration), forwarded), wanted, "{hops}");
    }
}

/// An HTTP filter before Weir.
fn with_filter(setup: Setup, name: &str, kind: &str, config: &str) -> Setup {
    let kind = format!("type.googleapis.com/envoy.extensions.filters.http.{kind}");
    let filter =
        format!("          - {{name: {name}, typed_config: {{\"@type\": {kind}, {config}}}}}\n          - name: weir\n");
    setup.replace("          - name: weir\n", &filter)
}

#[test]
fn what_earlier_filters_know_of_a_request_is_a_key_and_a_tier() {
    let _machine = beside_others();
    // Signed with HS256; who is in `sub`, and the plan of the first one is `pro`.
    let acme = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsifQ.eyJpc3MiOiJ0ZXN0Iiwic3ViIjoiYWNtZSIsInBsYW4iOiJwcm8iLCJzZWF0cyI6MTIzNDU2Nzh9.olMgYJAyOxateT0KRHSachJDMy401yYozuSGp5kygaY";
    let tiny = "Bearer eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsifQ.eyJpc3MiOiJ0ZXN0Iiwic3ViIjoidGlueSJ9.NBbbprIIiC0zHQM9CZ9lNXA-2qByIVhFng24zoHYIq4";
    let rules = r#"{"rules":[{"name":"r","key":["metadata:envoy.filters.http.jwt_authn/payload/sub",
        "metadata:envoy.filters.http.jwt_authn/payload/seats | const:none","metadata:tenant/id","filter_state:user.region"],
        "limits":["1/d"],
        "tiers":{"by":"metadata:envoy.filters.http.jwt_authn/payload/plan","values":{"pro":["1/d burst 3"]}}}]}"#;
    let keys = r#"{"keys":[{"kty":"oct","alg":"HS256","kid":"k","k":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY"}]}"#;
    let provider = format!("issuer: test, payload_in_metadata: payload, local_jwks: {{inline_string: '{keys}'}}");
    let jwt =
        format!("providers: {{p: {{{provider}}}}}, rules: [{{match: {{prefix: /api}}, requires: {{provider_name: p}}}}]");
    let setup = with_filter(Setup::local(rules), "jwt", "jwt_authn.v3.JwtAuthentication", &jwt);
    let tenant = "metadata: [{metadata_namespace: tenant, value: {id: 7}}]";
    let setup = with_filter(setup, "tenant", "set_metadata.v3.Config", tenant);
    let region = "on_request_headers: [{object_key: user.region, factory_key: envoy.string, format_string: {text_format_source: {inline_string: eu}}}]";
    let envoy = with_filter(setup, "region", "set_filter_state.v3.Config", region).start();
    let statuses = |token: &str| [(); 4].map(|()| envoy.get("/api", &[("authorization", token)]).status);
    assert_eq!(statuses(acme), [200, 200, 200, 429]);
    assert_eq!(statuses(tiny), [200, 429, 429, 429]);
    assert_eq!(statuses("Bearer forged"), [401; 4], "it never gets as far as Weir");
    let subjects: Vec<String> = envoy.accesses(8).iter().filter_map(|line| subject(line)).collect();
    assert!(
        subjects.contains(&"acme,12345678,7,eu".to_owned()) && subjects.contains(&"tiny,2~none,7,eu".to_owned()),
        "{subjects:?}"
    );
}

/// The subject in a line of the access log.
fn subject(line: &str) -> Option<String> {
    line.split_once("subject=")?.1.split(' ').next().map(str::to_owned)
}

#[test]
fn two_filters_with_the_same_rules_charge_a_request_twice_and_apart_each_once() {
    let _machine = beside_others();
    let rule = r#""rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/d burst 4"]}]}"#;
    let statuses = |first: &str, second: &str| {
        let redis = Redis::start();
        let one = Setup::redis(redis.port, &format!(r#"{{"store":{{"cluster":"weir-redis"{first}}},{rule}"#));
        let value = serde_json::to_string(&format!(r#"{{"store":{{"cluster":"weir-redis"{second}}},{rule}"#)).unwrap();
        one.with_the_filter_again(&value).start().statuses("a", 5)
    };
    assert_eq!(statuses("", ""), [200, 200, 429, 429, 429]);
    assert_eq!(statuses("", r#","key_prefix":"other""#), [200, 200, 200, 200, 429]);
}
