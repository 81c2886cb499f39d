//! What the filter does on its host. Each scenario runs on the native build and on weir.wasm.

use super::worker::{Outcome, Vm, Worker, words};
use super::{Host, Process};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::sync::{Arc, Mutex};

/// Makes a test of each scenario on a kind of VM. (One that isn't listed here is an unused function.)
macro_rules! all {
    ($vm:ty) => {
        $crate::host::scenarios::all!($vm:
            a_request_waits_for_redis_and_is_let_in
            a_denied_request_is_told_its_wait
            a_script_that_redis_does_not_know_is_brought_along
            many_replies_at_once_are_answered_in_turns
            many_failures_at_once_are_answered_in_turns
            requests_that_are_over_are_not_acted_for
            a_worker_without_requests_keeps_quiet
            requests_that_no_rule_is_for_pass_untouched
            nonsense_from_redis_never_reaches_a_client
            a_host_that_opens_no_stream_is_a_failure
            a_host_that_gives_no_queue_is_made_do_without
            a_host_that_gives_nothing_else_does_no_harm
            writes_that_others_get_ahead_of_are_tried_again
            eight_workers_at_once_admit_exactly_the_limit
            a_missing_key_is_no_key
            a_header_is_found_whatever_its_spelling
            any_bytes_are_a_key_and_no_more
            a_port_is_no_part_of_an_address
            every_key_has_one_hash_tag
            a_query_does_not_get_around_a_rule
            a_bad_configuration_is_refused_with_a_line_for_each_fault
            a_clock_that_steps_back_holds_no_request_up
            gauges_come_back_to_nothing
            the_bridge_takes_frames_off_and_puts_them_on
            every_request_ends_once_whatever_happens
        );
    };
    ($vm:ty: $($name:ident)*) => {$(
        #[test]
        fn $name() {
            $crate::host::scenarios::$name::<$vm>();
        }
    )*};
}
pub(crate) use all;

const GREETED: &[u8] = b"*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n";
const NOSCRIPT: &[u8] = b"-NOSCRIPT No matching script.\r\n";

fn reply(status: i64, remaining: i64, retry_ms: i64, reset_ms: i64) -> Vec<u8> {
    format!("*4\r\n:{status}\r\n:{remaining}\r\n:{retry_ms}\r\n:{reset_ms}\r\n").into_bytes()
}

fn allowed() -> Vec<u8> {
    reply(1, 2, 0, 600)
}

fn denied() -> Vec<u8> {
    reply(0, 0, 1400, 1800)
}

/// A rule by API key, with these fields.
fn rule(fields: &str) -> String {
    format!(r#""rules":[{{"name":"r","key":["header:x-api-key"],"limits":["100/min burst 3"]{fields}}}]"#)
}

fn with_redis(fields: &str) -> String {
    format!(r#"{{"store":{{"cluster":"weir-redis"}},{}}}"#, rule(fields))
}

fn local(fields: &str) -> String {
    format!("{{{}}}", rule(fields))
}

/// A worker that has reached Redis.
fn connected<V: Vm>(configuration: &str) -> Worker<V> {
    let mut worker = Worker::start(configuration);
    let first = worker.request_of("first");
    worker.turn();
    worker.receive(&[GREETED, &allowed()].concat());
    assert_eq!(worker.status(first), 200);
    worker.sent();
    worker
}

fn value<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    let mut values = headers.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
    let value = values.next();
    assert_eq!(values.next(), None, "{name} is there once");
    value
}

fn answer<V: Vm>(worker: &mut Worker<V>, id: u32) -> super::Answer {
    match worker.outcome(id) {
        Outcome::Answered(answer) => answer,
        outcome => panic!("{outcome:?}"),
    }
}

fn filter_state<V: Vm>(worker: &mut Worker<V>, id: u32) -> Vec<String> {
    let mut state: Vec<String> = worker
        .vm
        .host(|host| host.requests[&id].filter_state.iter().map(|(name, value)| format!("{name}={value}")).collect());
    state.sort();
    state
}

pub(crate) fn a_request_waits_for_redis_and_is_let_in<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis(""));
    let id = worker.request_of("a");
    assert!(matches!(worker.outcome(id), Outcome::Waiting));
    assert_eq!(worker.vm.host(|host| host.streams), 0, "a request opens no stream: it would be the request's");
    worker.turn();
    assert_eq!(worker.sent(), ["EVALSHA rl:greeting", "EVALSHA rl:{r:a}:tb:60000"]);
    worker.receive(&[GREETED, &allowed()].concat());
    assert!(matches!(worker.outcome(id), Outcome::Continued));
    let headers = worker.response(id, &[("server", "x"), ("ratelimit-limit", "of the upstream")]);
    let limits = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "server"].map(|name| value(&headers, name));
    assert_eq!(limits, [Some("3"), Some("2"), Some("1"), Some("x")]);
    assert_eq!(
        filter_state(&mut worker, id),
        ["weir_rule=r", "weir_source=redis", "weir_subject=a", "weir_verdict=allowed"]
    );
    worker.gone(id);
}

pub(crate) fn a_denied_request_is_told_its_wait<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let id = worker.request_of("a");
    worker.receive(&denied());
    let answer = answer(&mut worker, id);
    assert_eq!((answer.status, answer.grpc_status), (429, 8));
    assert_eq!((answer.body.as_str(), answer.details.as_str()), (r#"{"message":"Too many requests"}"#, "weir_denied:r"));
    let names = ["retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "content-type"];
    let wanted = [Some("2"), Some("3"), Some("0"), Some("2"), Some("application/json")];
    assert_eq!(names.map(|name| value(&answer.headers, name)), wanted);
    let headers = worker.vm.host(|host| host.requests[&id].response_headers.clone());
    assert_eq!(headers.len(), names.len(), "the response callback adds nothing: {headers:?}");
    worker.over_in_vm(id);
}

pub(crate) fn a_script_that_redis_does_not_know_is_brought_along<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(r#","on_error":"deny""#));
    let (one, other) = (worker.request_of("a"), worker.request_of("b"));
    worker.receive(NOSCRIPT);
    worker.receive(&allowed());
    assert_eq!((worker.status(one), worker.status(other)), (0, 200));
    worker.receive(&denied());
    assert_eq!(worker.status(one), 429);
    assert_eq!(worker.sent(), ["EVALSHA rl:{r:a}:tb:60000", "EVALSHA rl:{r:b}:tb:60000", "EVAL rl:{r:a}:tb:60000"]);
    let again = worker.request_of("c");
    worker.receive(NOSCRIPT);
    worker.receive(NOSCRIPT);
    assert_eq!(worker.status(again), 503, "a second time is a failure");
    assert_eq!(worker.sent().len(), 2);
}

pub(crate) fn many_replies_at_once_are_answered_in_turns<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    for reply in [denied(), allowed()] {
        let ids: Vec<u32> = (0..500).map(|i| worker.request_of(&format!("k{i}"))).collect();
        worker.receive(&reply.repeat(500));
        let decided = ids.iter().filter(|id| worker.status(**id) != 0).count();
        assert_eq!(decided, 32, "in the callback itself");
        worker.turn();
        assert!(ids.iter().all(|id| worker.status(*id) != 0));
    }
    assert!(worker.most_at_once <= 32, "{}", worker.most_at_once);
}

pub(crate) fn many_failures_at_once_are_answered_in_turns<V: Vm>() {
    for on_error in ["local", "allow", "deny"] {
        let mut worker = connected::<V>(&with_redis(&format!(r#","on_error":"{on_error}""#)));
        let ids: Vec<u32> = (0..300).map(|i| worker.request_of(&format!("k{i}"))).collect();
        worker.close();
        worker.turn();
        assert!(ids.iter().all(|id| worker.status(*id) == if on_error == "deny" { 503 } else { 200 }), "{on_error}");
        worker.pass_ms(2000);
        worker.receive(GREETED);
        let ids: Vec<u32> = (0..300).map(|i| worker.request_of(&format!("t{i}"))).collect();
        worker.pass_ms(60);
        assert!(ids.iter().all(|id| worker.status(*id) == if on_error == "deny" { 503 } else { 200 }), "{on_error}");
        assert!(worker.most_at_once <= 32, "{on_error}: {}", worker.most_at_once);
    }
}

pub(crate) fn requests_that_are_over_are_not_acted_for<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let ids: Vec<u32> = (0..6).map(|i| worker.request_of(&format!("k{i}"))).collect();
    worker.gone(ids[0]);
    worker.over_in_vm(ids[2]); // in the host it is still there
    worker.receive(&[allowed(), denied(), denied(), allowed(), denied(), allowed()].concat());
    worker.turn();
    assert!(matches!(worker.outcome(ids[2]), Outcome::Waiting), "nothing was done for it");
    let statuses: Vec<u32> = [1, 3, 4, 5].map(|i| worker.status(ids[i])).to_vec();
    assert_eq!(statuses, [429, 200, 429, 200], "each has its own reply");
    worker.close();
    worker.turn();
}

pub(crate) fn a_worker_without_requests_keeps_quiet<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis(""));
    worker.pass_ms(60_000);
    let quiet = worker.vm.host(|host| (host.streams, host.tick_ms, host.sent.len(), host.logs.len()));
    assert_eq!(quiet, (0, 0, 0, 0));
    let mut worker = connected::<V>(&with_redis(""));
    worker.pass_ms(100);
    assert_eq!(worker.vm.host(|host| host.tick_ms), 0, "once nothing waits there are no ticks");
}

pub(crate) fn requests_that_no_rule_is_for_pass_untouched<V: Vm>() {
    for configuration in [with_redis(""), with_redis(r#","mode":"off""#)] {
        let mut worker = Worker::<V>::start(&configuration);
        let id = worker.request(&[]);
        assert!(matches!(worker.outcome(id), Outcome::Continued));
        assert_eq!(worker.response(id, &[("server", "x")]), [("server".to_owned(), "x".to_owned())]);
        assert_eq!(filter_state(&mut worker, id), Vec::<String>::new());
        worker.gone(id);
    }
}

pub(crate) fn nonsense_from_redis_never_reaches_a_client<V: Vm>() {
    let replies = [
        reply(1, -8, 0, 0),
        reply(1, -1, 0, 0),
        reply(1, 0, 0, -2),
        reply(0, 0, -1, 0),
        reply(0, 0, 0, 0),
        reply(7, 0, 0, 0),
        b"$-1\r\n".to_vec(),
        b"-OOM command not allowed\r\n".to_vec(),
    ];
    for nonsense in replies {
        let mut worker = connected::<V>(&with_redis(""));
        let id = worker.request_of("a");
        worker.receive(&nonsense);
        assert_eq!(filter_state(&mut worker, id)[1], "weir_source=local", "{}", String::from_utf8_lossy(&nonsense));
        for (name, value) in worker.response(id, &[]) {
            assert!(value.bytes().all(|b| b.is_ascii_digit()), "{name}: {value}");
        }
    }
    let mut worker = connected::<V>(&with_redis(""));
    let id = worker.request_of("a");
    worker.receive(&reply(1, 1000, 0, 0));
    assert_eq!(value(&worker.response(id, &[]), "ratelimit-remaining"), Some("3"), "no more than there can be");
}

pub(crate) fn a_host_that_opens_no_stream_is_a_failure<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis(r#","on_error":"deny""#));
    worker.vm.host(|host| host.faults.open_stream = 3);
    let ids: Vec<u32> = (0..40).map(|i| worker.request_of(&format!("k{i}"))).collect();
    worker.turn();
    assert!(ids.iter().all(|id| worker.status(*id) == 503));
    let at_once = worker.request_of("b");
    assert_eq!(worker.status(at_once), 503, "no stream is due: it doesn't wait");
    worker.pass_ms(1000);
    worker.receive(GREETED);
    let id = worker.request_of("a");
    worker.receive(&allowed());
    assert_eq!(worker.status(id), 200);
    let told = worker.vm.host(|host| host.logs.clone());
    assert_eq!(told.len(), 2, "gone and back, once each: {told:?}");
}

pub(crate) fn a_host_that_gives_no_queue_is_made_do_without<V: Vm>() {
    let mut host = Host::new(&Arc::default(), "weir", &with_redis(""));
    host.faults.queues = 1;
    let (mut worker, configured) = Worker::<V>::configure(host);
    assert!(configured);
    let ids: Vec<u32> = (0..100).map(|i| worker.request_of(&format!("k{i}"))).collect();
    worker.pass_ms(10);
    worker.receive(&[GREETED, &denied().repeat(100)].concat());
    worker.pass_ms(100);
    assert!(ids.iter().all(|id| worker.status(*id) == 429), "by ticks, thirty-two at a time");
    assert!(worker.most_at_once <= 32);
}

pub(crate) fn a_host_that_gives_nothing_else_does_no_harm<V: Vm>() {
    let mut host = Host::new(&Arc::default(), "weir", &local(""));
    host.faults.metrics = 1000;
    let (mut worker, configured) = Worker::<V>::configure(host);
    assert!(configured);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 200, "no metrics");
    worker.vm.host(|host| host.faults.shared_data = 1000);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 200, "no shared data: there is nobody left to ask");
    let mut worker = Worker::<V>::start(&local(r#","match":{"path":{"prefix":"/x"},"methods":["GET"],"hosts":["a"]}"#));
    worker.vm.host(|host| host.faults.headers = 1000);
    let id = worker.request_of("a");
    assert_eq!(worker.status(id), 200, "no headers");
}

pub(crate) fn writes_that_others_get_ahead_of_are_tried_again<V: Vm>() {
    let mut worker = Worker::<V>::start(&local(""));
    for (mismatches, wanted) in [(1, 200), (3, 200), (1000, 429)] {
        worker.vm.host(|host| host.faults.cas = mismatches);
        let id = worker.request_of("a");
        assert_eq!(worker.status(id), wanted, "{mismatches} mismatches");
    }
    let left = worker.vm.host(|host| host.faults.cas);
    assert_eq!(left, 1000 - 64, "and not for ever");
}

pub(crate) fn eight_workers_at_once_admit_exactly_the_limit<V: Vm>() {
    let process: Arc<Mutex<Process>> = Arc::default();
    let configuration = r#"{"rules":[{"name":"r","key":["header:x-api-key"],"limits":["1/d burst 100"]}]}"#;
    let admitted: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let process = &process;
                scope.spawn(move || {
                    let mut worker = Worker::<V>::start_in(process, configuration);
                    let statuses = (0..50).map(|_| {
                        let id = worker.request_of("shared");
                        let status = worker.status(id);
                        worker.gone(id);
                        status
                    });
                    statuses.filter(|status| *status == 200).count()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
    assert_eq!(process.lock().unwrap().keys("weir.local."), 1);
}

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

pub(crate) fn any_bytes_are_a_key_and_no_more<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let long = vec![b'\n'; 8192];
    let keys: [&[u8]; 9] =
        [b"\xa1\xb1", b"\xff", b"a\r\nb", b"a\0b", b"{}", b"a:b", b"*1\r\n$8\r\nFLUSHALL\r\n", &long, b"\xc3\x28"];
    for key in keys {
        let id = worker.request(&[("user-agent", b"crawler \xa1\xb1"), ("x-api-key", key)]);
        let sent = worker.vm.host(|host| std::mem::take(&mut host.sent));
        assert_eq!(sent.len(), 1);
        let words = words(&sent[0]);
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

pub(crate) fn a_bad_configuration_is_refused_with_a_line_for_each_fault<V: Vm>() {
    let faults = [
        (
            "",
            vec![
                r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#,
            ],
        ),
        (
            r#"{"rules":[{"name":"r","key":["ip"],"limits":[{"limt":1,"window":"s","count":10.5}]}],"max-age":1}"#,
            vec![
                r#"max-age: 1: unknown field; allowed: store, response, rules"#,
                r#"rules[0].limits[0].limt: 1: unknown field; allowed: count, window, burst, algorithm"#,
                r#"rules[0].limits[0].count: 10.5: an integer from 1 to 9007199254740991 is wanted"#,
            ],
        ),
        (
            r#"{"rules":[{"name":"r","key":["ip"]}]}"#,
            vec![r#"rules[0].limits: missing; a list of one limit is wanted, such as ["10/s"]"#],
        ),
    ];
    for (configuration, lines) in faults {
        let (mut worker, configured) = Worker::<V>::configure(Host::new(&Arc::default(), "weir", configuration));
        assert!(!configured);
        let wanted: Vec<String> = lines.into_iter().map(|line| format!("weir: configuration: {line}")).collect();
        assert_eq!(worker.vm.host(|host| host.logs.clone()), wanted);
    }
}

pub(crate) fn a_clock_that_steps_back_holds_no_request_up<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(r#","on_error":"deny""#));
    let id = worker.request_of("a");
    worker.pass_ms(30);
    worker.vm.host(|host| host.now_ns -= 3_600_000_000_000);
    worker.pass_ms(10);
    assert_eq!(worker.status(id), 0);
    worker.pass_ms(30);
    assert_eq!(worker.status(id), 503, "a tick later than without, not an hour");
}

pub(crate) fn gauges_come_back_to_nothing<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let gauges = |worker: &mut Worker<V>| {
        worker.vm.host(|host| (host.metric("weir.store.connected"), host.metric("weir.store.pending")))
    };
    for i in 0..7 {
        worker.request_of(&format!("k{i}"));
    }
    worker.pass_ms(20);
    assert_eq!(gauges(&mut worker), (1, 7));
    worker.receive(&allowed().repeat(7));
    worker.pass_ms(20);
    assert_eq!(gauges(&mut worker), (1, 0));
    worker.request_of("a");
    worker.close();
    worker.pass_ms(20);
    assert_eq!(gauges(&mut worker), (0, 0));
    let counted = ["requests", "failures", "reconnects", "timeouts"]
        .map(|name| worker.vm.host(|host| host.metric(&format!("weir.store.{name}"))));
    assert_eq!(counted, [9, 1, 0, 0]);
}

/// A gRPC frame.
fn frame(message: &[u8]) -> Vec<u8> {
    let size = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0], &size[..], message].concat()
}

pub(crate) fn the_bridge_takes_frames_off_and_puts_them_on<V: Vm>() {
    let (mut worker, configured) = Worker::<V>::configure(Host::new(&Arc::default(), "weir.bridge", ""));
    assert!(configured, "it needs no configuration");
    let framed = [frame(b"*1\r\n$4\r\nPING\r\n"), frame(b""), frame(&[b'x'; 300]), frame(b"end")].concat();
    let plain = [b"*1\r\n$4\r\nPING\r\n".as_slice(), &[b'x'; 300], b"end"].concat();
    for cut in (1..framed.len()).step_by(7).chain([1, 2, 3, 4, 5, framed.len()]) {
        let id = worker.request(&[]);
        let mut out = Vec::new();
        for chunk in framed.chunks(cut) {
            worker.vm.host(|host| host.requests.get_mut(&id).unwrap().body = chunk.to_vec());
            worker.enter("proxy_on_request_body", id, &[u32::try_from(chunk.len()).unwrap(), 0]);
            out.extend(worker.vm.host(|host| host.requests[&id].body.clone()));
        }
        assert_eq!(out, plain, "cut every {cut} bytes");
        worker.vm.host(|host| host.requests.get_mut(&id).unwrap().body = b":1\r\n".to_vec());
        worker.enter("proxy_on_response_body", id, &[4, 0]);
        assert_eq!(worker.vm.host(|host| host.requests[&id].body.clone()), frame(b":1\r\n"));
        worker.gone(id);
    }
}

#[derive(Clone, Debug)]
enum Event {
    Request,
    /// One of the requests under way goes: at once, or in the VM first.
    Gone(prop::sample::Index),
    OverInVm(prop::sample::Index),
    /// So many of these replies come in one message.
    Replies(usize, Vec<u8>),
    Close,
    Pass(u64),
    NoStreams(u32),
}

pub(crate) fn every_request_ends_once_whatever_happens<V: Vm>() {
    let replies = prop::sample::select(vec![
        GREETED.to_vec(),
        allowed(),
        denied(),
        NOSCRIPT.to_vec(),
        b"-ERR x\r\n".to_vec(),
        b"?".to_vec(),
    ]);
    let event = prop_oneof![
        12 => Just(Event::Request),
        1 => any::<prop::sample::Index>().prop_map(Event::Gone),
        1 => any::<prop::sample::Index>().prop_map(Event::OverInVm),
        6 => (1_usize..60, replies).prop_map(|(count, reply)| Event::Replies(count, reply)),
        1 => Just(Event::Close),
        3 => (0_u64..120).prop_map(Event::Pass),
        1 => (0_u32..4).prop_map(Event::NoStreams),
    ];
    let mut runner = TestRunner::default();
    let mut worker = Worker::<V>::start(&with_redis(r#","on_error":"deny""#));
    let (mut under_way, mut zombies) = (Vec::new(), Vec::new());
    let events = prop::collection::vec(event, 3000).new_tree(&mut runner).unwrap().current();
    for event in events {
        let has_stream = worker.vm.host(|host| host.stream.is_some());
        match event {
            Event::Request => under_way.push(worker.request_of("a")),
            Event::Gone(which) if !under_way.is_empty() => {
                let id = under_way.swap_remove(which.index(under_way.len()));
                worker.gone(id);
            }
            Event::OverInVm(which) if !under_way.is_empty() => {
                let id = under_way.swap_remove(which.index(under_way.len()));
                let waited = matches!(worker.outcome(id), Outcome::Waiting);
                worker.over_in_vm(id);
                zombies.push((id, waited));
            }
            Event::Replies(count, reply) if has_stream => worker.receive(&reply.repeat(count)),
            Event::Close if has_stream => worker.close(),
            Event::Pass(ms) => worker.pass_ms(ms),
            Event::NoStreams(times) => worker.vm.host(|host| host.faults.open_stream = times),
            _ => {}
        }
    }
    worker.pass_ms(100);
    for id in &under_way {
        assert_ne!(worker.status(*id), 0, "{id} waits for ever");
    }
    for (id, waited) in zombies {
        assert_eq!(matches!(worker.outcome(id), Outcome::Waiting), waited, "{id} was acted for when it was over");
    }
    assert!(worker.most_at_once <= 32);
    assert!(under_way.len() > 1000, "{} requests", under_way.len());
}
