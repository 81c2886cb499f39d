//! What counts as whose: nothing that a client sends can share another's bucket, get around a rule, or do any harm.

use super::super::worker::commands;
use super::*;

pub(crate) fn a_missing_key_is_no_key<V: Vm>() {
    let once = r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/d"]}]}"#;
    let nothing: [&[(&str, &[u8])]; 3] = [&[], &[("x-api-key", b"")], &[("x-api-key", b" \t ")]];
    let mut skips = Worker::<V>::start(once);
    for headers in nothing {
        let ids = [skips.request(headers), skips.request(headers)];
        assert_eq!(ids.map(|id| skips.status(id)), [200, 200], "{headers:?}: nobody's bucket");
    }
    assert_eq!(skips.vm.host(|host| host.metric("weir.rule.r.missing_key")), 6);
    {
        let denies = r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/d"],"on_missing":"deny"}]}"#;
        let mut denies = Worker::<V>::start(denies);
        let id = denies.request(&[]);
        let answer = answer(&mut denies, id);
        assert_eq!((answer.status, value(&answer.headers, "retry-after")), (429, None), "no wait helps");
    }
    {
        let else_ip = r#"{"rules":[{"name":"r","key":["header:x-api-key | ip"],"limits":["1/d"]}]}"#;
        let mut worker = Worker::<V>::start(else_ip);
        let ids = [
            worker.request_from("198.51.100.1:1", &[]),
            worker.request_from("198.51.100.2:1", &[]),
            worker.request_from("198.51.100.3:1", &[("x-api-key", b"198.51.100.1")]),
            worker.request_from("198.51.100.1:2", &[("x-api-key", b" ")]),
        ];
        assert_eq!(ids.map(|id| worker.status(id)), [200, 200, 200, 429]);
    }
}

pub(crate) fn a_header_is_found_whatever_its_spelling<V: Vm>() {
    let mut worker = Worker::<V>::start(r#"{"rules":[{"name":"r","key":["header:X-Api-Key"],"limits":["1/d"]}]}"#);
    let ids = [worker.request_of("k"), worker.request_of("k"), worker.request_of("K")];
    assert_eq!(ids.map(|id| worker.status(id)), [200, 429, 200]);
    let lines: &[(&str, &[u8])] = &[("x-api-key", b"k"), ("x-api-key", b"l")];
    let ids = [worker.request(lines), worker.request(lines)];
    assert_eq!(ids.map(|id| worker.status(id)), [200, 429], "several lines are one value");
}

pub(crate) fn bytes_that_are_not_utf8_are_a_header_like_any_other<V: Vm>() {
    let mut worker = Worker::<V>::start(r#"{"rules":[{"name":"r","key":["header:user-agent"],"limits":["1/d"]}]}"#);
    for (agent, wanted) in [(b"crawler \xa1\xb1", 200), (b"crawler \xa1\xb1", 429), (b"crawler \xa1\xb2", 200)] {
        let id = worker.request(&[("user-agent", agent), ("x-other", b"\xff\xfe"), (":path", b"/\xa1\xb1")]);
        assert_eq!(worker.status(id), wanted, "{agent:?}");
    }
}

pub(crate) fn any_bytes_are_a_key_and_no_more<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let long = vec![b'\n'; 8192];
    let keys: [&[u8]; 9] =
        [b"\xa1\xb1", b"\xff", b"a\r\nb", b"a\0b", b"{}", b"a:b", b"*1\r\n$8\r\nFLUSHALL\r\n", &long, b"\xc3\x28"];
    for key in keys {
        let id = worker.request(&[("user-agent", b"crawler \xa1\xb1"), ("x-api-key", key)]);
        worker.turn();
        let sent = worker.vm.host(|host| std::mem::take(&mut host.sent)).concat();
        let [words] = &commands(&sent)[..] else { panic!("one command: {sent:?}") };
        assert_eq!((words.len(), words[2].as_str()), (9, "1"), "EVALSHA, digest, number of keys, key, five arguments");
        assert!(words[3].len() <= 256 && words[3].bytes().all(|b| b.is_ascii_graphic()), "{}", words[3]);
        worker.receive(&allowed());
        assert_eq!(worker.status(id), 200);
        let subject = filter_state(&mut worker, id).remove(2);
        assert!(subject.bytes().all(|b| b.is_ascii_graphic()), "{subject}");
    }
}

pub(crate) fn a_port_is_no_part_of_an_address<V: Vm>() {
    let mut worker = Worker::<V>::start(r#"{"rules":[{"name":"r","key":["ip"],"limits":["1/d"]}]}"#);
    let addresses = [
        ("203.0.113.7:51234", 200),
        ("203.0.113.7:51235", 429),
        ("[2001:db8::1]:443", 200),
        ("[2001:db8::1]:444", 429),
        ("[2001:db8::2]:444", 429), // the same customer's
        ("[2001:db8:0:1::1]:444", 200),
        ("[::ffff:203.0.113.7]:1", 429),
    ];
    for (address, wanted) in addresses {
        let id = worker.request_from(address, &[]);
        assert_eq!(worker.status(id), wanted, "{address}");
    }
    let id = worker.request_from("/var/run/socket", &[]);
    assert_eq!(worker.status(id), 200, "no address, no key");
}

pub(crate) fn every_key_has_one_hash_tag<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    for identity in ["u1", "a}b", "{x", "{}", "}{", "{{x}}"] {
        worker.request_of(identity);
        let sent = worker.sent().remove(0);
        let key = sent.split_once(' ').unwrap().1;
        assert_eq!((key.matches('{').count(), key.matches('}').count()), (1, 1), "{key}");
        let tag = key.split_once('{').unwrap().1.split_once('}').unwrap().0;
        assert!(tag.starts_with("r:") && tag.len() > 2, "{key}: rule and subject settle the slot");
    }
}

pub(crate) fn a_query_does_not_get_around_a_rule<V: Vm>() {
    let configuration = r#"{"rules":[{"name":"r","match":{"path":{"exact":"/login"}},"key":["path"],"limits":["1/d"]}]}"#;
    let mut worker = Worker::<V>::start(configuration);
    let paths =
        [("/login", 200), ("/login?x=1", 429), ("/login?x=2", 429), ("/login#f", 429), ("/login/", 200), ("/login/", 200)];
    for (path, wanted) in paths {
        let id = worker.request(&[(":path", path.as_bytes())]);
        assert_eq!(worker.status(id), wanted, "{path}");
    }
}
