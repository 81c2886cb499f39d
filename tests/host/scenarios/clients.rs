//! Whose a request is, by its address, cookie, token or path, however a client spells it.

use super::*;

/// Header lines of a request.
type Lines<'l> = &'l [(&'l str, &'l [u8])];

/// A key, and requests with these headers, one after the other, each with its status under a limit of one a day.
fn each_is<V: Vm>(rule: &str, requests: &[(Lines<'_>, u32)]) {
    let configuration = format!(r#"{{"rules":[{{"name":"r","limits":["1/d"],{rule}}}]}}"#);
    let mut worker = Worker::<V>::start(&configuration);
    for (headers, wanted) in requests {
        let id = worker.request(headers);
        assert_eq!(worker.status(id), *wanted, "{rule}: {headers:?}");
    }
}

/// The subject that requests from 198.51.100.1 with these lines of `x-forwarded-for` have; Envoy has added that peer.
fn forwarded<V: Vm>(trusted_hops: usize, lines: &[&str]) -> String {
    let client = format!(r#"{{"from":"header","trusted_hops":{trusted_hops}}}"#);
    let rules = r#"[{"name":"r","key":["ip"],"limits":["1/d"]}]"#;
    let mut worker = Worker::<V>::start(&format!(r#"{{"client_ip":{client},"rules":{rules}}}"#));
    let headers: Vec<(&str, &[u8])> = lines.iter().map(|line| ("x-forwarded-for", line.as_bytes())).collect();
    let id = worker.request_from("198.51.100.1:4711", &headers);
    let state = filter_state(&mut worker, id);
    state.iter().find_map(|state| state.strip_prefix("weir_subject=")).unwrap_or("none").to_owned()
}

pub(crate) fn the_client_is_the_entry_that_a_trusted_proxy_wrote<V: Vm>() {
    // As in CONFIGURATION.md.
    let received = "203.0.113.128, 203.0.113.10, 198.51.100.1";
    let table = [
        (1, "198.51.100.1"),
        (2, "203.0.113.10"),
        (3, "203.0.113.128"),
        (4, "198.51.100.1"), // too few entries: the peer
    ];
    for (hops, wanted) in table {
        assert_eq!(forwarded::<V>(hops, &[received]), wanted, "{hops}");
        let lines = ["203.0.113.128", "203.0.113.10,198.51.100.1"];
        assert_eq!(forwarded::<V>(hops, &lines), wanted, "two lines are one list: {hops}");
    }
    for forged in
        ["10.9.9.1, 203.0.113.10, 198.51.100.1", ",,203.0.113.10 , 198.51.100.1", "x, 203.0.113.10:80,198.51.100.1"]
    {
        assert_eq!(forwarded::<V>(2, &[forged]), "203.0.113.10", "the left end is anybody's: {forged}");
    }
    for none in [&[][..], &[""], &["unknown, 198.51.100.1"], &["_hidden, 198.51.100.1"]] {
        assert_eq!(forwarded::<V>(2, none), "198.51.100.1", "{none:?}");
    }
}

pub(crate) fn a_cookie_is_found_among_pieces_of_any_kind<V: Vm>() {
    let cookie = |text: &'static str| [("cookie", text.as_bytes())];
    each_is::<V>(
        r#""key":["cookie:sid"]"#,
        &[
            (&cookie("flag; sid=a=b=c; x=1"), 200),
            (&cookie("sid=a=b=c"), 429),
            (&cookie("xsid=1; sid=2"), 200),
            (&cookie("sid=2;sid=3"), 429),
            (&cookie(" sid = 2 "), 429),
            (&cookie("sid=\"2\""), 429),
            (&[("cookie", b"a=1"), ("cookie", b"sid=2")], 429),
            (&cookie("sid=3"), 200),
            (&cookie("sid"), 200),
            (&cookie("sid"), 200),
            (&cookie("sid="), 200),
            (&cookie("sid=\"\""), 200),
            (&[("cookie", b"\xff; sid=\xfe")], 200),
            (&[("cookie", b"sid=\xfe;\xff")], 429),
        ],
    );
}

pub(crate) fn a_bearer_token_is_read_in_every_spelling<V: Vm>() {
    let bearer = |text: &'static str| [("authorization", text.as_bytes())];
    let long = [b"Bearer e30.".to_vec(), vec![b'e'; 64 * 1024], b".c2ln".to_vec()].concat();
    each_is::<V>(
        r#""key":["jwt:sub"]"#,
        &[
            (&bearer("Bearer e30.eyJzdWIiOiJ-fsO_PyJ9.c2ln"), 200),
            (&bearer("bearer e30.eyJzdWIiOiJ-fsO_PyJ9.other"), 429),
            (&bearer("BEARER  e30.eyJzdWIiOiJ-fsO_PyJ9.c2ln"), 429),
            (&bearer("Bearer e30.eyJzdWIiOiJhYj4_In0=.c2ln"), 200),
            (&bearer("Bearer e30.eyJzdWIiOiJhYj4_In0.c2ln"), 429),
            (&bearer("Bearer e30.eyJzdWIiOjEyMzQ1fQ.c2ln"), 200),
            (&bearer("Bearer e30.eyJzdWIiOiIxMjM0NSJ9.c2ln"), 429), // 12345 and "12345" are one
            (&bearer("Bearer e30.eyJvIjp7InN1YiI6ImRlZXAifX0.c2ln"), 200), // the claim is inside of another
            (&bearer("Bearer e30.eyJvIjp7InN1YiI6ImRlZXAifX0.c2ln"), 200),
            (&bearer("Bearer e30.eyJzdWIiOiJhYj4_In0"), 200),
            (&bearer("Bearer e30.WzFd.c2ln"), 200),
            (&bearer("Bearer ....."), 200),
            (&[("authorization", &long)], 200),
            (&[("authorization", b"Bearer e30.\xff\xfe.x")], 200),
        ],
    );
    let nested = bearer("Bearer e30.eyJvIjp7InN1YiI6ImRlZXAifX0.c2ln");
    each_is::<V>(r#""key":["jwt:o.sub"]"#, &[(&nested, 200), (&nested, 429)]);
    each_is::<V>(r#""key":["jwt:sub"],"on_missing":"deny""#, &[(&bearer("Bearer nothing"), 429), (&[], 429)]);
}

pub(crate) fn a_prefix_ends_where_a_segment_does<V: Vm>() {
    let path = |text: &'static str| [(":path", text.as_bytes())];
    each_is::<V>(
        r#""match":{"path":{"prefix":"/foo"}},"key":["const:all"]"#,
        &[
            (&path("/foo"), 200),
            (&path("/foo"), 429),
            (&path("/foo/"), 429),
            (&path("/foo/v1"), 429),
            (&path("/foo?x=1"), 429),
            (&path("/%66oo/v1"), 429),
            (&path("//foo"), 429),
            (&path("/foobar"), 200),
            (&path("/Foo"), 200),
            (&path("/foo%2Fv1"), 200),
        ],
    );
}

pub(crate) fn a_part_of_the_path_that_clients_choose_makes_no_new_bucket<V: Vm>() {
    let configuration = r#"{"rules":[{"name":"r","match":{"path":{"template":"/verify/*"}},"key":["const:verify"],"limits":["1/d burst 5"]}]}"#;
    let mut worker = Worker::<V>::start(configuration);
    let ids: Vec<u32> = (0..50).map(|code| worker.request(&[(":path", format!("/verify/{code}").as_bytes())])).collect();
    let admitted = statuses(&mut worker, &ids).into_iter().filter(|status| *status == 200).count();
    assert_eq!(admitted, 5);
}

pub(crate) fn a_header_that_proxies_add_to_counts_as_a_whole<V: Vm>() {
    let key = |text: &'static str| [("x-api-key", text.as_bytes())];
    let requests: [(Lines<'_>, u32); 4] =
        [(&key("k, 100.64.0.1"), 200), (&key("k, 100.64.0.2"), 200), (&key("k"), 200), (&key("k, 100.64.0.1"), 429)];
    each_is::<V>(r#""key":["header:x-api-key"]"#, &requests);
}

pub(crate) fn a_credential_is_nowhere_to_be_read<V: Vm>() {
    let keys = ["header:authorization", "header:Proxy-Authorization", "header:cookie", "cookie:sid"];
    for key in keys {
        let rules = format!(r#"[{{"name":"r","key":["{key}"],"limits":["1/d"]}}]"#);
        let mut worker = Worker::<V>::start(&format!(r#"{{"store":{{"cluster":"weir-redis"}},"rules":{rules}}}"#));
        let secret: Lines<'_> =
            &[("authorization", b"Bearer hunter2"), ("proxy-authorization", b"hunter2"), ("cookie", b"sid=hunter2")];
        let id = worker.request(secret);
        worker.turn();
        worker.receive(&[GREETED, &denied()].concat());
        let answer = answer(&mut worker, id);
        let shown = (worker.sent(), filter_state(&mut worker, id), worker.vm.host(|host| host.logs.clone()));
        let told = format!("{shown:?} {:?} {:?} {}", answer.headers, answer.body, answer.details);
        assert!(told.contains("weir_subject=#") && !told.contains("hunter2"), "{key}: {told}");
    }
}

pub(crate) fn a_parameter_is_found_and_decoded<V: Vm>() {
    let path = |text: &'static str| [(":path", text.as_bytes())];
    each_is::<V>(
        r#""key":["query:api key"]"#,
        &[
            (&path("/?api%20key=a+b"), 200),
            (&path("/other?x=1&api+key=a%20b&api+key=c"), 429),
            (&path("/?api%20key=%61+%62#f"), 429),
            (&path("/?api%20key=a=b"), 200),
            (&path("/?API%20key=a+b"), 200),
            (&path("/?api%20key"), 200),
            (&path("/?api%20key="), 200),
            (&path("/#?api%20key=a+b"), 200),
            (&path("/?api%20key=%ff%"), 200),
            (&path("/?api%20key=%FF%25"), 429),
        ],
    );
}

pub(crate) fn spellings_of_a_path_and_a_host_are_one<V: Vm>() {
    let target = |host: &'static str, path: &'static str| [(":authority", host.as_bytes()), (":path", path.as_bytes())];
    each_is::<V>(
        r#""key":["host","path"]"#,
        &[
            (&target("api.example.com", "/a/~b"), 200),
            (&target("API.example.com:8443", "//a/./x/../%7eb?q#f"), 429),
            (&target("api.example.com", "/%61/%7Eb"), 429),
            (&target("api.example.com", "/a/~b/"), 200),
            (&target("api.example.com", "/a%2f~b"), 200),
            (&target("api.example.com", "/a%2F~b"), 429),
            (&target("api.example.com", "/../../a%2F~b"), 429),
            (&target("other.example.com", "/a/~b"), 200),
            (&target("[2001:DB8::1]:443", "/"), 200),
            (&target("[2001:db8::1]", "/"), 429),
        ],
    );
}
